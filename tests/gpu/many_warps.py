"""All warps of many blocks exchange 8-byte messages and wait for them: every payload is checked.

    mpirun -n 2 python3 tests/gpu/many_warps.py [--seconds 20]

Some warps come late now and then, so that others wait for long and go on with requests that are
not their own: on other multiprocessors than those that opened them. Ends with 0 when everything was
right, else says which values came.
"""

from __future__ import annotations

import sys
import time

import click
import numpy as np
from mpi4py import MPI
from numba import cuda, int64

import gmpi
from gmpi import GMPI_Irecv_warp, GMPI_Isend_warp, GMPI_Wait_warp

WORLD = MPI.COMM_WORLD
WARPS, ROUNDS = (8, 4) if gmpi.SIMULATOR else (256, 2000)
MOST_WINDOW = 4
KEPT = 8  # wrong values that are shown
WARP, ROUND, LANE, CAME, WANTED, ERROR = range(6)
LATE_CYCLES = 1 if gmpi.SIMULATOR else 40_000


@cuda.jit
def exchange(ctx, me, data, window, rounds, late, wrong, kept):  # type: ignore[no-untyped-def]
    """``late``: every so many rounds a warp sends late; 0: never."""
    warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
    lane = cuda.laneid
    out = data[warp, 0]
    back = data[warp, 1]
    receives = cuda.local.array(MOST_WINDOW, int64)
    sends = cuda.local.array(MOST_WINDOW, int64)
    peer = 1 - me
    seed = warp * 7919 + me * 104729 + 1
    for i in range(rounds):
        if lane < window:
            out[lane] = (warp * 100000 + i) * 8 + lane + me
        cuda.syncwarp()
        for k in range(window):
            receives[k] = GMPI_Irecv_warp(
                ctx, back[k : k + 1], 1, gmpi.INT64_T, peer, warp, gmpi.COMM_WORLD
            )
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        if late > 0 and (seed >> 8) % late == 0:
            begin = gmpi.clock()
            while gmpi.clock() - begin < LATE_CYCLES:
                pass
        for k in range(window):
            sends[k] = GMPI_Isend_warp(
                ctx, out[k : k + 1], 1, gmpi.INT64_T, peer, warp, gmpi.COMM_WORLD
            )
        error = 0
        for k in range(window):
            status = GMPI_Wait_warp(ctx, receives[k])
            if status.error != gmpi.SUCCESS or status.nbytes != 8:
                error = 1
        for k in range(window):
            if GMPI_Wait_warp(ctx, sends[k]).error != gmpi.SUCCESS:
                error = 2
        wanted = (warp * 100000 + i) * 8 + lane + peer
        if lane < window and (back[lane] != wanted or error != 0):
            at = cuda.atomic.add(wrong, 0, 1)
            if at < KEPT:
                kept[at, WARP] = warp
                kept[at, ROUND] = i
                kept[at, LANE] = lane
                kept[at, CAME] = back[lane]
                kept[at, WANTED] = wanted
                kept[at, ERROR] = error
        cuda.syncwarp()


def stream(g: gmpi.Context, window: int, late: int, seconds: float) -> int:
    """Wrong values of both ranks, of launches for so long."""
    data = cuda.to_device(np.zeros((WARPS, 2, 8), np.int64))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    kept = cuda.to_device(np.zeros((KEPT, 6), np.int64))
    block = 4
    messages = 0
    began = time.perf_counter()
    over = False
    while not over:
        WORLD.Barrier()
        exchange[WARPS // block, 32 * block](
            g.device, WORLD.rank, data, window, ROUNDS, late, wrong, kept
        )
        g.synchronize()
        messages += WARPS * window * ROUNDS
        over = WORLD.allreduce(time.perf_counter() - began, MPI.MAX) > seconds
    took = time.perf_counter() - began
    bad = int(wrong.copy_to_host()[0])
    for row in kept.copy_to_host()[: min(bad, KEPT)]:
        print(
            f"rank {WORLD.rank}, warp {row[WARP]}, round {row[ROUND]}, message {row[LANE]}: "
            f"{row[CAME]} came, {row[WANTED]} was sent, error {row[ERROR]}",
            flush=True,
        )
    bad = int(WORLD.allreduce(bad))
    if WORLD.rank == 0:
        print(
            f"window {window}, late {late}: {messages / 1e6:.1f} M messages each way, "
            f"{messages / took / 1e6:.2f} M/s, {bad} wrong",
            flush=True,
        )
    return bad


@click.command()
@click.option("--seconds", type=float, default=20.0, help="for all cases together")
def main(seconds: float) -> None:
    gmpi.select_gpu(WORLD)
    cases = [(window, late) for late in (0, 50, 2000) for window in (1, 2, 4)]
    with gmpi.Context(WORLD, wildcards=False) as g:
        bad = sum(stream(g, window, late, seconds / len(cases)) for window, late in cases)
    if WORLD.rank == 0:
        print("payloads checked: all right" if bad == 0 else f"{bad} wrong", flush=True)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
