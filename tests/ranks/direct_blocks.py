"""Direct collectives that move blocks: what is particular to them. ``random_blocks --direct`` has
the rest.

mpiexec -n 3 python3 tests/ranks/direct_blocks.py [SCENARIO ...]
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any

import numpy as np
from blocks_kernel import KERNELS, ROWS
from common import RANK, SIZE, WORLD, address_of, barrier, end, ends_and_is_refused, raises, run
from numba import cuda

import gmpi
from device_lib.direct import block_rounds
from gmpi.contract.collectives import ENTERED, NUMBER, ROOM
from gmpi.contract.wire import COLLECTIVE_ROW_BYTES, DEVICE_COLLECTIVES, OP_BARRIER

REDUCE, GATHER, SCATTER, ALLGATHER, ALLTOALL, BLOCK, SCAN, EXSCAN = ROWS


def row_of(op: int, room: int, n: int = 1, reduction: int = 0, root: int = 0, comm: int = 0) -> Any:
    """A row for the kernel: doubles, from the first ``room`` bytes of the heap to the next ones."""
    half = [n, gmpi.DOUBLE]
    return [op, 0, room, *half, room, room, *half, reduction, root, comm]


def start(
    g: gmpi.Context, rows: list[Any], heap: Any, scope: str = "block", threads: int = 32
) -> Any:
    """The error classes that the rows end with, in device memory."""
    errors = cuda.to_device(np.full(len(rows), -1, np.int64))
    requests = cuda.to_device(np.zeros(len(rows), np.int64))
    program = cuda.to_device(np.array(rows, np.int64))
    KERNELS[scope, False][1, threads](g.device, program, heap, address_of(heap), requests, errors)
    return errors


def heap_of(blocks: int) -> Any:
    return cuda.to_device(np.arange(2.0 * blocks) + RANK)


def no_record_for_a_collective(g: gmpi.Context) -> None:
    """The proxy never hears of one, unless a rank waits long; some wait for nobody, and others are
    asked for what is late: so all of them, one after the other, with and without a Barrier."""
    room = 8 * SIZE
    rows = [row_of(op, room, root=i % SIZE) for i in range(3) for op in ROWS]
    rows += [row_of(op, room, root=SIZE - 1) for o in ROWS for op in (o, OP_BARRIER)]
    records: list[int] = []
    # On a machine with fewer cores than ranks one may be late again and again.
    while len(records) < 2 or (len(records) < 20 and WORLD.allreduce(0 not in records)):
        scope = ("block", "warp")[len(records) % 2]
        before = g._state.taken
        errors = start(g, rows, heap_of(SIZE), scope)
        g.synchronize()
        records.append(g._state.taken - before)
        assert not errors.copy_to_host().any(), errors.copy_to_host()
    assert min(records) == 0, f"records: {records}"


def by_one_warp(g: gmpi.Context) -> None:
    """What is short is not carried out by all threads, where there is a full warp. After a Barrier
    nobody is too late."""
    if not gmpi.SIMULATOR:
        return
    stored: list[int] = []
    put = block_rounds.put

    def put_by_all(*words: Any) -> None:
        stored.append(1)
        put(*words)

    block_rounds.put = put_by_all
    for scope, threads, n, alone in (
        ("block", 32, 1, True), ("block", 70, 1, True), ("warp", 64, 1, True),
        ("block", 32, 16, True), ("block", 20, 1, False), ("block", 32, 65, False),
    ):  # fmt: skip
        rows = [row_of(op, 8 * n * SIZE, n, root=SIZE - 1) for o in ROWS for op in (OP_BARRIER, o)]
        del stored[:]
        errors = start(g, rows, heap_of(n * SIZE), scope, threads)
        g.synchronize()
        assert not errors.copy_to_host().any(), errors.copy_to_host()
        assert (not stored) == alone, (scope, threads, n, stored)
    block_rounds.put = put


def short_reduces(g: gmpi.Context) -> None:
    """Of a packet for each lane, and of one more, to every root, and in place there."""
    for scope, threads in (("block", 32), ("block", 70), ("warp", 64)):
        for n in (1, 2, 31, 32, 33):
            heap = heap_of(n * (1 + 2 * SIZE))
            before = heap.copy_to_host().reshape(-1, n)
            expected = before.copy()
            rows = []
            for k in range(2 * SIZE):
                root = k % SIZE
                row = row_of(REDUCE, 8 * n, n, gmpi.SUM, root)
                row[5] = 8 * n * (1 + k)
                own = before[0]
                if k >= SIZE and root == RANK:
                    row[2] = -1  # IN_PLACE
                    own = before[1 + k]
                rows.append(row)
                if root == RANK:
                    expected[1 + k] = own + sum(
                        before[0] - RANK + r for r in range(SIZE) if r != RANK
                    )
            errors = start(g, rows, heap, scope, threads)
            g.synchronize()
            assert not errors.copy_to_host().any(), (scope, threads, n)
            assert (heap.copy_to_host().reshape(-1, n) == expected).all(), (scope, threads, n)


def numbers_wrap(g: gmpi.Context) -> None:
    """Those in packets repeat, and nothing of a former turn passes for new."""
    room = 8 * SIZE
    for before in ((1 << 30) - 5, (1 << 40) - 5):
        barrier()
        assert ENTERED == NUMBER + 8 and COLLECTIVE_ROW_BYTES > ENTERED
        g._memory.write_device(DEVICE_COLLECTIVES + NUMBER, np.array([before, before]))
        barrier()
        heap = heap_of(SIZE)
        rows = [row_of(op, room) for op in (REDUCE, SCAN, ALLTOALL, EXSCAN, GATHER, ALLTOALL)]
        errors = start(g, rows, heap)
        g.synchronize()
        assert not errors.copy_to_host().any()
        found = heap.copy_to_host()[SIZE:]
        assert (found == np.arange(SIZE) + RANK).all(), found


def calls_that_differ(g: gmpi.Context) -> None:
    """End with an error that names both, and later ones on the communicator are refused."""
    if SIZE == 1:
        return
    first, room = RANK == 0, 8 * SIZE
    cases = [
        (
            [(REDUCE, 1, 0, 0), (REDUCE, 1, 0, 1)],
            "GMPI_Reduce SUM of 1 DOUBLE with root 0", "GMPI_Reduce SUM of 1 DOUBLE with root 1",
        ),
        ([(SCAN, 2, 0, 0), (SCAN, 2, 2, 0)], "GMPI_Scan SUM of 2", "GMPI_Scan MIN of 2"),
        (
            [(ALLTOALL, 1, 0, 0), (ALLGATHER, 1, 0, 0)],
            "GMPI_Alltoall of 8 bytes a block", "GMPI_Allgather of 8 bytes a block",
        ),
        (
            [(SCATTER, 1, 0, 0), (SCATTER, 1, 0, 1)],
            "GMPI_Scatter of 8 bytes a block with root 0",
            "GMPI_Scatter of 8 bytes a block with root 1",
        ),
    ]  # fmt: skip
    for calls, of_first, of_others in cases:
        other = WORLD.Dup()
        comm = g.comm(other, wildcards=False)
        op, n, reduction, root = calls[0 if first else 1]
        rows = [row_of(op, room, n, reduction, root, comm), row_of(OP_BARRIER, room, comm=comm)]
        errors = start(g, rows, heap_of(2 * SIZE))
        said = ends_and_is_refused(g, errors, of_first)
        assert of_first in said and of_others in said, said
        other.Free()
        barrier()


def one_does_not_come() -> None:
    """The watchdog names the call, and ``timeout_s`` ends it."""
    if SIZE == 1:
        return
    for op, text in ((ALLTOALL, "GMPI_Alltoall"), (REDUCE, "GMPI_Reduce")):
        g = gmpi.Context(WORLD, wildcards=False, watchdog_s=0.5, timeout_s=1, on_error="return")
        barrier()
        said = ""
        if RANK == 0:
            errors = start(g, [row_of(op, 8 * SIZE)], heap_of(SIZE))
            try:
                g.synchronize()
            except gmpi.GMPIError as exc:
                said = str(exc)
            assert errors.copy_to_host()[0] == gmpi.GMPI_ERR_TIMEOUT
            assert text in said, said
        barrier()
        with contextlib.suppress(gmpi.GMPIError):
            g.close()
        barrier()


def aborted() -> None:
    """Rank 0 waits for others that never come: an abort ends its call."""
    if SIZE == 1:
        return
    for op, n in ((ALLTOALL, 1), (REDUCE, ROOM // 8 + 1), (GATHER, ROOM // 8 + 1)):
        with contextlib.suppress(gmpi.AbortedError), gmpi.Context(WORLD, wildcards=False) as g:
            if RANK == 0:
                threading.Timer(0.3, g.abort).start()  # a launch in the simulator waits
                errors = start(g, [row_of(op, 8 * SIZE * n, n)], heap_of(SIZE * n))
                raises(gmpi.AbortedError, "aborted", g.synchronize)
                assert (errors.copy_to_host() == gmpi.GMPI_ERR_ABORTED).all()
            barrier()
            if RANK != 0:
                g.abort()
        barrier()


def main() -> None:
    with gmpi.Context(WORLD, wildcards=False) as g:
        shared = [no_record_for_a_collective, by_one_warp, short_reduces, numbers_wrap]
        run([*shared, calls_that_differ], g)
        assert g.pending == []
    if not any(word.isidentifier() for word in sys.argv[1:]):
        run([one_does_not_come, aborted])
    end()


main()
