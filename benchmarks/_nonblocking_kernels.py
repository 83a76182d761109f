"""Kernels of ``collectives.py`` that start calls and wait for them: Iallreduce of doubles."""

from __future__ import annotations

from numba import cuda

import gmpi
from gmpi import GMPI_Iallreduce, GMPI_Ibarrier, GMPI_Wait, GMPI_Waitall

IALLREDUCE, START, FOUR, IBARRIER = range(20, 24)
NAMES = {
    IALLREDUCE: "Iallreduce", START: "its start", FOUR: "four of it", IBARRIER: "Ibarrier"
}  # fmt: skip
SIZES = 8, 256


# wide: a kernel
@cuda.jit
def measure(ctx, which, data, out, rounds, skip, cycles, size, comm):
    """A call and its wait; only the call; four calls and a Waitall."""
    n = data.size
    for i in range(rounds):
        begin = gmpi.clock()
        if which == IBARRIER:
            a = GMPI_Ibarrier(ctx, comm)
        else:
            a = GMPI_Iallreduce(ctx, data, out, n, gmpi.DOUBLE, gmpi.SUM, comm)
        started = gmpi.clock()
        if which == FOUR:
            b = GMPI_Iallreduce(ctx, data, out, n, gmpi.DOUBLE, gmpi.SUM, comm)
            c = GMPI_Iallreduce(ctx, data, out, n, gmpi.DOUBLE, gmpi.SUM, comm)
            d = GMPI_Iallreduce(ctx, data, out, n, gmpi.DOUBLE, gmpi.SUM, comm)
            GMPI_Waitall(ctx, 4, (a, b, c, d))
        else:
            GMPI_Wait(ctx, a)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = (started if which == START else gmpi.clock()) - begin


# wide: a kernel
@cuda.jit
def check(ctx, which, data, out, rounds, wrong, rank, size, comm):
    """The same calls; every round has values of its own."""
    first, step = cuda.threadIdx.x, cuda.blockDim.x
    n = data.size
    for i in range(rounds):
        for k in range(first, n, step):
            data[k] = i + k + rank
        cuda.syncthreads()
        a = GMPI_Ibarrier(ctx, comm)
        b = GMPI_Iallreduce(ctx, data, out, n, gmpi.DOUBLE, gmpi.SUM, comm)
        error = max(GMPI_Wait(ctx, b).error, GMPI_Wait(ctx, a).error)
        for k in range(first, n, step):
            if out[k] != size * (i + k) + size * (size - 1) // 2:
                cuda.atomic.add(wrong, 0, 1)
        if error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        cuda.syncthreads()
