"""One way between two kernels: a ping-pong (osu_latency), also that of benchmarks/pingpong.py."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from numba import cuda

import gmpi
from gmpi import GMPI_Recv, GMPI_Send
from gmpi.bench import figures
from gmpi.bench.clock import cycles_per_us
from gmpi.bench.figures import Bench

RANKS = 2
UNIT = "Latency (us)"


@cuda.jit
def pingpong(ctx, buf, n, me, rounds, skip, cycles):
    peer = 1 - me
    for i in range(rounds):
        begin = gmpi.clock()
        if me == 0:
            GMPI_Send(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        else:
            GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            GMPI_Send(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


@cuda.jit
def pingpong_checked(ctx, buf, n, me, rounds, wrong):
    """The same calls; rank 0 writes a new pattern each round, both verify every byte."""
    peer = 1 - me
    first = cuda.threadIdx.x
    step = cuda.blockDim.x
    for i in range(rounds):
        if me == 0:
            for k in range(first, n, step):
                buf[k] = (k * 7 + i * 13) & 0xFF
            GMPI_Send(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            status = GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            if status.nbytes != n or status.error != gmpi.SUCCESS:
                cuda.atomic.add(wrong, 0, 1)
            for k in range(first, n, step):
                if buf[k] != (k * 7 + i * 13 + 1) & 0xFF:
                    cuda.atomic.add(wrong, 0, 1)
        else:
            status = GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            if status.nbytes != n or status.error != gmpi.SUCCESS:
                cuda.atomic.add(wrong, 0, 1)
            for k in range(first, n, step):
                if buf[k] != (k * 7 + i * 13) & 0xFF:
                    cuda.atomic.add(wrong, 0, 1)
                buf[k] = (buf[k] + np.int64(1)) & 0xFF
            GMPI_Send(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)


def measure(bench: Bench, nbytes: int) -> dict[str, float]:
    """Microseconds one way: ``value`` is the mean, as OSU's; ``p50`` and ``p99`` are of rank 0."""
    world = bench.world
    buf = cuda.to_device(np.zeros(max(1, nbytes), np.uint8))
    wrong = figures.device_zeros(1, np.int32)
    cycles = figures.device_zeros(bench.rounds, np.int64)
    shape = 1, bench.threads
    world.Barrier()
    pingpong_checked[shape](bench.g.device, buf, nbytes, world.rank, 3, wrong)
    bench.g.synchronize()
    figures.require_right(bench, "latency", nbytes, not wrong.copy_to_host()[0])
    world.Barrier()
    rounds = bench.rounds + bench.skip
    pingpong[shape](bench.g.device, buf, nbytes, world.rank, rounds, bench.skip, cycles)
    bench.g.synchronize()
    taken = cycles.copy_to_host() / cycles_per_us() / 2
    found = figures.of_all_ranks(bench, taken.mean())
    p50, p99 = world.bcast(np.percentile(taken, (50, 99)).tolist())
    return {"value": found["slowest"], "p50": p50, "p99": p99, **found}
