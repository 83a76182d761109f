"""The names of reductions: those of the table ``gmpi/contract/moves.py``; see ``exports``.

Each is called by one scope of every rank of the communicator, in the same order. Buffers are in
device memory; in shared memory where all that goes out and comes back is at most ``eager_bytes``.
Those that block go from GPU to GPU on communicators that are direct as a whole (docs/direct.md).
"""

from __future__ import annotations

from device_lib.api.binding import Buffer, block_scope, not_blocking, warp_scope
from device_lib.platform.context import DeviceContext


@block_scope
def GMPI_Reduce(
    ctx: DeviceContext,
    sendbuf: Buffer,
    recvbuf: Buffer,
    count: int,
    datatype: int,
    op: int,
    root: int,
    comm: int,
) -> int:
    """Reduces ``count`` elements over all ranks to the root; blocks (MPI 4.1 section 6.9.1).

    Args:
        sendbuf: this rank's elements; at the root, ``gmpi.IN_PLACE`` takes them from ``recvbuf``.
        recvbuf: the result at the root; ignored elsewhere.
        count: elements of ``datatype``, equal on all ranks.
        datatype: a constant such as ``gmpi.DOUBLE``, equal on all ranks.
        op: as of GMPI_Allreduce; equal on all ranks.
    """
    raise NotImplementedError


GMPI_Ireduce = not_blocking(GMPI_Reduce)


@block_scope
def GMPI_Reduce_scatter_block(
    ctx: DeviceContext,
    sendbuf: Buffer,
    recvbuf: Buffer,
    recvcount: int,
    datatype: int,
    op: int,
    comm: int,
) -> int:
    """Reduces blocks over all ranks, one for each of them; blocks (MPI 4.1 section 6.10.1).

    Args:
        sendbuf: a block of ``recvcount`` elements for each rank, or ``gmpi.IN_PLACE`` to take them
            from ``recvbuf``, which then has as many.
        recvbuf: this rank's block of the result, ``recvcount`` elements.
        recvcount: elements of ``datatype``, equal on all ranks.
        datatype: a constant such as ``gmpi.DOUBLE``, equal on all ranks.
        op: as of GMPI_Allreduce; equal on all ranks.
    """
    raise NotImplementedError


GMPI_Ireduce_scatter_block = not_blocking(GMPI_Reduce_scatter_block)


@block_scope
def GMPI_Scan(
    ctx: DeviceContext,
    sendbuf: Buffer,
    recvbuf: Buffer,
    count: int,
    datatype: int,
    op: int,
    comm: int,
) -> int:
    """Reduces ``count`` elements over this rank and all before it; blocks (MPI 4.1 section 6.11.1).

    Args:
        sendbuf: this rank's elements, or ``gmpi.IN_PLACE`` to take them from ``recvbuf``.
        recvbuf: the result of ranks 0 to this one.
        count: elements of ``datatype``, equal on all ranks.
        datatype: a constant such as ``gmpi.DOUBLE``, equal on all ranks.
        op: as of GMPI_Allreduce; equal on all ranks.
    """
    raise NotImplementedError


GMPI_Iscan = not_blocking(GMPI_Scan)


@block_scope
def GMPI_Exscan(
    ctx: DeviceContext,
    sendbuf: Buffer,
    recvbuf: Buffer,
    count: int,
    datatype: int,
    op: int,
    comm: int,
) -> int:
    """Reduces ``count`` elements over all ranks before this one; blocks (MPI 4.1 section 6.11.2).

    Args:
        sendbuf: this rank's elements, or ``gmpi.IN_PLACE`` to take them from ``recvbuf``.
        recvbuf: the result of the ranks before this one; stays as it is on rank 0.
        count: elements of ``datatype``, equal on all ranks.
        datatype: a constant such as ``gmpi.DOUBLE``, equal on all ranks.
        op: as of GMPI_Allreduce; equal on all ranks.
    """
    raise NotImplementedError


GMPI_Iexscan = not_blocking(GMPI_Exscan)


GMPI_Reduce_warp = warp_scope(GMPI_Reduce)
GMPI_Ireduce_warp = warp_scope(GMPI_Ireduce)
GMPI_Reduce_scatter_block_warp = warp_scope(GMPI_Reduce_scatter_block)
GMPI_Ireduce_scatter_block_warp = warp_scope(GMPI_Ireduce_scatter_block)
GMPI_Scan_warp = warp_scope(GMPI_Scan)
GMPI_Iscan_warp = warp_scope(GMPI_Iscan)
GMPI_Exscan_warp = warp_scope(GMPI_Exscan)
GMPI_Iexscan_warp = warp_scope(GMPI_Iexscan)
