"""A kernel that carries out collectives with counts for each rank, and those among neighbours, as
rows of an array say."""

from __future__ import annotations

from typing import Any

from numba import cuda, int32

import gmpi
from device_lib.api.binding import block_calls, warp_calls
from gmpi.contract import moves

ROWS = {row.op: row for row in moves.WITH_TABLES}
NOT_BLOCKING = 1 << 10
WAIT = 1 << 11
MOST = 64  # elements of an array in shared memory


def _kernel(calls: Any, warp: bool) -> Any:
    """Carries out rows (what, sendbuf's begin and length, count, type, recvbuf's begin and length,
    count, type, op, root, comm, where its arrays begin, how many elements each has, in shared).

    A length of -1: IN_PLACE. The arrays, one after the other: sendcounts, sdispls, sendtypes,
    recvcounts, rdispls, recvtypes.
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

    @cuda.jit
    def execute(ctx, program, heap, integers, requests, errors):
        shared = cuda.shared.array(MOST, int32)
        if warp and cuda.threadIdx.x >= 32:
            return
        for i in range(program.shape[0]):
            r = program[i]
            what, n, t, m, u, op, root, comm = r[0], r[3], r[4], r[7], r[8], r[9], r[10], r[11]
            at, k = r[12], r[13]
            a = heap[r[1] : r[1] + r[2]] if r[2] >= 0 else gmpi.IN_PLACE
            b = heap[r[5] : r[5] + r[6]] if r[6] >= 0 else gmpi.IN_PLACE
            x = 0
            if r[14] != 0 and cuda.threadIdx.x == 0:
                for j in range(6 * k):
                    shared[j] = integers[at + j]
            if warp:
                cuda.syncwarp()
            else:
                cuda.syncthreads()
            ints = integers[at : at + 6 * k]
            if r[14] != 0:
                ints = shared[: 6 * k]
            sc, sd, st = ints[:k], ints[k : 2 * k], ints[2 * k : 3 * k]
            rc, rd, rt = ints[3 * k : 4 * k], ints[4 * k : 5 * k], ints[5 * k : 6 * k]
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
            errors[i] = x

    return execute


KERNELS = {"block": _kernel(block_calls, False), "warp": _kernel(warp_calls, True)}
