"""Two kernels send a message back and forth: how long does it take one way?

    mpiexec -n 2 python examples/pingpong.py

benchmarks/pingpong.py measures more carefully, beside three other ways to do the same.
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Recv, GMPI_Send

SIZES = (8, 1024, 65536) if gmpi.SIMULATOR else (8, 1024, 65536, 1 << 20, 1 << 24)
ROUNDS = 3 if gmpi.SIMULATOR else 1000


@cuda.jit
def pingpong(ctx, buf, rank, rounds, nanoseconds):
    began = gmpi.timer_ns()
    for _ in range(rounds):
        if rank == 0:
            GMPI_Send(ctx, buf, buf.size, gmpi.BYTE, 1, 7, gmpi.COMM_WORLD)
            GMPI_Recv(ctx, buf, buf.size, gmpi.BYTE, 1, 7, gmpi.COMM_WORLD)
        else:
            GMPI_Recv(ctx, buf, buf.size, gmpi.BYTE, 0, 7, gmpi.COMM_WORLD)
            GMPI_Send(ctx, buf, buf.size, gmpi.BYTE, 0, 7, gmpi.COMM_WORLD)
    if cuda.threadIdx.x == 0:
        nanoseconds[0] = gmpi.timer_ns() - began


def main() -> int:
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        sys.exit(f"pingpong needs 2 ranks, got {comm.size}: mpiexec -n 2 python {sys.argv[0]}")
    gmpi.select_gpu(comm)
    right = True
    if comm.rank == 0:
        print(f"# {'Bytes':<8}{'One way (us)':>20}")
    with gmpi.Context(comm) as g:
        for size in SIZES:
            sent = np.arange(size, dtype=np.uint8)
            buf = cuda.to_device(sent if comm.rank == 0 else np.zeros_like(sent))
            nanoseconds = cuda.to_device(np.zeros(1, np.int64))
            for rounds in (1, ROUNDS):  # the first launch compiles
                comm.Barrier()
                pingpong[1, 256 if size > 64 else 32](g.device, buf, comm.rank, rounds, nanoseconds)
                g.synchronize()
            right = right and np.array_equal(buf.copy_to_host(), sent)
            if comm.rank == 0:
                print(f"{size:<10}{nanoseconds.copy_to_host()[0] / 2000 / ROUNDS:>20.2f}")
    if comm.rank == 0:
        print(f"payloads checked: {'all right' if right else 'WRONG'}", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
