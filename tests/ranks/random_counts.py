"""Random programs of collectives with counts for each rank, and of those among neighbours, of
kernels and hosts, against mpi4py.

    mpiexec -n 3 python tests/ranks/random_counts.py --seeds=0:20

All ranks make a program from the same seed: calls of every operation in WITH_TABLES of
``gmpi/contract/moves.py``, blocking or not, with and without IN_PLACE, from every root, of
predefined and derived datatypes, with counts of zero, gaps and blocks in any order, on several
communicators, and on topologies of all kinds. Each rank carries it out in a kernel, of either
scope, or by its host; with ``--narrow``, without large slots; with ``--direct``, all of them in
kernels, and calls that block and do not reduce on the direct road, with ``--long`` also of blocks
that take several rounds of it. What every rank finds in its buffers is compared with what mpi4py
leaves in them.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from common import PATIENCE_S, RANK, SIZE, WORLD, address_of, end, pattern, same, take_large_slots
from counts_kernel import KERNELS, MOST, NOT_BLOCKING, ROWS, WAIT
from mpi4py import MPI
from numba import cuda
from topologies import everything, told, units_among

import gmpi
from device_lib.simulator import lanes
from gmpi.contract import moves
from gmpi.contract.channels import ROOM, WIDE_ROOM
from gmpi.contract.constants import DATATYPES, OPERATIONS_REDUCE

POISON = 0xA5
DIRECT = "--direct" in sys.argv
LONG = "--long" in sys.argv
REDUCED = [gmpi.INT32_T, gmpi.DOUBLE, gmpi.UINT16_T]


class Type(NamedTuple):
    mpi: Any
    handle: int
    units: int  # INT32 elements in it


class Side(NamedTuple):
    """One buffer of a call.

    Attributes:
        content: what it holds before; None: IN_PLACE.
        counts, displs, types: of its blocks; displacements as MPI takes them.
    """

    content: np.ndarray | None
    counts: list[int]
    displs: list[int]
    types: list[Type]


class Call(NamedTuple):
    """One call, as this rank makes it."""

    row: moves.Row
    blocking: bool
    send: Side
    recv: Side
    reduction: int
    root: int
    comm: int
    waits_at: int  # in the program, for one that does not block
    shared: bool  # the arrays are in shared memory


def types_of(g: gmpi.Context) -> list[Type]:
    """INT32, and datatypes of three of them."""
    found = [Type(MPI.INT32_T, gmpi.INT32_T, 1)]
    for datatype in (
        MPI.INT32_T.Create_vector(3, 1, 2).Create_resized(0, 24),
        MPI.INT32_T.Create_indexed([2, 1], [1, 4]).Create_resized(0, 20),
    ):
        found.append(Type(datatype.Commit(), g.commit(datatype), 3))
    return found


def _extent(kind: Type) -> int:
    return int(kind.mpi.Get_extent()[1])


def lay_out(
    rng: np.random.Generator,
    units: list[int],
    kinds: list[Type],
    typed: bool,
    fill: int,
    regular: bool = False,
) -> Side:
    """A buffer with blocks of so many INT32 each, in any order, mostly with gaps.

    Args:
        regular: one block after the other, as where there is one count for all.
    """
    counts = [n // kind.units for n, kind in zip(units, kinds)]
    step = 1 if typed else _extent(kinds[0]) if kinds else 1
    if regular:
        content = np.resize(pattern(1 << 12, fill), sum(counts) * step + 13)
        return Side(content, counts, np.cumsum([0, *counts[:-1]]).tolist(), kinds)
    displs, at = [0] * len(units), 0
    order = rng.permutation(len(units)) if rng.random() < 0.5 else np.arange(len(units))
    gaps = rng.random() < 0.7
    for i in order:
        displs[i] = at
        length = counts[i] * _extent(kinds[i]) + (8 if counts[i] else 0)
        if kinds[i].units == 1:
            length = counts[i] * 4
        at += -(-length // step)
        at += int(rng.integers(3)) * (4 if typed else 1) if gaps else 0
    content = np.resize(pattern(1 << 12, fill), at * step + 5)
    return Side(content, counts, displs, kinds)


# long: a call from its parts
def random_call(
    rng: np.random.Generator, number: int, kinds: list[Type], comms: list[Any], sizes: list[int]
) -> Call:
    """The same on all ranks, but for what this one has in its buffers."""
    row = list(ROWS.values())[int(rng.integers(len(ROWS)))]
    comm = int(rng.integers(2))
    if row.among_neighbours:
        comm = int(rng.integers(2, len(comms)))
    ranks, me = comms[comm].size, comms[comm].rank
    root, blocking = int(rng.integers(ranks)), bool(rng.random() < 0.5)
    place, reduction = bool(rng.random() < 0.25), int(rng.integers(4))
    longest, delay, fill = int(rng.choice(sizes)), int(rng.integers(1, 5)), int(rng.integers(99))
    shared, draws = bool(rng.random() < 0.3), rng.integers(1 << 30, size=2)
    # matrix[i, j]: what i sends to j, in units that every datatype has.
    matrix = 3 * rng.integers(longest // 3 + 1, size=(ranks, ranks))
    matrix[rng.random((ranks, ranks)) < 0.2] = 0
    kind = kinds[int(rng.integers(len(kinds)))], kinds[int(rng.integers(len(kinds)))]
    own = np.random.default_rng([int(draws[0]), me])  # of this rank alone
    if row.reduces:
        return _reduction(row, rng, matrix[0], comm, me, place, blocking, reduction, number + delay)
    outs = {
        "Gatherv": [matrix[me, root]], "Allgatherv": [matrix[me, 0]],
        "Scatterv": matrix[root].tolist() if me == root else [],
    }.get(row.name, matrix[me].tolist())  # fmt: skip
    backs = {
        "Gatherv": matrix[:, root].tolist() if me == root else [],
        "Allgatherv": matrix[:, 0].tolist(), "Scatterv": [matrix[root, me]],
    }.get(row.name, matrix[:, me].tolist())  # fmt: skip
    if row.among_neighbours:
        outs, backs = units_among(row, matrix, told(comms[comm]))
    if place and row.name.startswith("Alltoall"):  # what goes out is as long as what comes back
        matrix = np.triu(matrix) + np.triu(matrix, 1).T
        outs = backs = matrix[me].tolist()
    sides = []
    for way, units in enumerate((outs, backs)):
        types = [kind[way]] * len(units)
        if row.typed:
            types = [kinds[int(i)] for i in own.integers(len(kinds), size=len(units))]
        regular = row.among_neighbours and not row.counts
        sides.append(lay_out(own, units, types, row.typed, fill + 31 * me + 7 * way, regular))
    send, recv = sides
    if place and not row.among_neighbours and (not row.rooted or me == root):
        if row.in_place_way == moves.OUT:
            send = send._replace(content=None)
        else:
            recv = recv._replace(content=None)
    return Call(row, blocking, send, recv, reduction, root, comm, number + delay, shared)


# wide: what a call has
def _reduction(
    row: moves.Row,
    rng: np.random.Generator,
    units: np.ndarray,
    comm: int,
    me: int,
    place: bool,
    blocking: bool,
    reduction: int,
    waits_at: int,
) -> Call:
    handle = REDUCED[int(rng.integers(len(REDUCED)))]
    _, datatype, dtype = DATATYPES[handle & 0xFF]
    kind, counts = Type(datatype, handle, 1), units.tolist()
    values = (pattern(sum(counts), int(rng.integers(99)) + 31 * me) % 8).astype(dtype)
    send = Side(values.view(np.uint8), counts, [], [kind])
    room = np.full(counts[me] * dtype.itemsize, POISON, np.uint8)
    recv = Side(room, counts, [], [kind])
    if place:
        recv, send = recv._replace(content=send.content), send._replace(content=None)
    return Call(row, blocking, send, recv, reduction, 0, comm, waits_at, False)


def _spec(call: Call, side: Side, content: np.ndarray | None, vector: bool, in_place: Any) -> Any:
    """mpi4py's specification of a buffer; of ours, too."""
    if content is None:
        return in_place
    if call.row.among_neighbours and not side.types:
        return [content, ([], []), [] if call.row.typed else MPI.INT32_T] if vector else content[:0]
    if call.row.typed:
        return [content, (side.counts, side.displs), [kind.mpi for kind in side.types]]
    if not side.types:
        return None
    if not vector:
        return [
            content[side.displs[0] * _extent(side.types[0]) :],
            side.counts[0],
            side.types[0].mpi,
        ]
    return [content, (side.counts, side.displs), side.types[0].mpi]


