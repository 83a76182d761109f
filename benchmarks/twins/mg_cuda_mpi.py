"""examples/mg.py with CUDA and mpi4py: each operator on each grid is a kernel, then messages.

    mpiexec -n 4 python benchmarks/twins/mg_cuda_mpi.py [options of mg.py]

As such programs are usually written: a kernel for each operator; kernels that pack and unpack two
faces; page-locked memory; Sendrecv between hosts, one axis after the other. Where a rank is its own
neighbour, a kernel copies its faces. Operators, charges and the check are those of the example.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import mg

import gmpi


@cuda.jit
def apply(out, keep, old, weights, x, stride):  # type: ignore[no-untyped-def]
    mg.apply(out, keep, old, weights, x, stride)


@cuda.jit
def interpolate(fine, keep, coarse):  # type: ignore[no-untyped-def]
    mg.interpolate(fine, keep, coarse)


@cuda.jit
def pack(first, last, faces):  # type: ignore[no-untyped-def]
    for n in range(cuda.grid(1), first.size, cuda.gridsize(1)):
        i, j = n // first.shape[1], n % first.shape[1]
        faces[0, n], faces[1, n] = first[i, j], last[i, j]


@cuda.jit
def unpack(before, after, faces):  # type: ignore[no-untyped-def]
    """What came from the higher neighbour first, as it was sent."""
    for n in range(cuda.grid(1), before.size, cuda.gridsize(1)):
        i, j = n // before.shape[1], n % before.shape[1]
        after[i, j], before[i, j] = faces[0, n], faces[1, n]


@cuda.jit
def squares(x, found):  # type: ignore[no-untyped-def]
    mine = 0.0
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    for n in range(cuda.grid(1), (x.shape[0] - 2) * rows * columns, cuda.gridsize(1)):
        mine += x[1 + n // columns // rows, 1 + n // columns % rows, 1 + n % columns] ** 2
    cuda.atomic.add(found, 0, mine)


class Solver:
    """One rank's arrays of all grids, and the staging of its faces."""

    def __init__(self, comm: MPI.Cartcomm, v: Any, points: int) -> None:
        self.comm, self.v, self.top = comm, v, points.bit_length() - 2
        self.u, self.r = mg.grids(comm, points), mg.grids(comm, points)
        words = max(v.shape) ** 2
        self.faces = [cuda.device_array(2 * words) for _ in range(2)]
        self.staging = [cuda.pinned_array(2 * words) for _ in range(2)]
        self.found = cuda.to_device(np.zeros(1))

    @staticmethod
    def grid(threads: int) -> tuple[int, int]:
        blocks = 1 if gmpi.SIMULATOR else min(4096, -(-threads // mg.THREADS))
        return blocks, mg.THREADS

    def exchange(self, x: Any) -> None:
        """As the example's: each axis takes along what came before."""
        for axis in range(3):
            here = [slice(None)] * axis
            before, first, last, after = (
                x[(*here, k)] for k in (0, 1, x.shape[axis] - 2, x.shape[axis] - 1)
            )
            low, high = self.comm.Shift(axis, 1)
            grid, size = self.grid(first.size), first.size
            out, back = (faces[: 2 * size].reshape(2, size) for faces in self.faces)
            pack[grid](first, last, out)
            if low != self.comm.rank:
                sent, come = (memory[: 2 * size].reshape(2, size) for memory in self.staging)
                out.copy_to_host(sent)
                self.comm.Sendrecv(sent[0], low, 0, come[0], high, 0)
                self.comm.Sendrecv(sent[1], high, 1, come[1], low, 1)
                back.copy_to_device(come)
            unpack[grid](before, after, back if low != self.comm.rank else out)

    def operator(
        self, out: Any, keep: float, old: Any, weights: Any, x: Any, stride: int = 1
    ) -> None:
        apply[self.grid(out.size)](out, keep, old, weights, x, stride)
        self.exchange(out)

    def residual(self, k: int) -> None:
        old = self.v if k == self.top else self.r[k]
        self.operator(self.r[k], 1.0, old, mg.MINUS_LAPLACE, self.u[k])

    def cycle(self, smooth: Any) -> None:
        u, r, top = self.u, self.r, self.top
        for k in range(top, 0, -1):
            self.operator(r[k - 1], 0.0, r[k - 1], mg.RESTRICT, r[k], 2)
        for k in range(top + 1):
            if k > 0:
                keep = 1.0 if k == top else 0.0
                interpolate[self.grid(u[k].size)](u[k], keep, u[k - 1])
                self.residual(k)
            self.operator(u[k], 1.0 if k > 0 else 0.0, u[k], smooth, r[k])
        self.residual(top)

    def norm(self, points: int) -> float:
        last = self.r[self.top]
        squares[self.grid(last.size)](last, self.found)
        return (self.comm.allreduce(self.found.copy_to_host()[0]) / points**3) ** 0.5


def run(
    comm: MPI.Cartcomm, v: np.ndarray, points: int, smooth: Any, cycles: int
) -> tuple[float, float]:
    """As the function of the example."""
    charges = cuda.to_device(np.pad(v, 1))
    solver = Solver(comm, charges, points)
    solver.cycle(smooth)  # compiles
    solver.norm(points)
    solver = Solver(comm, charges, points)
    cuda.synchronize()
    comm.Barrier()
    began = MPI.Wtime()
    solver.residual(solver.top)
    for _ in range(cycles):
        solver.cycle(smooth)
    norm = solver.norm(points)
    return norm, comm.allreduce(MPI.Wtime() - began, MPI.MAX)


def main() -> int:
    return mg.main(run)


if __name__ == "__main__":
    raise SystemExit(main())
