"""The names of collectives with a count for each rank; see ``exports``.

Each is called by one scope of every rank of the communicator, in the same order. Counts,
displacements and datatypes are arrays of int32 or int64 with an element for each rank, in device,
shared or constant memory, equal for all threads of the scope; they may change when the call
returns. Buffers are in device memory; in shared memory where all that goes out and comes back, and
32 bytes for each block, is at most ``eager_bytes``. Those that block go from GPU to GPU on
communicators that are direct as a whole (docs/direct.md).
"""

from __future__ import annotations

from typing import Any, TypeAlias

from device_lib.api.binding import Buffer, block_scope, not_blocking, warp_scope
from device_lib.platform.context import DeviceContext

#: An array of int32 or int64, with an element for each block.
Integers: TypeAlias = Any


# wide: as MPI's
@block_scope
def GMPI_Gatherv(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcount: int,
    sendtype: int,
    recvbuf: Buffer,
    recvcounts: Integers,
    displs: Integers,
    recvtype: int,
    root: int,
    comm: int,
) -> int:
    """Brings a block of each rank to the root, each of its own length; blocks (MPI 4.1 section
    6.5).

    Args:
        sendbuf: this rank's block; at the root, ``gmpi.IN_PLACE`` where ``recvbuf`` has it already.
        sendcount, sendtype: of the block that goes out: elements of a constant such as
            ``gmpi.DOUBLE``, or of a handle of ``Context.commit()``.
        recvbuf: at the root, where blocks go; ignored elsewhere, nor are the arrays.
        recvcounts: elements that come from each rank.
        displs: where each block begins, in extents of ``recvtype``. Blocks must not overlap.
        recvtype: as ``sendtype``.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Scatterv(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcounts: Integers,
    displs: Integers,
    sendtype: int,
    recvbuf: Buffer,
    recvcount: int,
    recvtype: int,
    root: int,
    comm: int,
) -> int:
    """Gives each rank a block of the root's, each of its own length; blocks (MPI 4.1 section 6.6).

    Args:
        sendbuf: at the root, what has the blocks; ignored elsewhere, nor are the arrays.
        sendcounts: elements for each rank.
        displs: where each block begins, in extents of ``sendtype``.
        sendtype: a constant such as ``gmpi.DOUBLE``, or a handle of ``Context.commit()``.
        recvbuf: this rank's block; at the root, ``gmpi.IN_PLACE`` leaves it in ``sendbuf``.
        recvcount, recvtype: of the block that comes in.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Allgatherv(
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
    """Brings a block of each rank to all ranks, each of its own length; blocks (MPI 4.1 section
    6.7).

    Args: as GMPI_Gatherv, at every rank as at its root.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Alltoallv(
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
    """Sends a block to each rank and gets one from each, of lengths of their own; blocks (MPI 4.1
    section 6.8).

    Args:
        sendbuf: what has the blocks that go out, or ``gmpi.IN_PLACE`` to take them from
            ``recvbuf``, with its arrays.
        sendcounts, sdispls: elements for each rank, and where they begin, in extents of
            ``sendtype``.
        sendtype: a constant such as ``gmpi.DOUBLE``, or a handle of ``Context.commit()``.
        recvbuf: where blocks go.
        recvcounts, rdispls, recvtype: the same of what comes in. Blocks must not overlap.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Alltoallw(
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
    """GMPI_Alltoallv with a datatype for each block; blocks (MPI 4.1 section 6.8).

    Args:
        sendbuf: as of GMPI_Alltoallv; no strided view.
        sendcounts: elements for each rank.
        sdispls: where they begin, in bytes.
        sendtypes: their datatypes: constants of ``gmpi`` and handles of ``Context.commit()``.
        recvbuf, recvcounts, rdispls, recvtypes: the same of what comes in.
    """
    raise NotImplementedError


@block_scope
def GMPI_Reduce_scatter(
    ctx: DeviceContext,
    sendbuf: Buffer,
    recvbuf: Buffer,
    recvcounts: Integers,
    datatype: int,
    op: int,
    comm: int,
) -> int:
    """Reduces over all ranks and gives each a part of the result, of its own length; blocks (MPI
    4.1 section 6.10.2).

    Args:
        sendbuf: elements of all parts, one after the other; ``gmpi.IN_PLACE`` takes them from
            ``recvbuf``.
        recvbuf: this rank's part of the result, at its beginning.
        recvcounts: elements of each rank's part, equal on all ranks.
        datatype: a constant such as ``gmpi.DOUBLE``, equal on all ranks.
        op: gmpi.SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR or BXOR; equal on all ranks.
    """
    raise NotImplementedError


_ARRAYS = "Arrays of counts, displacements and datatypes are not looked at any more."
GMPI_Igatherv = not_blocking(GMPI_Gatherv, _ARRAYS)
GMPI_Iscatterv = not_blocking(GMPI_Scatterv, _ARRAYS)
GMPI_Iallgatherv = not_blocking(GMPI_Allgatherv, _ARRAYS)
GMPI_Ialltoallv = not_blocking(GMPI_Alltoallv, _ARRAYS)
GMPI_Ialltoallw = not_blocking(GMPI_Alltoallw, _ARRAYS)
GMPI_Ireduce_scatter = not_blocking(GMPI_Reduce_scatter, _ARRAYS)

GMPI_Gatherv_warp = warp_scope(GMPI_Gatherv)
GMPI_Igatherv_warp = warp_scope(GMPI_Igatherv)
GMPI_Scatterv_warp = warp_scope(GMPI_Scatterv)
GMPI_Iscatterv_warp = warp_scope(GMPI_Iscatterv)
GMPI_Allgatherv_warp = warp_scope(GMPI_Allgatherv)
GMPI_Iallgatherv_warp = warp_scope(GMPI_Iallgatherv)
GMPI_Alltoallv_warp = warp_scope(GMPI_Alltoallv)
GMPI_Ialltoallv_warp = warp_scope(GMPI_Ialltoallv)
GMPI_Alltoallw_warp = warp_scope(GMPI_Alltoallw)
GMPI_Ialltoallw_warp = warp_scope(GMPI_Ialltoallw)
GMPI_Reduce_scatter_warp = warp_scope(GMPI_Reduce_scatter)
GMPI_Ireduce_scatter_warp = warp_scope(GMPI_Ireduce_scatter)
