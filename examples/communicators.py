"""Several communicators in one kernel: sums along the rows and the columns of a grid of ranks.

    mpiexec -n 4 python examples/communicators.py

Any number of ranks. The host makes communicators with mpi4py; kernels know them by a number.
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Bcast, GMPI_Comm_rank, GMPI_Comm_size


@cuda.jit
def sums(ctx, mine, along, row, column):
    # Collectives on one communicator are called in the same order on all of its ranks, by one
    # block of each.
    GMPI_Allreduce(ctx, mine, along[0:1], 1, gmpi.DOUBLE, gmpi.SUM, row)
    GMPI_Allreduce(ctx, mine, along[1:2], 1, gmpi.DOUBLE, gmpi.SUM, column)
    if cuda.threadIdx.x == 0:
        along[2] = 10 * GMPI_Comm_rank(ctx, row) + GMPI_Comm_size(ctx, row)
        along[3] = mine[0]
    cuda.syncthreads()
    GMPI_Bcast(ctx, along[3:4], 1, gmpi.DOUBLE, 0, column)  # from the first rank of the column


def main() -> int:
    world = MPI.COMM_WORLD
    gmpi.select_gpu(world)
    grid = np.arange(world.size).reshape(MPI.Compute_dims(world.size, 2))
    ((i, j),) = np.argwhere(grid == world.rank)
    row_comm, column_comm = world.Split(int(i)), world.Split(int(j))
    mine, along = cuda.to_device(np.array([float(world.rank)])), cuda.to_device(np.zeros(4))

    with gmpi.Context(world) as g:
        row, column = g.comm(row_comm), g.comm(column_comm)
        sums[1, 32](g.device, mine, along, row, column)
        g.synchronize()
        g.free(row)  # which closing the context would do as well
        g.free(column)

    expected = [grid[i].sum(), grid[:, j].sum(), 10 * j + grid.shape[1], grid[0, j]]
    found = along.copy_to_host().tolist()
    right = found == expected
    print(
        f"rank {world.rank} of {grid.shape}: row {found[0]:.0f}, column {found[1]:.0f}, "
        f"{'right' if right else f'WRONG, expected {expected}'}",
        flush=True,
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
