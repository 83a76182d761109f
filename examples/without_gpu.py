"""A rank without a GPU serves ranks with one: it reads parameters and gathers results.

    mpiexec -n 3 python examples/without_gpu.py

Two ranks or more. Host and kernels take part in the same matching, so neither side knows which of
the two it talks to. Collectives, too, may be called by the hosts of some ranks and the kernels of
others.
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Recv, GMPI_Send

SERVER = 0


@cuda.jit
def work(ctx, parameters, result, total):
    GMPI_Recv(ctx, parameters, 3, gmpi.DOUBLE, SERVER, 1, gmpi.COMM_WORLD)
    if cuda.threadIdx.x == 0:
        result[0] = parameters[0] + parameters[1] * parameters[2]
    cuda.syncthreads()
    GMPI_Send(ctx, result, 1, gmpi.DOUBLE, SERVER, 2, gmpi.COMM_WORLD)
    GMPI_Allreduce(ctx, result, total, 1, gmpi.DOUBLE, gmpi.SUM, gmpi.COMM_WORLD)


def serve(g: gmpi.Context) -> bool:
    workers = range(1, g.size)
    parameters = [np.array([1.0, 2.0, rank]) for rank in workers]
    g.host.Waitall([g.host.Isend(p, dest, tag=1) for p, dest in zip(parameters, workers)])
    result, expected = np.zeros(1), [1.0 + 2.0 * rank for rank in workers]
    results = {}
    for _ in workers:
        status = g.host.Recv(result, gmpi.ANY_SOURCE, tag=2)
        results[status.source] = result[0]
    total = np.zeros(1)
    g.host.Allreduce(np.zeros(1), total)
    print(f"{len(results)} results, sum {total[0]}", flush=True)
    return [results[rank] for rank in workers] == expected and total[0] == sum(expected)


def main() -> int:
    comm = MPI.COMM_WORLD
    if comm.size < 2:
        sys.exit(f"without_gpu needs 2 ranks or more: mpiexec -n 2 python {sys.argv[0]}")
    serves = comm.rank == SERVER
    # The GPUs of a node are for the other ranks only.
    workers = comm.Split(int(serves))
    if not serves:
        gmpi.select_gpu(workers)
    with gmpi.Context(comm, gpu=not serves) as g:
        if serves:
            return 0 if serve(g) else 1
        parameters, result, total = (cuda.to_device(np.zeros(n)) for n in (3, 1, 1))
        work[1, 32](g.device, parameters, result, total)
        g.synchronize()
    return 0


if __name__ == "__main__":
    sys.exit(main())
