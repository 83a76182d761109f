"""Heat in a rod that is cut into one piece per rank: one kernel, with a halo exchange in each step.

    mpiexec -n 4 python examples/halo_1d.py

Any number of ranks. The result is compared with one rod on the host.
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Waitall

POINTS = 64  # of each rank
STEPS = 20


# u[0] and u[-1] are the halo: copies of the neighbours' nearest points. At the ends of the rod the
# neighbour is MPI's null process: nothing is sent there, and the halo keeps its value.
@cuda.jit
def heat(ctx, u, new, left, right, steps):
    n = u.size
    for _ in range(steps):
        r0 = GMPI_Irecv(ctx, u[0:1], 1, gmpi.DOUBLE, left, 1, gmpi.COMM_WORLD)
        r1 = GMPI_Irecv(ctx, u[n - 1 :], 1, gmpi.DOUBLE, right, 2, gmpi.COMM_WORLD)
        s0 = GMPI_Isend(ctx, u[1:2], 1, gmpi.DOUBLE, left, 2, gmpi.COMM_WORLD)
        s1 = GMPI_Isend(ctx, u[n - 2 :], 1, gmpi.DOUBLE, right, 1, gmpi.COMM_WORLD)
        for i in range(2 + cuda.threadIdx.x, n - 2, cuda.blockDim.x):  # these need no halo
            new[i] = u[i] + 0.25 * (u[i - 1] - 2 * u[i] + u[i + 1])
        GMPI_Waitall(ctx, 4, (r0, r1, s0, s1))
        if cuda.threadIdx.x < 2:
            i = 1 if cuda.threadIdx.x == 0 else n - 2
            new[i] = u[i] + 0.25 * (u[i - 1] - 2 * u[i] + u[i + 1])
        cuda.syncthreads()
        for i in range(1 + cuda.threadIdx.x, n - 1, cuda.blockDim.x):
            u[i] = new[i]
        cuda.syncthreads()


def main() -> int:
    comm = MPI.COMM_WORLD
    gmpi.select_gpu(comm)
    rod = np.sin(np.arange(comm.size * POINTS + 2.0))
    first = comm.rank * POINTS
    u = cuda.to_device(rod[first : first + POINTS + 2])
    new = cuda.device_array_like(u)
    left = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
    right = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL

    with gmpi.Context(comm) as g:
        heat[1, 32](g.device, u, new, left, right, STEPS)
        g.synchronize()

    for _ in range(STEPS):
        rod[1:-1] += 0.25 * (rod[:-2] - 2 * rod[1:-1] + rod[2:])
    off = abs(u.copy_to_host()[1:-1] - rod[first + 1 : first + POINTS + 1]).max()
    print(f"rank {comm.rank}: {POINTS} points differ from one rod by at most {off:.0e}", flush=True)
    return 0 if off < 1e-12 else 1


if __name__ == "__main__":
    sys.exit(main())
