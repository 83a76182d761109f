"""The halo of halo26.py by one call: Neighbor_alltoallw, with a datatype for each of 26 neighbours.

    mpiexec -n 2 python benchmarks/halo26_neighbours.py [options of halo26.py]

A graph communicator says who the neighbours are (MPI 4.1 section 8.5.4). A rank may be its own
neighbour, and several times another's: then the k-th edge from it in its list is the k-th to it in
the other's. So sources are listed backwards: what one sends along a way arrives from its opposite.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

import halo26
from halo26 import THREADS, change, construct

import gmpi
from gmpi import GMPI_Neighbor_alltoallw


# wide: what a call of MPI takes
@cuda.jit
def by_neighbours(ctx, u, flat, ones, out, types, back, types_back, graph, amount, steps):
    """Block 0 makes the call, for all."""
    grid = cuda.cg.this_grid()
    for _ in range(steps):
        if amount != 0:
            change(u, amount)
            grid.sync()
        if cuda.blockIdx.x == 0:
            GMPI_Neighbor_alltoallw(
                ctx, flat, ones, out, types, flat, ones, back, types_back, graph
            )
        grid.sync()  # all of the halo is visible to all blocks


def run(
    comm: Any, how: str, regions: Any, number: int, start: np.ndarray, amount: float, steps: int
) -> tuple[np.ndarray, float]:
    """Some exchanges; the array after them, and the time of one."""
    peers = regions.peers.tolist()
    graph = comm.Create_dist_graph_adjacent(peers[::-1], peers)
    with gmpi.Context(comm, wildcards=False) as g:  # GMPI_ROAD=proxied: by the proxies
        u = cuda.to_device(start)
        types = np.array([g.commit(construct(number, regions.shape, p)) for p in regions.parts])
        arrays = np.ones(26, np.int64), 8 * regions.out, types, 8 * regions.back[::-1], types[::-1]
        values = [cuda.to_device(np.ascontiguousarray(array)) for array in arrays]
        values = (g.device, u, u.reshape(-1), *values, g.comm(graph, wildcards=False), amount)
        blocks = g.max_blocks(by_neighbours, THREADS, (*values, steps))
        blocks = min(blocks, 2) if gmpi.SIMULATOR else blocks
        by_neighbours[blocks, THREADS](*values, 0)  # compiles
        g.synchronize()
        comm.Barrier()
        began = MPI.Wtime()
        by_neighbours[blocks, THREADS](*values, steps)
        g.synchronize()  # raises the first error of any call in the kernel
        seconds = MPI.Wtime() - began
        for handle in types.tolist():
            g.free(handle)
        found = u.copy_to_host()
    graph.Free()
    return found, seconds / steps


def main() -> int:
    return halo26.main(run, ("neighbours",))


if __name__ == "__main__":
    raise SystemExit(main())
