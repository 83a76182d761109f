"""examples/particles.py with CUDA and mpi4py: each step leaves the kernel twice.

    mpiexec -n 4 python benchmarks/twins/particles_cuda_mpi.py [options of particles.py]

As such programs are usually written: a kernel for each part of a step, lists and their lengths
copied to page-locked memory, MPI between hosts. Particles in internal cells feel their forces in a
stream of their own meanwhile. What kernels do with a particle and the checks are the example's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import particles as example

import gmpi


@cuda.jit
def settle(s, old, number, cells):  # type: ignore[no-untyped-def]
    for p in range(cuda.grid(1), number, cuda.gridsize(1)):
        example.settle(s, old[p], cells)


@cuda.jit
def internal(s, old, number, cells):  # type: ignore[no-untyped-def]
    for p in range(cuda.grid(1), number, cuda.gridsize(1)):
        if s.near[example.cell_of(old[p], 1, cells)] == 0:
            example.kick(s, old[p], cells)


@cuda.jit
def receive(s, messages, new, cells):  # type: ignore[no-untyped-def]
    example.receive(s, messages, new, cells)


@cuda.jit
def frontier(s, old, new, number, cells, me):  # type: ignore[no-untyped-def]
    for p in range(cuda.grid(1), number, cuda.gridsize(1)):
        if s.near[example.cell_of(old[p], 1, cells)] != 0:
            example.kick(s, old[p], cells)
        example.drift(s, old[p], cells, me, new)


class Domain:
    """One rank's arrays, and the staging of what it exchanges."""

    def __init__(self, comm: MPI.Comm, cells: int, rows: np.ndarray) -> None:
        self.comm, self.cells = comm, cells
        self.s = s = example.state_of(comm, cells, rows)
        self.peers = s.peers.copy_to_host().tolist()
        self.none, self.empty = np.zeros(comm.size, int), np.zeros(s.held.size, int)
        self.zero, self.number = np.zeros(1, int), int(s.number.copy_to_host()[0])
        self.lengths, self.came = np.zeros(comm.size, int), np.zeros(comm.size, int)
        self.boxes = [cuda.pinned_array(s.out.shape, int) for _ in range(2)]
        self.edge, self.rest = cuda.stream(), cuda.stream()

    def grid(self, threads: int) -> tuple[int, int]:
        blocks = 2 if gmpi.SIMULATOR else max(1, -(-int(threads) // example.THREADS))
        return blocks, example.THREADS

    def exchange(self, messages: Any, lengths: Any, inbox: Any) -> None:
        """As the example's: the status says how many rows have come."""
        out, back = (box.reshape(-1)[: messages.size].reshape(messages.shape) for box in self.boxes)
        lengths.copy_to_host(self.lengths, self.edge)
        self.edge.synchronize()
        for peer in self.peers:
            count = int(self.lengths[peer])
            if count:
                messages[peer, :count].copy_to_host(out[peer, :count], self.edge)
        lengths.copy_to_device(self.none, self.edge)
        self.edge.synchronize()
        requests = [self.comm.Irecv(back[peer], peer, 1) for peer in self.peers]
        requests += [
            self.comm.Isend(out[peer, : self.lengths[peer]], peer, 1) for peer in self.peers
        ]
        statuses = [MPI.Status() for _ in requests]
        MPI.Request.Waitall(requests, statuses)
        for peer, status in zip(self.peers, statuses):
            count = self.came[peer] = status.Get_count(MPI.INT64_T) // messages.shape[2]
            if count:
                inbox[peer, :count].copy_to_device(back[peer, :count], self.edge)
        self.s.came.copy_to_device(self.came, self.edge)

    def step(self, old: Any, new: Any) -> None:
        s, cells, number, edge = self.s, self.cells, self.number, self.edge
        grid = self.grid(number)
        settle[(*grid, edge)](s, old, number, cells)
        edge.synchronize()
        internal[(*grid, self.rest)](s, old, number, cells)
        self.exchange(s.halo, s.listed, s.ghosts)
        self.rest.synchronize()  # what it reads is about to change
        receive[(*self.grid(max(self.came)), edge)](s, s.ghosts, new, cells)
        s.number.copy_to_device(self.zero, edge)
        frontier[(*grid, edge)](s, old, new, number, cells, self.comm.rank)
        self.exchange(s.out, s.leaving, s.inbox)
        receive[(*self.grid(max(self.came)), edge)](s, s.inbox, new, cells)
        s.held.copy_to_device(self.empty, edge)
        edge.synchronize()
        self.number = int(s.number.copy_to_host()[0])


def run(comm: MPI.Comm, cells: int, rows: np.ndarray, steps: int) -> tuple[np.ndarray, float]:
    """As the function of the example."""
    for n in (1, steps):  # the first one compiles
        domain = Domain(comm, cells, rows)
        bodies = domain.s.bodies
        cuda.synchronize()
        comm.Barrier()
        began = MPI.Wtime()
        for k in range(n):
            domain.step(bodies[k % 2], bodies[1 - k % 2])
        cuda.synchronize()
        seconds = comm.allreduce(MPI.Wtime() - began, MPI.MAX)
    return bodies.copy_to_host()[steps % 2, : domain.number], seconds


def main() -> int:
    return example.main(run)


if __name__ == "__main__":
    raise SystemExit(main())
