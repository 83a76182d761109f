r"""Two ranks of ``gmpi tune``: one way times with some settings, as JSON.

    mpiexec -n 2 python -m gmpi.commands.tune_ranks \
        '[{"settings": {}, "sizes": [8], "roads": ["direct"]}]'

A context for each trial and road, one after the other: to start, and to compile the kernel, takes
longer than to measure. Of each trial {road: {bytes: us}}, the median of many round trips, half of
each.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Recv, GMPI_Send

ROADS = {"proxied": True, "direct": False}  # wildcards
BATCHES = 5


@cuda.jit
def exchange(ctx, buf, me, rounds, wrong):
    peer = 1 - me
    for _ in range(rounds):
        if me == 0:
            sent = GMPI_Send(ctx, buf, buf.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            status = GMPI_Recv(ctx, buf, buf.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        else:
            status = GMPI_Recv(ctx, buf, buf.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            sent = GMPI_Send(ctx, buf, buf.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        if status.error != gmpi.SUCCESS or sent.error != gmpi.SUCCESS or status.nbytes != buf.size:
            cuda.atomic.add(wrong, 0, 1)


def one_way(g: gmpi.Context, comm: MPI.Comm, n: int) -> float:
    """us; 0: something was wrong."""
    rounds = 2 if gmpi.SIMULATOR else 200 if n <= 1 << 18 else 20
    buf = cuda.to_device(np.arange(n, dtype=np.int64).astype(np.uint8))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    times = []
    for batch in range(BATCHES + 1):
        comm.Barrier()
        begin = time.perf_counter()
        exchange[1, 32 if gmpi.SIMULATOR else 256](g.device, buf, comm.rank, rounds, wrong)
        g.synchronize()
        if batch:  # the first one compiles
            times.append((time.perf_counter() - begin) / rounds / 2 * 1e6)
    right = np.array_equal(buf.copy_to_host(), np.arange(n, dtype=np.int64).astype(np.uint8))
    bad = comm.allreduce(int(wrong.copy_to_host()[0]) + (not right))
    return 0.0 if bad else float(np.median(times))


def measure(comm: MPI.Comm, trial: dict[str, Any]) -> dict[str, dict[int, float]]:
    found = {}
    for road in trial["roads"]:
        settings = {**trial["settings"], "wildcards": ROADS[road], "timeout_s": 20}
        with gmpi.Context(comm, **settings) as g:
            found[road] = {n: one_way(g, comm, n) for n in trial["sizes"]}
    return found


def main(trials: list[dict[str, Any]]) -> int:
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        print(f"this needs 2 ranks, got {comm.size}", file=sys.stderr)
        return 1
    gmpi.select_gpu(comm)
    found = [measure(comm, trial) for trial in trials]
    if comm.rank == 0:
        print(json.dumps(found), flush=True)
    times = [us for by_road in found for by_size in by_road.values() for us in by_size.values()]
    return int(0.0 in times)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