def specs_of(call: Call, in_place: Any) -> tuple[list[np.ndarray | None], list[Any]]:
    """(copies of both buffers, the arguments)."""
    row = call.row
    copies = [None if s.content is None else s.content.copy() for s in (call.send, call.recv)]
    if row.reduces:
        dtype = DATATYPES[call.recv.types[0].handle & 0xFF][2]
        arrays = [in_place if copy is None else copy.view(dtype) for copy in copies]
        return copies, [*arrays, call.recv.counts]
    vectors = [kind in (moves.ALL, moves.ALL_AT_ROOT) for kind in (row.out, row.back)]
    if row.among_neighbours:
        vectors = [bool(row.counts >> way & 1) for way in (moves.OUT, moves.BACK)]
    return copies, [
        _spec(call, side, copy, vector, in_place)
        for side, copy, vector in zip((call.send, call.recv), copies, vectors)
    ]


def expected(call: Call, comms: list[Any]) -> list[np.ndarray]:
    """What mpi4py leaves in both buffers."""
    copies, arguments = specs_of(call, MPI.IN_PLACE)
    arguments += [OPERATIONS_REDUCE[call.reduction][1]] if call.row.reduces else []
    arguments += [call.root] if call.row.rooted else []
    getattr(comms[call.comm], call.row.name)(*arguments)
    return [copy for copy in copies if copy is not None]


