"""What cupy_kernels.py and nvcc_kernels.py have in common: arrays, launches, checks.

``launch(g, name, blocks, threads, *arguments)`` launches one of kernels.cu, in whichever way, and
``resident(threads)`` says how many blocks of heat() the GPU holds at once.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import heat as in_python

KERNELS = Path(__file__).with_name("kernels.cu")
SIZES = (8, 1024, 65536, 1 << 20)
ROUNDS = 1000
THREADS = 256  # a block: more need fewer registers, see nvcc_kernels.py


def pingpong(g, launch):
    """Prints the time of a message one way; whether all bytes are right."""
    right = True
    if g.rank == 0:
        print(f"# {'Bytes':<8}{'One way (us)':>20}")
    for size in SIZES:
        sent = np.arange(size, dtype=np.uint8)
        buf = cuda.to_device(sent if g.rank == 0 else np.zeros_like(sent))
        nanoseconds = cuda.to_device(np.zeros(1, np.int64))
        for rounds in (1, ROUNDS):
            launch(g, "pingpong", 1, 256 if size > 64 else 32, buf, size, rounds, nanoseconds)
            g.synchronize()
        right = right and np.array_equal(buf.copy_to_host(), sent)
        if g.rank == 0:
            print(f"{size:<10}{nanoseconds.copy_to_host()[0] / 2000 / ROUNDS:>20.2f}")
    return right


def sums(g, launch):
    """Whether the sums over all ranks are right."""
    values = cuda.to_device(np.arange(5.0) + g.rank)
    launch(g, "sum", 1, 32, values, 5, 3, cuda.to_device(np.zeros(1, np.int64)))
    g.synchronize()
    once = g.size * np.arange(5.0) + g.size * (g.size - 1) / 2
    return np.array_equal(values.copy_to_host(), once * g.size**2)


def heat(launch, resident):
    """examples/heat.py with this kernel: 0 where it has the bits of the serial program."""

    def run(comm, u, v, tolerance, limit):
        rows, columns = u.shape
        every = in_python.CHECK
        change = cuda.to_device(np.zeros(limit // every + 1))
        steps = cuda.to_device(np.zeros(1, np.int64))
        column = MPI.DOUBLE.Create_vector(rows - 2, 1, columns).Commit()
        with gmpi.Context(comm) as g:
            handle = g.commit(column)
            values = (u, v, rows, columns, *comm.Shift(0, 1), *comm.Shift(1, 1), handle, change)
            values = (*values, tolerance, every)
            blocks = resident(THREADS) // comm.size  # ranks may share the GPU
            launch(g, "heat", blocks, THREADS, *values, 0, steps)
            g.synchronize()
            comm.Barrier()
            began = MPI.Wtime()
            launch(g, "heat", blocks, THREADS, *values, limit, steps)
            g.synchronize()
            seconds = MPI.Wtime() - began
            g.free(handle)
            return int(steps.copy_to_host()[0]), seconds

    return in_python.main(run)


def main(launch, resident):
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        sys.exit(f"the ping-pong needs 2 ranks, got {comm.size}: mpiexec -n 2 python {sys.argv[0]}")
    with gmpi.Context(comm) as g:
        right = pingpong(g, launch) & sums(g, launch)
    if comm.rank == 0:
        print(f"messages and sums: {'all right' if right else 'WRONG'}", flush=True)
    return int(not right) | heat(launch, resident)
