"""Collectives of one block a rank: osu_allreduce and osu_alltoall."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

import gmpi
from gmpi.bench import figures
from gmpi.bench.figures import Bench


@cuda.jit
def sums(ctx, out, into, n, rounds, skip, timed):
    began = gmpi.timer_ns()
    for i in range(rounds + skip):
        if i == skip:
            began = gmpi.timer_ns()
        gmpi.GMPI_Allreduce(ctx, out, into, n, gmpi.FLOAT, gmpi.SUM, gmpi.COMM_WORLD)
    if cuda.threadIdx.x == 0:
        timed[0] = gmpi.timer_ns() - began


@cuda.jit
def exchanges(ctx, out, into, n, rounds, skip, timed):
    world = gmpi.COMM_WORLD
    began = gmpi.timer_ns()
    for i in range(rounds + skip):
        if i == skip:
            began = gmpi.timer_ns()
        gmpi.GMPI_Alltoall(ctx, out, n, gmpi.BYTE, into, n, gmpi.BYTE, world)
    if cuda.threadIdx.x == 0:
        timed[0] = gmpi.timer_ns() - began


def _run(
    bench: Bench, subject: str, kernel: Any, sent: Any, right: Any, n: int, nbytes: int
) -> dict[str, float]:
    out, into = cuda.to_device(sent), cuda.to_device(np.zeros_like(sent))
    timed = figures.device_zeros(1, np.int64)
    for rounds, skip in ((1, 0), (bench.rounds, bench.skip)):
        bench.world.Barrier()
        kernel[1, bench.threads](bench.g.device, out, into, n, rounds, skip, timed)
        bench.g.synchronize()
        good = np.array_equal(into.copy_to_host(), right)
        figures.require_right(bench, subject, nbytes, good)
    found = figures.of_all_ranks(bench, figures.nanoseconds_a_round(bench, timed) / 1000)
    return {"value": found["slowest"], **found}


def allreduce(bench: Bench, nbytes: int) -> dict[str, float]:
    """Microseconds a sum of floats takes, on the slowest rank."""
    n, ranks = max(1, nbytes // 4), bench.world.size
    sent = (np.arange(n) % 100 + bench.world.rank).astype(np.float32)
    right = (ranks * (np.arange(n) % 100) + ranks * (ranks - 1) // 2).astype(np.float32)
    return _run(bench, "allreduce", sums, sent, right, n, nbytes)


def alltoall(bench: Bench, nbytes: int) -> dict[str, float]:
    """Microseconds to send so many bytes to each rank."""
    me, ranks = bench.world.rank, bench.world.size
    pattern = np.arange(nbytes) % 200

    def block(source: int, dest: int) -> Any:
        return (pattern + 5 * source + dest).astype(np.uint8)

    sent = np.concatenate([block(me, peer) for peer in range(ranks)])
    right = np.concatenate([block(peer, me) for peer in range(ranks)])
    return _run(bench, "alltoall", exchanges, sent, right, nbytes, nbytes)