def on_host(g: gmpi.Context, calls: list[Call], handles: list[int]) -> list[list[np.ndarray]]:
    found, started = [], []
    for call in calls:
        copies, arguments = specs_of(call, gmpi.IN_PLACE)
        arguments += [call.reduction] if call.row.reduces else []
        arguments += [call.root] if call.row.rooted else []
        name = call.row.name if call.blocking else call.row.nonblocking
        result = getattr(g.host, name)(*arguments, comm=handles[call.comm])
        started += [] if call.blocking else [result]
        found.append([copy for copy in copies if copy is not None])
    g.host.Waitall(started)
    return found


def integers_of(call: Call) -> list[int]:
    """The six arrays, one after the other, all as long."""
    k = max(len(call.send.counts), len(call.recv.counts))
    arrays = []
    for side in (call.send, call.recv):
        types = [kind.handle for kind in side.types]
        arrays += [side.counts, side.displs, types]
    return [n for array in arrays for n in [*array, *[-7] * (k - len(array))]]


def in_kernel(
    g: gmpi.Context, calls: list[Call], handles: list[int], scope: str, threads: int, wide: bool
) -> list[list[np.ndarray]]:
    memory = bytearray(b"\xa5" * 64)
    rows, places = [], []
    integers: list[int] = []
    waits: dict[int, list[int]] = {}
    for number, call in enumerate(calls):
        for first in waits.pop(number, []):
            rows.append([WAIT, 0, 0, first] + [0] * 11)
        row, mine = [call.row.op | (0 if call.blocking else NOT_BLOCKING)], []
        for side in (call.send, call.recv):
            handle = side.types[0].handle if side.types else gmpi.INT32_T
            count = side.counts[0] if side.counts else 0
            begin, length = 0, -1
            if side.content is not None:
                memory += b"\xa5" * (-len(memory) % 16)
                begin, length = len(memory), len(side.content)
                mine.append((begin, length))
                memory += side.content.tobytes() + b"\xa5" * 64
                one = len(side.counts) == 1 and not call.row.reduces
                vector = call.row.out if side is call.send else call.row.back
                if one and vector == moves.ONE:  # where the block is, without its displacement
                    skip = side.displs[0] * _extent(side.types[0])
                    begin, length = begin + skip, length - skip
            row += [begin, length, count, handle]
        places.append(mine)
        mine_too = integers_of(call)
        each = len(mine_too) // 6
        if not call.blocking:
            waits.setdefault(min(call.waits_at, len(calls)), []).append(len(rows))
        shared = call.shared and 6 * each <= MOST
        rows.append(
            [*row, call.reduction, call.root, handles[call.comm], len(integers), each, shared]
        )
        integers += mine_too
    for left in waits.values():
        rows += [[WAIT, 0, 0, first] + [0] * 11 for first in left]
    heap = cuda.to_device(np.frombuffer(bytes(memory), np.uint8).copy())
    arrays = cuda.to_device(np.array([*integers, 0], np.int64 if wide else np.int32))
    requests = cuda.to_device(np.zeros(len(rows), np.int64))
    errors = cuda.to_device(np.full(len(rows), -1, np.int64))
    program = cuda.to_device(np.array(rows, np.int64))
    arrayed = gmpi.SIMULATOR and not any(-1 in (row[2], row[6]) for row in rows)
    KERNELS[scope, wide, arrayed][1, threads](
        g.device, program, heap, address_of(heap), arrays, requests, errors
    )
    g.synchronize()
    assert not errors.copy_to_host().any(), errors.copy_to_host()
    after = heap.copy_to_host()
    return [[after[at : at + n] for at, n in mine] for mine in places]


