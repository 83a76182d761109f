"""Mistakes with buffers and requests (``planted.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda

import gmpi
from gmpi import (
    GMPI_Allreduce,
    GMPI_Iallreduce,
    GMPI_Irecv,
    GMPI_Irecv_warp,
    GMPI_Isend,
    GMPI_Parrived,
    GMPI_Pready,
    GMPI_Pready_range,
    GMPI_Precv_init,
    GMPI_Psend_init,
    GMPI_Recv,
    GMPI_Request_free,
    GMPI_Send,
    GMPI_Start,
    GMPI_Test,
    GMPI_Wait,
    GMPI_Wait_warp,
    GMPI_Waitall,
)

N = 64  # threads of a block, and elements of a message
D, W = gmpi.DOUBLE, gmpi.COMM_WORLD
Kernel = Any
PLANTED: list[tuple[Kernel, str, int]] = []  # kernel, kind of finding, blocks


def planted(kind: str, blocks: int = 1) -> Callable[[Any], Any]:
    def add(kernel: Any) -> Any:
        PLANTED.append((cuda.jit(kernel), kind, blocks))
        return kernel

    return add


# --- buffers of open requests ---------------------------------------------------------------------


@planted("read before wait")
def reads_what_has_not_come(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    r = GMPI_Irecv(ctx, b, N, D, peer, 1, W)  # line
    GMPI_Send(ctx, a, N, D, peer, 1, W)
    if right:
        GMPI_Wait(ctx, r)
        out[i] = b[i]
    else:
        out[i] = b[i]  # line
        GMPI_Wait(ctx, r)


@planted("write before wait")
def changes_what_is_being_sent(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)  # line
    if right:
        GMPI_Recv(ctx, b, N, D, peer, 1, W)
        GMPI_Wait(ctx, s)
        a[i] = i + 0.5
    else:
        a[i] = i + 0.5  # line
        GMPI_Recv(ctx, b, N, D, peer, 1, W)
        GMPI_Wait(ctx, s)


@planted("write before wait")
def clears_a_buffer_too_late(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    if right:
        b[i] = 0.5
    r = GMPI_Irecv(ctx, b, N, D, peer, 1, W)  # line
    if not right:
        b[i] = 0.5  # line
    GMPI_Send(ctx, a, N, D, peer, 1, W)
    GMPI_Wait(ctx, r)


@planted("read before wait")
def takes_a_test_for_a_wait(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    r = GMPI_Irecv(ctx, b, N, D, peer, 1, W)  # line
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)
    done = False
    done, _ = GMPI_Test(ctx, r)
    while right and not done:
        done, _ = GMPI_Test(ctx, r)
    out[i] = b[i]  # line
    GMPI_Wait(ctx, s)
    if not done:
        GMPI_Wait(ctx, r)


@planted("read before wait")
def waits_for_one_of_two(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    column = b[::2]
    r = GMPI_Irecv(ctx, column, N // 2, D, peer, 1, W)  # line
    s = GMPI_Isend(ctx, a, N // 2, D, peer, 1, W)
    GMPI_Wait(ctx, s)
    if right:
        out[i] = b[2 * (i // 2) + 1]
    else:
        out[i] = b[i]  # line
    GMPI_Wait(ctx, r)


@planted("read before wait")
def its_warp_waits_later(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    w = i // 32
    half = b[32 * w : 32 * w + 32]
    r = GMPI_Irecv_warp(ctx, half, 32, D, peer, w, W)  # line
    s = GMPI_Isend(ctx, a, 32, D, peer, 0, W)
    t = GMPI_Isend(ctx, a, 32, D, peer, 1, W)
    if right:
        GMPI_Wait_warp(ctx, r)
        out[i] = b[i]
    else:
        out[i] = b[i]  # line
        GMPI_Wait_warp(ctx, r)
    GMPI_Waitall(ctx, 2, (s, t))


@planted("buffers overlap")
def receives_twice_into_one_buffer(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    n = N // 2
    q = GMPI_Irecv(ctx, b, n, D, peer, 1, W)  # line
    if right:
        r = GMPI_Irecv(ctx, b[n:], n, D, peer, 2, W)
    else:
        r = GMPI_Irecv(ctx, b[n - 1 :], n, D, peer, 2, W)  # line
    s = GMPI_Isend(ctx, a, n, D, peer, 1, W)
    t = GMPI_Isend(ctx, a, n, D, peer, 2, W)
    GMPI_Waitall(ctx, 4, (q, r, s, t))


@planted("buffers overlap")
def forwards_what_has_not_come(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    q = GMPI_Irecv(ctx, b, N, D, peer, 1, W)  # line
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)
    r = GMPI_Irecv(ctx, out, N, D, peer, 2, W)
    if right:
        GMPI_Wait(ctx, q)
    t = GMPI_Isend(ctx, b, N, D, peer, 2, W)  # line
    if not right:
        GMPI_Wait(ctx, q)
    GMPI_Waitall(ctx, 3, (s, r, t))


@planted("buffers overlap")
def reduces_into_its_own_input(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if right:
        GMPI_Allreduce(ctx, gmpi.IN_PLACE, a, N, D, gmpi.SUM, W)
    else:
        GMPI_Allreduce(ctx, a, a, N, D, gmpi.SUM, W)  # line


@planted("read before wait")
def reads_a_sum_too_early(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    r = GMPI_Iallreduce(ctx, a, b, N, D, gmpi.SUM, W)  # line
    if right:
        GMPI_Wait(ctx, r)
        out[i] = b[0]
    else:
        out[i] = b[0]  # line
        GMPI_Wait(ctx, r)


@planted("write before wait")
def changes_a_partition_that_is_ready(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    s = GMPI_Psend_init(ctx, a, 2, N // 2, D, peer, 1, W)  # line
    r = GMPI_Precv_init(ctx, b, 2, N // 2, D, peer, 1, W)
    GMPI_Start(ctx, s)
    GMPI_Start(ctx, r)
    GMPI_Pready(ctx, 0, s)
    if i < 32 and not right:
        a[i] = i + 0.5  # line
    if i >= 32:
        a[i] = i + 0.5
    GMPI_Pready(ctx, 1, s)
    GMPI_Wait(ctx, s)
    GMPI_Wait(ctx, r)
    GMPI_Request_free(ctx, s)
    GMPI_Request_free(ctx, r)


@planted("read before wait")
def reads_another_partition(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    s = GMPI_Psend_init(ctx, a, 2, N // 2, D, peer, 1, W)
    r = GMPI_Precv_init(ctx, b, 2, N // 2, D, peer, 1, W)  # line
    GMPI_Start(ctx, s)
    GMPI_Start(ctx, r)
    GMPI_Pready_range(ctx, 0, 1, s)
    while not GMPI_Parrived(ctx, r, 0):
        cuda.nanosleep(100)
    if right:
        out[i] = b[i % 32]
    else:
        out[i] = b[i]  # line
    GMPI_Wait(ctx, s)
    GMPI_Wait(ctx, r)
    GMPI_Request_free(ctx, s)
    GMPI_Request_free(ctx, r)


# --- requests -------------------------------------------------------------------------------------


@planted("never waited for")
def forgets_its_send(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)  # line
    GMPI_Recv(ctx, b, N, D, peer, 1, W)
    if right:
        GMPI_Wait(ctx, s)


@planted("waited twice")
def waits_twice(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)  # line
    GMPI_Recv(ctx, b, N, D, peer, 1, W)
    GMPI_Wait(ctx, s)  # line
    if not right:
        GMPI_Wait(ctx, s)  # line
