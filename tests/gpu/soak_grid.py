"""Soak of calls of grid scope: all blocks make them together, every result checked.

    mpirun -n 2 python3 tests/gpu/soak_grid.py [--seconds 60] [--blocks 64] [--proxied]
                                               [--json FILE]

Irecv, Isend and Wait in both orders, Waitall, Test, Send and Recv, Sendrecv, strided slices,
Allreduce, Bcast and Barrier, of 1 byte to 8 MiB, in turns into memory that peers can write and into
any other. No block waits for another one but in these calls. Ends with 0 when everything was right;
what is printed: as of ``soak.py``.
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
    MESSAGES,
    OPERATIONS,
    RANK,
    WORLD,
    WRONG_DATA,
    WRONG_STATUS,
    sum_of,
    value,
)

SIZE = WORLD.size
NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
# Integers of a message: in a slot, in the wide slot, and longer ones, straight where they may be.
SIZES = (
    (1, 40, 600) if gmpi.SIMULATOR
    else (1, 40, 500, 5000, 24_000, 25_000, 65_536, 262_145, 1_048_576)
)  # fmt: skip
KINDS = 9
WRONG_OF_KIND = ENDED + 1
COUNTS = WRONG_OF_KIND + KINDS


@cuda.jit(device=True)
def exchange(ctx, kind, send, recv, n, to, source, first):  # type: ignore[no-untyped-def]
    """A message each way, in one of the ways there are: the first error."""
    if kind == 0:
        q = gmpi.GMPI_Irecv_grid(ctx, recv, n, gmpi.INT64_T, source, 0, gmpi.COMM_WORLD)
        p = gmpi.GMPI_Isend_grid(ctx, send, n, gmpi.INT64_T, to, 0, gmpi.COMM_WORLD)
        error = gmpi.GMPI_Wait_grid(ctx, q).error
        return error | gmpi.GMPI_Wait_grid(ctx, p).error
    if kind == 1:
        p = gmpi.GMPI_Isend_grid(ctx, send, n, gmpi.INT64_T, to, 0, gmpi.COMM_WORLD)
        q = gmpi.GMPI_Irecv_grid(ctx, recv, n, gmpi.INT64_T, source, 0, gmpi.COMM_WORLD)
        return gmpi.GMPI_Waitall_grid(ctx, 2, (p, q))
    if kind == 2:
        q = gmpi.GMPI_Irecv_grid(ctx, recv, n, gmpi.INT64_T, source, 0, gmpi.COMM_WORLD)
        p = gmpi.GMPI_Isend_grid(ctx, send, n, gmpi.INT64_T, to, 0, gmpi.COMM_WORLD)
        came = False
        while not came:
            came, status = gmpi.GMPI_Test_grid(ctx, q)
        return status.error | gmpi.GMPI_Wait_grid(ctx, p).error
    if kind == 3:
        return gmpi.GMPI_Sendrecv_grid(
            ctx, send, n, gmpi.INT64_T, to, 0, recv, n, gmpi.INT64_T, source, 0, gmpi.COMM_WORLD
        ).error
    if first:  # even ranks
        error = gmpi.GMPI_Send_grid(ctx, send, n, gmpi.INT64_T, to, 0, gmpi.COMM_WORLD).error
        status = gmpi.GMPI_Recv_grid(ctx, recv, n, gmpi.INT64_T, source, 0, gmpi.COMM_WORLD)
        return error | status.error
    status = gmpi.GMPI_Recv_grid(ctx, recv, n, gmpi.INT64_T, source, 0, gmpi.COMM_WORLD)
    error = gmpi.GMPI_Send_grid(ctx, send, n, gmpi.INT64_T, to, 0, gmpi.COMM_WORLD).error
    return error | status.error


# wide: a kernel
@cuda.jit
def soak(  # type: ignore[no-untyped-def]
    ctx, first, rounds, sizes, out, plain, shared, to, source, counts
):  # fmt: skip
    """``plain``, ``shared``: what is received into, in turn."""
    at = cuda.grid(1)
    step = cuda.gridsize(1)
    me = gmpi.GMPI_Comm_rank(ctx, gmpi.COMM_WORLD)
    size = gmpi.GMPI_Comm_size(ctx, gmpi.COMM_WORLD)
    messages = 0
    for i in range(first, first + rounds):
        kind = i % KINDS
        n = sizes[(i // KINDS) % sizes.size]
        root = i % size
        recv = shared if (i // 7) & 1 else plain
        bad = 0
        for k in range(at, n, step):
            out[k] = value(k, i, 0, me)
            recv[k] = value(k, i, 0, me) if kind == 7 else 0
        if kind < 5:
            error = exchange(ctx, kind, out, recv, n, to, source, me % 2 == 0)
            for k in range(at, n, step):
                bad += 1 if recv[k] != value(k, i, 0, source) else 0
            messages += 1
        elif kind == 5:  # every other one, out of any place into others
            half = (n + 1) // 2
            q = gmpi.GMPI_Irecv_grid(
                ctx, recv[:n][::2], half, gmpi.INT64_T, source, 0, gmpi.COMM_WORLD
            )
            p = gmpi.GMPI_Isend_grid(ctx, out[:n][::2], half, gmpi.INT64_T, to, 0, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Wait_grid(ctx, q).error
            error |= gmpi.GMPI_Wait_grid(ctx, p).error
            for k in range(at, n, step):
                bad += 1 if recv[k] != (0 if k & 1 else value(k, i, 0, source)) else 0
            messages += 1
        elif kind == 6:
            error = gmpi.GMPI_Allreduce_grid(
                ctx, out, recv, n, gmpi.INT64_T, gmpi.SUM, gmpi.COMM_WORLD
            )
            for k in range(at, n, step):
                bad += 1 if recv[k] != sum_of(k, i, 0, size) else 0
        elif kind == 7:
            error = gmpi.GMPI_Bcast_grid(ctx, recv, n, gmpi.INT64_T, root, gmpi.COMM_WORLD)
            for k in range(at, n, step):
                bad += 1 if recv[k] != value(k, i, 0, root) else 0
        else:
            error = gmpi.GMPI_Barrier_grid(ctx, gmpi.COMM_WORLD)
        if at == 0:
            cuda.atomic.add(counts, OPERATIONS, 1)
            if error != 0:
                cuda.atomic.add(counts, WRONG_STATUS, 1)
        if bad:
            cuda.atomic.add(counts, WRONG_DATA, bad)
            cuda.atomic.add(counts, WRONG_OF_KIND + kind, 1)
    if at == 0:
        cuda.atomic.add(counts, MESSAGES, messages)


@click.command()
@soak_loop.options(seconds=60.0, blocks=64, threads=256)
@click.option("--proxied", is_flag=True, help="by the proxies")
def main(
    seconds: float, blocks: int, threads: int, slice_s: float, proxied: bool, path: str | None
) -> None:
    if not gmpi.SIMULATOR:
        gmpi.select_gpu(WORLD)
    with gmpi.Context(WORLD, wildcards=proxied) as g:
        counts = cuda.to_device(np.zeros(COUNTS, np.int64))
        most = max(SIZES)
        arrays = [
            cuda.to_device(np.array(SIZES, np.int64)),
            *(cuda.to_device(np.zeros(most, np.int64)) for _ in range(2)),
            g.zeros(most, np.int64), NEXT, PREVIOUS, counts,
        ]  # fmt: skip

        def launch(first: int, rounds: int, before: int) -> None:
            soak[blocks, threads](g.device, first, rounds, *arrays)

        limits = soak_loop.Limits(seconds, slice_s=slice_s)
        counted = soak_loop.run(g, launch, counts, KINDS * len(SIZES), limits)
    passed = soak_loop.report(
        "soak_grid", counted, WRONG_OF_KIND, g, path, blocks=blocks, threads=threads,
        proxied=proxied,
    )  # fmt: skip
    sys.exit(not passed)


if __name__ == "__main__":
    main()
