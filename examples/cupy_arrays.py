"""CuPy arrays as buffers: kernels take them as they are.

    mpiexec -n 2 python examples/cupy_arrays.py

Any number of ranks, in a ring. Needs a GPU and CuPy; says so where there is none.
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Sendrecv


@cuda.jit
def shift(ctx, send, recv, left, right):
    n = send.size
    GMPI_Sendrecv(ctx, send, n, gmpi.FLOAT, right, 7, recv, n, gmpi.FLOAT, left, 7, gmpi.COMM_WORLD)


def main() -> int:
    if gmpi.SIMULATOR:
        print("skipped: CuPy needs a GPU", flush=True)
        return 0
    try:
        import cupy
    except ImportError:
        print('skipped: CuPy is not installed (pip install "gmpi[cu13]")', flush=True)
        return 0
    comm = MPI.COMM_WORLD
    gmpi.select_gpu(comm)  # before the first array of CuPy: it goes to the current GPU
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    send = cupy.full(100_000, comm.rank, cupy.float32)
    recv = cupy.empty_like(send)
    # CuPy fills the array in its own stream: the kernel must not start before.
    cupy.cuda.get_current_stream().synchronize()
    with gmpi.Context(comm) as g:
        shift[1, 256](g.device, send, recv, left, right)
        g.synchronize()
    right_values = bool(cupy.all(recv == np.float32(left)))
    print(f"rank {comm.rank}: {'right' if right_values else 'WRONG'}", flush=True)
    return 0 if right_values else 1


if __name__ == "__main__":
    sys.exit(main())
