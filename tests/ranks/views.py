"""Strided views in kernels: slices need no datatype."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import RANK, SIZE, every_shape, pattern, same
from numba import cuda
from typed import POISON

import gmpi

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


@cuda.jit
def _views(ctx, which, out, back, flat, dest, source):
    """Sends a view of ``out`` twice and receives it as bytes and as the same view of ``back``."""
    n = flat.size
    r = gmpi.GMPI_Irecv(ctx, flat, n, gmpi.BYTE, source, 1, gmpi.COMM_WORLD)
    if which == 0:
        v, w = out[:, 1, 2], back[:, 1, 2]
    elif which == 1:
        v, w = out[1:-1, 1, 0], back[1:-1, 1, 0]
    elif which == 2:
        v, w = out[0, ::2, 3], back[0, ::2, 3]
    else:
        v, w = out[::-1, 0, 1], back[::-1, 0, 1]
    p = gmpi.GMPI_Irecv(ctx, w, w.size, gmpi.FLOAT, source, 2, gmpi.COMM_WORLD)
    q = gmpi.GMPI_Isend(ctx, v, v.size, gmpi.FLOAT, dest, 1, gmpi.COMM_WORLD)
    gmpi.GMPI_Send(ctx, v, v.size, gmpi.FLOAT, dest, 2, gmpi.COMM_WORLD)
    gmpi.GMPI_Waitall(ctx, 3, (r, p, q))


@cuda.jit
def _views_2d(ctx, which, out, back, flat, dest, source):
    n = flat.size
    r = gmpi.GMPI_Irecv(ctx, flat, n, gmpi.BYTE, source, 1, gmpi.COMM_WORLD)
    if which == 0:
        v, w = out[1:-1, 1:-1, 0], back[1:-1, 1:-1, 0]
    elif which == 1:
        v, w = out[:, 2, :], back[:, 2, :]
    elif which == 2:
        v, w = out[::3, ::2, 1], back[::3, ::2, 1]
    elif which == 3:
        v, w = out[2, ::-1, 1:3], back[2, ::-1, 1:3]
    elif which == 4:
        v, w = out[3, 1:, :], back[3, 1:, :]  # contiguous after all
    else:
        v, w = out[:, :, 0].T, back[:, :, 0].T
    p = gmpi.GMPI_Irecv(ctx, w, w.size, gmpi.FLOAT, source, 2, gmpi.COMM_WORLD)
    q = gmpi.GMPI_Isend(ctx, v, v.size, gmpi.FLOAT, dest, 1, gmpi.COMM_WORLD)
    o = gmpi.GMPI_Isend(ctx, v, v.size, gmpi.FLOAT, dest, 2, gmpi.COMM_WORLD)
    gmpi.GMPI_Wait(ctx, p)
    gmpi.GMPI_Wait(ctx, o)
    gmpi.GMPI_Wait(ctx, q)
    gmpi.GMPI_Wait(ctx, r)


@cuda.jit
def _view_3d(ctx, out, back, flat, dest, source):
    n = flat.size
    r = gmpi.GMPI_Irecv_warp(ctx, flat, n, gmpi.BYTE, source, 1, gmpi.COMM_WORLD)
    v, w = out[1:-1, 1:-1, 1:3], back[1:-1, 1:-1, 1:3]
    p = gmpi.GMPI_Irecv_warp(ctx, w, w.size, gmpi.FLOAT, source, 2, gmpi.COMM_WORLD)
    q = gmpi.GMPI_Isend_warp(ctx, v, v.size, gmpi.FLOAT, dest, 1, gmpi.COMM_WORLD)
    o = gmpi.GMPI_Isend_warp(ctx, v, v.size, gmpi.FLOAT, dest, 2, gmpi.COMM_WORLD)
    gmpi.GMPI_Waitall_warp(ctx, 4, (r, p, q, o))


_PICKS_1D = [
    lambda u: u[:, 1, 2], lambda u: u[1:-1, 1, 0], lambda u: u[0, ::2, 3],
    lambda u: u[::-1, 0, 1],
]  # fmt: skip
_PICKS_2D = [
    lambda u: u[1:-1, 1:-1, 0], lambda u: u[:, 2, :], lambda u: u[::3, ::2, 1],
    lambda u: u[2, ::-1, 1:3], lambda u: u[3, 1:, :], lambda u: u[:, :, 0].T,
]  # fmt: skip


def views(g: gmpi.Context) -> None:
    """Slices need no datatype: elements in the order of the view's indices."""
    shapes = [(6, 5, 4), (70, 9, 4)] if every_shape() else [(6, 5, 4)]
    if not gmpi.SIMULATOR:
        shapes.append((1000, 200, 4))
    for shape in shapes:
        fields = [
            pattern(4 * int(np.prod(shape)), who).view(np.float32).reshape(shape)
            for who in (RANK, PREVIOUS)
        ]
        cases: list[tuple[Any, Any, int | None]] = [
            *((_views, pick, k) for k, pick in enumerate(_PICKS_1D)),
            *((_views_2d, pick, k) for k, pick in enumerate(_PICKS_2D)),
            (_view_3d, lambda u: u[1:-1, 1:-1, 1:3], None),
        ]
        for kernel, pick, which in cases:
            sent = np.ascontiguousarray(pick(fields[1])).view(np.uint8).reshape(-1)
            expected = np.full(shape, POISON, np.uint8).repeat(4, axis=-1).view(np.float32)
            back = cuda.to_device(expected.copy())
            pick(expected)[...] = pick(fields[1])
            flat = cuda.to_device(np.zeros(sent.size, np.uint8))
            out = cuda.to_device(fields[0])
            first = () if which is None else (which,)
            kernel[1, 32](g.device, *first, out, back, flat, NEXT, PREVIOUS)
            g.synchronize()
            same(flat, sent, f"{kernel.py_func.__name__} {which} of {shape}, as bytes")
            found = back.copy_to_host().view(np.uint8)
            same(found, expected.view(np.uint8), f"{kernel.py_func.__name__} {which} of {shape}")
