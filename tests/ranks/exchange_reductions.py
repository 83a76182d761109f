"""Direct Reduce_scatter: scenarios of ``exchanges``."""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, WORLD, barrier, ends_and_is_refused, same
from numba import cuda

import gmpi
from gmpi import GMPI_Reduce_scatter
from gmpi.contract.collectives import ROOM


@cuda.jit
def reduced(ctx, a, b, view, counts, errors):
    """Not in place, in place, and to every second element."""
    i, w = gmpi.INT32_T, gmpi.COMM_WORLD
    errors[0] = GMPI_Reduce_scatter(ctx, a, b, counts, i, gmpi.SUM, w)
    errors[1] = GMPI_Reduce_scatter(ctx, a, view[::2], counts, i, gmpi.MAX, w)
    errors[2] = GMPI_Reduce_scatter(ctx, gmpi.IN_PLACE, a, counts, i, gmpi.SUM, w)


def reductions_with_counts(g: gmpi.Context) -> None:
    """Of blocks that take one round, or several, or have nothing; a long one's result falls on the
    blocks of other ranks."""
    lengths = [3, ROOM // 4 + 5, 0, 700]
    for threads, first in ((32, 0), (100, 1), (20, 3), (32, 2)):
        counts = [lengths[(r + first) % 4] for r in range(SIZE)]
        total, own, at = sum(counts), counts[RANK], sum(counts[:RANK])
        values = np.arange(total, dtype=np.int32) * 3
        a = cuda.to_device(np.append(values + 100 * RANK, np.int32(-5)))
        b = cuda.to_device(np.full(own + 1, -1, np.int32))
        view = cuda.to_device(np.full(2 * own + 2, -1, np.int32))
        errors = cuda.to_device(np.full(3, -1))
        before = g._state.taken
        reduced[1, threads](g.device, a, b, view, cuda.to_device(np.array(counts)), errors)
        g.synchronize()
        same(errors, [0] * 3, "error classes")
        sums = SIZE * values[at : at + own] + 100 * sum(range(SIZE))
        what = f"{counts}, {threads} threads, {g._state.taken - before} records"
        same(b, [*sums, -1], what)
        same(a.copy_to_host()[:own], sums, f"{what}, in place")
        assert a.copy_to_host()[total] == -5
        want = np.full(2 * own + 2, -1, np.int32)
        want[: 2 * own : 2] = values[at : at + own] + 100 * (SIZE - 1)
        same(view, want, f"{what}, a view")


def reductions_that_differ(g: gmpi.Context) -> None:
    """End with an error that names both, and later ones on the communicator are refused."""
    if SIZE == 1:
        return
    other = WORLD.Dup()
    comm = g.comm(other, wildcards=False)
    a, b = (cuda.to_device(np.zeros(8 * SIZE, np.int32)) for _ in range(2))
    errors = cuda.to_device(np.full(2, -1))
    counts = cuda.to_device(np.full(SIZE, 2 if RANK else 3))
    twice_reduced[1, 32](g.device, a, b, counts, comm, errors)
    said = ends_and_is_refused(g, errors)
    for n in (2, 3):
        assert f"GMPI_Reduce_scatter SUM of {n * SIZE} INT32_T" in said, said
    barrier()
    other.Free()


@cuda.jit
def twice_reduced(ctx, a, b, counts, comm, errors):
    for k in range(2):
        errors[k] = GMPI_Reduce_scatter(ctx, a, b, counts, gmpi.INT32_T, gmpi.SUM, comm)


SCENARIOS = [reductions_with_counts, reductions_that_differ]
