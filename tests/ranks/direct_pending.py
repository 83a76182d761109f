"""Collectives of the direct road that do not block: many at once, in any order, by any block."""

from __future__ import annotations

import sys

import numpy as np
import pending_endings
from common import RANK, SIZE, WORLD, barrier, end, run
from mpi4py import MPI
from numba import cuda
from pending_endings import THREADS, N

import gmpi
from gmpi import (
    GMPI_Allreduce,
    GMPI_Barrier,
    GMPI_Iallgather,
    GMPI_Iallreduce,
    GMPI_Iallreduce_warp,
    GMPI_Ialltoall,
    GMPI_Ibarrier,
    GMPI_Ibcast,
    GMPI_Iexscan,
    GMPI_Igather,
    GMPI_Irecv,
    GMPI_Ireduce,
    GMPI_Ireduce_scatter_block,
    GMPI_Iscan,
    GMPI_Iscatter,
    GMPI_Isend,
    GMPI_Recv,
    GMPI_Request_get_status,
    GMPI_Send,
    GMPI_Synchronize,
    GMPI_Test,
    GMPI_Wait,
    GMPI_Wait_warp,
    GMPI_Waitall,
    GMPI_Waitany,
)
from gmpi.contract.collectives import (
    CREDIT_STEP,
    KNOWN,
    PENDING,
    PENDING_ROOM,
    STARTED,
    TAKEN,
    TURN,
)
from gmpi.contract.wire import DEVICE_COLLECTIVES, DEVICE_DIRECT_OPEN, DEVICE_PENDING

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def numbers(calls: int, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """What this rank gives in each call, and the sums of all ranks."""
    every = np.arange(calls * n, dtype=np.int64).reshape(calls, n) + 1
    return every * (RANK + 1), every * (SIZE * (SIZE + 1) // 2)


def arrays(calls: int, n: int = N) -> tuple:
    mine, sums = numbers(calls, n)
    rooms, requests = np.zeros_like(mine), np.zeros(calls, np.int64)
    return *map(cuda.to_device, (mine, rooms, requests)), sums


def errors_of(n: int):
    return cuda.to_device(np.zeros(n, np.int64))


def check(g: gmpi.Context, rooms, sums, errors=None) -> None:
    g.synchronize()
    np.testing.assert_array_equal(rooms.copy_to_host(), sums)
    assert errors is None or not errors.copy_to_host().any(), errors.copy_to_host()
    for count in (DEVICE_PENDING, DEVICE_DIRECT_OPEN):
        assert g._memory.read_device(count, 8).view(np.int64)[0] == 0


@cuda.jit
def start_then_wait(ctx, mine, rooms, requests, order, calls, n, comm, errors):
    for k in range(calls):
        requests[k] = GMPI_Iallreduce(ctx, mine[k], rooms[k], n, gmpi.INT64_T, gmpi.SUM, comm)
    for k in range(calls):
        errors[k] = GMPI_Wait(ctx, requests[order[k]]).error


@cuda.jit
def one_by_one(ctx, mine, rooms, requests, order, calls, n, comm, errors):
    for k in range(calls):
        request = GMPI_Iallreduce(ctx, mine[k], rooms[k], n, gmpi.INT64_T, gmpi.SUM, comm)
        errors[k] = GMPI_Wait(ctx, request).error


@cuda.jit
def by_warps(ctx, mine, rooms, requests, order, calls, n, comm, errors):
    if cuda.threadIdx.x // 32 == cuda.blockDim.x // 32 - 1:
        for k in range(calls):
            requests[k] = GMPI_Iallreduce_warp(
                ctx, mine[k], rooms[k], n, gmpi.INT64_T, gmpi.SUM, comm
            )
        for k in range(calls):
            errors[k] = GMPI_Wait_warp(ctx, requests[order[k]]).error


def no_record(g: gmpi.Context) -> None:
    """The proxy never hears of one, unless a rank waits long."""
    records: list[int] = []
    while len(records) < 2 or (len(records) < 20 and WORLD.allreduce(0 not in records)):
        mine, rooms, requests, sums = arrays(10)
        errors, order = errors_of(10), cuda.to_device(np.arange(10))
        barrier()
        before = g._state.taken
        start_then_wait[1, THREADS](g.device, mine, rooms, requests, order, 10, N, 0, errors)
        check(g, rooms, sums, errors)
        records.append(g._state.taken - before)
    assert min(records) == 0, f"records: {records}"


def any_order(g: gmpi.Context) -> None:
    """Waited for in the order of the calls, backwards and mixed; by blocks and warps; of no bytes
    and of as many as there is room for. Longer ones take the proxied road beside them."""
    rng = np.random.default_rng(5)
    for kernel in (start_then_wait, by_warps):
        for n in (N, 0, PENDING_ROOM // 8, PENDING_ROOM // 8 + 1):
            calls = 2 * CREDIT_STEP + 3
            for wanted in (np.arange(calls)[::-1], rng.permutation(calls)):
                mine, rooms, requests, sums = arrays(calls, max(n, 1))
                errors = errors_of(calls)
                order = cuda.to_device(np.ascontiguousarray(wanted))
                kernel[1, THREADS](g.device, mine, rooms, requests, order, calls, n, 0, errors)
                check(g, rooms, sums if n else 0 * sums, errors)


def more_than_fit(g: gmpi.Context) -> None:
    """Some ranks start many before they wait, backwards; the others wait for each at once. Or all
    start many: whose start waits for room takes what has come."""
    calls = 2 * PENDING + 5
    order = cuda.to_device(np.arange(calls)[::-1].copy())
    for early in (RANK == 0, RANK != 0, True):
        mine, rooms, requests, sums = arrays(calls)
        errors = errors_of(calls)
        kernel = start_then_wait if early else one_by_one
        kernel[1, THREADS](g.device, mine, rooms, requests, order, calls, N, 0, errors)
        check(g, rooms, sums, errors)


@cuda.jit
def one_receives_meanwhile(ctx, mine, rooms, requests, calls, rank, size, errors):
    """Rank 0 needs room that the others give only while they wait for its message."""
    message = rooms[calls]
    first = 0 if rank == 0 else PENDING
    for k in range(first):
        requests[k] = GMPI_Iallreduce(ctx, mine[k], rooms[k], N, gmpi.INT64_T, gmpi.SUM, 0)
    if rank != 0:
        errors[0] = GMPI_Recv(ctx, message, 1, gmpi.INT64_T, 0, 5, 0).error
    for k in range(first, calls):
        requests[k] = GMPI_Iallreduce(ctx, mine[k], rooms[k], N, gmpi.INT64_T, gmpi.SUM, 0)
        if rank == 0 and k < PENDING:
            errors[0] = max(errors[0], GMPI_Wait(ctx, requests[k]).error)
            requests[k] = gmpi.REQUEST_NULL
    if rank == 0:
        for peer in range(1, size):
            errors[0] = max(errors[0], GMPI_Send(ctx, message, 1, gmpi.INT64_T, peer, 5, 0).error)
    for k in range(calls):
        errors[1] = max(errors[1], GMPI_Wait(ctx, requests[k]).error)


def progress_elsewhere(g: gmpi.Context) -> None:
    calls = PENDING + 3
    mine, rooms, requests, sums = arrays(calls + 1)
    errors = errors_of(2)
    one_receives_meanwhile[1, THREADS](g.device, mine, rooms, requests, calls, RANK, SIZE, errors)
    sums[calls] = 0
    check(g, rooms, sums, errors)


@cuda.jit
def two_blocks(ctx, mine, rooms, requests, calls, errors):
    if cuda.blockIdx.x == 0:
        for k in range(calls):
            requests[k] = GMPI_Iallreduce(ctx, mine[k], rooms[k], N, gmpi.INT64_T, gmpi.SUM, 0)
    cuda.cg.this_grid().sync()
    k = calls - 1 - cuda.blockIdx.x
    while k >= 0:
        errors[k] = GMPI_Wait(ctx, requests[k]).error
        k -= 2


def other_blocks(g: gmpi.Context) -> None:
    """Two blocks wait, each for what the other takes; one of them has started nothing."""
    for _ in range(2 if gmpi.SIMULATOR else 50):
        calls = 21
        mine, rooms, requests, sums = arrays(calls)
        errors = errors_of(calls)
        two_blocks[2, THREADS](g.device, mine, rooms, requests, calls, errors)
        check(g, rooms, sums, errors)


@cuda.jit
def in_every_way(ctx, mine, rooms, byte, requests, peers, rank, errors):
    """Among messages and calls that block; Test, Waitall, Waitany and Request_get_status."""
    for turn in range(3):
        k = 6 * turn
        requests[0] = GMPI_Irecv(ctx, rooms[k], N, gmpi.INT64_T, peers[1], turn, 0)
        requests[1] = GMPI_Iallreduce(ctx, mine[k + 1], rooms[k + 1], N, gmpi.INT64_T, gmpi.SUM, 0)
        requests[2] = GMPI_Ibcast(ctx, byte, 5, gmpi.BYTE, turn % peers[2], 0)
        errors[0] = max(
            errors[0],
            GMPI_Allreduce(ctx, mine[k + 2], rooms[k + 2], N, gmpi.INT64_T, gmpi.SUM, 0),
        )
        requests[3] = GMPI_Isend(ctx, mine[k], N, gmpi.INT64_T, peers[0], turn, 0)
        requests[4] = GMPI_Ibarrier(ctx, 0)
        requests[5] = GMPI_Iallreduce(
            ctx, gmpi.IN_PLACE, rooms[k + 3], N, gmpi.INT64_T, gmpi.SUM, 0
        )
        if turn == 0:
            errors[1] = max(errors[1], GMPI_Waitall(ctx, 6, requests))
        elif turn == 1:
            for _ in range(6):
                _, status = GMPI_Waitany(ctx, 6, requests)
                errors[2] = max(errors[2], status.error)
        else:
            for i in range(6):
                done = False
                while not done:
                    done, status = GMPI_Request_get_status(ctx, requests[5 - i])
                done = False
                while not done:
                    done, status = GMPI_Test(ctx, requests[5 - i])
                errors[3] = max(errors[3], status.error)
        errors[0] = max(errors[0], GMPI_Barrier(ctx, 0))


def every_way(g: gmpi.Context) -> None:
    mine, rooms, requests, sums = arrays(18)
    rooms.copy_to_device(mine)  # IN_PLACE
    every = numbers(18)[0] // (RANK + 1)
    data = np.arange(5, dtype=np.uint8) + RANK * 3
    byte, peers = cuda.to_device(data), cuda.to_device(np.array([NEXT, PREVIOUS, SIZE]))
    errors = errors_of(4)
    in_every_way[1, THREADS](g.device, mine, rooms, byte, requests, peers, RANK, errors)
    expected = mine.copy_to_host()
    for k in (0, 6, 12):
        expected[k] = every[k] * (PREVIOUS + 1)
        expected[k + 1 : k + 4] = sums[k + 1 : k + 4]
    check(g, rooms, expected, errors)
    assert byte.copy_to_host().tolist() == list(range(5))  # all have what the first root had


@cuda.jit
def of_columns(ctx, mine, rooms, table, datatype, calls, errors):
    for k in range(calls):
        a = GMPI_Iallreduce(ctx, mine[:, k], rooms[:, k], N, gmpi.INT64_T, gmpi.SUM, 0)
        b = GMPI_Iallreduce(ctx, mine[:, k], rooms[:, calls + k], N, gmpi.INT64_T, gmpi.SUM, 0)
        c = GMPI_Ibcast(ctx, table, 1, datatype, k % 2, 0)
        errors[k] = max(GMPI_Wait(ctx, b).error, GMPI_Wait(ctx, c).error)
        errors[k] = max(errors[k], GMPI_Wait(ctx, a).error)


def scattered(g: gmpi.Context) -> None:
    """Strided views and derived datatypes, which only some ranks may have."""
    if SIZE == 1:
        return
    calls = 4
    mine, sums = numbers(calls)
    given = cuda.to_device(np.ascontiguousarray(mine.T))
    rooms = cuda.to_device(np.zeros((N, 2 * calls), np.int64))
    table = cuda.to_device(np.arange(24, dtype=np.int32).reshape(4, 6) + 100 * RANK)
    column = MPI.INT32_T.Create_vector(4, 2, 6)
    handle = g.commit(column)
    errors = errors_of(calls)
    of_columns[1, THREADS](g.device, given, rooms, table, handle, calls, errors)
    check(g, rooms, np.hstack([sums.T, sums.T]), errors)
    expected = np.arange(24).reshape(4, 6) + 100 * RANK
    expected[:, :2] = np.arange(24).reshape(4, 6)[:, :2]  # all have what the first root had
    np.testing.assert_array_equal(table.copy_to_host(), expected)
    g.free(handle)


@cuda.jit
def of_blocks(ctx, a, out, requests, root, size, errors):
    """Each of the calls that move blocks, all under way together."""
    requests[0] = GMPI_Ireduce(ctx, a[0], out[0], N, gmpi.INT64_T, gmpi.SUM, root, 0)
    requests[1] = GMPI_Igather(ctx, a[1], 2, gmpi.INT64_T, out[1], 2, gmpi.INT64_T, root, 0)
    requests[2] = GMPI_Iscatter(ctx, a[2], 2, gmpi.INT64_T, out[2], 2, gmpi.INT64_T, root, 0)
    requests[3] = GMPI_Iallgather(ctx, a[3], 2, gmpi.INT64_T, out[3], 2, gmpi.INT64_T, 0)
    requests[4] = GMPI_Ialltoall(ctx, a[4], 2, gmpi.INT64_T, out[4], 2, gmpi.INT64_T, 0)
    requests[5] = GMPI_Ireduce_scatter_block(ctx, a[5], out[5], 2, gmpi.INT64_T, gmpi.MAX, 0)
    requests[6] = GMPI_Iscan(ctx, a[6], out[6], N, gmpi.INT64_T, gmpi.SUM, 0)
    requests[7] = GMPI_Iexscan(ctx, a[7], out[7], N, gmpi.INT64_T, gmpi.SUM, 0)
    # What lies in one piece, and what does not, and IN_PLACE.
    requests[8] = GMPI_Iallgather(ctx, a[8, ::2], 2, gmpi.INT64_T, out[8, ::2], 2, gmpi.INT64_T, 0)
    requests[9] = GMPI_Ialltoall(ctx, gmpi.IN_PLACE, 2, gmpi.INT64_T, out[9], 2, gmpi.INT64_T, 0)
    requests[10] = GMPI_Ialltoall(
        ctx, a[10, ::2], 2, gmpi.INT64_T, out[10, ::2], 2, gmpi.INT64_T, 0
    )
    errors[0] = GMPI_Waitall(ctx, 11, requests)


def blocks(g: gmpi.Context) -> None:
    """Without the proxy, with the results of MPI on the host."""
    width = 4 * max(2, SIZE)
    a = np.random.default_rng(RANK).integers(1, 1000, (11, width))
    in_place = 0 * a
    in_place[9] = a[9]
    for root in range(SIZE):
        expected = in_place.copy()
        w, n = WORLD, 2 * SIZE
        reduced, gathered = np.zeros(N, np.int64), np.zeros(n, np.int64)
        w.Reduce(a[0, :N].copy(), reduced, root=root)
        w.Gather(a[1, :2].copy(), gathered, root=root)
        if root == RANK:
            expected[0, :N], expected[1, :n] = reduced, gathered
        w.Scatter(a[2, :n].copy(), expected[2, :2], root=root)
        w.Allgather(a[3, :2].copy(), expected[3, :n])
        w.Alltoall(a[4, :n].copy(), expected[4, :n])
        w.Reduce_scatter_block(a[5, :n].copy(), expected[5, :2], MPI.MAX)
        w.Scan(a[6, :N].copy(), expected[6, :N])
        w.Exscan(a[7, :N].copy(), expected[7, :N])
        for k, every in ((8, w.Allgather), (10, w.Alltoall)):
            given = a[k, : 2 * (2 if k == 8 else n) : 2].copy()
            every(given, gathered)
            expected[k, : 2 * n : 2] = gathered
        w.Alltoall(a[9, :n].copy(), expected[9, :n])
        records: list[int] = []
        while len(records) < 2 or (len(records) < 20 and WORLD.allreduce(0 not in records)):
            given, out = (
                cuda.to_device(a),
                cuda.to_device(np.where(np.arange(11) == 9, 1, 0)[:, None] * a),
            )
            requests, errors = errors_of(11), errors_of(1)
            barrier()
            before = g._state.taken
            of_blocks[1, THREADS](g.device, given, out, requests, root, SIZE, errors)
            check(g, out, expected, errors)
            records.append(g._state.taken - before)
        assert min(records) == 0, f"records: {records}"


@cuda.jit
def synchronizes(ctx, mine, rooms, requests, calls, comm, errors):
    for k in range(calls):
        c = comm if k % 2 else 0
        requests[k] = GMPI_Iallreduce(ctx, mine[k], rooms[k], N, gmpi.INT64_T, gmpi.SUM, c)
    errors[0] = GMPI_Synchronize(ctx)
    cuda.syncthreads()
    for k in range(calls):
        if cuda.threadIdx.x == 0:
            errors[1] += rooms[k, 0] == 0
    for k in range(calls):
        errors[2] = max(errors[2], GMPI_Wait(ctx, requests[k]).error)


def synchronize(g: gmpi.Context) -> None:
    """After it all that has been started is complete."""
    other = WORLD.Dup()
    comm = g.comm(other, wildcards=False)
    mine, rooms, requests, sums = arrays(9)
    errors = errors_of(3)
    synchronizes[1, THREADS](g.device, mine, rooms, requests, 9, comm, errors)
    check(g, rooms, sums, errors)
    g.free(comm)
    other.Free()


def counts_wrap(g: gmpi.Context) -> None:
    """Those in packets and in handles repeat, and nothing of a former turn passes for new."""
    calls = PENDING + CREDIT_STEP + 3
    # Of packet 0 only 30 bits are told apart; none are used twice here.
    for before in ((1 << 24) - 3, (1 << 30) - 2, (1 << 40) + 12345):
        barrier()
        assert (TAKEN, TURN, KNOWN) == (STARTED + 8, STARTED + 16, STARTED + 32)
        words = np.array([before, before, before % (1 << 24) << 1, 0, before])
        g._memory.write_device(DEVICE_COLLECTIVES + STARTED, words)
        barrier()
        mine, rooms, requests, sums = arrays(calls)
        errors, order = errors_of(calls), cuda.to_device(np.arange(calls)[::-1].copy())
        start_then_wait[1, THREADS](g.device, mine, rooms, requests, order, calls, N, 0, errors)
        check(g, rooms, sums, errors)


def main() -> None:
    with gmpi.Context(WORLD, wildcards=False, watchdog_s=20) as g:
        run(
            [
                no_record, any_order, more_than_fit, progress_elsewhere, other_blocks, every_way,
                scattered, blocks, synchronize, counts_wrap, pending_endings.that_differ,
                pending_endings.a_bcast_that_differs,
                pending_endings.bad_arguments,
            ],
            g,
        )  # fmt: skip
    if len(sys.argv) == 1:
        run(pending_endings.OF_A_CONTEXT)
    end()


if __name__ == "__main__":
    main()
