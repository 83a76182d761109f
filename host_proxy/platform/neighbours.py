"""Who a rank's neighbours are on a communicator with a topology (MPI 4.1 chapter 8).

Collectives among neighbours run on a distributed graph of ours with the same edges, whatever the
user's topology is: ``Ineighbor_alltoallv`` of Open MPI 5.0 mixes up the two blocks of a periodic
dimension of length 1 or 2, where both neighbours are one rank. In a graph the edges between two
ranks are told apart by their order, so the order of ours says which block meets which.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from mpi4py import MPI

from gmpi.contract.constants import PROC_NULL

_MOST_DIMENSIONS = 31  # so that a word of 64 bits has one for each neighbour, and a sign


def topology_of(comm: MPI.Comm) -> int:
    """MPI.CART, MPI.GRAPH, MPI.DIST_GRAPH, or MPI.UNDEFINED: none. Local.

    What mpi4py knows as a distributed graph is one. Open MPI 5.0 takes it for a Cartesian one if it
    has been made of such a one, and ends the job with a signal when asked for its dimensions
    (open-mpi/ompi#14438).
    """
    return MPI.DIST_GRAPH if isinstance(comm, MPI.Distgraphcomm) else comm.Get_topology()


class Neighbours(NamedTuple):
    """The neighbours of one rank, in MPI's order; PROC_NULL: there is none, its block stays.

    Attributes:
        sources: ranks whose blocks come in.
        destinations: ranks that blocks go to.
        is_cartesian: of each dimension, the two neighbours.
    """

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    is_cartesian: bool = False

    @staticmethod
    def of(comm: MPI.Comm) -> Neighbours | None:
        """None: MPI has no collectives among neighbours on it. Local."""
        topology = topology_of(comm)
        if topology == MPI.CART:
            cart = MPI.Cartcomm(comm)
            if cart.ndim > _MOST_DIMENSIONS:
                return None
            both = [rank for d in range(cart.ndim) for rank in cart.Shift(d, 1)]
            both = [PROC_NULL if rank == MPI.PROC_NULL else rank for rank in both]
            return Neighbours(tuple(both), tuple(both), True)
        if topology == MPI.GRAPH:
            graph = MPI.Graphcomm(comm)
            index, edges = graph.Get_topo()
            begins = [0, *index]
            pairs = Counter(
                (rank, other)
                for rank, (begin, end) in enumerate(zip(begins, index))
                for other in edges[begin:end]
            )
            if any(pairs[other, rank] != number for (rank, other), number in pairs.items()):
                return None  # MPI 4.1 section 8.6: the graph must be symmetric
            both = graph.Get_neighbors(comm.rank)
            return Neighbours(tuple(both), tuple(both))
        if topology == MPI.DIST_GRAPH:
            known = comm if isinstance(comm, MPI.Distgraphcomm) else MPI.Distgraphcomm(comm)
            sources, destinations, _ = known.Get_dist_neighbors()
            return Neighbours(tuple(sources), tuple(destinations))
        return None

    @property
    def missing(self) -> int:
        """A bit for each that there is not."""
        return sum((rank == PROC_NULL) << i for i, rank in enumerate(self.sources))

    @property
    def incoming(self) -> list[int]:
        """Which of the sources our graph has, in its order."""
        return [i for i, rank in enumerate(self.sources) if rank != PROC_NULL]

    @property
    def outgoing(self) -> list[int]:
        """Which of the destinations it has: in a dimension the second one first, since what goes
        to it is what comes from its first one."""
        there = range(len(self.destinations))
        order = [i ^ 1 for i in there] if self.is_cartesian else there
        return [i for i in order if self.destinations[i] != PROC_NULL]

    def edges(self, me: int, ranks: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """(destination, block) and (source, block), as ``gmpi/contract/exchanges.py`` has them."""
        out = [(self.destinations[i], i) for i in self.outgoing]
        back = [(self.sources[i], i) for i in self.incoming]
        out.sort(key=lambda edge: (edge[0] - me) % ranks)  # stable: the rest stays in order
        back.sort(key=lambda edge: (me - edge[0]) % ranks)
        return out, back

    def graph(self, comm: MPI.Comm) -> MPI.Distgraphcomm:
        """The communicator that these collectives run on; collective."""
        # Of a communicator with a topology, Open MPI 5.0 makes one with both.
        plain = MPI.Intracomm(comm.Split(0, comm.rank))
        try:
            return plain.Create_dist_graph_adjacent(
                [self.sources[i] for i in self.incoming],
                [self.destinations[i] for i in self.outgoing],
            )
        finally:
            plain.Free()
