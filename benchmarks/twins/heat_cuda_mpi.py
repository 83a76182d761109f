"""examples/heat.py with CUDA and mpi4py: each step leaves the kernel for its halos.

    mpiexec -n 4 python benchmarks/twins/heat_cuda_mpi.py [options of heat.py]

As such programs are usually written: a kernel for a step; kernels that pack and unpack what lies at
the edge, in one piece for all neighbours; page-locked memory; MPI between hosts. Arrays, check and
output are those of the example.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import heat

import gmpi


@cuda.jit
def step(u, v, change):  # type: ignore[no-untyped-def]
    columns = u.shape[1] - 2
    largest = 0.0
    for point in range(cuda.grid(1), (u.shape[0] - 2) * columns, cuda.gridsize(1)):
        i, j = 1 + point // columns, 1 + point % columns
        v[i, j] = 0.25 * ((u[i - 1, j] + u[i + 1, j]) + (u[i, j - 1] + u[i, j + 1]))
        largest = max(largest, abs(v[i, j] - u[i, j]))
    cuda.atomic.max(change, 0, largest)


@cuda.jit
def pack(u, faces):  # type: ignore[no-untyped-def]
    """North, south, west, east: the outermost points, one face after the other."""
    rows, columns = u.shape
    for k in range(cuda.grid(1), columns, cuda.gridsize(1)):
        faces[k], faces[columns + k] = u[1, k], u[rows - 2, k]
    for k in range(cuda.grid(1), rows, cuda.gridsize(1)):
        at = 2 * columns + k
        faces[at], faces[at + rows] = u[k, 1], u[k, columns - 2]


@cuda.jit
def unpack(u, faces, there):  # type: ignore[no-untyped-def]
    """``there``: which neighbours exist. The corners belong to rows."""
    rows, columns = u.shape
    for k in range(1 + cuda.grid(1), columns - 1, cuda.gridsize(1)):
        if there[0]:
            u[0, k] = faces[k]
        if there[1]:
            u[rows - 1, k] = faces[columns + k]
    for k in range(1 + cuda.grid(1), rows - 1, cuda.gridsize(1)):
        at = 2 * columns + k
        if there[2]:
            u[k, 0] = faces[at]
        if there[3]:
            u[k, columns - 1] = faces[at + rows]


class Halo:
    """Staging of one rank, on the GPU and in page-locked memory, and its neighbours."""

    def __init__(self, comm: MPI.Cartcomm, shape: tuple[int, int]) -> None:
        rows, columns = shape
        self.comm, self.peers = comm, (*comm.Shift(0, 1), *comm.Shift(1, 1))
        self.cut = np.cumsum([0, columns, columns, rows, rows])
        words = int(self.cut[-1])
        self.faces = cuda.device_array(words)
        self.out, self.back = (cuda.pinned_array(words) for _ in range(2))
        self.there = cuda.to_device(np.array([peer != MPI.PROC_NULL for peer in self.peers]))

    def exchange(self, u: Any, blocks: int, threads: int) -> None:
        pack[blocks, threads](u, self.faces)
        self.faces.copy_to_host(self.out)
        requests = []
        for face, peer in enumerate(self.peers):
            part = slice(self.cut[face], self.cut[face + 1])
            requests.append(self.comm.Irecv(self.back[part], peer, face ^ 1))
            requests.append(self.comm.Isend(self.out[part], peer, face))
        MPI.Request.Waitall(requests)
        self.faces.copy_to_device(self.back)
        unpack[blocks, threads](u, self.faces, self.there)


def run(comm: MPI.Cartcomm, u: Any, v: Any, tolerance: float, limit: int) -> tuple[int, float]:
    """As the function of the example."""
    halo = Halo(comm, u.shape)
    blocks = 2 if gmpi.SIMULATOR else min(1024, -(-u.size // heat.THREADS))
    few = 1 if gmpi.SIMULATOR else -(-max(u.shape) // heat.THREADS)
    change, none = cuda.to_device(np.zeros(1)), np.zeros(1)
    step[1, heat.THREADS](u, v, change)  # compiles
    halo.exchange(u, few, heat.THREADS)
    comm.Barrier()
    began = MPI.Wtime()
    for n in range(1, limit + 1):
        halo.exchange(u, few, heat.THREADS)
        if n % heat.CHECK == 0:
            change.copy_to_device(none)
        step[blocks, heat.THREADS](u, v, change)
        u, v = v, u
        if n % heat.CHECK == 0 and comm.allreduce(change.copy_to_host()[0], MPI.MAX) < tolerance:
            break
    cuda.synchronize()
    return n, MPI.Wtime() - began


def main() -> int:
    return heat.main(run)


if __name__ == "__main__":
    raise SystemExit(main())
