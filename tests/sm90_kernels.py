"""Kernels that are compiled for sm_90 without a GPU: each kind of call, scope and argument.

Imported by ``compile_for_sm90.py`` once it has prepared Numba for that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import roads
import script_kernel
from numba import cuda, types
from numba.cuda.typing.typeof import typeof

import gmpi
from device_lib.move.reduce import combine
from gmpi.contract.collectives import reduction_word

BYTES, WORDS = types.uint8[::1], types.int64[::1]
LOR_64 = reduction_word(gmpi.LOR, gmpi.INT64_T)


def exchange(ctx: Any, send: Any, recv: Any, n: int, peer: int) -> None:
    """The kernel that everybody writes first."""
    r = gmpi.GMPI_Irecv(ctx, recv, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    s = gmpi.GMPI_Isend(ctx, send, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    gmpi.GMPI_Wait(ctx, s)
    gmpi.GMPI_Wait(ctx, r)


def traced_exchange(ctx: Any, send: Any, recv: Any, n: int, peer: int) -> None:
    """The same with a context that is traced."""
    r = gmpi.GMPI_Irecv(ctx, recv, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    s = gmpi.GMPI_Isend(ctx, send, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    gmpi.GMPI_Wait(ctx, s)
    gmpi.GMPI_Wait(ctx, r)


def traced_calls(ctx: Any, a: Any, n: int) -> None:
    """Calls with all kinds of arguments and results, by name, of each scope."""
    gmpi.GMPI_Sendrecv(ctx, a, n, gmpi.BYTE, 1, 2, a, n, gmpi.BYTE, gmpi.ANY_SOURCE, 4, 0)
    gmpi.GMPI_Send(ctx, buf=a, count=n, datatype=gmpi.BYTE, dest=1, tag=2, comm=0)
    r = gmpi.GMPI_Irecv_warp(ctx, a, n, gmpi.BYTE, 1, 2, 0)
    done, status = gmpi.GMPI_Test_warp(ctx, r)
    gmpi.GMPI_Waitall(ctx, 2, (r, gmpi.GMPI_Ibarrier(ctx, 0)))
    gmpi.GMPI_Startall(ctx, 1, (r,))
    gmpi.GMPI_Pready(ctx, r, status.tag)
    a[0] = done and gmpi.GMPI_Parrived(ctx, r, 0)
    gmpi.GMPI_Wait_grid(ctx, r)
    gmpi.GMPI_Synchronize(ctx)


@cuda.jit(device=True)
def _one_path(ctx: Any, buf: Any) -> int:
    return gmpi.GMPI_Allreduce(ctx, gmpi.IN_PLACE, buf, 1, gmpi.DOUBLE, gmpi.SUM, 0)


@cuda.jit(device=True)
def _other_path(ctx: Any, buf: Any) -> int:
    gmpi.GMPI_Barrier(ctx, 0)
    return gmpi.GMPI_Allreduce(ctx, gmpi.IN_PLACE, buf, 1, gmpi.DOUBLE, gmpi.MAX, 0)


def two_paths(ctx: Any, a: Any, b: Any) -> None:
    """Shared memory of the library must not be defined twice."""
    _one_path(ctx, a)
    _other_path(ctx, b)
    gmpi.GMPI_Barrier_warp(ctx, 0)


def kinds_of_buffers(ctx: Any, a: Any, b: Any, c: Any, flags: Any) -> None:
    """Slices, two dimensions, shared and local memory, addresses, tuples of requests."""
    tile = cuda.shared.array(64, types.float32)
    own = cuda.local.array(4, types.int64)
    r0 = gmpi.GMPI_Irecv(ctx, a[4:], 4, gmpi.FLOAT, 0, 1, 0)
    r1 = gmpi.GMPI_Irecv(ctx, b[1], b.shape[1], gmpi.DOUBLE, 0, 1, 0)
    r2 = gmpi.GMPI_Isend(ctx, c, 4, gmpi.C_DOUBLE_COMPLEX, 0, 1, 0)
    r3 = gmpi.GMPI_Isend(ctx, tile, 64, gmpi.FLOAT, 0, 1, 0)
    gmpi.GMPI_Waitall(ctx, 4, (r0, r1, r2, r3))
    own[0] = gmpi.GMPI_Isend(ctx, flags[0], flags[1], flags[2], flags[3], flags[4], 0)
    status = gmpi.GMPI_Wait(ctx, own[0])
    flags[6], status = gmpi.GMPI_Waitany(ctx, 2, own)
    flags[7], status = gmpi.GMPI_Waitany(ctx, 2, flags[8::2])
    flags[5] = status.error


def small_integers(ctx: Any, a: Any, n: Any, tag: Any) -> None:
    """Arguments of other integer types than int64."""
    status = gmpi.GMPI_Sendrecv(
        ctx, a, n, gmpi.BYTE, tag, tag, a, n, gmpi.BYTE, gmpi.ANY_SOURCE, tag, 0
    )
    a[0] = status.count


def views(ctx: Any, u: Any, flat: Any, n: int, peer: int) -> None:
    """Slices of three dimensions; a derived datatype."""
    r = gmpi.GMPI_Irecv(ctx, u[:, 1, 2], u.shape[0], gmpi.FLOAT, peer, 1, 0)
    s = gmpi.GMPI_Isend(ctx, u[1:-1, ::2, 1:], n, gmpi.FLOAT, peer, 1, 0)
    gmpi.GMPI_Waitall(ctx, 2, (r, s))
    gmpi.GMPI_Send_warp(ctx, flat, 1, n, peer, 2, 0)
    gmpi.GMPI_Allreduce(ctx, u[0, :, 0], u[1, :, 0], 3, gmpi.FLOAT, gmpi.SUM, 0)
    gmpi.GMPI_Bcast(ctx, u[0, 0, ::2], 3, gmpi.FLOAT, 0, 0)


def grids(ctx: Any, a: Any, u: Any, n: int, peer: int) -> None:
    """Grid scope: contiguous, strided, with memory of each thread's own."""
    own = cuda.local.array(2, types.int64)
    own[0] = gmpi.GMPI_Irecv_grid(ctx, a, n, gmpi.FLOAT, peer, 1, 0)
    own[1] = gmpi.GMPI_Isend_grid(ctx, u[1:, 1:], n, gmpi.FLOAT, peer, 1, 0)
    gmpi.GMPI_Waitall_grid(ctx, 2, own)
    gmpi.GMPI_Allreduce_grid(ctx, gmpi.IN_PLACE, a, n, gmpi.FLOAT, gmpi.SUM, 0)
    gmpi.GMPI_Allgather_grid(ctx, a, n, gmpi.FLOAT, u, n, gmpi.FLOAT, 0)
    gmpi.GMPI_Alltoall_grid(ctx, u[1:, 1:], n, gmpi.FLOAT, a, n, gmpi.FLOAT, 0)
    index, status = gmpi.GMPI_Waitany_grid(ctx, 2, own)
    a[0] = index + status.count


