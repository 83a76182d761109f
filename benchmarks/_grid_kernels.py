"""Kernels of grid scope that ``roads.py``, ``collectives.py`` and ``all_ranks.py`` measure."""

from __future__ import annotations

from numba import cuda, int64

import gmpi
from gmpi import (
    GMPI_Allreduce_grid,
    GMPI_Barrier_grid,
    GMPI_Bcast_grid,
    GMPI_Irecv_grid,
    GMPI_Isend_grid,
    GMPI_Wait_grid,
    GMPI_Waitall_grid,
)

BARRIER, ALLREDUCE, BCAST = range(3)
ALLTOALL, ALLGATHER = range(2)
RANKS = 32  # at most, of blocks_of_all
REQUESTS = 2 * RANKS  # here: Numba takes no product for the size of an array


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
        begin = gmpi.clock()
        if which == BARRIER:
            GMPI_Barrier_grid(ctx, comm)
        elif which == ALLREDUCE:
            GMPI_Allreduce_grid(ctx, data, out, data.size, gmpi.DOUBLE, gmpi.SUM, comm)
        else:
            GMPI_Bcast_grid(ctx, data, data.size, gmpi.DOUBLE, i % size, comm)
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


# wide: a kernel
@cuda.jit
def blocks_of_all(ctx, which, out, back, n, rounds, skip, cycles, wrong, me, size, comm):
    """``n`` doubles to, or of, each rank by messages of grid scope."""
    grid = cuda.cg.this_grid()
    first, step = cuda.grid(1), cuda.gridsize(1)
    given = n * size if which == ALLTOALL else n
    requests = cuda.local.array(REQUESTS, int64)
    for i in range(rounds):
        for k in range(first, given, step):
            out[k] = i + k + 1000 * me
        grid.sync()
        begin = gmpi.clock()
        for k in range(1, size):
            peer = (me + k) % size
            mine = out[peer * n : (peer + 1) * n] if which == ALLTOALL else out[:n]
            theirs = back[peer * n : (peer + 1) * n]
            requests[2 * k - 2] = GMPI_Irecv_grid(ctx, theirs, n, gmpi.DOUBLE, peer, 1, comm)
            requests[2 * k - 1] = GMPI_Isend_grid(ctx, mine, n, gmpi.DOUBLE, peer, 1, comm)
        own = n * me if which == ALLTOALL else 0
        for k in range(first, n, step):
            back[me * n + k] = out[own + k]
        if size > 1:
            error = GMPI_Waitall_grid(ctx, 2 * size - 2, requests)
        else:
            error = gmpi.SUCCESS
            grid.sync()
        if first == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin
        if error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        for k in range(first, n * size, step):
            came = n * me + k % n if which == ALLTOALL else k % n
            if back[k] != i + came + 1000 * (k // n):
                cuda.atomic.add(wrong, 0, 1)
        grid.sync()
