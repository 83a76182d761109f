"""A pipeline through all ranks: every warp of every block takes its own packets along.

    mpiexec -n 3 python examples/pipeline.py

Any number of ranks. A rank receives a packet, works on it and sends it on, while other warps wait
for theirs: many packets are under way at once. The calls are of warp scope; the tag names the
packet, since calls of different warps have no order.
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Recv_warp, GMPI_Send_warp

PACKETS, LENGTH = 24, 64
BLOCKS, WARPS = (2, 2) if gmpi.SIMULATOR else (8, 4)


@cuda.jit
def stage(ctx, packets, before, after):
    lane = cuda.laneid
    warp = cuda.blockIdx.x * (cuda.blockDim.x // 32) + cuda.threadIdx.x // 32
    warps = cuda.gridDim.x * (cuda.blockDim.x // 32)
    for n in range(warp, packets.shape[0], warps):
        packet = packets[n]
        GMPI_Recv_warp(ctx, packet, packet.size, gmpi.FLOAT, before, n, gmpi.COMM_WORLD)
        for k in range(lane, packet.size, 32):
            packet[k] = 2 * packet[k] + 1
        cuda.syncwarp()
        GMPI_Send_warp(ctx, packet, packet.size, gmpi.FLOAT, after, n, gmpi.COMM_WORLD)


def main() -> int:
    comm = MPI.COMM_WORLD
    gmpi.select_gpu(comm)
    first, last = comm.rank == 0, comm.rank == comm.size - 1
    start = np.arange(PACKETS * LENGTH, dtype=np.float32).reshape(PACKETS, LENGTH)
    packets = cuda.to_device(start if first else np.zeros_like(start))
    # The first rank has the packets, the last one keeps them: their neighbour is nobody.
    before = MPI.PROC_NULL if first else comm.rank - 1
    after = MPI.PROC_NULL if last else comm.rank + 1
    with gmpi.Context(comm) as g:
        stage[BLOCKS, 32 * WARPS](g.device, packets, before, after)
        g.synchronize()
    expected = start
    for _ in range(comm.rank + 1):
        expected = 2 * expected + 1
    right = np.array_equal(packets.copy_to_host(), expected)
    if last or not right:
        print(f"rank {comm.rank}: {PACKETS} packets {'right' if right else 'WRONG'}", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
