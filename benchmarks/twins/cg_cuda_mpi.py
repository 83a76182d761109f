"""examples/cg.py with CUDA and mpi4py: each product and each sum leaves the kernel.

    mpiexec -n 2 python benchmarks/twins/cg_cuda_mpi.py [options of cg.py]

As such programs are usually written: a kernel for each part of an iteration, page-locked memory,
Allgatherv and Allreduce between hosts. The matrix, the check and the output are those of the
example, and so are the functions that multiply and add.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import cg

import gmpi


@cuda.jit
def begin(x, z, p, r, sums, low, high):  # type: ignore[no-untyped-def]
    rho = 0.0
    for i in range(low + cuda.grid(1), high, cuda.gridsize(1)):
        z[i], r[i], p[i] = 0.0, x[i], x[i]
        rho += x[i] * x[i]
    cg.add(sums, 0, rho)


@cuda.jit
def product(matrix, p, q, sums, low, high):  # type: ignore[no-untyped-def]
    cg.add(sums, 0, cg.multiply(matrix, p, q, low, high))


@cuda.jit
def improve(z, p, q, r, alpha, sums, low, high):  # type: ignore[no-untyped-def]
    square = 0.0
    for i in range(low + cuda.grid(1), high, cuda.gridsize(1)):
        z[i] += alpha * p[i]
        r[i] -= alpha * q[i]
        square += r[i] * r[i]
    cg.add(sums, 0, square)


@cuda.jit
def direct(p, r, beta, low, high):  # type: ignore[no-untyped-def]
    for i in range(low + cuda.grid(1), high, cuda.gridsize(1)):
        p[i] = r[i] + beta * p[i]


@cuda.jit
def finish(x, z, q, sums, low, high):  # type: ignore[no-untyped-def]
    xz, zz, off = 0.0, 0.0, 0.0
    for i in range(low + cuda.grid(1), high, cuda.gridsize(1)):
        xz += x[i] * z[i]
        zz += z[i] * z[i]
        off += (x[i] - q[i]) ** 2
    cg.add(sums, 0, xz)
    cg.add(sums, 1, zz)
    cg.add(sums, 2, off)


@cuda.jit
def normalize(x, z, norm, low, high):  # type: ignore[no-untyped-def]
    for i in range(low + cuda.grid(1), high, cuda.gridsize(1)):
        x[i] = z[i] / norm


class Solver:
    """One rank's rows and vectors, and the staging of what it exchanges."""

    def __init__(self, comm: MPI.Comm, matrix: Any, first: np.ndarray) -> None:
        self.comm, self.matrix = comm, tuple(cuda.to_device(part) for part in matrix)
        self.part = int(first[comm.rank]), int(first[comm.rank + 1])
        self.x, self.z, self.p, self.q, self.r = (
            cuda.to_device(vector) for vector in np.ones((5, first[-1]))
        )
        self.sums, self.none, self.found = cuda.device_array(3), np.zeros(3), np.zeros(3)
        self.whole, self.counts = cuda.pinned_array(int(first[-1])), np.diff(first)
        rows = self.part[1] - self.part[0]
        self.of_rows = self._grid(rows)
        self.of_products = self._grid(32 * rows)  # a warp a row

    @staticmethod
    def _grid(threads: int) -> tuple[int, int]:
        blocks = 1 if gmpi.SIMULATOR else min(2048, -(-threads // cg.THREADS))
        return blocks, cg.THREADS

    def total(self, kernel: Any, grid: tuple[int, int], *arguments: Any) -> np.ndarray:
        """What a kernel adds up, of all ranks."""
        self.sums.copy_to_device(self.none)
        kernel[grid](*arguments, self.sums, *self.part)
        return self.comm.allreduce(self.sums.copy_to_host())

    def gather(self, vector: Any) -> None:
        low, high = self.part
        vector[low:high].copy_to_host(self.whole[low:high])
        self.comm.Allgatherv(MPI.IN_PLACE, [self.whole, self.counts])
        vector.copy_to_device(self.whole)

    def step(self) -> np.ndarray:
        """One step of the inverse iteration: x z, z z and the square of the rest."""
        x, z, p, q, r = self.x, self.z, self.p, self.q, self.r
        rho = self.total(begin, self.of_rows, x, z, p, r)[0]
        for _ in range(cg.INNER):
            self.gather(p)
            alpha = rho / self.total(product, self.of_products, self.matrix, p, q)[0]
            former = rho
            rho = self.total(improve, self.of_rows, z, p, q, r, alpha)[0]
            direct[self.of_rows](p, r, rho / former, *self.part)
        self.gather(z)
        self.total(product, self.of_products, self.matrix, z, q)
        found = self.total(finish, self.of_rows, x, z, q)
        normalize[self.of_rows](x, z, found[1] ** 0.5, *self.part)
        return found


def run(
    comm: MPI.Comm, matrix: Any, first: np.ndarray, shift: float, steps: int
) -> tuple[np.ndarray, float]:
    """As the function of the example."""
    Solver(comm, matrix, first).step()  # compiles
    solver, found = Solver(comm, matrix, first), np.zeros((steps, 2))
    cuda.synchronize()
    comm.Barrier()
    began = MPI.Wtime()
    for n in range(steps):
        xz, _, off = solver.step()
        found[n] = shift + 1 / xz, off**0.5
    cuda.synchronize()
    return found, MPI.Wtime() - began


def main() -> int:
    return cg.main(run)


if __name__ == "__main__":
    raise SystemExit(main())