def program(g: gmpi.Context, seed: int, comms: list[Any], handles: list[int], kinds: Any) -> None:
    rng = np.random.default_rng(seed)
    sizes = [0, 3, 9, g.layout.eager_bytes // 12, g.layout.chunk_bytes // 4]
    if LONG:
        sizes += [ROOM, WIDE_ROOM // 3]
    calls = [random_call(rng, k, kinds, comms, sizes) for k in range(12)]
    hosts = rng.random(SIZE) < (0.4 if seed % 2 and not DIRECT else 0)  # who has no kernel
    scope, threads = [("block", 32), ("warp", 32), ("block", 72), ("block", 20)][seed % 4]
    found = on_host(g, calls, handles) if hosts[RANK] else in_kernel(
        g, calls, handles, scope, threads, seed % 3 == 0
    )  # fmt: skip
    for number, (call, buffers) in enumerate(zip(calls, found)):
        for which, (mine, theirs) in enumerate(zip(buffers, expected(call, comms), strict=True)):
            what = f"seed {seed}, call {number}, {call.row.name}, buffer {which}"
            same(mine, theirs, f"{what}, {'host' if hosts[RANK] else scope}, root {call.root}")


def main() -> None:
    first, last = 0, 6
    for word in sys.argv[1:]:
        if word.startswith("--seeds="):
            first, last = map(int, word.removeprefix("--seeds=").split(":"))
    reverse = WORLD.Split(0, SIZE - RANK)
    eager = 1024 if "--many" in sys.argv else 256  # the table of 6 ranks does not fit 256
    patience = PATIENCE_S * (5 if LONG else 1)  # the simulator takes seconds to pack such blocks
    settings = {"chunk_bytes": 512, "watchdog_s": 3, "timeout_s": patience}
    with gmpi.Context(WORLD, eager_bytes=eager, wildcards=not DIRECT, **settings) as g:
        if "--narrow" in sys.argv:
            lanes._LONGEST_NAP_S = 1e-4  # as in random_blocks.py
            take_large_slots(g)
        topologies = [topology.comm for topology in everything()]
        comms = [WORLD, reverse, *topologies]
        handles = [gmpi.COMM_WORLD, *(g.comm(comm, wildcards=not DIRECT) for comm in comms[1:])]
        kinds = types_of(g)
        for seed in range(first, last):
            program(g, seed, comms, handles, kinds)
        for kind in kinds[1:]:
            g.free(kind.handle)
            kind.mpi.Free()
    for comm in comms[1:]:
        comm.Free()
    end()


main()
