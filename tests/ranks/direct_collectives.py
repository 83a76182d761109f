"""Direct collectives: what is particular to them. ``collectives --direct`` has the rest."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pipeline_endings
import pipelines
from common import RANK, SIZE, WORLD, barrier, end, every_shape, pattern, raises, run
from mpi4py import MPI
from numba import cuda
from script import Call, Script

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Barrier, GMPI_Bcast
from gmpi.contract.collectives import AMOUNT_BITS, CHUNK, ENTERED, LONG, NUMBER, ROOM
from gmpi.contract.wire import COLLECTIVE_ROW_BYTES, DEVICE_COLLECTIVES
from gmpi.memory import collectives

#: Bytes of a chunk: few, since the simulator is slow.
TEST_CHUNK = 96 << 10
collectives.CHUNKS = (TEST_CHUNK,)  # type: ignore[assignment]
NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def _sum(s: Script, n: int, comm: int = 0) -> tuple[Call, Any]:
    room = s.room(8 * n)
    mine = np.arange(n, dtype=np.int64) * (RANK + 1)
    return s.allreduce(s.data(mine), room, n, gmpi.INT64_T, gmpi.SUM, comm), room


def _total(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int64) * (SIZE * (SIZE + 1) // 2)


def no_record_for_a_collective(g: gmpi.Context) -> None:
    """The proxy never hears of one, unless a rank waits long."""
    records: list[int] = []
    # On a machine with fewer cores than ranks one may be late again and again.
    while len(records) < 2 or (len(records) < 20 and WORLD.allreduce(0 not in records)):
        s = Script()
        rooms = []
        for _ in range(3):
            s.barrier()
            rooms.append(_sum(s, 3)[1])
            s.bcast(s.data(pattern(9, 1)) if RANK == 0 else s.room(9), 9, gmpi.BYTE, 0)
        before = g._state.taken
        s.run(g)
        records.append(g._state.taken - before)
        for room in rooms:
            s.expect(room, _total(3))
    assert min(records) == 0, f"records: {records}"


def sizes_around_a_round(g: gmpi.Context) -> None:
    """None, one, and several rounds, and several chunks; of the same bits on all ranks, in the
    order of ranks; by a block, and by all blocks of a grid on some ranks, or on all."""
    assert g._memory.read_device(DEVICE_COLLECTIVES + CHUNK, 8).view(np.int64)[0] == TEST_CHUNK
    sizes = [0, 8, ROOM, ROOM + 8, LONG + 16]
    if every_shape():
        sizes += [ROOM - 8, 2 * ROOM, TEST_CHUNK + LONG + 8]
    check_sizes(g, sizes, Script("block", 64))
    mixed = [ROOM + 8, TEST_CHUNK + 32]
    check_sizes(g, mixed, Script("block", 64) if RANK == 1 else Script("grid", 32, blocks=3))
    check_sizes(g, [8, LONG + 24], Script("grid", 32, blocks=2))


def check_sizes(g: gmpi.Context, sizes: list[int], s: Script) -> None:
    checks = []
    everybody = [np.random.default_rng(r).normal(size=max(sizes) // 8) for r in range(SIZE)]
    for nbytes in sizes:
        n = nbytes // 8
        expected = everybody[0][:n].copy()
        for other in everybody[1:]:
            expected += other[:n]
        room = s.data(everybody[RANK][:n])
        checks.append((nbytes, room, expected, s.in_place(room, n, gmpi.DOUBLE, gmpi.SUM)))
        content = pattern(nbytes + 3, nbytes)
        for root in {0, SIZE - 1}:
            b = s.data(content) if root == RANK else s.room(nbytes + 3)
            checks.append((nbytes + 3, b, content, s.bcast(b, nbytes + 3, gmpi.BYTE, root)))
    s.run(g)
    for nbytes, room, expected, call in checks:
        assert call.error == gmpi.SUCCESS, (nbytes, call.error)
        s.expect(room, expected, f"{nbytes} bytes")


# wide: a kernel
@cuda.jit
def in_pieces(ctx, whole, matrix, line, lines, column, count, out):
    """Rank by rank with other kinds of buffers, which must not matter for the road."""
    if count == 0:
        out[0] = GMPI_Allreduce(ctx, whole, line, line.size, gmpi.DOUBLE, gmpi.SUM, 0)
        out[1] = GMPI_Bcast(ctx, lines, lines.size, gmpi.DOUBLE, 0, 0)
        out[2] = GMPI_Bcast(ctx, whole, whole.size, gmpi.DOUBLE, SIZE - 1, 0)
    else:
        out[0] = GMPI_Allreduce(ctx, matrix[:, 1], line, line.size, gmpi.DOUBLE, gmpi.SUM, 0)
        out[1] = GMPI_Bcast(ctx, lines[0::2], count, gmpi.DOUBLE, 0, 0)
        out[2] = GMPI_Bcast(ctx, matrix, 1, column, SIZE - 1, 0)


def buffers_in_pieces(g: gmpi.Context) -> None:
    """Strided on one rank, contiguous on the other; a derived datatype against doubles."""
    for n in (3, 200, ROOM // 8 + 5, LONG // 8 + 5) if every_shape() else (20,):
        strided = RANK % 2 == 1
        column = g.commit(MPI.DOUBLE.Create_vector(n, 1, 4))
        mine = np.arange(n) + 10.0 * RANK
        matrix = np.zeros((n, 4))
        matrix[:, 1] = matrix[:, 0] = mine
        lines = np.arange(n) + 0.5 if RANK == 0 else np.zeros(2 * n if strided else n)
        devices = [cuda.to_device(a) for a in (mine, matrix, np.zeros(n), lines)]
        out = cuda.to_device(np.full(3, -1, np.int64))
        in_pieces[1, 40](g.device, *devices, column, n if strided else 0, out)
        g.synchronize()
        whole, matrix, line, lines = (a.copy_to_host() for a in devices)
        assert (out.copy_to_host() == gmpi.SUCCESS).all(), out.copy_to_host()
        total = SIZE * np.arange(n) + 10.0 * sum(range(SIZE))
        assert (line == total).all(), (n, line)
        got = lines[0::2] if strided else lines
        assert (got == np.arange(n) + 0.5).all(), (n, got)
        got = matrix[:, 0] if strided else whole
        assert (got == np.arange(n) + 10.0 * (SIZE - 1)).all(), (n, got)
        g.free(column)


# wide: a kernel
@cuda.jit
def at_once(ctx, comms, values, rounds, wrong, size):
    """Each block on a communicator of its own."""
    comm = comms[cuda.blockIdx.x]
    mine = values[cuda.blockIdx.x]
    for i in range(rounds):
        if cuda.threadIdx.x < 5:
            mine[cuda.threadIdx.x] = i + cuda.threadIdx.x
        error = GMPI_Allreduce(ctx, gmpi.IN_PLACE, mine, 5, gmpi.INT64_T, gmpi.SUM, comm)
        if i % 3 == 0:
            error += GMPI_Barrier(ctx, comm)
        if error != gmpi.SUCCESS:
            wrong[0] = 1
        if cuda.threadIdx.x < 5:
            if mine[cuda.threadIdx.x] != size * (i + cuda.threadIdx.x):
                wrong[0] = 2
        if i % 2 == 0:
            GMPI_Bcast(ctx, mine, 5, gmpi.INT64_T, i // 2 % size, comm)
        cuda.syncthreads()


def no_room_for_chunks(g: gmpi.Context) -> None:
    """Then long ones go in rounds."""
    duplicate = WORLD.Dup()
    collectives.CHUNKS = ()  # type: ignore[assignment]
    comm = g.comm(duplicate, wildcards=False)
    collectives.CHUNKS = (TEST_CHUNK,)  # type: ignore[assignment]
    n = LONG // 8 + 3
    s = Script("grid", 32, blocks=2)
    call, room = _sum(s, n, comm)
    s.run(g)
    assert call.error == gmpi.SUCCESS
    s.expect(room, _total(n))
    g.free(comm)
    duplicate.Free()


def communicators_at_once(g: gmpi.Context) -> None:
    """By blocks that know nothing of each other; ranks in another order."""
    reverse = WORLD.Split(0, SIZE - RANK)
    handles = [0, g.comm(reverse, wildcards=False), g.comm(WORLD)]
    areas = g._communicators.areas
    assert [h in areas for h in handles] == [True, True, False]
    comms = cuda.to_device(np.array(handles))
    values = cuda.to_device(np.zeros((3, 5), np.int64))
    wrong = cuda.to_device(np.zeros(1, np.int64))
    at_once[3, 32](g.device, comms, values, 12, wrong, SIZE)
    g.synchronize()
    assert wrong.copy_to_host()[0] == 0, wrong.copy_to_host()
    free = list(g._memory.long_pieces._free)
    g.free(handles[1])
    assert g._memory.long_pieces._free != free, "the area was not given back"
    g.free(handles[2])
    reverse.Free()


def both_roads_in_turn(g: gmpi.Context) -> None:
    """What the GPU cannot reduce, what does not block, and messages, between direct ones."""
    s = Script()
    checks = []
    for k in range(3):
        call, room = _sum(s, 4)
        checks.append((call, room, _total(4)))
        later = s.room(24)
        request = s.iallreduce(s.data(np.full(3, RANK + k)), later, 3, gmpi.INT64_T, gmpi.SUM)
        call, room = _sum(s, 70)
        checks.append((call, room, _total(70)))
        long = s.room(16)
        wide = np.full(1, RANK + 0.25, np.longdouble)
        call = s.allreduce(s.data(wide), long, 1, gmpi.LONG_DOUBLE, gmpi.SUM)
        message = s.room(40)
        receive = s.irecv(message, 40, gmpi.BYTE, PREVIOUS, k)
        s.barrier()
        s.send(s.data(pattern(40, RANK + k)), 40, gmpi.BYTE, NEXT, k)
        s.wait(receive)
        done = s.wait(request)
        checks.append((done, later, np.full(3, sum(r + k for r in range(SIZE)))))
        checks.append((call, message, pattern(40, PREVIOUS + k)))
    s.run(g)
    for call, room, expected in checks:
        assert call.error == gmpi.SUCCESS, call.error
        s.expect(room, expected)


def numbers_wrap(g: gmpi.Context) -> None:
    """Those in packets repeat, and nothing of a former turn passes for new."""
    row = DEVICE_COLLECTIVES
    for before in ((1 << 30) - 2, (1 << 31) - 2, (1 << 40) - 1):
        barrier()
        assert ENTERED == NUMBER + 8 and COLLECTIVE_ROW_BYTES > ENTERED
        g._memory.write_device(row + NUMBER, np.array([before, before]))
        barrier()
        s = Script()
        checks = []
        for k in range(4):
            call, room = _sum(s, 5 + 20 * (k % 2))
            checks.append((call, room))
            s.bcast(s.data(pattern(30, k)) if k % SIZE == RANK else s.room(30), 30, gmpi.BYTE,
                    k % SIZE)  # fmt: skip
        s.run(g)
        for call, room in checks:
            assert call.error == gmpi.SUCCESS
            s.expect(room, _total(room.nbytes // 8))


def bad_arguments(g: gmpi.Context) -> None:
    """Are refused as on the proxied road, on each rank by itself, and nothing is counted."""
    s = Script()
    b = s.room(64)
    wrong = [
        (s.in_place(b, -1, gmpi.DOUBLE, gmpi.SUM), gmpi.ERR_COUNT),
        (s.in_place(b, 1, gmpi.DOUBLE, 77), gmpi.ERR_OP),
        (s.in_place(b, 1, gmpi.DOUBLE, -1), gmpi.ERR_OP),
        (s.in_place(b, 1, 12345, gmpi.SUM), gmpi.ERR_TYPE),
        (s.in_place(b, 9, gmpi.DOUBLE, gmpi.SUM), gmpi.ERR_BUFFER),
        (s.in_place(b, 1, gmpi.DOUBLE, gmpi.SUM, 200), gmpi.ERR_COMM),
        (s.bcast(b, 1, gmpi.DOUBLE, SIZE), gmpi.ERR_ROOT),
        (s.bcast(b, 1, gmpi.DOUBLE, -1), gmpi.ERR_ROOT),
        (s.bcast(b, -1, gmpi.DOUBLE, 0), gmpi.ERR_COUNT),
        (s.barrier(-1), gmpi.ERR_COMM),
    ]
    good, room = _sum(s, 2)
    s.launch(g)
    raises(gmpi.ArgumentError, "count is -1", lambda: s.collect(g))
    s.collect(g)
    for call, error in wrong:
        assert call.error == error, (call.row, call.error, error)
    assert good.error == gmpi.SUCCESS
    s.expect(room, _total(2))


def calls_that_differ(g: gmpi.Context) -> None:
    """End with an error that names both, and later ones on the communicator are refused."""
    if SIZE == 1:
        return
    first = RANK == 0

    def sums(s: Script, n: int, op: int) -> Call:
        return s.allreduce(s.data(np.zeros(n)), s.room(8 * n), n, gmpi.DOUBLE, op, comm)

    def bytes_of(s: Script, n: int) -> Call:
        data = s.data(np.zeros(n, np.uint8))
        return s.allreduce(data, s.room(n), n, gmpi.UINT8_T, gmpi.MAX, comm)

    def long_bcast(s: Script) -> Call:
        return s.bcast(s.room(many), few if first else many, gmpi.BYTE, SIZE - 1, comm)

    few, many = 70000, 70000 + (1 << AMOUNT_BITS)  # their signatures are the same
    cases = [
        (lambda s: bytes_of(s, few if first else many), f"of {few} UINT8_T", f"of {many} UINT8_T"),
        (long_bcast, f"GMPI_Bcast of {few} bytes", f"GMPI_Bcast of {many} bytes"),
        (lambda s: sums(s, 10 if first else 11, gmpi.SUM), "of 10 DOUBLE", "of 11 DOUBLE"),
        (lambda s: sums(s, 1, gmpi.MAX if first else gmpi.MIN), "MAX", "MIN"),
        (lambda s: s.barrier(comm) if first else sums(s, 1, gmpi.SUM), "GMPI_Barrier", "SUM of 1"),
        (
            lambda s: s.bcast(s.room(8), 4 if first else 8, gmpi.BYTE, SIZE - 1, comm),
            "of 4 bytes", "of 8 bytes",
        ),
    ]  # fmt: skip
    grid = [(*case, Script("grid", 32, blocks=2)) for case in cases[:2]]
    for make, of_first, of_others, s in [*((*case, Script()) for case in cases), *grid]:
        other = WORLD.Dup()
        comm = g.comm(other, wildcards=False)
        call = make(s)
        later = s.barrier(comm)
        s.launch(g)
        said = ""
        try:
            s.collect(g)
        except gmpi.GMPIError as exc:
            said = str(exc)
        s.read_back()
        assert (call.error, later.error) in (
            (gmpi.ERR_OTHER, gmpi.ERR_COMM), (gmpi.SUCCESS, gmpi.ERR_OTHER),
        ), (of_first, call.error, later.error, said)  # fmt: skip
        assert of_first in said and of_others in said, said
        other.Free()
        barrier()


def a_short_call_and_a_long_one(g: gmpi.Context) -> None:
    """With the same signature: the long one sees that the other has brought no amount."""
    few, many = 100, 100 + (1 << AMOUNT_BITS)
    if SIZE == 1:
        return
    other = WORLD.Dup()
    comm = g.comm(other, wildcards=False)
    s = Script()
    call = s.bcast(s.data(pattern(many, 1)), few if RANK == 0 else many, gmpi.BYTE, 0, comm)
    s.launch(g)
    if RANK == 0:
        s.collect(g)
        assert call.error == gmpi.SUCCESS
    else:
        here = f"GMPI_Bcast of {many} bytes from root 0 here"
        there = f"GMPI_Bcast of {few} bytes from root 0 on rank 0"
        raises(gmpi.ArgumentError, f"{here} and {there}", lambda: s.collect(g))
    other.Free()
    barrier()


SCENARIOS = [
    no_record_for_a_collective, sizes_around_a_round, buffers_in_pieces, no_room_for_chunks,
    communicators_at_once,
    both_roads_in_turn, numbers_wrap, bad_arguments, calls_that_differ, a_short_call_and_a_long_one,
    *pipelines.SCENARIOS,
]  # fmt: skip


def aborted() -> None:
    """Rank 0 waits for others that never come: an abort ends its call, and all that follow."""
    if SIZE == 1:
        return
    makes: list[Callable[[Script], Call]] = [
        lambda s: s.barrier(),
        lambda s: s.bcast(s.room(ROOM + 8), ROOM + 8, gmpi.BYTE, 1),
        lambda s: _sum(s, ROOM // 8 + 1)[0],
        lambda s: _sum(s, LONG // 8 + 1)[0],
    ]
    for make in makes:
        with contextlib.suppress(gmpi.AbortedError), gmpi.Context(WORLD, wildcards=False) as g:
            s = Script()
            if RANK == 0:
                call = make(s)
                later = s.barrier()
                threading.Timer(0.3, g.abort).start()  # a launch in the simulator waits
                s.launch(g)
                raises(gmpi.AbortedError, "aborted", g.synchronize)
                s.read_back()
                assert call.error == later.error == gmpi.GMPI_ERR_ABORTED, call.error
            barrier()
            if RANK != 0:
                g.abort()
        barrier()


def main() -> None:
    with gmpi.Context(WORLD, wildcards=False) as g:
        run(SCENARIOS, g)
        assert g.pending == []
    if not any(word.isidentifier() for word in sys.argv[1:]):
        run([aborted, *pipeline_endings.ENDINGS])
    end()


main()
