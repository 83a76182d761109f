"""Direct collectives with counts, and those among neighbours: what is particular to them.
``random_counts --direct`` has the rest.

mpiexec -n 3 python3 tests/ranks/exchanges.py [SCENARIO ...]
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import exchange_edges
import exchange_endings
import exchange_reductions
import exchange_swaps
import numpy as np
from channel_numbers import counters, move_on
from common import RANK, SIZE, WORLD, barrier, end, every_shape, pattern, run, same
from exchange_edges import roads
from exchange_endings import ring
from mpi4py import MPI
from numba import cuda, int32

import gmpi
from gmpi import (
    GMPI_Allgatherv,
    GMPI_Alltoallv,
    GMPI_Alltoallw,
    GMPI_Gatherv,
    GMPI_Neighbor_allgather,
    GMPI_Neighbor_alltoall,
    GMPI_Neighbor_alltoallv,
    GMPI_Reduce_scatter,
    GMPI_Scatterv,
)
from gmpi.contract import channels
from gmpi.contract.channels import DEPTH, HALF_TURN
from gmpi.contract.wire import (
    COLLECTIVES_DIRECT,
    NEIGHBOURS_DIRECT,
)

INT = gmpi.INT32_T
NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def is_hidden(keys: np.ndarray) -> np.ndarray:
    return keys >> 62 & 1 == 0


# wide: a kernel
@cuda.jit
def each_of_them(ctx, a, b, counts, displs, types, at, near, errors):
    """Every call that goes this way, of two integers for each rank or neighbour."""
    w, i = gmpi.COMM_WORLD, gmpi.INT32_T
    errors[0] = GMPI_Alltoallv(ctx, a, counts, displs, i, b[0], counts, displs, i, w)
    errors[1] = GMPI_Alltoallw(ctx, a, counts, at, types, b[1], counts, at, types, w)
    errors[2] = GMPI_Allgatherv(ctx, a, 2, i, b[2], counts, displs, i, w)
    errors[3] = GMPI_Gatherv(ctx, a, 2, i, b[3], counts, displs, i, SIZE - 1, w)
    errors[4] = GMPI_Scatterv(ctx, a, counts, displs, i, b[4], 2, i, SIZE - 1, w)
    errors[5] = GMPI_Neighbor_alltoallv(ctx, a, counts, displs, i, b[5], counts, displs, i, near)
    errors[6] = GMPI_Neighbor_allgather(ctx, a, 2, i, b[6], 2, i, near)
    errors[7] = GMPI_Neighbor_alltoall(ctx, a, 2, i, b[7], 2, i, near)
    errors[8] = GMPI_Reduce_scatter(ctx, a, b[8], counts, i, gmpi.SUM, w)
    here = gmpi.IN_PLACE
    errors[9] = GMPI_Alltoallv(ctx, here, counts, displs, i, b[9], counts, displs, i, w)
    errors[10] = GMPI_Alltoallw(ctx, here, counts, at, types, b[10], counts, at, types, w)


def no_record_for_a_call(g: gmpi.Context) -> None:
    """The proxy never hears of one, unless a rank waits long."""
    graph = ring()
    near = g.comm(graph, wildcards=False)
    assert roads(g, near) & NEIGHBOURS_DIRECT and roads(g, gmpi.COMM_WORLD) & COLLECTIVES_DIRECT
    n = max(SIZE, 3)
    counts, displs = np.full(n, 2), np.arange(0, 2 * n, 2)
    records: list[int] = []
    # On a machine with fewer cores than ranks one may be late again and again.
    while len(records) < 2 or (len(records) < 20 and WORLD.allreduce(0 not in records)):
        mine = np.arange(2 * n, dtype=np.int32) + 100 * RANK
        there = np.full((11, 2 * n), -1, np.int32)
        there[9:, : 2 * SIZE] = mine[: 2 * SIZE]
        arrays = [mine, there, counts, displs, np.full(n, INT)]
        a, b, *arrays = (cuda.to_device(array) for array in [*arrays, 4 * displs])
        errors = cuda.to_device(np.full(11, -1))
        before = g._state.taken
        each_of_them[1, 32](g.device, a, b, *arrays, near, errors)
        g.synchronize()
        records.append(g._state.taken - before)
        same(errors, [0] * 11, "error classes")
        found = b.copy_to_host()
        every = [mine[2 * RANK : 2 * RANK + 2] + 100 * (r - RANK) for r in range(SIZE)]
        own = [mine[:2] + 100 * (r - RANK) for r in range(SIZE)]
        near_ones = [own[PREVIOUS], mine[4:6], own[PREVIOUS] + 2]
        if SIZE == 1:  # all edges are between the same ranks
            near_ones = [mine[:2], mine[2:4], mine[4:6]]
        last = mine + 100 * (SIZE - 1 - RANK)
        wanted = [
            every, every, own, own if RANK == SIZE - 1 else [], [last[2 * RANK : 2 * RANK + 2]],
            near_ones, [own[PREVIOUS], own[RANK], own[PREVIOUS]], near_ones, [sum(every)],
            every, every,
        ]  # fmt: skip
        for row, blocks in zip(found, wanted):
            want = np.full(2 * n, -1, np.int32)
            for k, block in enumerate(blocks):
                want[2 * k : 2 * k + 2] = block
            same(row, want, "what has come")
    assert 0 in records, f"records: {records}"
    g.free(near)
    graph.Free()


# wide: a kernel
@cuda.jit
def exchange(ctx, a, b, sent, received, displs, comm, errors):
    for k in range(errors.size):
        errors[k] = GMPI_Alltoallv(
            ctx, a, sent[k], displs, gmpi.BYTE, b[k], received[k], displs, gmpi.BYTE, comm
        )


def all_to_all(
    g: gmpi.Context, sent: np.ndarray, received: np.ndarray, comm: int = 0, threads: int = 32,
    registered: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """(error classes, what has come) of Alltoallv of bytes; a row of counts for each call."""
    room = int(max(sent.max(), received.max()))
    if registered:
        room = -(-room // 16) * 16  # a block that begins elsewhere cannot go straight
    a = cuda.to_device(np.concatenate([pattern(room, 9 * RANK + r) for r in range(SIZE)]))
    b = (g.zeros if registered else cuda.device_array)((len(sent), SIZE * room), np.uint8)
    b.copy_to_device(np.zeros((len(sent), SIZE * room), np.uint8))
    errors = cuda.to_device(np.full(len(sent), -1))
    displs = cuda.to_device(room * np.arange(SIZE))
    counts = cuda.to_device(sent), cuda.to_device(received)
    exchange[1, threads](g.device, a, b, *counts, displs, comm, errors)
    with contextlib.suppress(gmpi.TruncationError):
        g.synchronize()
    found = b.copy_to_host().reshape(len(sent), SIZE, room)
    if registered:
        barrier()  # nobody stores there any more
        g.unregister(b)
    return errors.copy_to_host(), found


def blocks_of_all_lengths(g: gmpi.Context) -> None:
    """Each by one lane, by a warp, or by all threads; of a block whose leading warp is not full, of
    that warp alone, and of several warps, of which one is not full."""
    lengths = np.array([
        0, 1, 8, 9, 380, 1024, 1025, channels.ROOM, channels.ROOM + 16, 65536,
        65536 + 16, channels.WIDE_ROOM, channels.WIDE_ROOM + 1,
    ])  # fmt: skip
    calls = np.arange(len(lengths))[:, None]
    for threads, registered in ((20, False), (32, True), (100, False), (100, True)):
        sent = lengths[(calls + 5 * RANK + np.arange(SIZE)) % len(lengths)]
        received = lengths[(calls + 5 * np.arange(SIZE) + RANK) % len(lengths)]
        if threads == 100:  # those of one length are moved side by side
            sent[::2] = received[::2] = lengths[calls[::2]]
        errors, found = all_to_all(g, sent, received, 0, threads, registered)
        same(errors, [0] * len(lengths), "error classes")
        for k, row in enumerate(found):
            for r, block in enumerate(row):
                n = received[k, r]
                same(block[:n], pattern(n, 9 * r + RANK), f"{threads} threads, {n} bytes of {r}")
                assert not block[n:].any(), (threads, k, r)


def counts_that_differ(g: gmpi.Context) -> None:
    """An error on the rank that receives, for a block that is longer and for one that is shorter,
    also of nothing; the calls behind it are right."""
    if SIZE == 1:
        return
    for few, many in ((0, 5), (4, 7), (40, 5000), (4, 300000)):
        for theirs, ours in ((few, many), (many, few)):
            sent, received = np.full((2, SIZE), 8), np.full((2, SIZE), 8)
            if RANK == 0:
                sent[0, 1] = theirs
            if RANK == 1:
                received[0, 0] = ours
            before = len(g.errors)
            errors, found = all_to_all(g, sent, received)
            wrong = gmpi.ERR_TRUNCATE if RANK == 1 else gmpi.SUCCESS
            assert tuple(errors) == (wrong, gmpi.SUCCESS), (theirs, ours, errors)
            same(found[1, :, :8], [pattern(8, 9 * r + RANK) for r in range(SIZE)], "behind it")
            if RANK == 1:
                least = min(few, many)
                same(found[0, 0, :least], pattern(least, 1), "what there was room for")
                assert not found[0, 0, ours:].any(), (theirs, ours)
                (text,) = (error.text for error in g.errors[before:])
                assert text.startswith(
                    f"GMPI_Alltoallv in block 0: message length is {theirs}, allowed is {ours} "
                    "bytes, as the counts of this rank say; ranks have called it with different "
                    "counts or datatypes [peer 0,"
                ), text
            else:
                assert len(g.errors) == before


def numbers_wrap(g: gmpi.Context) -> None:
    """Those in packets repeat, and nothing of a former turn passes for new."""
    lengths = (8, 1000, channels.ROOM + 5, channels.WIDE_ROOM + 5)
    for half, first in enumerate((2 * HALF_TURN - DEPTH, HALF_TURN - DEPTH)):
        for nbytes in lengths if every_shape() else lengths[half::2]:
            all_to_all(g, np.full((1, SIZE), 8), np.full((1, SIZE), 8))  # there are channels
            barrier()
            move_on(g, is_hidden, first)
            barrier()
            counts = np.full((2 * DEPTH + 1, SIZE), nbytes)
            errors, found = all_to_all(g, counts, counts)
            same(errors, [0] * len(counts), "error classes")
            want = [pattern(nbytes, 9 * r + RANK) for r in range(SIZE)]
            for row in found:
                same(row, want, f"{nbytes} bytes from {first}")


def communicators_that_come_and_go(g: gmpi.Context) -> None:
    """What one has left in the memory that the next one gets does not pass for its messages."""
    for k in range(3):
        duplicate = WORLD.Dup()
        comm = g.comm(duplicate, wildcards=False)
        counts = np.full((DEPTH + 1, SIZE), 20 + k)
        errors, found = all_to_all(g, counts, counts, comm)
        same(errors, [0] * len(counts), "error classes")
        for row in found:
            same(row, [pattern(20 + k, 9 * r + RANK) for r in range(SIZE)], f"communicator {k}")
        g.free(comm)
        duplicate.Free()


def straight_to_registered_arrays(g: gmpi.Context) -> None:
    """The receiver says where a block goes before the sender asks. Where it cannot, or the sender
    does not see it soon enough, the block goes another way."""
    if SIZE == 1:
        return
    shared = channels.WIDE_ROOM + 16
    a, b = (g.empty(SIZE * shared, np.uint8) for _ in range(2))
    plain = cuda.to_device(np.zeros(SIZE * shared, np.uint8))
    until, straight, call = time.monotonic() + 30, 0, 0
    while WORLD.allreduce(straight, MPI.MIN) < 3 or call < 20:
        assert not WORLD.allreduce(time.monotonic() > until, MPI.LOR), f"{straight} of {call}"
        # What is no multiple of 16 cannot, and shorter ones do not.
        nbytes = (channels.WIDE_ROOM, channels.WIDE_ROOM - 8, 65536 + 16, 65536)[call % 4]
        target = plain if call % 5 == 3 and RANK % 2 else b
        own = [pattern(shared, call + 9 * RANK + r) for r in range(SIZE)]
        a.copy_to_device(np.concatenate(own))
        target.copy_to_device(np.zeros(SIZE * shared, np.uint8))
        counts, errors = cuda.to_device(np.full(SIZE, nbytes)), cuda.to_device(np.full(1, -1))
        before = sum(counters(g, is_hidden, channels.COUNTER_WIDE))
        one_exchange[1, 32](
            g.device, a, target, counts, cuda.to_device(shared * np.arange(SIZE)), errors
        )
        g.synchronize()
        same(errors, [0], "error class")
        found = target.copy_to_host().reshape(SIZE, shared)
        for r, block in enumerate(found):
            same(block[:nbytes], pattern(shared, call + 9 * r + RANK)[:nbytes], f"call {call}")
            assert not block[nbytes:].any(), (call, r)
        straight += sum(counters(g, is_hidden, channels.COUNTER_WIDE)) - before < SIZE - 1
        call += 1
    for array in (a, b):
        g.unregister(array)


@cuda.jit
def one_exchange(ctx, a, b, counts, displs, errors):
    errors[0] = GMPI_Alltoallv(
        ctx, a, counts, displs, gmpi.BYTE, b, counts, displs, gmpi.BYTE, gmpi.COMM_WORLD
    )


@cuda.jit
def of_a_box(ctx, box, out, counts, displs, errors):
    """Of a view in three dimensions, to every second element of another."""
    errors[0] = GMPI_Alltoallv(
        ctx, box[:, ::2, 1:], counts, displs, gmpi.INT32_T, out[::2], counts, displs,
        gmpi.INT32_T, gmpi.COMM_WORLD,
    )  # fmt: skip


@cuda.jit
def of_shared_memory(ctx, out, counts, displs, errors):
    own, there = cuda.shared.array(8, int32), cuda.shared.array(8, int32)
    if cuda.threadIdx.x < 8:
        own[cuda.threadIdx.x] = 10 * RANK + cuda.threadIdx.x
        there[cuda.threadIdx.x] = -1
    cuda.syncthreads()
    errors[0] = GMPI_Alltoallv(
        ctx, own, counts, displs, gmpi.INT32_T, there, counts, displs, gmpi.INT32_T,
        gmpi.COMM_WORLD,
    )  # fmt: skip
    if cuda.threadIdx.x < 8:
        out[cuda.threadIdx.x] = there[cuda.threadIdx.x]


def views_and_shared_memory(g: gmpi.Context) -> None:
    errors = cuda.to_device(np.full(1, -1))
    for n in (1, 500, 7000):
        depth = -(-SIZE * n // 6) + 1
        box = (np.arange(depth * 5 * 3, dtype=np.int32)).reshape(depth, 5, 3)
        flat = box[:, ::2, 1:].reshape(-1)
        out = cuda.to_device(np.full(2 * SIZE * n, -1, np.int32))
        counts, displs = cuda.to_device(np.full(SIZE, n)), cuda.to_device(n * np.arange(SIZE))
        of_a_box[1, 32](g.device, cuda.to_device(box + 1000000 * RANK), out, counts, displs, errors)
        g.synchronize()
        same(errors, [0], "error class")
        want = np.full((SIZE * n, 2), -1, np.int32)
        want[:, 0] = np.concatenate(
            [flat[RANK * n : RANK * n + n] + 1000000 * r for r in range(SIZE)]
        )
        same(out, want.reshape(-1), f"{n} of a view")
    out, ones = cuda.to_device(np.zeros(8, np.int32)), cuda.to_device(np.ones(SIZE, int))
    of_shared_memory[1, 32](g.device, out, ones, cuda.to_device(np.arange(SIZE)), errors)
    g.synchronize()
    same(errors, [0], "error class")
    same(out, [10 * r + RANK for r in range(SIZE)] + [-1] * (8 - SIZE), "in shared memory")


SCENARIOS = [
    no_record_for_a_call, blocks_of_all_lengths, counts_that_differ, numbers_wrap,
    communicators_that_come_and_go, straight_to_registered_arrays, views_and_shared_memory,
    exchange_edges.many_edges_of_one_channel, *exchange_reductions.SCENARIOS,
    *exchange_swaps.SCENARIOS,
]  # fmt: skip


def main() -> None:
    with gmpi.Context(WORLD, wildcards=False) as g:
        run(SCENARIOS, g)
        assert g.pending == []
    if not any(word.isidentifier() for word in sys.argv[1:]):
        run([exchange_edges.more_edges_than_slots, *exchange_endings.ENDINGS])
    end()


main()
