"""Soak of collectives: each block on a communicator of its own, every result checked.

    mpirun -n 2 python3 tests/gpu/soak_collectives.py [--seconds 60] [--blocks 16] [--proxied]
                                                      [--flood] [--json FILE]

Barrier, Bcast, Allreduce, Reduce, Allgather, Alltoall, Scan, two Iallreduce at once, Gather and
Scatter, and Alltoallv, of 1 to 80,000 integers, in turns into memory that peers can write and into
any other. Ends with 0 when everything was right. ``--flood``, and what is printed: as of
``soak.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np
from numba import cuda

import gmpi

sys.path.insert(0, str(Path(__file__).parent))
import soak_loop
from soak_loop import (
    ENDED,
    OPERATIONS,
    WORLD,
    WRONG_DATA,
    WRONG_STATUS,
    flood,
    sum_of,
    value,
)

SIZE = WORLD.size
# Integers of a block. Those of more than 64 KiB go in other ways.
SIZES = (1, 8, 33, 200) if gmpi.SIMULATOR else (1, 8, 33, 63, 500, 4000, 9000, 80_000)
KINDS = 10
WRONG_OF_KIND = ENDED + 1
COUNTS = WRONG_OF_KIND + KINDS


@cuda.jit(device=True)
def some(i, giver, taker, n):  # type: ignore[no-untyped-def]
    """How many of at most ``n`` integers a rank gives another one."""
    return 1 + (i + 7 * giver + 3 * taker) % n


# wide: a kernel
@cuda.jit
def soak(  # type: ignore[no-untyped-def]
    ctx, first, rounds, sizes, comms, out, plain, shared, lists, counts, host, talkers, before,
    until,
):  # fmt: skip
    """``lists``: counts and displacements of each block. Others as of ``soak_kernel.soak``."""
    b = cuda.blockIdx.x - before
    t = cuda.threadIdx.x
    step = cuda.blockDim.x
    if b < 0 or b >= talkers:
        flood(host, counts, until)
        return
    comm = comms[b]
    me = gmpi.GMPI_Comm_rank(ctx, comm)
    size = gmpi.GMPI_Comm_size(ctx, comm)
    done = 0
    for i in range(first, first + rounds):
        kind = (i + b) % KINDS
        n = sizes[(i // KINDS + b) % sizes.size]
        root = i % size
        send = out[b]
        recv = shared[b] if (i >> 4) & 1 else plain[b]
        bad = 0
        for k in range(t, n, step):
            for r in range(size):  # the same to all
                send[r * n + k] = value(k, i, b, me)
                recv[r * n + k] = 0
        if kind == 0:
            error = gmpi.GMPI_Barrier(ctx, comm)
        elif kind == 1:
            for k in range(t, n, step):
                recv[k] = value(k, i, b, me)
            error = gmpi.GMPI_Bcast(ctx, recv, n, gmpi.INT64_T, root, comm)
            for k in range(t, n, step):
                bad += 1 if recv[k] != value(k, i, b, root) else 0
        elif kind == 2:
            error = gmpi.GMPI_Allreduce(ctx, send, recv, n, gmpi.INT64_T, gmpi.SUM, comm)
            for k in range(t, n, step):
                bad += 1 if recv[k] != sum_of(k, i, b, size) else 0
        elif kind == 3:
            error = gmpi.GMPI_Reduce(ctx, send, recv, n, gmpi.INT64_T, gmpi.SUM, root, comm)
            for k in range(t, n, step):
                bad += 1 if recv[k] != (sum_of(k, i, b, size) if me == root else 0) else 0
        elif kind == 4:
            error = gmpi.GMPI_Allgather(ctx, send, n, gmpi.INT64_T, recv, n, gmpi.INT64_T, comm)
            for k in range(t, size * n, step):
                bad += 1 if recv[k] != value(k % n, i, b, k // n) else 0
        elif kind == 5:
            error = gmpi.GMPI_Alltoall(ctx, send, n, gmpi.INT64_T, recv, n, gmpi.INT64_T, comm)
            for k in range(t, size * n, step):
                bad += 1 if recv[k] != value(k % n, i, b, k // n) else 0
        elif kind == 6:
            error = gmpi.GMPI_Scan(ctx, send, recv, n, gmpi.INT64_T, gmpi.SUM, comm)
            for k in range(t, n, step):
                bad += 1 if recv[k] != sum_of(k, i, b, me + 1) else 0
        elif kind == 7:
            half = recv[n : 2 * n]
            p = gmpi.GMPI_Iallreduce(ctx, send, recv, n, gmpi.INT64_T, gmpi.SUM, comm)
            q = gmpi.GMPI_Iallreduce(ctx, send, half, n, gmpi.INT64_T, gmpi.SUM, comm)
            error = gmpi.GMPI_Waitall(ctx, 2, (p, q))
            for k in range(t, 2 * n, step):
                bad += 1 if recv[k] != sum_of(k % n, i, b, size) else 0
        elif kind == 8:
            error = gmpi.GMPI_Gather(ctx, send, n, gmpi.INT64_T, recv, n, gmpi.INT64_T, root, comm)
            if me == root:
                for k in range(t, size * n, step):
                    bad += 1 if recv[k] != value(k % n, i, b, k // n) else 0
            cuda.syncthreads()
            error |= gmpi.GMPI_Scatter(
                ctx, recv, n, gmpi.INT64_T, send, n, gmpi.INT64_T, root, comm
            )
            for k in range(t, n, step):
                bad += 1 if send[k] != value(k, i, b, me) else 0
        else:
            if t < size:
                lists[b, 0, t] = some(i, me, t, n)
                lists[b, 1, t] = some(i, t, me, n)
                lists[b, 2, t] = t * n
            cuda.syncthreads()
            error = gmpi.GMPI_Alltoallv(
                ctx, send, lists[b, 0], lists[b, 2], gmpi.INT64_T, recv, lists[b, 1], lists[b, 2],
                gmpi.INT64_T, comm,
            )  # fmt: skip
            for k in range(t, size * n, step):
                came = k % n < some(i, k // n, me, n)
                bad += 1 if recv[k] != (value(k % n, i, b, k // n) if came else 0) else 0
        done += 1
        if t == 0 and error != 0:
            cuda.atomic.add(counts, WRONG_STATUS, 1)
        if bad:
            cuda.atomic.add(counts, WRONG_DATA, bad)
            cuda.atomic.add(counts, WRONG_OF_KIND + kind, 1)
        cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(counts, OPERATIONS, done)
        cuda.atomic.add(counts, ENDED, 1)


@click.command()
@soak_loop.options(seconds=60.0, blocks=16, threads=128)
@click.option("--proxied", is_flag=True, help="by the proxies")
@click.option("--flood", "floods", is_flag=True, help="as many blocks store to memory of the host")
def main(
    seconds: float,
    blocks: int,
    threads: int,
    slice_s: float,
    proxied: bool,
    floods: bool,
    path: str | None,
) -> None:
    if not gmpi.SIMULATOR:
        gmpi.select_gpu(WORLD)
    with gmpi.Context(WORLD, wildcards=proxied) as g:
        comms = np.array([g.comm(WORLD, wildcards=proxied) for _ in range(blocks)], np.int64)
        shape = blocks, max(2, SIZE) * max(SIZES)
        counts = cuda.to_device(np.zeros(COUNTS, np.int64))
        grid, for_flood = soak_loop.beside(blocks, floods)
        arrays = [
            cuda.to_device(np.array(SIZES, np.int64)), cuda.to_device(comms),
            *(cuda.to_device(np.zeros(shape, np.int64)) for _ in range(2)),
            g.zeros(shape, np.int64), cuda.to_device(np.zeros((blocks, 3, SIZE), np.int32)),
            counts, *for_flood,
        ]  # fmt: skip

        def launch(first: int, rounds: int, before: int) -> None:
            soak[grid, threads](g.device, first, rounds, *arrays, blocks * (before + 1))

        limits = soak_loop.Limits(seconds, slice_s=slice_s)
        counted = soak_loop.run(g, launch, counts, KINDS, limits)
    passed = soak_loop.report(
        "soak_collectives", counted, WRONG_OF_KIND, g, path, blocks=blocks, threads=threads,
        proxied=proxied, flood=floods,
    )  # fmt: skip
    sys.exit(not passed)


if __name__ == "__main__":
    main()
