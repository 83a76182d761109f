"""A kernel hands out tasks to the kernels of the other ranks, to whichever is free first.

    mpiexec -n 4 python examples/master_worker.py

Two ranks or more. The master receives from any rank with any tag, and answers who has sent.
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Recv, GMPI_Send

TASKS = 20  # each sums up a part of the integral of 4 / (1 + x * x) from 0 to 1, which is pi
READY, RESULT, TASK, STOP = 1, 2, 3, 4  # tags


@cuda.jit
def master(ctx, message, total, workers, tasks):
    task = 0
    while workers > 0:
        status = GMPI_Recv(
            ctx, message, 1, gmpi.DOUBLE, gmpi.ANY_SOURCE, gmpi.ANY_TAG, gmpi.COMM_WORLD
        )
        if cuda.threadIdx.x == 0:
            if status.tag == RESULT:
                total[0] += message[0]
            message[0] = task
        cuda.syncthreads()  # a send takes what all threads have stored
        tag = TASK if task < tasks else STOP
        GMPI_Send(ctx, message, 1, gmpi.DOUBLE, status.source, tag, gmpi.COMM_WORLD)
        task += 1
        if tag == STOP:
            workers -= 1


@cuda.jit
def worker(ctx, message, tasks, points):
    GMPI_Send(ctx, message, 1, gmpi.DOUBLE, 0, READY, gmpi.COMM_WORLD)
    while True:
        status = GMPI_Recv(ctx, message, 1, gmpi.DOUBLE, 0, gmpi.ANY_TAG, gmpi.COMM_WORLD)
        if status.tag == STOP:
            break
        first, width = message[0] / tasks, 1.0 / (tasks * points)
        cuda.syncthreads()  # all threads have read the task
        if cuda.threadIdx.x == 0:
            message[0] = 0.0
        cuda.syncthreads()
        for n in range(cuda.threadIdx.x, points, cuda.blockDim.x):
            x = first + (n + 0.5) * width
            cuda.atomic.add(message, 0, 4.0 / (1.0 + x * x) * width)
        cuda.syncthreads()
        GMPI_Send(ctx, message, 1, gmpi.DOUBLE, 0, RESULT, gmpi.COMM_WORLD)


def main() -> int:
    comm = MPI.COMM_WORLD
    if comm.size < 2:
        sys.exit(f"master_worker needs 2 ranks or more: mpiexec -n 2 python {sys.argv[0]}")
    gmpi.select_gpu(comm)
    message, total = cuda.to_device(np.zeros(1)), cuda.to_device(np.zeros(1))
    with gmpi.Context(comm) as g:
        if comm.rank == 0:
            master[1, 32](g.device, message, total, comm.size - 1, TASKS)
        else:
            worker[1, 32](g.device, message, TASKS, 64)
        g.synchronize()
    if comm.rank > 0:
        return 0
    found = total.copy_to_host()[0]
    print(f"{TASKS} tasks for {comm.size - 1} workers: pi is {found:.6f}", flush=True)
    return 0 if abs(found - np.pi) < 1e-6 else 1


if __name__ == "__main__":
    sys.exit(main())
