"""Random programs of the collectives that move blocks, of kernels and hosts, against plain mpi4py.

    mpiexec -n 3 python tests/ranks/random_blocks.py --seeds=0:20

All ranks make a program from the same seed: calls of every operation in ``gmpi/contract/moves.py``,
of Allreduce, Bcast and Barrier, blocking or not, with and without IN_PLACE, from every root, of
predefined and derived datatypes, on several communicators. Each rank carries it out in a kernel, of
either scope, or by its host; with ``--narrow``, without large slots; with ``--direct``, all of them
in kernels, and calls that block on the direct road, with ``--long`` also such as take several
rounds of it. What every rank finds in its buffers is
compared with what mpi4py leaves in them.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from blocks_kernel import KERNELS, NOT_BLOCKING, ROWS, WAIT
from common import PATIENCE_S, RANK, SIZE, WORLD, address_of, end, pattern, same, take_large_slots
from mpi4py import MPI
from numba import cuda

import gmpi
from device_lib.simulator import lanes
from gmpi.contract import moves
from gmpi.contract.collectives import ROOM
from gmpi.contract.constants import DATATYPES, OPERATIONS_REDUCE
from gmpi.contract.wire import OP_ALLREDUCE, OP_BARRIER, OP_BCAST

OPS = [*ROWS, OP_ALLREDUCE, OP_BCAST, OP_BARRIER]
POISON = 0xA5
DIRECT = "--direct" in sys.argv
LONG = "--long" in sys.argv
KINDS = [gmpi.INT32_T, gmpi.DOUBLE, gmpi.UINT16_T, gmpi.BYTE, gmpi.FLOAT_INT]


class Half(NamedTuple):
    """One buffer of a call: what it holds before, and what its blocks are made of."""

    content: np.ndarray | None  # None: IN_PLACE
    count: int
    datatype: Any  # mpi4py's
    handle: int


class Call(NamedTuple):
    """One call, as this rank makes it."""

    op: int
    blocking: bool
    send: Half
    recv: Half
    reduction: int
    root: int
    comm: int
    waits_at: int  # in the program, for one that does not block


def _layouts(g: gmpi.Context) -> list[tuple[Any, int, int]]:
    """(mpi4py's datatype, handle, INT32 elements in it) of datatypes that one block may have."""
    found: list[tuple[Any, int, int]] = [(MPI.INT32_T, gmpi.INT32_T, 1)]
    for datatype, n in (
        (MPI.INT32_T.Create_vector(3, 1, 2).Create_resized(0, 24), 3),
        (MPI.INT32_T.Create_indexed([2, 1], [1, 4]).Create_resized(0, 20), 3),
    ):
        found.append((datatype.Commit(), g.commit(datatype), n))
    return found


def _span(datatype: Any, count: int) -> int:
    """Bytes of an array for so many elements."""
    _, extent = datatype.Get_extent()
    low, true = datatype.Get_true_extent()
    return max((count - 1) * extent + low + true, 0) if count else 0


# long: a call from its parts
def random_call(
    rng: np.random.Generator, number: int, layouts: Any, comms: list[Any], sizes: list[int]
) -> Call:
    """The same on all ranks, but for what this one has in its buffers."""
    op = int(rng.choice(OPS))
    blocking, n = bool(rng.random() < 0.5), int(rng.choice(sizes))
    comm = int(rng.integers(len(comms)))
    mpi = comms[comm]
    root_draw, place = int(rng.integers(1 << 20)), bool(rng.random() < 0.25)
    kind, reduction = int(rng.integers(len(KINDS))), int(rng.integers(4))
    one, other = (int(v) for v in rng.integers(len(layouts), size=2))
    delay, fill = int(rng.integers(1, 5)), int(rng.integers(1 << 20))
    if DIRECT and number % 2:  # what one warp does alone, where it is short
        one = other = 0
    root = root_draw % mpi.size
    me, ranks = mpi.rank, mpi.size
    row = ROWS.get(op)
    out = back = 1
    if row is not None:
        out, back = (moves.blocks(op, way, me, ranks, root, 0) for way in (moves.OUT, moves.BACK))
    if op == OP_BARRIER:
        out = back = 0
    reduces = op == OP_ALLREDUCE or (row is not None and row.reduces)
    if reduces:
        handle = KINDS[kind]
        if handle == gmpi.BYTE:
            reduction = gmpi.BAND + reduction % 3
        elif handle == gmpi.FLOAT_INT:
            reduction = gmpi.MINLOC + reduction % 2
        datatype = DATATYPES[handle & 0xFF][1]
        halves = [(datatype, handle, n)] * 2
    else:
        # As many bytes, of another layout: counts are multiples of what either has.
        halves = [(d, h, n * 3 // k) for d, h, k in (layouts[one], layouts[other])]
    if op == OP_BCAST:
        out, halves = 0, [halves[1]] * 2
    numbers = pattern(1 << 16, fill + 31 * RANK)

    def half(way: int, blocks: int) -> Half:
        datatype, handle, count = halves[way]
        memory = np.full(_span(datatype, blocks * count) + 3, POISON, np.uint8)
        if reduces and handle != gmpi.BYTE:
            # Small: no order of a sum matters, and Open MPI saturates some that overflow.
            values = (numbers[: blocks * count] % 8).astype(DATATYPES[handle & 0xFF][2])
            memory[: values.nbytes] = values.view(np.uint8)
        elif way == 0 or op == OP_BCAST or place:
            memory[:-3] = np.resize(numbers, len(memory) - 3)
        return Half(memory, count, datatype, handle)

    send, recv = half(0, out), half(1, back)
    if place and op not in (OP_BCAST, OP_BARRIER):
        if op == OP_ALLREDUCE or (out and moves.may_be_in_place(op, moves.OUT, me, root)):
            recv = half(1, max(out, back))
            send = recv._replace(content=None)
        elif row is not None and back and moves.may_be_in_place(op, moves.BACK, me, root):
            recv = send._replace(content=None)
    return Call(op, blocking, send, recv, reduction, root, comm, number + delay)


def expected(call: Call, comms: list[Any]) -> list[np.ndarray]:
    """What mpi4py leaves in both buffers."""
    comm, op = comms[call.comm], OPERATIONS_REDUCE[call.reduction][1]
    row = ROWS.get(call.op)
    copies = [None if h.content is None else h.content.copy() for h in (call.send, call.recv)]

    def spec(which: int, way: int) -> Any:
        half = (call.send, call.recv)[which]
        if copies[which] is None:
            return MPI.IN_PLACE
        blocks = 1
        if row is not None:
            blocks = moves.blocks(call.op, way, comm.rank, comm.size, call.root, 0)
            if which == 1 and copies[0] is None:
                blocks = max(blocks, moves.blocks(
                    call.op, moves.OUT, comm.rank, comm.size, call.root, 0
                ))  # fmt: skip
        return [copies[which], half.count, half.datatype] if blocks else None

    if call.op == OP_BARRIER:
        comm.Barrier()
    elif call.op == OP_BCAST:
        comm.Bcast(spec(1, moves.BACK), call.root)
    elif call.op == OP_ALLREDUCE:
        comm.Allreduce(spec(0, moves.OUT), spec(1, moves.BACK), op)
    else:
        assert row is not None
        arguments = [spec(0, moves.OUT), spec(1, moves.BACK)]
        if call.op == moves.ROWS[7].op and comm.rank == 0 and arguments[1] is None:
            arguments[1] = np.empty_like(copies[0])  # not looked at; libraries may use it
            arguments[1] = [arguments[1], call.send.count, call.send.datatype]
        arguments += [op] if row.reduces else []
        arguments += [call.root] if row.rooted else []
        getattr(comm, row.name)(*arguments)
    return [c for c in copies if c is not None]


def in_kernel(
    g: gmpi.Context, calls: list[Call], handles: list[int], scope: str, threads: int
) -> list[list[np.ndarray]]:
    memory = bytearray(b"\xa5" * 64)
    rows, places = [], []
    waits: dict[int, list[int]] = {}
    for number, call in enumerate(calls):
        for first in waits.pop(number, []):
            rows.append([WAIT, 0, 0, first] + [0] * 8)
        row = [call.op | (0 if call.blocking else NOT_BLOCKING)]
        mine = []
        for half in (call.send, call.recv):
            if half.content is None:
                row += [0, -1, half.count, half.handle]
                continue
            memory += b"\xa5" * (-len(memory) % 16)
            mine.append((len(memory), len(half.content)))
            row += [len(memory), len(half.content), half.count, half.handle]
            memory += half.content.tobytes() + b"\xa5" * 64
        places.append(mine)
        if not call.blocking:
            waits.setdefault(min(call.waits_at, len(calls)), []).append(len(rows))
        rows.append([*row, call.reduction, call.root, handles[call.comm]])
    for left in waits.values():
        rows += [[WAIT, 0, 0, first] + [0] * 8 for first in left]
    heap = cuda.to_device(np.frombuffer(bytes(memory), np.uint8).copy())
    requests = cuda.to_device(np.zeros(len(rows), np.int64))
    errors = cuda.to_device(np.full(len(rows), -1, np.int64))
    program = cuda.to_device(np.array(rows, np.int64))
    arrayed = gmpi.SIMULATOR and not any(-1 in (row[2], row[6]) for row in rows)
    KERNELS[scope, arrayed][1, threads](g.device, program, heap, address_of(heap), requests, errors)
    g.synchronize()
    assert not errors.copy_to_host().any(), errors.copy_to_host()
    after = heap.copy_to_host()
    return [[after[at : at + n] for at, n in mine] for mine in places]


def on_host(g: gmpi.Context, calls: list[Call], handles: list[int]) -> list[list[np.ndarray]]:
    found, open_ = [], []
    for call in calls:
        row, comm = ROWS.get(call.op), handles[call.comm]
        copies = [None if h.content is None else h.content.copy() for h in (call.send, call.recv)]
        specs: list[Any] = []
        for which, half in enumerate((call.send, call.recv)):
            blocks = int(call.op == OP_ALLREDUCE)
            if row is not None:
                ranks = g.host._communicator(comm)
                way = moves.BACK if which else moves.OUT
                blocks = moves.blocks(call.op, way, ranks.rank, ranks.size, call.root, 0)
                if which and copies[0] is None:
                    out = moves.blocks(call.op, 0, ranks.rank, ranks.size, call.root, 0)
                    blocks = max(out, blocks)
            if copies[which] is None:
                specs.append(gmpi.IN_PLACE)
            elif row is not None and not row.reduces:
                specs.append([copies[which], half.count, half.datatype])
            else:
                dtype = DATATYPES[half.handle & 0xFF][2]
                nbytes = blocks * half.count * dtype.itemsize
                specs.append(copies[which][:nbytes].view(dtype))
        arguments: list[Any]
        if call.op == OP_BARRIER:
            name, arguments = "Barrier", []
        elif call.op == OP_BCAST:
            half = call.recv
            name, arguments = "Bcast", [[copies[1], half.count, half.datatype], call.root]
        elif call.op == OP_ALLREDUCE:
            name, arguments = "Allreduce", [*specs, call.reduction]
        else:
            assert row is not None
            name = row.name
            arguments = specs + ([call.reduction] if row.reduces else [])
            arguments += [call.root] if row.rooted else []
        if call.blocking:
            getattr(g.host, name)(*arguments, comm=comm)
        else:
            open_.append(getattr(g.host, f"I{name.lower()}")(*arguments, comm=comm))
        found.append([c for c in copies if c is not None])
    g.host.Waitall(open_)
    return found


def program(
    g: gmpi.Context, seed: int, comms: list[Any], handles: list[int], layouts: list[Any]
) -> None:
    rng = np.random.default_rng(seed)
    eager, chunk = g.layout.eager_bytes, g.layout.chunk_bytes
    sizes = [0, 1, 2, 7, 20, eager // 8, 3 * chunk // 4]
    if DIRECT:
        sizes += [21, 32, 42, 43, 63, 64, 128, 171]  # around 256 and 512 bytes of 4, 8 and 12 each
    if LONG:
        sizes = [1, ROOM // 12, ROOM // 12 + 7]  # elements of 12 bytes
    calls = [random_call(rng, k, layouts, comms, sizes) for k in range(6 if LONG else 14)]
    # Who has no kernel: nobody, or some ranks.
    hosts = rng.random(SIZE) < (0.4 if seed % 2 and not DIRECT else 0)
    shape = seed + (RANK if DIRECT and seed & 4 else 0)  # the same on all ranks, or not
    scope, threads = [("block", 32), ("warp", 32), ("block", 40), ("block", 20)][shape % 4]
    found = on_host(g, calls, handles) if hosts[RANK] else in_kernel(
        g, calls, handles, scope, threads
    )  # fmt: skip
    for number, (call, buffers) in enumerate(zip(calls, found)):
        name = ROWS[call.op].name if call.op in ROWS else call.op
        for which, (mine, theirs) in enumerate(zip(buffers, expected(call, comms), strict=True)):
            what = f"seed {seed}, call {number}, {name} of {call.recv.count}, buffer {which}"
            same(mine, theirs, f"{what}, {'host' if hosts[RANK] else scope}, root {call.root}")


def main() -> None:
    first, last = 0, 6
    for word in sys.argv[1:]:
        if word.startswith("--seeds="):
            first, last = map(int, word.removeprefix("--seeds=").split(":"))
    reverse = WORLD.Split(0, SIZE - RANK)
    settings: dict[str, Any] = {"watchdog_s": 3, "timeout_s": PATIENCE_S}
    if DIRECT:
        settings["wildcards"] = False
    with gmpi.Context(WORLD, eager_bytes=256, chunk_bytes=512, **settings) as g:
        if "--narrow" in sys.argv:
            # What is long goes in small pieces, which are asked for one by one: with naps as long
            # as in other tests, a wait for something else would find each after a second.
            lanes._LONGEST_NAP_S = 1e-4
            take_large_slots(g)
        comms = [WORLD, reverse]
        handles = [gmpi.COMM_WORLD, g.comm(reverse, wildcards=False if DIRECT else None)]
        layouts = _layouts(g)
        for seed in range(first, last):
            program(g, seed, comms, handles, layouts)
        for datatype, handle, _ in layouts[1:]:
            g.free(handle)
            datatype.Free()
    reverse.Free()
    end()


main()
