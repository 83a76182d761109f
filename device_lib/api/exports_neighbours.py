"""The names of collectives among neighbours that users import; see ``exports``.

Each is called by one scope of every rank of a communicator with a topology, in the same order
(MPI 4.1 chapter 8). There is a block for each neighbour, in MPI's order: on a Cartesian
communicator two for each dimension, before and behind this rank. Where a dimension that is not
periodic ends there is none: that block is neither sent nor touched. On a graph communicator, whose
graph must be symmetric, blocks go to all neighbours and come from them; on a distributed graph they
go to its destinations and come from its sources. No buffer may be IN_PLACE. Arrays of integers and
buffers are as of the collectives with counts (``exports_counted``). Those that block go from GPU to
GPU on communicators that are direct as a whole (docs/direct.md).
"""

from __future__ import annotations

from device_lib.api.binding import Buffer, block_scope, not_blocking, warp_scope
from device_lib.api.exports_counted import Integers
from device_lib.platform.context import DeviceContext


@block_scope
def GMPI_Neighbor_allgather(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcount: int,
    sendtype: int,
    recvbuf: Buffer,
    recvcount: int,
    recvtype: int,
    comm: int,
) -> int:
    """Sends one block to all neighbours and gets one from each; blocks (MPI 4.1 section 8.6.1).

    Args:
        ctx: ``Context.device``, passed to the kernel.
        sendbuf: this rank's block.
        sendcount, sendtype: elements of a constant such as ``gmpi.DOUBLE``, or of a handle of
            ``Context.commit()``.
        recvbuf: where blocks go, one after the other.
        recvcount, recvtype: of each block that comes in.
        comm: a handle that ``Context.comm()`` returned, of a communicator with a topology; of any
            other, ``gmpi.ERR_TOPOLOGY``.

    Returns:
        Error class, ``gmpi.SUCCESS`` when all is well.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Neighbor_allgatherv(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcount: int,
    sendtype: int,
    recvbuf: Buffer,
    recvcounts: Integers,
    displs: Integers,
    recvtype: int,
    comm: int,
) -> int:
    """GMPI_Neighbor_allgather with blocks of lengths of their own; blocks (MPI 4.1 section 8.6.1).

    Args:
        ctx: ``Context.device``, passed to the kernel.
        sendbuf, sendcount, sendtype: as of GMPI_Neighbor_allgather.
        recvbuf: where blocks go.
        recvcounts: elements that come from each neighbour.
        displs: where each block begins, in extents of ``recvtype``. Blocks must not overlap.
        recvtype: as ``sendtype``.
        comm: a handle that ``Context.comm()`` returned, of a communicator with a topology; of any
            other, ``gmpi.ERR_TOPOLOGY``.

    Returns:
        Error class, ``gmpi.SUCCESS`` when all is well.
    """
    raise NotImplementedError


@block_scope
def GMPI_Neighbor_alltoall(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcount: int,
    sendtype: int,
    recvbuf: Buffer,
    recvcount: int,
    recvtype: int,
    comm: int,
) -> int:
    """Sends a block to each neighbour and gets one from each; blocks (MPI 4.1 section 8.6.2).

    Args:
        ctx: ``Context.device``, passed to the kernel.
        sendbuf: a block for each neighbour, one after the other.
        sendcount, sendtype: of each block: elements of a constant such as ``gmpi.DOUBLE``, or of a
            handle of ``Context.commit()``.
        recvbuf, recvcount, recvtype: the same of what comes in.
        comm: a handle that ``Context.comm()`` returned, of a communicator with a topology; of any
            other, ``gmpi.ERR_TOPOLOGY``.

    Returns:
        Error class, ``gmpi.SUCCESS`` when all is well.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Neighbor_alltoallv(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcounts: Integers,
    sdispls: Integers,
    sendtype: int,
    recvbuf: Buffer,
    recvcounts: Integers,
    rdispls: Integers,
    recvtype: int,
    comm: int,
) -> int:
    """GMPI_Neighbor_alltoall with blocks of lengths of their own; blocks (MPI 4.1 section 8.6.2).

    Args:
        ctx: ``Context.device``, passed to the kernel.
        sendbuf: what has the blocks that go out.
        sendcounts, sdispls: elements for each neighbour, and where they begin, in extents of
            ``sendtype``.
        sendtype: a constant such as ``gmpi.DOUBLE``, or a handle of ``Context.commit()``.
        recvbuf: where blocks go.
        recvcounts, rdispls, recvtype: the same of what comes in. Blocks must not overlap.
        comm: a handle that ``Context.comm()`` returned, of a communicator with a topology; of any
            other, ``gmpi.ERR_TOPOLOGY``.

    Returns:
        Error class, ``gmpi.SUCCESS`` when all is well.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Neighbor_alltoallw(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcounts: Integers,
    sdispls: Integers,
    sendtypes: Integers,
    recvbuf: Buffer,
    recvcounts: Integers,
    rdispls: Integers,
    recvtypes: Integers,
    comm: int,
) -> int:
    """GMPI_Neighbor_alltoallv with a datatype for each block; blocks (MPI 4.1 section 8.6.2).

    Args:
        ctx: ``Context.device``, passed to the kernel.
        sendbuf: as of GMPI_Neighbor_alltoallv; no strided view.
        sendcounts: elements for each neighbour.
        sdispls: where they begin, in bytes.
        sendtypes: their datatypes: constants of ``gmpi`` and handles of ``Context.commit()``.
        recvbuf, recvcounts, rdispls, recvtypes: the same of what comes in.
        comm: a handle that ``Context.comm()`` returned, of a communicator with a topology; of any
            other, ``gmpi.ERR_TOPOLOGY``.

    Returns:
        Error class, ``gmpi.SUCCESS`` when all is well.
    """
    raise NotImplementedError


_SECTION = "MPI 4.1 section 8.7"
GMPI_Ineighbor_allgather = not_blocking(GMPI_Neighbor_allgather, _SECTION)
GMPI_Ineighbor_allgatherv = not_blocking(GMPI_Neighbor_allgatherv, _SECTION)
GMPI_Ineighbor_alltoall = not_blocking(GMPI_Neighbor_alltoall, _SECTION)
GMPI_Ineighbor_alltoallv = not_blocking(GMPI_Neighbor_alltoallv, _SECTION)
GMPI_Ineighbor_alltoallw = not_blocking(GMPI_Neighbor_alltoallw, _SECTION)

GMPI_Neighbor_allgather_warp = warp_scope(GMPI_Neighbor_allgather)
GMPI_Ineighbor_allgather_warp = warp_scope(GMPI_Ineighbor_allgather)
GMPI_Neighbor_allgatherv_warp = warp_scope(GMPI_Neighbor_allgatherv)
GMPI_Ineighbor_allgatherv_warp = warp_scope(GMPI_Ineighbor_allgatherv)
GMPI_Neighbor_alltoall_warp = warp_scope(GMPI_Neighbor_alltoall)
GMPI_Ineighbor_alltoall_warp = warp_scope(GMPI_Ineighbor_alltoall)
GMPI_Neighbor_alltoallv_warp = warp_scope(GMPI_Neighbor_alltoallv)
GMPI_Ineighbor_alltoallv_warp = warp_scope(GMPI_Ineighbor_alltoallv)
GMPI_Neighbor_alltoallw_warp = warp_scope(GMPI_Neighbor_alltoallw)
GMPI_Ineighbor_alltoallw_warp = warp_scope(GMPI_Ineighbor_alltoallw)
