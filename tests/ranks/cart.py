"""Cartesian communicators in kernels, and what else any thread may ask, against mpi4py.

mpiexec -n 4 python3 tests/ranks/cart.py
"""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, WORLD, end, same
from mpi4py import MPI
from numba import cuda, int32

import gmpi


@cuda.jit
def ask(ctx, comm, ndims, ranks, coords, back, shifts, mine, errors):
    """Each thread by itself."""
    i = cuda.threadIdx.x
    at = cuda.local.array(8, int32)
    if i < ranks:
        errors[i] = gmpi.GMPI_Cart_coords(ctx, comm, i, 8, at)
        for d in range(ndims):
            coords[i, d] = at[d]
        back[i] = gmpi.GMPI_Cart_rank(ctx, comm, at)
        for d in range(ndims):
            at[d] += 1
        back[ranks + i] = gmpi.GMPI_Cart_rank(ctx, comm, at)
    if i < 6 * ndims:
        direction, disp = i // 6, i % 6 - 3
        source, dest = gmpi.GMPI_Cart_shift(ctx, comm, direction, disp)
        shifts[i, 0] = source
        shifts[i, 1] = dest
    if i == 0:
        errors[ranks] = gmpi.GMPI_Cart_get(ctx, comm, ndims, mine[0], mine[1], mine[2])
        errors[ranks + 1] = gmpi.GMPI_Cartdim_get(ctx, comm) - ndims


@cuda.jit
def ask_others(ctx, comm, cart, derived, me, room, found, times):
    at = cuda.local.array(8, int32)
    found[0] = gmpi.GMPI_Cartdim_get(ctx, comm)
    found[1] = gmpi.GMPI_Cart_coords(ctx, comm, 0, 8, at)
    found[2] = gmpi.GMPI_Cart_rank(ctx, comm, at)
    found[3] = gmpi.GMPI_Cart_shift(ctx, comm, 0, 1)[0]
    found[4] = gmpi.GMPI_Cart_coords(ctx, cart, 1000, 8, at)
    found[5] = gmpi.GMPI_Cart_coords(ctx, cart, 0, 1, at)
    found[6] = gmpi.GMPI_Cart_shift(ctx, cart, 2, 1)[1]
    found[7] = gmpi.GMPI_Cartdim_get(ctx, 99999)
    found[8] = gmpi.GMPI_Type_size(ctx, gmpi.DOUBLE)
    found[9] = gmpi.GMPI_Type_size(ctx, derived)
    found[10] = gmpi.GMPI_Type_size(ctx, 7)
    found[11] = gmpi.GMPI_Error_class(ctx, gmpi.ERR_RANK)
    request = gmpi.GMPI_Irecv(ctx, room, 40, gmpi.BYTE, me, 3, comm)
    gmpi.GMPI_Send(ctx, room[40:], 24, gmpi.BYTE, me, 3, comm)
    status = gmpi.GMPI_Wait(ctx, request)
    found[12] = gmpi.GMPI_Get_count(ctx, status, gmpi.DOUBLE)
    found[13] = gmpi.GMPI_Get_count(ctx, status, derived)
    found[14] = gmpi.GMPI_Get_count(ctx, status, gmpi.LONG_DOUBLE)
    found[15] = gmpi.GMPI_Get_count(ctx, status, 7)
    times[0] = gmpi.GMPI_Wtime(ctx)
    begin = gmpi.timer_ns()
    while gmpi.timer_ns() - begin < 20_000_000:
        cuda.nanosleep(1000)
    times[1] = gmpi.GMPI_Wtime(ctx)


def compare(g: gmpi.Context, cart: MPI.Cartcomm) -> None:
    handle, ndims, ranks = g.comm(cart), cart.ndim, cart.size
    coords = cuda.to_device(np.full((ranks, ndims), -9))
    back = cuda.to_device(np.full(2 * ranks, -9))
    shifts = cuda.to_device(np.full((6 * ndims, 2), -9))
    mine, errors = cuda.to_device(np.full((3, 8), -9)), cuda.to_device(np.full(ranks + 2, -9))
    ask[1, 32](g.device, handle, ndims, ranks, coords, back, shifts, mine, errors)
    g.synchronize()
    same(errors, np.zeros(ranks + 2, int), "error classes")
    same(coords, [cart.Get_coords(r) for r in range(ranks)], "coordinates")
    following = []
    for r in range(ranks):
        at = [c + 1 for c in cart.Get_coords(r)]
        outside = any(c >= n and not p for c, n, p in zip(at, cart.dims, cart.periods))
        following.append(gmpi.PROC_NULL if outside else cart.Get_cart_rank(at))
    same(back, [*range(ranks), *following], "ranks")
    wanted = [cart.Shift(i // 6, i % 6 - 3) for i in range(6 * ndims)]
    same(shifts, wanted, "shifts")
    dims, periods, at = cart.Get_topo()
    same(mine.copy_to_host()[:, :ndims], [dims, [int(p) for p in periods], at], "its shape")
    g.free(handle)


def main() -> None:
    shapes = {1: [[1], [1, 1]], 2: [[2], [1, 2]], 3: [[3]], 4: [[4], [2, 2], [1, 2, 2]]}[SIZE]
    derived = MPI.INT32_T.Create_vector(3, 1, 2).Commit()
    with gmpi.Context(WORLD) as g:
        for dims in shapes:
            for number in range(2 ** len(dims)):
                cart = WORLD.Create_cart(dims, [bool(number >> i & 1) for i in range(len(dims))])
                compare(g, cart)
                cart.Free()
        cart = WORLD.Create_cart([SIZE, 1])
        handle, datatype = g.comm(cart), g.commit(derived)
        found, times = cuda.to_device(np.zeros(16, int)), cuda.to_device(np.zeros(2))
        room = cuda.to_device(np.zeros(64, np.uint8))
        ask_others[1, 1](g.device, gmpi.COMM_WORLD, handle, datatype, RANK, room, found, times)
        g.synchronize()
        no = gmpi.UNDEFINED
        wanted = [0, gmpi.ERR_TOPOLOGY, no, no, gmpi.ERR_RANK, gmpi.ERR_ARG, no, 0, 8, 12, no]
        wanted += [gmpi.ERR_RANK, 3, 2, no, no]
        same(found, wanted, "what is refused, and sizes")
        began, ended = times.copy_to_host()
        spacing = np.spacing(ended)  # of seconds since 1970: 0.24 us
        assert 0.02 - spacing <= ended - began < 5, (began, ended)
        g.free(datatype)
        g.free(handle)
    with gmpi.Context(WORLD, gpu=False) as g:  # has no kernels to tell of it
        g.free(g.comm(cart))
    cart.Free()
    derived.Free()
    end()


main()
