"""The collectives of ``Context.host`` among neighbours (MPI 4.1 sections 8.6 and 8.7)."""

from __future__ import annotations

from typing import Any

from gmpi.host.counted import HostCounted
from gmpi.host.requests import HostRequest


class HostNeighbours(HostCounted):
    """What ``Context.host`` has of them.

    ``comm`` is the handle of a Cartesian, a graph or a distributed-graph communicator. There is a
    block for each neighbour, in MPI's order; of a Cartesian one two for each dimension, and that of
    a neighbour that there is not (PROC_NULL) is neither sent nor touched.
    """

    def Neighbor_allgather(self, sendbuf: Any, recvbuf: Any, comm: int) -> None:
        """MPI 4.1 section 8.6.1; ``recvbuf`` has a block for each neighbour, ``sendbuf`` one."""
        self._counted("Neighbor_allgather", "Neighbor_allgather", sendbuf, recvbuf, comm).Wait()

    def Ineighbor_allgather(self, sendbuf: Any, recvbuf: Any, comm: int) -> HostRequest:
        """MPI 4.1 section 8.7.1; as ``Neighbor_allgather``."""
        return self._counted("Ineighbor_allgather", "Neighbor_allgather", sendbuf, recvbuf, comm)

    def Neighbor_allgatherv(self, sendbuf: Any, recvbuf: Any, comm: int) -> None:
        """MPI 4.1 section 8.6.1; ``recvbuf`` is ``[buf, (counts, displs), datatype]`` or
        shorter."""
        self._counted("Neighbor_allgatherv", "Neighbor_allgatherv", sendbuf, recvbuf, comm).Wait()

    def Ineighbor_allgatherv(self, sendbuf: Any, recvbuf: Any, comm: int) -> HostRequest:
        """MPI 4.1 section 8.7.1; as ``Neighbor_allgatherv``."""
        return self._counted("Ineighbor_allgatherv", "Neighbor_allgatherv", sendbuf, recvbuf, comm)

    def Neighbor_alltoall(self, sendbuf: Any, recvbuf: Any, comm: int) -> None:
        """MPI 4.1 section 8.6.2; both have a block for each neighbour."""
        self._counted("Neighbor_alltoall", "Neighbor_alltoall", sendbuf, recvbuf, comm).Wait()

    def Ineighbor_alltoall(self, sendbuf: Any, recvbuf: Any, comm: int) -> HostRequest:
        """MPI 4.1 section 8.7.2; as ``Neighbor_alltoall``."""
        return self._counted("Ineighbor_alltoall", "Neighbor_alltoall", sendbuf, recvbuf, comm)

    def Neighbor_alltoallv(self, sendbuf: Any, recvbuf: Any, comm: int) -> None:
        """MPI 4.1 section 8.6.2; both are ``[buf, (counts, displs), datatype]`` or shorter."""
        self._counted("Neighbor_alltoallv", "Neighbor_alltoallv", sendbuf, recvbuf, comm).Wait()

    def Ineighbor_alltoallv(self, sendbuf: Any, recvbuf: Any, comm: int) -> HostRequest:
        """MPI 4.1 section 8.7.2; as ``Neighbor_alltoallv``."""
        return self._counted("Ineighbor_alltoallv", "Neighbor_alltoallv", sendbuf, recvbuf, comm)

    def Neighbor_alltoallw(self, sendbuf: Any, recvbuf: Any, comm: int) -> None:
        """MPI 4.1 section 8.6.2; both are ``[buf, (counts, displs), datatypes]``, displacements in
        bytes."""
        self._counted("Neighbor_alltoallw", "Neighbor_alltoallw", sendbuf, recvbuf, comm).Wait()

    def Ineighbor_alltoallw(self, sendbuf: Any, recvbuf: Any, comm: int) -> HostRequest:
        """MPI 4.1 section 8.7.2; as ``Neighbor_alltoallw``."""
        return self._counted("Ineighbor_alltoallw", "Neighbor_alltoallw", sendbuf, recvbuf, comm)
