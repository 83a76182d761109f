"""Kernels of ``collectives.py`` that call what moves blocks: doubles, a block for each rank."""

from __future__ import annotations

from numba import cuda

import gmpi
from gmpi import GMPI_Allgather, GMPI_Alltoall, GMPI_Exscan, GMPI_Reduce, GMPI_Scan

REDUCE, ALLGATHER, ALLTOALL, SCAN, EXSCAN = range(10, 15)
NAMES = {
    REDUCE: "Reduce", ALLGATHER: "Allgather", ALLTOALL: "Alltoall", SCAN: "Scan", EXSCAN: "Exscan"
}  # fmt: skip


@cuda.jit(device=True)
def _call(ctx, which, data, out, n, root, comm):
    """One of them, of ``n`` doubles a block; the roots of Reduces go round, so that none runs
    ahead."""
    error = gmpi.SUCCESS
    if which == REDUCE:
        error = GMPI_Reduce(ctx, data, out, n, gmpi.DOUBLE, gmpi.SUM, root, comm)
    elif which == ALLGATHER:
        error = GMPI_Allgather(ctx, data, n, gmpi.DOUBLE, out, n, gmpi.DOUBLE, comm)
    elif which == ALLTOALL:
        error = GMPI_Alltoall(ctx, data, n, gmpi.DOUBLE, out, n, gmpi.DOUBLE, comm)
    elif which == SCAN:
        error = GMPI_Scan(ctx, data, out, n, gmpi.DOUBLE, gmpi.SUM, comm)
    else:
        error = GMPI_Exscan(ctx, data, out, n, gmpi.DOUBLE, gmpi.SUM, comm)
    return error


# wide: a kernel
@cuda.jit
def measure(ctx, which, data, out, rounds, skip, cycles, size, comm):
    n = data.size // size
    for i in range(rounds):
        root = i % size  # a division, which is none of the call's
        begin = gmpi.clock()
        _call(ctx, which, data, out, n, root, comm)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


@cuda.jit(device=True)
def _wanted(which, i, k, n, rank, size):
    """What element ``k`` of ``out`` is after round ``i``; -1: whatever it was."""
    if which == ALLGATHER:
        return i + k % n + 1000 * (k // n)
    if which == ALLTOALL:
        return i + rank * n + k % n + 1000 * (k // n)
    ranks = size
    if which == SCAN:
        ranks = rank + 1
    elif which == EXSCAN:
        ranks = rank
    if k >= n or ranks == 0 or (which == REDUCE and rank != i % size):
        return -1
    return ranks * (i + k) + 1000 * (ranks * (ranks - 1) // 2)


# wide: a kernel
@cuda.jit
def check(ctx, which, data, out, rounds, wrong, rank, size, comm):
    """The same calls; every round has values of its own."""
    n = data.size // size
    first, step = cuda.threadIdx.x, cuda.blockDim.x
    for i in range(rounds):
        for k in range(first, data.size, step):
            data[k] = i + k + 1000 * rank
            out[k] = -1
        if _call(ctx, which, data, out, n, i % size, comm) != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        for k in range(first, data.size, step):
            if out[k] != _wanted(which, i, k, n, rank, size):
                cuda.atomic.add(wrong, 0, 1)
        cuda.syncthreads()
