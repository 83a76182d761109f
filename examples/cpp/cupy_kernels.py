"""CUDA C++ that calls MPI, compiled and launched from CuPy: ping-pong, Allreduce, heat.

    mpiexec -n 2 python examples/cpp/cupy_kernels.py

Needs a GPU and CuPy; says so where there is none.
"""

import sys
from functools import cache

import run_kernels
from mpi4py import MPI

import gmpi


@cache
def kernel(name):
    module = gmpi.cupy_module(run_kernels.KERNELS.read_text(), cooperative=True)
    return module.get_function(name)


def launch(g, name, blocks, threads, *arguments):
    kernel(name)((blocks,), (threads,), (g.device, *arguments))


def resident(threads):
    return kernel("heat").max_blocks(threads)


def main() -> int:
    if gmpi.SIMULATOR:
        print("skipped: CUDA C++ needs a GPU", flush=True)
        return 0
    gmpi.select_gpu(MPI.COMM_WORLD)
    return run_kernels.main(launch, resident)


if __name__ == "__main__":
    sys.exit(main())