def ends(ctx: Any, a: Any, b: Any, flags: Any) -> None:
    """Partitioned requests that the kernel makes, of arrays, slices and addresses. And a carry."""
    flags[5] = combine(LOR_64, flags[0], flags[1])
    send = gmpi.GMPI_Psend_init(ctx, a[4:], 4, flags[0], gmpi.FLOAT, 0, 1, 0)
    recv = gmpi.GMPI_Precv_init_warp(ctx, b[::2], 4, 1, gmpi.FLOAT, flags[1], 1, 0)
    flags[2] = gmpi.GMPI_Psend_init(ctx, flags[3], 4, 1, gmpi.FLOAT, 0, 1, 0)
    gmpi.GMPI_Start(ctx, send)
    gmpi.GMPI_Pready_list(ctx, 1, flags, send)
    if gmpi.GMPI_Parrived(ctx, recv, 1):
        flags[4] = gmpi.GMPI_Request_free(ctx, send) + gmpi.GMPI_Request_free_warp(ctx, recv)


def windows(ctx: Any, a: Any, result: Any, n: int, win: int) -> None:
    """One-sided calls, of a block and of a warp."""
    d = gmpi.DOUBLE
    e = gmpi.GMPI_Win_fence(ctx, 0, win)
    e |= gmpi.GMPI_Put(ctx, a, n, d, 1, 4, n, d, win)
    e |= gmpi.GMPI_Accumulate(ctx, a[1:], n, d, 1, 4, n, d, gmpi.SUM, win)
    e |= gmpi.GMPI_Get_accumulate(ctx, a, n, d, result, n, d, 1, 4, n, d, gmpi.PROD, win)
    e |= gmpi.GMPI_Win_fence(ctx, gmpi.MODE_NOSUCCEED, win)
    e |= gmpi.GMPI_Win_lock_all_warp(ctx, 0, win)
    e |= gmpi.GMPI_Get_warp(ctx, result, n, d, 1, 4, n, d, win)
    e |= gmpi.GMPI_Fetch_and_op_warp(ctx, a, result, d, 1, 4, gmpi.SUM, win)
    e |= gmpi.GMPI_Win_flush_warp(ctx, 1, win)
    gmpi.GMPI_Wait(ctx, gmpi.GMPI_Rput(ctx, a, n, d, 1, 4, n, d, win))
    r = gmpi.GMPI_Raccumulate(ctx, a, n, d, 1, 4, n, d, gmpi.SUM, win)
    e |= gmpi.GMPI_Win_flush_local(ctx, 1, win)
    e |= gmpi.GMPI_Win_flush_local_all_warp(ctx, win)
    gmpi.GMPI_Wait(ctx, r)
    r = gmpi.GMPI_Rget_accumulate_warp(ctx, a, n, d, result, n, d, 1, 4, n, d, gmpi.PROD, win)
    gmpi.GMPI_Wait_warp(ctx, r)
    e |= gmpi.GMPI_Put_notify(ctx, a, n, d, 1, 4, n, d, 2, win)
    e |= gmpi.GMPI_Put_notify_warp(ctx, a, n, d, 1, 4, n, d, 2, win)
    e |= gmpi.GMPI_Get_notify_warp(ctx, a, n, d, 1, 4, n, d, 2, win)
    e |= gmpi.GMPI_Accumulate_notify(ctx, a, n, d, 1, 4, n, d, gmpi.SUM, 2, win)
    r = gmpi.GMPI_Rget_accumulate_notify(ctx, a, n, d, result, n, d, 1, 4, n, d, gmpi.SUM, 2, win)
    gmpi.GMPI_Wait(ctx, r)
    value, error = gmpi.GMPI_Win_get_notify_value(ctx, win, 2)
    before, late = gmpi.GMPI_Win_reset_notify_value_warp(ctx, win, 2)
    e |= error | late | (value - before)
    tile = cuda.shared.array(4, types.int64)
    e |= gmpi.GMPI_Compare_and_swap(ctx, tile, tile[1:], tile[2:], gmpi.INT64_T, 1, 4, win)
    e |= gmpi.GMPI_Win_unlock_all(ctx, win)
    result[0] = e


