"""examples/bfs.py with CUDA and mpi4py: each level leaves the kernel three times.

    mpiexec -n 4 python benchmarks/twins/bfs_cuda_mpi.py [options of bfs.py]

As such programs are usually written: kernels for the parts of a level, the lengths of lists and the
shorter of list and bitmap copied to page-locked memory, and Sendrecv and Allreduce between hosts.
The graph, what kernels do with it and the validation are those of the example.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import bfs

import gmpi


@cuda.jit
def begin(s, root, mine):  # type: ignore[no-untyped-def]
    bfs.fill(s.parents.reshape(-1), bfs.NONE)
    bfs.fill(s.counts, 0)
    for v in range(cuda.grid(1), s.tree.size, cuda.gridsize(1)):
        s.tree[v] = root if v == mine else -1
        if v % 32 == 0:
            s.new[0, v // 32] = 1 << mine % 32 if v // 32 == mine // 32 else 0


@cuda.jit
def compact_new(s):  # type: ignore[no-untyped-def]
    bfs.compact(s, s.new)


@cuda.jit
def compact_found(s):  # type: ignore[no-untyped-def]
    bfs.compact(s, s.out)


@cuda.jit
def enqueue(s, start, column):  # type: ignore[no-untyped-def]
    bfs.enqueue(s, start, column)
    bfs.fill(s.out.reshape(-1), 0)


@cuda.jit
def follow(s, start, end):  # type: ignore[no-untyped-def]
    bfs.follow(s, start, end)
    bfs.fill(s.new[0], 0)
    bfs.fill(s.counts[:-2], 0)


@cuda.jit
def merge(s, row):  # type: ignore[no-untyped-def]
    bfs.merge(s, row)
    bfs.fill(s.counts, 0)


@cuda.jit
def finish(s, row, rows):  # type: ignore[no-untyped-def]
    n, j = s.tree.size, row[1]
    for v in range(cuda.grid(1), n, cuda.gridsize(1)):
        c = -2 - s.tree[v]
        if c >= 0:
            s.tree[v] = c * rows * n + (s.parents[c, v] if c == j else s.claims[c, v])


class Search:
    """One rank's block of the matrix and arrays, and the staging of what it exchanges."""

    def __init__(self, comm: MPI.Comm, s: Any, start: Any, end: Any, columns: int) -> None:
        self.comm, self.s, self.start, self.end = comm, s, start, end
        row, column = divmod(comm.rank, columns)
        self.row, self.column = comm.Split(row), comm.Split(column)
        self.of_row, self.of_column = ((0, c.rank, c.size) for c in (self.row, self.column))
        self.first = (column * self.column.size + row) * s.tree.size
        self.out, self.back = (cuda.pinned_array(s.tree.size, np.uint32) for _ in range(2))
        self.counts, self.came = np.zeros(s.counts.size, int), np.zeros(s.came.size, int)
        multiprocessors = 0 if gmpi.SIMULATOR else cuda.get_current_device().MULTIPROCESSOR_COUNT
        self.grid = (2 if gmpi.SIMULATOR else 4 * multiprocessors, bfs.THREADS)

    def exchange(self, messages: Any, inbox: Any, comm: MPI.Comm) -> None:
        """As the example's; ``counts`` have come to the host."""
        words, status = messages.shape[1], MPI.Status()
        for k in range(1, comm.size):
            to, source = (comm.rank + k) % comm.size, (comm.rank - k) % comm.size
            which = to % messages.shape[0]
            length = min(int(self.counts[which]), words)
            send = self.s.lists[which] if length < words else messages[which]
            if length:
                send[:length].copy_to_host(self.out[:length])
            comm.Sendrecv(self.out[:length], to, 1, self.back[:words], source, 1, status)
            count = self.came[source] = status.Get_count(MPI.UINT32_T)
            if count:
                inbox[source][:count].copy_to_device(self.back[:count])
        self.s.came.copy_to_device(self.came)

    def run(self, root: int) -> None:
        s, grid = self.s, self.grid
        begin[grid](s, root, root - self.first)
        while True:
            compact_new[grid](s)
            s.counts.copy_to_host(self.counts)
            if self.comm.allreduce(int(self.counts[0])) == 0:
                break
            self.exchange(s.new, s.inbox, self.column)
            enqueue[grid](s, self.start, self.of_column)
            follow[grid](s, self.start, self.end)
            compact_found[grid](s)
            s.counts.copy_to_host(self.counts)
            self.exchange(s.out, s.inbox, self.row)
            merge[grid](s, self.of_row)
        self.counts[:] = s.tree.size
        self.exchange(s.parents, s.claims, self.row)
        finish[grid](s, self.of_row, self.column.size)
        cuda.synchronize()


def run(
    comm: MPI.Comm, rows: int, columns: int, n: int, matrix: Any, roots: np.ndarray
) -> list[tuple[np.ndarray, float]]:
    """As the function of the example."""
    found = []
    start, end = (cuda.to_device(part) for part in matrix)
    search = Search(comm, bfs.state_of(rows, columns, n, end.size), start, end, columns)
    for root in (roots[0], *roots):  # the first one compiles
        comm.Barrier()
        began = MPI.Wtime()
        search.run(int(root))
        seconds = comm.allreduce(MPI.Wtime() - began, MPI.MAX)
        found.append((search.s.tree.copy_to_host(), seconds))
    return found[1:]


def main() -> int:
    return bfs.main(run)


if __name__ == "__main__":
    raise SystemExit(main())
