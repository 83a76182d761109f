"""Collectives of kernels, on several communicators, compared with mpi4py's on host arrays."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, end, every_shape, pattern, run, same
from mpi4py import MPI
from script import Script

import gmpi
from gmpi.contract import constants

OPS = constants.OPERATIONS_REDUCE
LOGICAL = ("LAND", "LOR", "LXOR")
BITWISE = ("BAND", "BOR", "BXOR")
LOCATIONS = ("MINLOC", "MAXLOC")


def legal(name: str, datatype: MPI.Datatype, dtype: np.dtype) -> list[int]:
    """Reductions that MPI defines for a datatype (MPI 4.1 section 6.9.2)."""
    if name in ("CHAR", "WCHAR"):
        return []
    found = []
    for handle, (op, _) in enumerate(OPS):
        if op in LOCATIONS or dtype.fields is not None:
            allowed = op in LOCATIONS and dtype.fields is not None
        elif name == "BYTE":
            allowed = op in BITWISE
        elif dtype.kind == "b":
            allowed = op in LOGICAL
        elif dtype.kind == "c":
            allowed = op in ("SUM", "PROD")
        elif dtype.kind == "f":
            allowed = op not in LOGICAL + BITWISE
        else:
            allowed = True
        if allowed:
            found.append(handle)
    return found


def values(dtype: np.dtype, count: int, rank: int) -> np.ndarray:
    """Small numbers, so that no order of a floating-point sum matters."""
    k = np.arange(count) * 5 + 3 * rank
    if dtype.fields is not None:  # each value on several ranks, with other indices
        pairs = np.zeros(count, dtype)
        pairs["value"], pairs["index"] = k % 2, 100 - rank * count + k
        return pairs
    if dtype.kind == "b":
        return (k % 3 == 0).astype(dtype)
    if dtype.kind == "c":
        return ((k % 5) + 1j * (k % 3)).astype(dtype)
    return (k % 4 + 1).astype(dtype)


def all_reductions(g: gmpi.Context) -> None:
    """Each datatype with each reduction that is legal for it: in the record, and staged."""
    s = Script(threads=32 if every_shape() else 8)
    counts = (1, 30) if every_shape() else (30,)
    checks = []
    for number, (name, datatype, dtype) in enumerate(constants.DATATYPES):
        handle = next(h for h in constants.DATATYPE_NAMES if h & 0xFF == number)
        for op in legal(name, datatype, dtype):
            for count in counts if op != gmpi.SUM else (1, 9, 30, 200):
                mine = values(dtype, count, RANK)
                room = s.room(mine.nbytes)
                call = s.allreduce(s.data(mine), room, count, handle, op)
                expected = np.empty_like(mine)
                WORLD.Allreduce([mine, count, datatype], [expected, count, datatype], OPS[op][1])
                checks.append((name, OPS[op][0], count, call, room, expected))
    s.run(g)
    for name, op, count, call, room, expected in checks:
        what = f"{op} of {count} {name}"
        assert call.error == gmpi.SUCCESS, (what, call.error)
        # Padding of long double is nobody's business.
        same(s.read(room, expected.dtype), expected, what)
    assert len(checks) > (300 if every_shape() else 150)


def own_operations(g: gmpi.Context) -> None:
    """Operations of the user's: one that does not commute, and one of pairs with gaps."""
    pair = constants.DATATYPES[gmpi.DOUBLE_INT & 0xFF][2]

    def compose(received: Any, result: Any, datatype: MPI.Datatype) -> None:
        """Of x -> a x + b modulo 2**16, a in the upper half: the order makes a difference."""
        first, then = (np.frombuffer(buffer, np.int64) for buffer in (received, result))
        factor, shift = then >> 32, then & 0xFFFF
        shift = (factor * (first & 0xFFFF) + shift) & 0xFFFF
        then[:] = (factor * (first >> 32) & 0xFFFF) << 32 | shift

    def total(received: Any, result: Any, datatype: MPI.Datatype) -> None:
        theirs, ours = (np.frombuffer(buffer, pair) for buffer in (received, result))
        ours["value"] += theirs["value"]
        ours["index"] += theirs["index"]

    composed = MPI.Op.Create(compose, commute=False)
    added = MPI.Op.Create(total, commute=True)
    number, of_pairs = g.op(composed), g.op(added)
    assert (number, gmpi.SUM) == (g.op(composed), g.op(MPI.SUM)), "the same one has one number"
    s = Script()
    checks = []
    for n in (1, 30, g.layout.eager_bytes // 8 + 100):
        mine = (np.arange(n, dtype=np.int64) % 7 + 2 * RANK + 3) << 32 | RANK + 5
        for op, handle, source, call in (
            (composed, gmpi.INT64_T, mine, number),
            (added, gmpi.DOUBLE_INT, values(pair, n, RANK), of_pairs),
        ):  # fmt: skip
            expected, room = np.empty_like(source), s.room(source.nbytes)
            datatype = constants.DATATYPES[handle & 0xFF][1]
            WORLD.Allreduce([source, n, datatype], [expected, n, datatype], op)
            done = s.allreduce(s.data(source), room, n, handle, call)
            checks.append((done, room, expected))
    s.run(g)
    for done, room, expected in checks:
        assert done.error == gmpi.SUCCESS, done.error
        same(s.read(room, expected.dtype), expected, f"{len(expected)} elements")
    source, result = values(pair, 9, RANK), np.zeros(9, pair)
    for op, mpi_op in ((gmpi.MAXLOC, MPI.MAXLOC), (MPI.MINLOC, MPI.MINLOC), (of_pairs, added)):
        expected = np.zeros(9, pair)
        WORLD.Allreduce([source, 9, MPI.DOUBLE_INT], [expected, 9, MPI.DOUBLE_INT], mpi_op)
        g.host.Allreduce(source, result, op)
        same(result, expected, f"{op} of the host")


def reductions_of_all_sizes(g: gmpi.Context) -> None:
    """Counts around every limit, with a result buffer apart, IN_PLACE, and not blocking."""
    eager, chunk = g.layout.eager_bytes, g.layout.chunk_bytes
    limits = [0, 8, 136, 144, 152, eager - 8, eager, eager + 8, eager + 20000]
    limits += [4 * chunk + 8, 6 * chunk] if chunk == 512 else []
    for scope, threads in (("block", 64), ("warp", 32), ("block", 8)):
        s = Script(scope, threads)
        checks = []
        for k, nbytes in enumerate(limits):
            n = nbytes // 8
            mine = np.arange(n, dtype=np.int64) * (RANK + 1) + k
            expected = sum(np.arange(n, dtype=np.int64) * (r + 1) + k for r in range(SIZE))
            apart, place, later = s.room(8 * n), s.data(mine), s.room(8 * n)
            checks.append((n, apart, expected, s.allreduce(s.data(mine), apart, n, gmpi.LONG, 0)))
            checks.append((n, place, expected, s.in_place(place, n, gmpi.LONG, gmpi.SUM)))
            request = s.iallreduce(s.data(mine), later, n, gmpi.LONG, gmpi.SUM)
            checks.append((n, later, expected, s.wait(request)))
        s.run(g)
        for n, room, expected, call in checks:
            assert call.error == gmpi.SUCCESS, (n, call.error)
            s.expect(room, expected, f"{n} longs, {scope} of {threads}")


def overlapping_reductions(g: gmpi.Context) -> None:
    """Several Iallreduce at once, long and short ones mixed, with messages in between."""
    eager = g.layout.eager_bytes
    s = Script()
    requests, checks = [], []
    # 451: more chunks than there are buffers, packed from one array and unpacked to another
    for k, n in enumerate([1, eager // 8 + 100, 18, 3, eager // 8 + 1, 200, 1, 451]):
        mine = np.full(n, RANK + k, np.int64)
        room = s.room(8 * n)
        requests.append(s.iallreduce(s.data(mine), room, n, gmpi.INT64_T, gmpi.SUM))
        checks.append((room, np.full(n, sum(r + k for r in range(SIZE)), np.int64)))
    room = s.room(300)
    requests.append(s.irecv(room, 300, gmpi.BYTE, (RANK - 1) % SIZE, 9))
    requests.append(s.isend(s.data(pattern(300, RANK)), 300, gmpi.BYTE, (RANK + 1) % SIZE, 9))
    done = s.waitall(requests)
    s.barrier()
    s.run(g)
    assert done.error == gmpi.SUCCESS
    for b, expected in checks:
        s.expect(b, expected)
    s.expect(room, pattern(300, (RANK - 1) % SIZE))


def broadcasts(g: gmpi.Context) -> None:
    """From every root, in every size."""
    eager, chunk = g.layout.eager_bytes, g.layout.chunk_bytes
    sizes = [0, 1, 8, 144, 145, eager, eager + 1] + ([5 * chunk + 3] if chunk == 512 else [40000])
    for scope, threads in (("block", 33), ("warp", 32)):
        s = Script(scope, threads)
        checks = []
        for root in range(SIZE):
            for n in sizes:
                content = pattern(n, root + n)
                b = s.data(content) if root == RANK else s.room(n)
                checks.append((n, root, b, content, s.bcast(b, n, gmpi.BYTE, root)))
        s.run(g)
        for n, root, b, content, call in checks:
            assert call.error == gmpi.SUCCESS, (n, root, call.error)
            s.expect(b, content, f"{n} bytes from {root}")


def barriers(g: gmpi.Context) -> None:
    """Nobody leaves before the last one has come."""
    late_ns = 30_000_000
    s = Script()
    for _ in range(5):
        s.barrier()
    if RANK == SIZE - 1:
        s.pause(late_ns)
    s.barrier()
    WORLD.Barrier()
    began = time.monotonic_ns()
    s.run(g)
    assert time.monotonic_ns() - began >= late_ns
    assert all(call.error == gmpi.SUCCESS for call in s.calls)


def synchronize_waits(g: gmpi.Context) -> None:
    """GMPI_Synchronize ends when every request that was opened before it is complete."""
    s = Script()
    n = g.layout.eager_bytes // 2
    room = s.room(n)
    r = s.irecv(room, n, gmpi.BYTE, (RANK - 1) % SIZE, 3)
    s.isend(s.data(pattern(n, RANK)), n, gmpi.BYTE, (RANK + 1) % SIZE, 3)
    s.synchronize()
    tested = s.test(r)
    s.waitall([Ref(1)])
    s.run(g)
    assert tested.flag == 1 and tested.status.nbytes == n
    s.expect(room, pattern(n, (RANK - 1) % SIZE))


class Ref:
    """Names a handle of a script by its number."""

    def __init__(self, handle: int) -> None:
        self.handle = handle


def several_communicators(g: gmpi.Context) -> None:
    """Ranks, sizes and matching are those of the communicator; user traffic stays apart."""
    reverse = WORLD.Split(0, SIZE - RANK)
    half = WORLD.Split(RANK % 2, RANK)
    same_group = WORLD.Dup()
    comms: list[tuple[int, Any]] = [(gmpi.COMM_WORLD, WORLD)]
    comms += [(g.comm(c), c) for c in (reverse, half, same_group)]
    assert [handle for handle, _ in comms] == [0, 1, 2, 3]
    n = 40
    s = Script()
    checks = []
    for handle, comm in comms:
        who = s.comm_rank(handle)
        before = (comm.rank - 1) % comm.size
        room = s.room(n)
        r = s.irecv(room, n, gmpi.BYTE, before, 7, handle)
        checks.append((handle, comm, who, before, room, r))
        mine = np.full(3, comm.rank + 1.5)
        total = s.room(24)
        s.allreduce(s.data(mine), total, 3, gmpi.DOUBLE, gmpi.SUM, handle)
        b = s.data(pattern(50, handle)) if comm.rank == comm.size - 1 else s.room(50)
        s.bcast(b, 50, gmpi.BYTE, comm.size - 1, handle)
        s.barrier(handle)
        checks.append((handle, comm, total, b))
    for handle, comm in reversed(comms):  # the same peer and tag on each: only comm tells apart
        content = s.data(pattern(n, 10 * handle + comm.rank))
        s.send(content, n, gmpi.BYTE, (comm.rank + 1) % comm.size, 7, handle)
    waits = {c[0]: s.wait(c[5]) for c in checks if len(c) == 6}
    s.run(g)
    for check in checks:
        handle, comm = check[:2]
        if len(check) == 6:
            _, _, who, before, room, _ = check
            assert (who.error, who.flag) == (comm.rank, comm.size), handle
            assert waits[handle].status == (gmpi.SUCCESS, before, 7, n, n), handle
            s.expect(room, pattern(n, 10 * handle + before), f"communicator {handle}")
        else:
            _, _, total, b = check
            s.expect(total, np.full(3, sum(r + 1.5 for r in range(comm.size))))
            s.expect(b, pattern(50, handle))
    bad = Script()
    unknown = [bad.comm_rank(handle) for handle in (4, -1, 255, 256, 1 << 40)]
    bad.run(g)
    assert [(c.error, c.flag) for c in unknown] == [(-1, 0)] * len(unknown)
    for comm in (reverse, half, same_group):
        comm.Free()


SCENARIOS = [
    all_reductions, own_operations, reductions_of_all_sizes, overlapping_reductions, broadcasts,
    barriers, synchronize_waits, several_communicators,
]  # fmt: skip


def main() -> None:
    settings: dict[str, Any] = {}
    if "--small" in sys.argv:
        settings = {"eager_bytes": 256, "chunk_bytes": 512, "ring_slots": 64}
    if "--direct" in sys.argv:
        settings["wildcards"] = False
    with gmpi.Context(WORLD, **settings) as g:
        run(SCENARIOS, g)
        assert g.pending == []
    end()


main()
