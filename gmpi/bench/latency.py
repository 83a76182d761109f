"""One way between two kernels: a ping-pong (osu_latency)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from numba import cuda

import gmpi
from gmpi.bench import figures
from gmpi.bench.figures import Bench

RANKS = 2
UNIT = "Latency (us)"


@cuda.jit
def pingpong(ctx, buf, n, me, rounds, skip, timed):
    peer = 1 - me
    began = gmpi.timer_ns()
    for i in range(rounds + skip):
        if i == skip:
            began = gmpi.timer_ns()
        if me == 0:
            gmpi.GMPI_Send(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            gmpi.GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        else:
            gmpi.GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            gmpi.GMPI_Send(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
    if cuda.threadIdx.x == 0:
        timed[0] = gmpi.timer_ns() - began


def measure(bench: Bench, nbytes: int) -> dict[str, float]:
    """Microseconds one way."""
    me = bench.world.rank
    sent = (np.arange(max(1, nbytes)) * 7 % 251).astype(np.uint8)
    buf = cuda.to_device(sent if me == 0 else np.zeros_like(sent))
    timed = figures.device_zeros(1, np.int64)
    shape = 1, bench.threads
    bench.world.Barrier()
    pingpong[shape](bench.g.device, buf, nbytes, me, 1, 0, timed)
    bench.g.synchronize()
    right = np.array_equal(buf.copy_to_host()[:nbytes], sent[:nbytes])
    figures.require_right(bench, "latency", nbytes, right)
    pingpong[shape](bench.g.device, buf, nbytes, me, bench.rounds, bench.skip, timed)
    bench.g.synchronize()
    found = figures.of_all_ranks(bench, figures.nanoseconds_a_round(bench, timed) / 2000)
    return {"value": found["slowest"], **found}
