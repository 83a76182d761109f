"""examples/reshape.py with CUDA and mpi4py: kernels pack and turn, and blocks go by the host.

    mpiexec -n 2 python benchmarks/twins/reshape_cuda_mpi.py [options of reshape.py]

As such programs are usually written: a kernel for the rows, one that packs the blocks for the other
ranks, page-locked memory, MPI between hosts, one that turns what has come, and one for the columns.
Each rank's block is copied by itself, and sent while the next one is copied. A rank's own block
never leaves its GPU. The FFT, the matrix and the check are those of the example.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import complex128, cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import reshape

import gmpi

WIDE, HIGH = (8, 4) if gmpi.SIMULATOR else (32, 8)
ROW = WIDE + 1  # of a tile: no two threads that read a column meet in a bank


@cuda.jit
def transform_rows(a, b, roots):  # type: ignore[no-untyped-def]
    reshape.transform_rows(a, b, roots)


@cuda.jit
def transform_columns(a, b, roots):  # type: ignore[no-untyped-def]
    reshape.transform_columns(a, b, roots)


@cuda.jit
def copy(source, target):  # type: ignore[no-untyped-def]
    """A block, a row of threads for each row."""
    i0, step = cuda.blockIdx.x * HIGH + cuda.threadIdx.y, cuda.gridDim.x * HIGH
    for i in range(i0, source.shape[0], step):
        for j in range(cuda.threadIdx.x, source.shape[1], WIDE):
            target[i, j] = source[i, j]


@cuda.jit
def turn(source, target):  # type: ignore[no-untyped-def]
    """target[j, i] = source[i, j], in tiles: memory is read and written along rows."""
    tile = cuda.shared.array((WIDE, ROW), complex128)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    across = (source.shape[1] + WIDE - 1) // WIDE
    tiles = (source.shape[0] + WIDE - 1) // WIDE * across
    for n in range(cuda.blockIdx.x, tiles, cuda.gridDim.x):
        i, j = n // across * WIDE, n % across * WIDE
        for k in range(y, min(WIDE, source.shape[0] - i), HIGH):
            if j + x < source.shape[1]:
                tile[k, x] = source[i + k, j + x]
        cuda.syncthreads()
        for k in range(y, min(WIDE, source.shape[1] - j), HIGH):
            if i + x < source.shape[0]:
                target[j + k, i + x] = tile[x, k]
        cuda.syncthreads()


class Reshape:
    """Staging of one rank, on the GPU and in page-locked memory: a block for each other rank."""

    def __init__(self, comm: MPI.Comm, first: Any, turned: bool) -> None:
        self.comm, self.turned = comm, turned
        self.at = [slice(*pair) for pair in zip(first[:-1].tolist(), first[1:].tolist())]
        counts, mine = np.diff(first).tolist(), int(first[comm.rank + 1] - first[comm.rank])
        self.peers = [(comm.rank + k) % comm.size for k in range(1, comm.size)]
        out = [(mine, counts[peer]) for peer in self.peers]
        back = [(counts[peer], mine) for peer in self.peers]
        self.packed, self.came = (
            [cuda.device_array(shape, np.complex128) for shape in shapes] for shapes in (out, back)
        )
        self.out, self.back = (
            [cuda.pinned_array(shape, np.complex128) for shape in shapes] for shapes in (out, back)
        )
        self.copied = [cuda.event() for _ in self.peers]
        self.outward, self.inward = cuda.stream(), cuda.stream()
        self.blocks = 2 if gmpi.SIMULATOR else 1024

    def launch(self, kernel: Any, stream: Any, source: Any, target: Any) -> None:
        kernel[self.blocks, (WIDE, HIGH), stream](source, target)

    def exchange(self, a: Any, t: Any) -> None:
        """Blocks of ``a`` to all ranks, and theirs to ``t``; a is complete."""
        receives = [self.comm.Irecv(self.back[k], peer) for k, peer in enumerate(self.peers)]
        for k, peer in enumerate(self.peers):
            self.launch(copy, self.outward, a[:, self.at[peer]], self.packed[k])
            self.packed[k].copy_to_host(self.out[k], self.outward)
            self.copied[k].record(self.outward)
        me = self.at[self.comm.rank]
        kernel = turn if self.turned else copy
        self.launch(kernel, self.inward, a[:, me], t[:, me] if self.turned else t[me])
        sends = []
        for k, peer in enumerate(self.peers):
            self.copied[k].synchronize()
            sends.append(self.comm.Isend(self.out[k], peer))
        for k, peer in enumerate(self.peers):
            receives[k].Wait()
            there = self.at[peer]
            if self.turned:
                self.came[k].copy_to_device(self.back[k], self.inward)
                self.launch(turn, self.inward, self.came[k], t[:, there])
            else:  # it is a piece of the matrix
                t[there].copy_to_device(self.back[k], self.inward)
        MPI.Request.Waitall(sends)
        self.inward.synchronize()


def run(
    comm: MPI.Comm, part: Any, first: Any, layout: str, _: str, rounds: int
) -> tuple[np.ndarray, float]:
    """As the function of the example."""
    n, mine, turned = part.shape[1], part.shape[0], layout == "turned"
    roots = cuda.to_device(np.exp(-2j * np.pi * np.arange(n) / n))
    a, b = cuda.to_device(part), cuda.device_array(part.shape, np.complex128)
    t, u = (cuda.device_array((mine, n) if turned else (n, mine), np.complex128) for _ in range(2))
    blocks = 2 if gmpi.SIMULATOR else min(1024, mine)
    moves, odd = Reshape(comm, first, turned), n & reshape.EVEN == 0
    transform_rows[blocks, reshape.THREADS](a, b, roots)
    if odd:
        a = b
    moves.exchange(a, t)  # compiles
    comm.Barrier()
    began = MPI.Wtime()
    for _round in range(rounds):
        moves.exchange(a, t)
    seconds = MPI.Wtime() - began
    kernel = transform_rows if turned else transform_columns
    kernel[blocks, reshape.THREADS](t, u, roots)
    return (u if odd else t).copy_to_host(), seconds / rounds


def main() -> int:
    return reshape.main(run, ways=("copies",))


if __name__ == "__main__":
    raise SystemExit(main())
