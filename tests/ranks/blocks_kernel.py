"""A kernel that carries out collectives that move blocks, as rows of an array say."""

from __future__ import annotations

from typing import Any

from numba import cuda

import gmpi
from device_lib.api.binding import block_calls, warp_calls
from gmpi.contract import moves
from gmpi.contract.wire import OP_ALLREDUCE, OP_BARRIER, OP_BCAST

ROWS = {row.op: row for row in moves.ROWS}
NOT_BLOCKING = 1 << 10
WAIT = 1 << 11


def _kernel(calls: Any, warp: bool, arrays: bool) -> Any:
    """Carries out rows (what, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, op, root,
    comm): the buffers are offsets in the heap and lengths; a length of -1 is IN_PLACE.

    Args:
        arrays: buffers are arrays, and none is IN_PLACE; else addresses from ``heap_at`` on, as
            IN_PLACE is one. A variable of a kernel has one type.
    """
    c = calls

    def one(name: str) -> tuple[Any, Any]:
        return getattr(c, name), getattr(c, "i" + name)

    reduce, ireduce = one("reduce")
    gather, igather = one("gather")
    scatter, iscatter = one("scatter")
    allgather, iallgather = one("allgather")
    alltoall, ialltoall = one("alltoall")
    block, iblock = one("reduce_scatter_block")
    scan, iscan = one("scan")
    exscan, iexscan = one("exscan")
    allreduce, iallreduce = one("allreduce")
    bcast, ibcast = one("bcast")
    barrier, ibarrier = one("barrier")
    wait = c.wait
    REDUCE, GATHER, SCATTER, ALLGATHER, ALLTOALL, BLOCK, SCAN, EXSCAN = ROWS

    @cuda.jit(device=True)
    def perform(ctx, r, a, b, requests, i):
        """Row ``i``: its error class."""
        what, n, t, m, u, op, root, comm = r[0], r[3], r[4], r[7], r[8], r[9], r[10], r[11]
        x = 0
        if what == REDUCE:
            x = reduce(ctx, a, b, n, t, op, root, comm)
        elif what == GATHER:
            x = gather(ctx, a, n, t, b, m, u, root, comm)
        elif what == SCATTER:
            x = scatter(ctx, a, n, t, b, m, u, root, comm)
        elif what == ALLGATHER:
            x = allgather(ctx, a, n, t, b, m, u, comm)
        elif what == ALLTOALL:
            x = alltoall(ctx, a, n, t, b, m, u, comm)
        elif what == BLOCK:
            x = block(ctx, a, b, n, t, op, comm)
        elif what == SCAN:
            x = scan(ctx, a, b, n, t, op, comm)
        elif what == EXSCAN:
            x = exscan(ctx, a, b, n, t, op, comm)
        elif what == OP_ALLREDUCE:
            x = allreduce(ctx, a, b, n, t, op, comm)
        elif what == OP_BCAST:
            x = bcast(ctx, b, m, u, root, comm)
        elif what == OP_BARRIER:
            x = barrier(ctx, comm)
        elif what == REDUCE | NOT_BLOCKING:
            requests[i] = ireduce(ctx, a, b, n, t, op, root, comm)
        elif what == GATHER | NOT_BLOCKING:
            requests[i] = igather(ctx, a, n, t, b, m, u, root, comm)
        elif what == SCATTER | NOT_BLOCKING:
            requests[i] = iscatter(ctx, a, n, t, b, m, u, root, comm)
        elif what == ALLGATHER | NOT_BLOCKING:
            requests[i] = iallgather(ctx, a, n, t, b, m, u, comm)
        elif what == ALLTOALL | NOT_BLOCKING:
            requests[i] = ialltoall(ctx, a, n, t, b, m, u, comm)
        elif what == BLOCK | NOT_BLOCKING:
            requests[i] = iblock(ctx, a, b, n, t, op, comm)
        elif what == SCAN | NOT_BLOCKING:
            requests[i] = iscan(ctx, a, b, n, t, op, comm)
        elif what == EXSCAN | NOT_BLOCKING:
            requests[i] = iexscan(ctx, a, b, n, t, op, comm)
        elif what == OP_ALLREDUCE | NOT_BLOCKING:
            requests[i] = iallreduce(ctx, a, b, n, t, op, comm)
        elif what == OP_BCAST | NOT_BLOCKING:
            requests[i] = ibcast(ctx, b, m, u, root, comm)
        elif what == OP_BARRIER | NOT_BLOCKING:
            requests[i] = ibarrier(ctx, comm)
        elif what == WAIT:
            x = wait(ctx, requests[n]).error
        return x

    if arrays:

        @cuda.jit
        def execute(ctx, program, heap, heap_at, requests, errors):
            if warp and cuda.threadIdx.x >= 32:
                return
            for i in range(program.shape[0]):
                r = program[i]
                a, b = heap[r[1] : r[1] + r[2]], heap[r[5] : r[5] + r[6]]
                errors[i] = perform(ctx, r, a, b, requests, i)

    else:

        @cuda.jit
        def execute(ctx, program, heap, heap_at, requests, errors):
            if warp and cuda.threadIdx.x >= 32:
                return
            for i in range(program.shape[0]):
                r = program[i]
                a = heap_at + r[1] if r[2] >= 0 else gmpi.IN_PLACE
                b = heap_at + r[5] if r[6] >= 0 else gmpi.IN_PLACE
                errors[i] = perform(ctx, r, a, b, requests, i)

    return execute


#: By scope, and whether buffers are arrays.
KERNELS = {
    (scope, arrays): _kernel(calls, scope == "warp", arrays)
    for scope, calls in (("block", block_calls), ("warp", warp_calls))
    for arrays in (False, True)
}
