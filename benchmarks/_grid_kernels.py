"""Kernels of grid scope that ``roads.py`` and ``collectives.py`` measure."""

from __future__ import annotations

from typing import Any

from numba import cuda

import gmpi
from gmpi import (
    GMPI_Allreduce_grid,
    GMPI_Barrier_grid,
    GMPI_Bcast_grid,
    GMPI_Irecv_grid,
    GMPI_Isend_grid,
    GMPI_Recv_grid,
    GMPI_Send_grid,
    GMPI_Wait_grid,
)

BARRIER, ALLREDUCE, BCAST = range(3)


# wide: a kernel
@cuda.jit
def exchange(ctx, out, back, n, me, rounds, skip, cycles, comm):
    """One way is half of what a round takes."""
    peer = 1 - me
    for i in range(rounds):
        begin = gmpi.clock()
        receive = GMPI_Irecv_grid(ctx, back, n, gmpi.BYTE, peer, 1, comm)
        if me == 1:
            GMPI_Wait_grid(ctx, receive)
        send = GMPI_Isend_grid(ctx, out, n, gmpi.BYTE, peer, 1, comm)
        GMPI_Wait_grid(ctx, send)
        if me == 0:
            GMPI_Wait_grid(ctx, receive)
        if cuda.grid(1) == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


def make_blocking(send: Any, recv: Any) -> Any:
    """``exchange`` by calls that block, of any scope: two in place of four, but no receive is
    posted early.

    Args:
        send, recv: GMPI_Send and GMPI_Recv of a scope.
    """

    # wide: a kernel
    @cuda.jit
    def exchange_blocking(ctx, out, back, n, me, rounds, skip, cycles, comm):
        peer = 1 - me
        for i in range(rounds):
            begin = gmpi.clock()
            if me == 1:
                recv(ctx, back, n, gmpi.BYTE, peer, 1, comm)
            send(ctx, out, n, gmpi.BYTE, peer, 1, comm)
            if me == 0:
                recv(ctx, back, n, gmpi.BYTE, peer, 1, comm)
            if cuda.grid(1) == 0 and i >= skip:
                cycles[i - skip] = gmpi.clock() - begin

    return exchange_blocking


exchange_blocking = make_blocking(GMPI_Send_grid, GMPI_Recv_grid)


# wide: a kernel
@cuda.jit
def exchange_typed(
    ctx, out, back, sent, sendtype, received, recvtype, me, rounds, skip, cycles, comm
):
    """The same of any datatypes."""
    peer = 1 - me
    for i in range(rounds):
        begin = gmpi.clock()
        receive = GMPI_Irecv_grid(ctx, back, received, recvtype, peer, 1, comm)
        if me == 1:
            GMPI_Wait_grid(ctx, receive)
        send = GMPI_Isend_grid(ctx, out, sent, sendtype, peer, 1, comm)
        GMPI_Wait_grid(ctx, send)
        if me == 0:
            GMPI_Wait_grid(ctx, receive)
        if cuda.grid(1) == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


@cuda.jit
def exchange_checked(ctx, out, back, n, me, rounds, wrong, comm):
    """The same calls; every round has bytes of its own."""
    peer = 1 - me
    grid = cuda.cg.this_grid()
    for i in range(rounds):
        for k in range(cuda.grid(1), n, cuda.gridsize(1)):
            out[k] = (k * 7 + i * 13 + me) & 0xFF
        receive = GMPI_Irecv_grid(ctx, back, n, gmpi.BYTE, peer, 1, comm)
        if me == 1:
            status = GMPI_Wait_grid(ctx, receive)
        send = GMPI_Isend_grid(ctx, out, n, gmpi.BYTE, peer, 1, comm)
        GMPI_Wait_grid(ctx, send)
        if me == 0:
            status = GMPI_Wait_grid(ctx, receive)
        if status.nbytes != n or status.error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        for k in range(cuda.grid(1), n, cuda.gridsize(1)):
            if back[k] != (k * 7 + i * 13 + peer) & 0xFF:
                cuda.atomic.add(wrong, 0, 1)
        grid.sync()


# wide: a kernel
@cuda.jit
def measure(ctx, which, data, out, rounds, skip, cycles, size, comm):
    for i in range(rounds):
        root = i % size
        begin = gmpi.clock()
        if which == BARRIER:
            GMPI_Barrier_grid(ctx, comm)
        elif which == ALLREDUCE:
            GMPI_Allreduce_grid(ctx, data, out, data.size, gmpi.DOUBLE, gmpi.SUM, comm)
        else:
            GMPI_Bcast_grid(ctx, data, data.size, gmpi.DOUBLE, root, comm)
        if cuda.grid(1) == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


# wide: a kernel
@cuda.jit
def check(ctx, which, data, out, rounds, wrong, rank, size, comm):
    """The same calls; every round has values of its own."""
    first, step = cuda.grid(1), cuda.gridsize(1)
    grid = cuda.cg.this_grid()
    for i in range(rounds):
        error = gmpi.SUCCESS
        if which == BARRIER:
            error = GMPI_Barrier_grid(ctx, comm)
        elif which == ALLREDUCE:
            for k in range(first, data.size, step):
                data[k] = i + k + rank
            error = GMPI_Allreduce_grid(ctx, data, out, data.size, gmpi.DOUBLE, gmpi.SUM, comm)
            for k in range(first, data.size, step):
                if out[k] != size * (i + k) + size * (size - 1) // 2:
                    cuda.atomic.add(wrong, 0, 1)
        else:
            for k in range(first, data.size, step):
                data[k] = 3 * i + k if rank == i % size else -1
            error = GMPI_Bcast_grid(ctx, data, data.size, gmpi.DOUBLE, i % size, comm)
            for k in range(first, data.size, step):
                if data[k] != 3 * i + k:
                    cuda.atomic.add(wrong, 0, 1)
        if error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        grid.sync()
