"""The names of persistent requests that users import; see ``exports``. GMPI_Start, Startall and
Request_free, for these and for partitioned ones, are in ``exports_partitioned``.
"""

from __future__ import annotations

from device_lib.api.binding import Buffer, block_scope, warp_scope
from device_lib.platform.context import DeviceContext


@block_scope
def GMPI_Send_init(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> int:
    """Makes a persistent send (MPI 4.1 section 3.9): each GMPI_Start sends what is in the buffer.

    Local, without the proxy. A Start is a GMPI_Isend with these arguments. Wrong ones are found
    there: its wait returns the error class. The buffer must live until the request is freed.

    Args: as GMPI_Isend.

    Returns:
        The request (int64), inactive, for all scopes of this kernel and for kernels that are
        launched later, until GMPI_Request_free. Waits leave it in arrays of requests. Where 512
        exist, waiting for it gives ``gmpi.GMPI_ERR_NO_RESOURCE``.
    """
    raise NotImplementedError


@block_scope
def GMPI_Ssend_init(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> int:
    """GMPI_Send_init of synchronous sends (MPI 4.1 section 3.9), as GMPI_Issend.

    Args, Returns: as GMPI_Send_init.
    """
    raise NotImplementedError


@block_scope
def GMPI_Bsend_init(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> int:
    """GMPI_Send_init of buffered sends (MPI 4.1 section 3.9): a Start is a GMPI_Ibsend.

    Args, Returns: as GMPI_Send_init.
    """
    raise NotImplementedError


@block_scope
def GMPI_Rsend_init(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> int:
    """GMPI_Send_init of sends whose receive is posted at each Start (MPI 4.1 section 3.9): as
    GMPI_Send_init, which does not need to know.

    Args, Returns: as GMPI_Send_init.
    """
    raise NotImplementedError


@block_scope
def GMPI_Recv_init(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, source: int, tag: int, comm: int
) -> int:
    """Makes a persistent receive (MPI 4.1 section 3.9): each GMPI_Start is a GMPI_Irecv.

    Args: as GMPI_Irecv.

    Returns:
        The request, as GMPI_Send_init.
    """
    raise NotImplementedError


@block_scope
def GMPI_Allreduce_init(
    ctx: DeviceContext,
    sendbuf: Buffer,
    recvbuf: Buffer,
    count: int,
    datatype: int,
    op: int,
    comm: int,
) -> int:
    """Makes a persistent Allreduce (MPI 4.1 section 6.13): each GMPI_Start is a GMPI_Iallreduce.

    Starts of collectives come in the same order on all ranks. Making one is local.

    Args: as GMPI_Allreduce.

    Returns:
        The request, as GMPI_Send_init.
    """
    raise NotImplementedError


@block_scope
def GMPI_Bcast_init(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, root: int, comm: int
) -> int:
    """Makes a persistent Bcast (MPI 4.1 section 6.13), as GMPI_Allreduce_init.

    Args: as GMPI_Bcast.

    Returns:
        The request, as GMPI_Send_init.
    """
    raise NotImplementedError


@block_scope
def GMPI_Barrier_init(ctx: DeviceContext, comm: int) -> int:
    """Makes a persistent Barrier (MPI 4.1 section 6.13), as GMPI_Allreduce_init.

    Returns:
        The request, as GMPI_Send_init.
    """
    raise NotImplementedError


GMPI_Send_init_warp = warp_scope(GMPI_Send_init)
GMPI_Ssend_init_warp = warp_scope(GMPI_Ssend_init)
GMPI_Bsend_init_warp = warp_scope(GMPI_Bsend_init)
GMPI_Rsend_init_warp = warp_scope(GMPI_Rsend_init)
GMPI_Recv_init_warp = warp_scope(GMPI_Recv_init)
GMPI_Allreduce_init_warp = warp_scope(GMPI_Allreduce_init)
GMPI_Bcast_init_warp = warp_scope(GMPI_Bcast_init)
GMPI_Barrier_init_warp = warp_scope(GMPI_Barrier_init)
