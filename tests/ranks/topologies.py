"""Communicators with topologies, of all ranks: what each kind and each number of ranks has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from common import RANK, SIZE, WORLD
from mpi4py import MPI

from gmpi.contract import moves


class Topology(NamedTuple):
    """One of them, and its neighbours as mpi4py tells them."""

    comm: MPI.Topocomm
    sources: list[int]
    destinations: list[int]


def told(comm: MPI.Topocomm) -> Topology:
    if isinstance(comm, MPI.Cartcomm):
        both = [rank for d in range(comm.ndim) for rank in comm.Shift(d, 1)]
        return Topology(comm, both, both)
    if isinstance(comm, MPI.Graphcomm):
        both = comm.Get_neighbors(comm.rank)
        return Topology(comm, both, both)
    sources, destinations, _ = comm.Get_dist_neighbors()
    return Topology(comm, list(sources), list(destinations))


def ring() -> MPI.Graphcomm:
    """Each rank with itself, where there are more with the ones beside it."""
    edges, index = [], []
    for rank in range(SIZE):
        beside = {(rank + 1) % SIZE, (rank - 1) % SIZE} - {rank}
        edges += [*sorted(beside, reverse=rank % 2 == 0), rank]
        index.append(len(edges))
    return WORLD.Create_graph(index, edges)


def everything() -> list[Topology]:
    """Every shape with every period, a graph, a distributed graph with two edges between the same
    ranks, and one where the last rank only receives."""
    shapes = {1: [[1, 1]], 2: [[2], [1, 2]], 3: [[3], [1, 3]], 4: [[4], [2, 2]]}
    found = []
    for dims in shapes.get(SIZE, [[SIZE]]):
        for number in range(2 ** len(dims)):
            periods = [bool(number >> i & 1) for i in range(len(dims))]
            found.append(told(WORLD.Create_cart(dims, periods)))
    found.append(told(ring()))
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    found.append(
        told(WORLD.Create_dist_graph_adjacent([before, RANK, before], [after, after, RANK]))
    )
    last = SIZE - 1
    inwards = [rank for rank in range(last) for _ in range(rank + 1)] if last == RANK else []
    outwards = [] if last == RANK else [last] * (RANK + 1)
    found.append(told(WORLD.Create_dist_graph_adjacent(inwards, outwards)))
    return found


def units_among(
    row: moves.Row, matrix: np.ndarray, topology: Topology
) -> tuple[list[int], list[int]]:
    """How long the blocks of this rank are that go out, and those that come in.

    Args:
        matrix: int[ranks, ranks], what one sends to the other, where that may differ.
    """
    sources, destinations = topology.sources, topology.destinations
    if not row.counts:  # all have one length
        number = 1 if row.out == moves.ONE else len(destinations)
        return [int(matrix[0, 0])] * number, [int(matrix[0, 0])] * len(sources)
    # Of a neighbour that there is not anything may be said.
    nobody = 6
    if row.out == moves.ONE:
        incoming = [nobody if rank < 0 else int(matrix[rank, 0]) for rank in sources]
        return [int(matrix[RANK, 0])], incoming
    outgoing = [nobody if rank < 0 else int(matrix[RANK, rank]) for rank in destinations]
    return outgoing, [nobody if rank < 0 else int(matrix[rank, RANK]) for rank in sources]
