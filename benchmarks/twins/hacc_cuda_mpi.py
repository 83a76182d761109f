"""examples/hacc.py with CUDA and mpi4py: a copy for each array of a block, a kernel for each hop.

    mpiexec -n 2 python benchmarks/twins/hacc_cuda_mpi.py [options of hacc.py]

As such programs are usually written ("CUDA DMA" in table 5 of the paper that the example names):
each array of the block is copied to its place in one page-locked buffer, which is sent; what comes
is copied to the arrays one by one. Meanwhile another stream counts pairs of voids. The blocks and
the checks are those of the example.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import hacc

import gmpi


@cuda.jit
def count(sites, vols, floats, cells, near):  # type: ignore[no-untyped-def]
    hacc.count_pairs((sites, vols), floats, cells, near, cuda.grid(1), cuda.gridsize(1))


class Hop:
    """Staging of one rank in page-locked memory, for the block of any rank."""

    def __init__(self, comm: MPI.Comm, lengths: np.ndarray) -> None:
        self.comm, self.lengths = comm, lengths.tolist()
        words = int(lengths.sum(axis=1).max())
        self.out, self.back = (cuda.pinned_array(words, np.int32) for _ in range(2))
        self.outward, self.inward = cuda.stream(), cuda.stream()
        self.left, self.right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size

    @staticmethod
    def pieces(block: Any, lengths: list[int], buffer: np.ndarray) -> Any:
        """Each array of a block, and its place in the buffer."""
        at = 0
        for array, length in zip(block[0] + block[1], lengths):
            yield array[:length], buffer[at : at + length].view(array.dtype)
            at += length

    def move(self, held: Any, free: Any, visitor: int, next_one: int) -> None:
        """The block of rank ``visitor`` goes to the right; that of ``next_one`` comes."""
        request = self.comm.Irecv(self.back, self.left)
        for array, place in self.pieces(held, self.lengths[visitor], self.out):
            array.copy_to_host(place, self.outward)
        self.outward.synchronize()
        send = self.comm.Isend(self.out[: sum(self.lengths[visitor])], self.right)
        request.Wait()
        for array, place in self.pieces(free, self.lengths[next_one], self.back):
            array.copy_to_device(place, self.inward)
        send.Wait()


def run(
    comm: MPI.Comm, _: str, content: Any, lengths: np.ndarray, hops: int
) -> tuple[Any, np.ndarray, float]:
    """As the function of the example."""
    held, free = hacc.room_for(lengths), hacc.room_for(lengths)
    hacc.fill(held, content)
    mine = tuple(cuda.to_device(content[0][field]) for field in (hacc.SITES, hacc.VOLS))
    near = [cuda.to_device(np.zeros(1, np.int64)) for _ in range(comm.size)]
    hop, counting = Hop(comm, lengths), cuda.stream()
    blocks = 2 if gmpi.SIMULATOR else 1024
    count[blocks, hacc.THREADS](*mine, held[0], 0, near[0])  # compiles
    cuda.synchronize()
    comm.Barrier()
    began = MPI.Wtime()
    for n in range(hops):
        visitor, next_one = (comm.rank - n) % comm.size, (comm.rank - n - 1) % comm.size
        cells = int(lengths[visitor, hacc.VOLS])
        count[blocks, hacc.THREADS, counting](*mine, held[0], cells, near[visitor])
        hop.move(held, free, visitor, next_one)
        cuda.synchronize()
        held, free = free, held
    seconds = MPI.Wtime() - began
    found = np.array([each.copy_to_host()[0] for each in near])
    return held, found, seconds / hops


def main() -> int:
    return hacc.main(run, ways=("copies",))


if __name__ == "__main__":
    raise SystemExit(main())
