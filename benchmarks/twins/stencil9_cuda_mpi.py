"""examples/stencil9.py with CUDA and mpi4py: each iteration leaves the kernel for its halo.

    mpiexec -n 4 python benchmarks/twins/stencil9_cuda_mpi.py [options of stencil9.py]

As SHOC's own program does it: a kernel packs both columns, they are copied to page-locked memory
and sent, another kernel unpacks what has come; then the same of rows; then a kernel updates the
square. The arrays, the update and the checks are those of the example.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import stencil9 as example

import gmpi


@cuda.jit
def update(u, v):  # type: ignore[no-untyped-def]
    example.update(u, v, cuda.grid(1), cuda.gridsize(1))


@cuda.jit
def pack(u, columns):  # type: ignore[no-untyped-def]
    for i in range(1 + cuda.grid(1), u.shape[0] - 1, cuda.gridsize(1)):
        columns[0, i - 1], columns[1, i - 1] = u[i, 1], u[i, u.shape[1] - 2]


@cuda.jit
def unpack(u, columns):  # type: ignore[no-untyped-def]
    for i in range(1 + cuda.grid(1), u.shape[0] - 1, cuda.gridsize(1)):
        u[i, 0], u[i, u.shape[1] - 1] = columns[0, i - 1], columns[1, i - 1]


def swap(comm: MPI.Comm, out: np.ndarray, back: np.ndarray, low: int, high: int) -> None:
    """Row 0 goes to ``low`` and row 1 to ``high``; what comes from them takes the same rows."""
    requests = [comm.Irecv(back[0], low, 2), comm.Irecv(back[1], high, 1)]
    requests += [comm.Isend(out[0], low, 1), comm.Isend(out[1], high, 2)]
    MPI.Request.Waitall(requests)


def run(comm: MPI.Cartcomm, size: int, u: Any, v: Any, iterations: int) -> float:
    """As the function of the example."""
    north, south, west, east = *comm.Shift(0, 1), *comm.Shift(1, 1)
    threads = example.THREADS
    blocks = 2 if gmpi.SIMULATOR else -(-size * size // threads)
    few = 1 if gmpi.SIMULATOR else -(-size // threads)
    columns, last = cuda.device_array((2, size)), size + 1
    out, back = (cuda.pinned_array((2, size)) for _ in range(2))
    rows_out, rows_back = (cuda.pinned_array((2, size + 2)) for _ in range(2))
    cuda.synchronize()
    comm.Barrier()
    began = MPI.Wtime()
    for _ in range(iterations):
        pack[few, threads](u, columns)
        columns.copy_to_host(out)
        swap(comm, out, back, west, east)
        columns.copy_to_device(back)
        unpack[few, threads](u, columns)
        u[1].copy_to_host(rows_out[0])
        u[last - 1].copy_to_host(rows_out[1])
        swap(comm, rows_out, rows_back, north, south)
        u[0].copy_to_device(rows_back[0])
        u[last].copy_to_device(rows_back[1])
        update[blocks, threads](u, v)
        u, v = v, u
    cuda.synchronize()
    return comm.allreduce(MPI.Wtime() - began, MPI.MAX)


def main() -> int:
    return example.main(run)


if __name__ == "__main__":
    raise SystemExit(main())
