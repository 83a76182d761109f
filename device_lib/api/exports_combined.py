"""The names of buffered sends, ready sends, calls that send and receive, and Abort; see
``exports``."""

from __future__ import annotations

from device_lib.api.binding import Buffer, block_scope, warp_scope
from device_lib.platform.context import DeviceContext, Status


@block_scope
def GMPI_Ibsend(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> int:
    """Starts a buffered send: complete when the proxy has its bytes, whether or not anybody
    receives them (MPI 4.1 section 3.7.2).

    No buffer is attached: the proxy takes memory as it needs it. A send above ``eager_bytes``
    returns when the proxy has its bytes, which the calling threads move. On a communicator that was
    registered with ``wildcards=False`` it is refused with ``gmpi.ERR_COMM``.

    Args: as GMPI_Isend.

    Returns:
        The request (int64), as GMPI_Isend. If the send itself fails later, the host reports it.
    """
    raise NotImplementedError


@block_scope
def GMPI_Bsend(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> Status:
    """GMPI_Ibsend and GMPI_Wait: does not wait for a receive (MPI 4.1 section 3.4).

    Args: as GMPI_Ibsend.

    Returns:
        Status, as GMPI_Send.
    """
    raise NotImplementedError


@block_scope
def GMPI_Irsend(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> int:
    """Starts a send whose receive is posted (MPI 4.1 section 3.7.2): as GMPI_Isend, which does not
    need to know.

    Args, Returns: as GMPI_Isend.
    """
    raise NotImplementedError


@block_scope
def GMPI_Rsend(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> Status:
    """Send whose receive is posted (MPI 4.1 section 3.4): as GMPI_Send, which does not need to
    know.

    Args, Returns: as GMPI_Send.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Sendrecv_replace(
    ctx: DeviceContext,
    buf: Buffer,
    count: int,
    datatype: int,
    dest: int,
    sendtag: int,
    source: int,
    recvtag: int,
    comm: int,
) -> Status:
    """Sends what is in a buffer and receives into it; blocks (MPI 4.1 section 3.10).

    Above ``eager_bytes`` the message goes through memory of the proxy: GMPI_Sendrecv with two
    buffers is faster. Between GPUs on the direct road (``wildcards=False``) at most ``eager_bytes``
    in one piece; more is refused with ``gmpi.ERR_COMM``.

    Args:
        buf, count, datatype: what is sent, and where to.
        dest, sendtag: as GMPI_Send.
        source, recvtag: as GMPI_Recv.

    Returns:
        Status of the receive; ``error`` also of the send.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Isendrecv(
    ctx: DeviceContext,
    sendbuf: Buffer,
    sendcount: int,
    sendtype: int,
    dest: int,
    sendtag: int,
    recvbuf: Buffer,
    recvcount: int,
    recvtype: int,
    source: int,
    recvtag: int,
    comm: int,
) -> int:
    """Starts a send and a receive; one request stands for both (MPI 4.1 section 3.10).

    A GMPI_Bsend, then a GMPI_Irecv: waits until the proxy has the bytes, and for no other rank.
    With ``wildcards=False`` it is refused with ``gmpi.ERR_COMM``: use GMPI_Isend and GMPI_Irecv.

    Args: as GMPI_Sendrecv.

    Returns:
        The request (int64); its status is the receive's. Where the send is refused nothing is
        received; where the receive is, the message has been sent.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Isendrecv_replace(
    ctx: DeviceContext,
    buf: Buffer,
    count: int,
    datatype: int,
    dest: int,
    sendtag: int,
    source: int,
    recvtag: int,
    comm: int,
) -> int:
    """GMPI_Isendrecv from and into one buffer (MPI 4.1 section 3.10).

    Args: as GMPI_Sendrecv_replace.

    Returns:
        The request, as GMPI_Isendrecv.
    """
    raise NotImplementedError


@block_scope
def GMPI_Abort(ctx: DeviceContext, comm: int, errorcode: int) -> int:
    """Ends all ranks of a communicator, and with most MPI libraries the whole job: MPI_Abort by the
    proxy, which prints on stderr which block called it (MPI 4.1 section 9.7).

    Does not return, unless ``comm`` is no handle.

    Args:
        errorcode: what the processes end with, as far as the launcher passes it on.

    Returns:
        Error class: ``gmpi.ERR_COMM``.
    """
    raise NotImplementedError


GMPI_Ibsend_warp = warp_scope(GMPI_Ibsend)
GMPI_Bsend_warp = warp_scope(GMPI_Bsend)
GMPI_Irsend_warp = warp_scope(GMPI_Irsend)
GMPI_Rsend_warp = warp_scope(GMPI_Rsend)
GMPI_Sendrecv_replace_warp = warp_scope(GMPI_Sendrecv_replace)
GMPI_Isendrecv_warp = warp_scope(GMPI_Isendrecv)
GMPI_Isendrecv_replace_warp = warp_scope(GMPI_Isendrecv_replace)
GMPI_Abort_warp = warp_scope(GMPI_Abort)