def blocks(ctx: Any, a: Any, b: Any, counts: Any, comm: int) -> None:
    """Collectives with counts and among neighbours."""
    f = gmpi.FLOAT
    e = gmpi.GMPI_Neighbor_alltoall(ctx, a, 4, f, b, 4, f, comm)
    e |= gmpi.GMPI_Neighbor_alltoallv(ctx, a, counts, counts, f, b, counts, counts, f, comm)
    e |= gmpi.GMPI_Alltoallv_warp(ctx, gmpi.IN_PLACE, counts, counts, f, b, counts, counts, f, comm)
    e |= gmpi.GMPI_Reduce_scatter(ctx, a, b, counts, f, gmpi.SUM, comm)
    counts[0] = gmpi.GMPI_Ineighbor_allgather_warp(ctx, a, e, f, b[::2], 1, f, comm)


def persistent(ctx: Any, a: Any, u: Any, n: int, peer: int) -> None:
    """Requests that stay, and buffered sends: of a block and of a warp, contiguous and strided."""
    own = cuda.local.array(4, types.int64)
    own[0] = gmpi.GMPI_Bsend_init(ctx, a, n, gmpi.FLOAT, peer, 1, 0)
    own[1] = gmpi.GMPI_Rsend_init(ctx, u[1:, 1:], n, gmpi.FLOAT, peer, 1, 0)
    own[2] = gmpi.GMPI_Bsend_init_warp(ctx, u[:, 0], n, gmpi.FLOAT, peer, 1, 0)
    own[3] = gmpi.GMPI_Rsend_init_warp(ctx, a, n, gmpi.FLOAT, peer, 1, 0)
    gmpi.GMPI_Startall(ctx, 4, own)
    gmpi.GMPI_Waitall(ctx, 4, own)
    own[0] = gmpi.GMPI_Ibsend_warp(ctx, a, n, gmpi.FLOAT, peer, 1, 0)
    done, status = gmpi.GMPI_Request_get_status(ctx, own[1])
    also, status = gmpi.GMPI_Request_get_status_warp(ctx, own[0])
    a[0] = gmpi.GMPI_Wait_warp(ctx, own[0]).error + status.error + done + also


INTERPRETER = (
    types.int64[:, :, ::1], BYTES, types.int64[:, ::1],
    typeof(np.zeros((1, 1), gmpi.STATUS_DTYPE)), types.int64[:, :, :, ::1],
)  # fmt: skip
EXCHANGED = types.float32[::1], types.float32[::1], types.int64, types.int64
#: Bodies and the types of their arguments behind the context.
KERNELS = {
    "exchange": (exchange, EXCHANGED),
    "checked": (
        roads.exchange_checked.py_func,
        (BYTES, BYTES, *[types.int64] * 3, types.int32[::1], types.int64),
    ),
    "traced_exchange": (traced_exchange, EXCHANGED),
    "traced_calls": (traced_calls, (BYTES, types.int64)),
    "two_paths": (two_paths, (types.float64[::1], types.float64[::1])),
    "kinds_of_buffers": (
        kinds_of_buffers,
        (types.float32[::1], types.float64[:, ::1], types.complex128[::1, :], WORDS),
    ),
    "views": (views, (types.float32[:, :, ::1], BYTES, types.int64, types.int64)),
    "grids": (grids, (types.float32[::1], types.float32[:, ::1], types.int64, types.int64)),
    "ends": (ends, (types.float32[::1], types.float32[::1], WORDS)),
    "persistent": (
        persistent,
        (types.float32[::1], types.float32[:, ::1], types.int64, types.int64),
    ),
    "windows": (windows, (types.float64[::1], types.float64[::1], types.int64, types.int64)),
    "blocks": (blocks, (types.float32[::1], types.float32[::1], WORDS, types.int64)),
    "small_integers": (small_integers, (BYTES, types.uint32, types.int16)),
    "script_block": (script_kernel.KERNELS["block"].py_func, INTERPRETER),
    "script_grid": (script_kernel.KERNELS["grid"].py_func, INTERPRETER),
    "script_warp": (script_kernel.KERNELS["warp"].py_func, INTERPRETER),
}
