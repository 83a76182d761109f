"""The names of collectives that move equal blocks, Ibcast and Ibarrier; see ``exports``.

Each is called by one scope of every rank of the communicator, in the same order. Which bytes go
where is in one table, ``gmpi/contract/moves.py``. Buffers are in device memory; in shared memory
where all that goes out and comes back is at most ``eager_bytes``. Those that block go from GPU to
GPU on communicators that are direct as a whole (docs/direct.md).
"""

from __future__ import annotations

from device_lib.api.binding import Buffer, block_scope, not_blocking, warp_scope
from device_lib.platform.context import DeviceContext


# wide: as MPI's
@block_scope
def GMPI_Gather(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcount: int,
    sendtype: int,
    recvbuf: Buffer,
    recvcount: int,
    recvtype: int,
    root: int,
    comm: int,
) -> int:
    """Brings a block of each rank to the root; blocks (MPI 4.1 section 6.5).

    Args:
        sendbuf: this rank's block; at the root, ``gmpi.IN_PLACE`` where ``recvbuf`` has it already.
        sendcount, sendtype: of one block that goes out: elements of a constant such as
            ``gmpi.DOUBLE``, or of a handle of ``Context.commit()``.
        recvbuf: at the root, the blocks of all ranks, in their order; ignored elsewhere.
        recvcount, recvtype: of one block that comes in; it has as many bytes, on all ranks.
    """
    raise NotImplementedError


GMPI_Igather = not_blocking(GMPI_Gather)


# wide: as MPI's
@block_scope
def GMPI_Scatter(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcount: int,
    sendtype: int,
    recvbuf: Buffer,
    recvcount: int,
    recvtype: int,
    root: int,
    comm: int,
) -> int:
    """Gives each rank a block of the root's; blocks (MPI 4.1 section 6.6).

    Args:
        sendbuf: at the root, a block for each rank, in their order; ignored elsewhere.
        sendcount, sendtype: of one block that goes out: elements of a constant such as
            ``gmpi.DOUBLE``, or of a handle of ``Context.commit()``.
        recvbuf: this rank's block; at the root, ``gmpi.IN_PLACE`` leaves it in ``sendbuf``.
        recvcount, recvtype: of one block that comes in; it has as many bytes, on all ranks.
    """
    raise NotImplementedError


GMPI_Iscatter = not_blocking(GMPI_Scatter)


@block_scope
def GMPI_Allgather(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcount: int,
    sendtype: int,
    recvbuf: Buffer,
    recvcount: int,
    recvtype: int,
    comm: int,
) -> int:
    """Brings a block of each rank to all ranks; blocks (MPI 4.1 section 6.7).

    Args:
        sendbuf: this rank's block, or ``gmpi.IN_PLACE`` where it is in ``recvbuf`` already.
        sendcount, sendtype: of one block that goes out: elements of a constant such as
            ``gmpi.DOUBLE``, or of a handle of ``Context.commit()``.
        recvbuf: the blocks of all ranks, in their order.
        recvcount, recvtype: of one block that comes in; it has as many bytes, on all ranks.
    """
    raise NotImplementedError


GMPI_Iallgather = not_blocking(GMPI_Allgather)


@block_scope
def GMPI_Alltoall(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcount: int,
    sendtype: int,
    recvbuf: Buffer,
    recvcount: int,
    recvtype: int,
    comm: int,
) -> int:
    """Sends a block to each rank and gets one from each; blocks (MPI 4.1 section 6.8).

    Args:
        sendbuf: a block for each rank, in their order, or ``gmpi.IN_PLACE`` to take them from
            ``recvbuf``.
        sendcount, sendtype: of one block that goes out: elements of a constant such as
            ``gmpi.DOUBLE``, or of a handle of ``Context.commit()``.
        recvbuf: a block of each rank, in their order.
        recvcount, recvtype: of one block that comes in; it has as many bytes, on all ranks.
    """
    raise NotImplementedError


GMPI_Ialltoall = not_blocking(GMPI_Alltoall)


@block_scope
def GMPI_Ibcast(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, root: int, comm: int
) -> int:
    """Starts a GMPI_Bcast and returns at once (MPI 4.1 section 6.12.2).

    Args: as GMPI_Bcast; ``buf`` may not be touched until the request is complete.

    Returns:
        The request (int64), as GMPI_Isend.
    """
    raise NotImplementedError


@block_scope
def GMPI_Ibarrier(ctx: DeviceContext, comm: int) -> int:
    """Starts a GMPI_Barrier and returns at once (MPI 4.1 section 6.12.1).

    Returns:
        The request (int64), as GMPI_Isend: complete when all ranks have called it.
    """
    raise NotImplementedError


GMPI_Gather_warp = warp_scope(GMPI_Gather)
GMPI_Igather_warp = warp_scope(GMPI_Igather)
GMPI_Scatter_warp = warp_scope(GMPI_Scatter)
GMPI_Iscatter_warp = warp_scope(GMPI_Iscatter)
GMPI_Allgather_warp = warp_scope(GMPI_Allgather)
GMPI_Iallgather_warp = warp_scope(GMPI_Iallgather)
GMPI_Alltoall_warp = warp_scope(GMPI_Alltoall)
GMPI_Ialltoall_warp = warp_scope(GMPI_Ialltoall)
GMPI_Ibcast_warp = warp_scope(GMPI_Ibcast)
GMPI_Ibarrier_warp = warp_scope(GMPI_Ibarrier)
