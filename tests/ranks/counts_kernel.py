"""A kernel that carries out collectives with counts for each rank, and those among neighbours, as
rows of an array say."""

from __future__ import annotations

from typing import Any

from numba import cuda, int32, int64

import gmpi
from device_lib.api.binding import block_calls, warp_calls
from gmpi.contract import moves

ROWS = {row.op: row for row in moves.WITH_TABLES}
NOT_BLOCKING = 1 << 10
WAIT = 1 << 11
MOST = 64  # elements of an array in shared memory


def _kernel(calls: Any, warp: bool, integer: Any, arrays: bool) -> Any:
    """Carries out rows (what, sendbuf's begin and length, count, type, recvbuf's begin and length,
    count, type, op, root, comm, where its arrays begin, how many elements each has, in shared).

    A length of -1: IN_PLACE. The arrays, one after the other: sendcounts, sdispls, sendtypes,
    recvcounts, rdispls, recvtypes.

    Args:
        integer: type of their elements.
        arrays: buffers are arrays, and none is IN_PLACE; else addresses from ``heap_at`` on, as
            IN_PLACE is one. A variable of a kernel has one type.
    """
    c = calls

    def one(name: str) -> tuple[Any, Any]:
        return getattr(c, name), getattr(c, "i" + name)

    gatherv, igatherv = one("gatherv")
    scatterv, iscatterv = one("scatterv")
    allgatherv, iallgatherv = one("allgatherv")
    alltoallv, ialltoallv = one("alltoallv")
    alltoallw, ialltoallw = one("alltoallw")
    reduce_scatter, ireduce_scatter = one("reduce_scatter")
    near_allgather, inear_allgather = one("neighbor_allgather")
    near_allgatherv, inear_allgatherv = one("neighbor_allgatherv")
    near_alltoall, inear_alltoall = one("neighbor_alltoall")
    near_alltoallv, inear_alltoallv = one("neighbor_alltoallv")
    near_alltoallw, inear_alltoallw = one("neighbor_alltoallw")
    wait = c.wait
    GATHERV, SCATTERV, ALLGATHERV, ALLTOALLV, ALLTOALLW, REDUCE_SCATTER = list(ROWS)[:6]
    NEAR_ALLGATHER, NEAR_ALLGATHERV, NEAR_ALLTOALL, NEAR_ALLTOALLV, NEAR_ALLTOALLW = list(ROWS)[6:]

    @cuda.jit(device=True)
    def sync():
        if warp:
            cuda.syncwarp()
        else:
            cuda.syncthreads()

    @cuda.jit(device=True)
    def copy(ints, shared):
        sync()  # all have read what the row before has put there
        if cuda.threadIdx.x == 0:
            for j in range(ints.shape[0]):
                shared[j] = ints[j]
        sync()

    @cuda.jit(device=True)
    def perform(ctx, r, a, b, ints, requests, i):
        """Row ``i``: its error class."""
        what, n, t, m, u, op, root, comm = r[0], r[3], r[4], r[7], r[8], r[9], r[10], r[11]
        k = r[13]
        sc, sd, st = ints[:k], ints[k : 2 * k], ints[2 * k : 3 * k]
        rc, rd, rt = ints[3 * k : 4 * k], ints[4 * k : 5 * k], ints[5 * k : 6 * k]
        x = 0
        if what == GATHERV:
            x = gatherv(ctx, a, n, t, b, rc, rd, u, root, comm)
        elif what == SCATTERV:
            x = scatterv(ctx, a, sc, sd, t, b, m, u, root, comm)
        elif what == ALLGATHERV:
            x = allgatherv(ctx, a, n, t, b, rc, rd, u, comm)
        elif what == ALLTOALLV:
            x = alltoallv(ctx, a, sc, sd, t, b, rc, rd, u, comm)
        elif what == ALLTOALLW:
            x = alltoallw(ctx, a, sc, sd, st, b, rc, rd, rt, comm)
        elif what == REDUCE_SCATTER:
            x = reduce_scatter(ctx, a, b, rc, t, op, comm)
        elif what == GATHERV | NOT_BLOCKING:
            requests[i] = igatherv(ctx, a, n, t, b, rc, rd, u, root, comm)
        elif what == SCATTERV | NOT_BLOCKING:
            requests[i] = iscatterv(ctx, a, sc, sd, t, b, m, u, root, comm)
        elif what == ALLGATHERV | NOT_BLOCKING:
            requests[i] = iallgatherv(ctx, a, n, t, b, rc, rd, u, comm)
        elif what == ALLTOALLV | NOT_BLOCKING:
            requests[i] = ialltoallv(ctx, a, sc, sd, t, b, rc, rd, u, comm)
        elif what == ALLTOALLW | NOT_BLOCKING:
            requests[i] = ialltoallw(ctx, a, sc, sd, st, b, rc, rd, rt, comm)
        elif what == REDUCE_SCATTER | NOT_BLOCKING:
            requests[i] = ireduce_scatter(ctx, a, b, rc, t, op, comm)
        elif what == NEAR_ALLGATHER:
            x = near_allgather(ctx, a, n, t, b, m, u, comm)
        elif what == NEAR_ALLGATHERV:
            x = near_allgatherv(ctx, a, n, t, b, rc, rd, u, comm)
        elif what == NEAR_ALLTOALL:
            x = near_alltoall(ctx, a, n, t, b, m, u, comm)
        elif what == NEAR_ALLTOALLV:
            x = near_alltoallv(ctx, a, sc, sd, t, b, rc, rd, u, comm)
        elif what == NEAR_ALLTOALLW:
            x = near_alltoallw(ctx, a, sc, sd, st, b, rc, rd, rt, comm)
        elif what == NEAR_ALLGATHER | NOT_BLOCKING:
            requests[i] = inear_allgather(ctx, a, n, t, b, m, u, comm)
        elif what == NEAR_ALLGATHERV | NOT_BLOCKING:
            requests[i] = inear_allgatherv(ctx, a, n, t, b, rc, rd, u, comm)
        elif what == NEAR_ALLTOALL | NOT_BLOCKING:
            requests[i] = inear_alltoall(ctx, a, n, t, b, m, u, comm)
        elif what == NEAR_ALLTOALLV | NOT_BLOCKING:
            requests[i] = inear_alltoallv(ctx, a, sc, sd, t, b, rc, rd, u, comm)
        elif what == NEAR_ALLTOALLW | NOT_BLOCKING:
            requests[i] = inear_alltoallw(ctx, a, sc, sd, st, b, rc, rd, rt, comm)
        elif what == WAIT:
            x = wait(ctx, requests[n]).error
        return x

    if arrays:

        @cuda.jit
        def execute(ctx, program, heap, heap_at, integers, requests, errors):
            shared = cuda.shared.array(MOST, integer)
            if warp and cuda.threadIdx.x >= 32:
                return
            for i in range(program.shape[0]):
                r = program[i]
                ints = integers[r[12] : r[12] + 6 * r[13]]
                if r[14] != 0:
                    copy(ints, shared)
                    ints = shared[: 6 * r[13]]
                a, b = heap[r[1] : r[1] + r[2]], heap[r[5] : r[5] + r[6]]
                errors[i] = perform(ctx, r, a, b, ints, requests, i)

    else:

        @cuda.jit
        def execute(ctx, program, heap, heap_at, integers, requests, errors):
            shared = cuda.shared.array(MOST, integer)
            if warp and cuda.threadIdx.x >= 32:
                return
            for i in range(program.shape[0]):
                r = program[i]
                ints = integers[r[12] : r[12] + 6 * r[13]]
                if r[14] != 0:
                    copy(ints, shared)
                    ints = shared[: 6 * r[13]]
                a = heap_at + r[1] if r[2] >= 0 else gmpi.IN_PLACE
                b = heap_at + r[5] if r[6] >= 0 else gmpi.IN_PLACE
                errors[i] = perform(ctx, r, a, b, ints, requests, i)

    return execute


#: By scope, whether the integers have 64 bits, and whether buffers are arrays.
KERNELS = {
    (scope, wide, arrays): _kernel(calls, scope == "warp", int64 if wide else int32, arrays)
    for scope, calls in (("block", block_calls), ("warp", warp_calls))
    for wide in (False, True)
    for arrays in (False, True)
}
