"""The smallest GMPI program: two kernels exchange greetings without leaving the GPU.

    mpiexec -n 2 python examples/hello.py

On a machine without a GPU: NUMBA_ENABLE_CUDASIM=1 mpiexec -n 2 python examples/hello.py
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Comm_rank, GMPI_Irecv, GMPI_Isend, GMPI_Wait


# A kernel that communicates takes the context as its first argument. All threads of the block make
# every GMPI call together; each call is executed once.
@cuda.jit
def greet(ctx, mine, theirs, peer, status_out):
    thread = cuda.threadIdx.x
    if thread < mine.size:
        mine[thread] += GMPI_Comm_rank(ctx, gmpi.COMM_WORLD)

    # MPI's names, MPI's argument order. The calls return requests, as in MPI.
    incoming = GMPI_Irecv(ctx, theirs, theirs.size, gmpi.INT32_T, peer, 7, gmpi.COMM_WORLD)
    outgoing = GMPI_Isend(ctx, mine, mine.size, gmpi.INT32_T, peer, 7, gmpi.COMM_WORLD)

    # Waiting returns a status. Errors are values: nothing aborts.
    GMPI_Wait(ctx, outgoing)
    status = GMPI_Wait(ctx, incoming)
    if thread == 0:
        status_out[0] = status.error
        status_out[1] = status.source
        status_out[2] = status.count


def main() -> int:
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        sys.exit(f"hello needs 2 ranks, got {comm.size}: mpiexec -n 2 python {sys.argv[0]}")
    gmpi.select_gpu(comm)  # the GPUs of a node are dealt out to its ranks
    peer = 1 - comm.rank

    # Allocate before the kernel runs: freeing GPU memory waits for running kernels.
    mine = cuda.to_device(np.arange(100, 108, dtype=np.int32))
    theirs = cuda.to_device(np.zeros(8, np.int32))
    status = cuda.to_device(np.zeros(3, np.int64))

    with gmpi.Context(comm) as g:  # starts the proxy thread that makes the MPI calls
        greet[1, 32](g.device, mine, theirs, peer, status)
        g.synchronize()  # waits for the kernel; raises what went wrong

    expected = np.arange(100, 108) + peer
    received = theirs.copy_to_host()
    error, source, count = status.copy_to_host()
    ok = np.array_equal(received, expected) and (error, source, count) == (0, peer, 8)
    where = "simulator" if gmpi.SIMULATOR else "GPU"
    print(
        f"rank {comm.rank} ({where}): {count} numbers from rank {source}: {received}"
        f" {'as expected' if ok else f'WRONG, expected {expected}'}",
        flush=True,
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
