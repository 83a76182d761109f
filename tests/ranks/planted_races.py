"""Races between threads, and barriers that some do not reach (``planted.py``)."""

from __future__ import annotations

import numpy as np
from numba import cuda
from planted_buffers import D, N, W, planted

from gmpi import (
    GMPI_Sendrecv,
)

# --- races ----------------------------------------------------------------------------------------


@planted("race", 3)
def sends_what_other_blocks_still_write(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    a[i] = i + 0.5  # line
    if right:
        cuda.cg.this_grid().sync()
    if cuda.blockIdx.x == 0:
        GMPI_Sendrecv(ctx, a, 3 * N, D, peer, 1, b, 3 * N, D, peer, 1, W)  # line


@planted("race", 2)
def others_read_without_a_grid_barrier(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if cuda.blockIdx.x == 0:
        GMPI_Sendrecv(ctx, a, N, D, peer, 1, b, N, D, peer, 1, W)  # line
    if right:
        cuda.cg.this_grid().sync()
    if cuda.blockIdx.x == 1:
        out[cuda.threadIdx.x] = b[cuda.threadIdx.x]  # line


@planted("race", 2)
def receives_while_others_read(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    if cuda.blockIdx.x == 1:
        out[i] = b[i]  # line
    if right:
        cuda.cg.this_grid().sync()
    if cuda.blockIdx.x == 0:
        GMPI_Sendrecv(ctx, a, N, D, peer, 1, b, N, D, peer, 1, W)  # line


@planted("race", 2)
def reads_the_halo_of_another_block(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    for _ in range(2):
        if i > 0:
            b[i] = a[i - 1] + 1.5  # line
        if right:
            cuda.cg.this_grid().sync()
        else:
            cuda.syncthreads()
        a, b = b, a


@planted("race")
def no_syncthreads(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    tile = cuda.shared.array(64, np.float64)
    i = cuda.threadIdx.x
    tile[i] = i + 0.5  # line
    if right:
        cuda.syncthreads()
    out[i] = tile[63 - i]  # line


@planted("race")
def no_syncthreads_before_the_next_step(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    for step in range(3):
        a[i] = step * 100.0 + i  # line
        cuda.syncthreads()
        out[i] = a[(i + 40) % 64]  # line
        if right:
            cuda.syncthreads()


@planted("race")
def no_syncwarp(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    a[i] = i + 0.5  # line
    if right:
        cuda.syncwarp()
    out[i] = a[i ^ 1]  # line


@planted("race", 2)
def counts_without_an_atomic(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if right:
        cuda.atomic.add(out, 0, 1)
    else:
        out[0] += 1  # line


@planted("race", 2)
def counts_without_a_fence(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    if cuda.blockIdx.x == 1:
        a[i] = i + 0.5  # line
        cuda.syncthreads()
        if i == 0:
            if right:
                cuda.threadfence()
            cuda.atomic.add(out, 0, 1)
    else:
        if i == 0:
            while cuda.atomic.add(out, 0, 0) == 0:
                cuda.nanosleep(100)
            cuda.threadfence()
        cuda.syncthreads()
        GMPI_Sendrecv(ctx, a, N, D, peer, 1, b, N, D, peer, 1, W)  # line


@planted("race", 2)
def reads_a_sum_that_others_add_to(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    cuda.atomic.add(out, 0, 1.0)  # line
    if right:
        cuda.cg.this_grid().sync()
    if i == 0:
        b[0] = out[0]  # line


# --- scopes ---------------------------------------------------------------------------------------


@planted("divergent barrier")
def two_barriers_of_two_branches(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if right:
        cuda.syncthreads()
    elif cuda.threadIdx.x < 32:
        cuda.syncthreads()  # line
    else:
        cuda.syncthreads()  # line
