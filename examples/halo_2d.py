"""A halo exchange in two dimensions: a Cartesian communicator, and derived datatypes for columns.

    mpiexec -n 4 python examples/halo_2d.py

Any number of ranks, on a torus. A row lies in one piece; a column is a datatype of MPI.
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Waitall

ROWS, COLUMNS = 6, 5  # of a rank's own points; around them is a halo of one point


# A derived datatype takes the whole array: the datatype says which elements travel.
@cuda.jit
def exchange(ctx, u, north, south, west, east, columns):
    rows, n = u.shape[0], u.shape[1]
    to_west, to_east, from_west, from_east = columns
    r0 = GMPI_Irecv(ctx, u, 1, from_west, west, 1, gmpi.COMM_WORLD)
    r1 = GMPI_Irecv(ctx, u, 1, from_east, east, 2, gmpi.COMM_WORLD)
    s0 = GMPI_Isend(ctx, u, 1, to_west, west, 2, gmpi.COMM_WORLD)
    s1 = GMPI_Isend(ctx, u, 1, to_east, east, 1, gmpi.COMM_WORLD)
    GMPI_Waitall(ctx, 4, (r0, r1, s0, s1))
    # Then whole rows, halo included: so the corners come, too.
    r0 = GMPI_Irecv(ctx, u[0], n, gmpi.FLOAT, north, 3, gmpi.COMM_WORLD)
    r1 = GMPI_Irecv(ctx, u[rows - 1], n, gmpi.FLOAT, south, 4, gmpi.COMM_WORLD)
    s0 = GMPI_Isend(ctx, u[1], n, gmpi.FLOAT, north, 4, gmpi.COMM_WORLD)
    s1 = GMPI_Isend(ctx, u[rows - 2], n, gmpi.FLOAT, south, 3, gmpi.COMM_WORLD)
    GMPI_Waitall(ctx, 4, (r0, r1, s0, s1))


def main() -> int:
    world = MPI.COMM_WORLD
    dims = MPI.Compute_dims(world.size, 2)
    cart = world.Create_cart(dims, periods=(True, True))
    gmpi.select_gpu(cart)
    north, south = cart.Shift(0, 1)
    west, east = cart.Shift(1, 1)
    shape = (ROWS + 2, COLUMNS + 2)

    # Points of the whole torus, numbered row by row; -1 where nothing is yet.
    numbers = np.arange(dims[0] * ROWS * dims[1] * COLUMNS, dtype=np.float32)
    torus = numbers.reshape(dims[0] * ROWS, dims[1] * COLUMNS)
    i = np.arange(-1, ROWS + 1) + cart.coords[0] * ROWS
    j = np.arange(-1, COLUMNS + 1) + cart.coords[1] * COLUMNS
    expected = np.pad(torus, 1, mode="wrap")[np.ix_(i + 1, j + 1)]
    mine = np.full(shape, -1, np.float32)
    mine[1:-1, 1:-1] = expected[1:-1, 1:-1]
    u = cuda.to_device(mine)

    with gmpi.Context(cart) as g:
        places = (1, COLUMNS, 0, COLUMNS + 1)
        types = [MPI.FLOAT.Create_subarray(shape, (ROWS, 1), (1, place)) for place in places]
        columns = tuple(g.commit(datatype) for datatype in types)
        exchange[1, 32](g.device, u, north, south, west, east, columns)
        g.synchronize()
        for handle in columns:
            g.free(handle)

    right = np.array_equal(u.copy_to_host(), expected)
    print(f"rank {cart.rank} at {cart.coords}: halo {'right' if right else 'WRONG'}", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
