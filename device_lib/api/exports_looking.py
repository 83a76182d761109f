"""The names of probes, receives of what they found, and Cancel; see ``exports``."""

from __future__ import annotations

from device_lib.api.binding import Buffer, any_thread, block_scope, warp_scope
from device_lib.platform.context import DeviceContext, Status


@block_scope
def GMPI_Probe(ctx: DeviceContext, source: int, tag: int, comm: int) -> Status:
    """Blocks until a message has come that a receive would get; does not receive it (MPI 4.1
    section 3.8.1).

    On a communicator that was registered with ``wildcards=False`` it is refused with
    ``gmpi.ERR_COMM``.

    Args:
        source: rank in ``comm``, ``gmpi.ANY_SOURCE`` or ``gmpi.PROC_NULL``.
        tag: 0 .. MPI_TAG_UB, or ``gmpi.ANY_TAG``.

    Returns:
        Status: source, tag, and its bytes, also of a long message; ``count`` is of bytes, see
        GMPI_Get_count.
    """
    raise NotImplementedError


@block_scope
def GMPI_Iprobe(ctx: DeviceContext, source: int, tag: int, comm: int) -> tuple[bool, Status]:
    """Looks once whether a message has come that a receive would get (MPI 4.1 section 3.8.1).

    Waits for the proxy's answer, some 10 microseconds or more, and for no message.

    Args: as GMPI_Probe.

    Returns:
        (whether there is one, Status as GMPI_Probe). (True, a status with an error) where it was
        refused, or waits have been aborted: a loop that waits for a message ends.
    """
    raise NotImplementedError


@block_scope
def GMPI_Mprobe(ctx: DeviceContext, source: int, tag: int, comm: int) -> tuple[int, Status]:
    """Blocks until a message has come, and takes it: only GMPI_Mrecv or GMPI_Imrecv of what is
    returned can receive it, whichever block calls that (MPI 4.1 section 3.8.2).

    Args: as GMPI_Probe.

    Returns:
        (the message (int64), to be received once; Status as GMPI_Probe). The message is
        ``gmpi.MESSAGE_NO_PROC`` where ``source`` is ``gmpi.PROC_NULL``, and
        ``gmpi.MESSAGE_NULL`` where the status has an error.
    """
    raise NotImplementedError


@block_scope
def GMPI_Improbe(ctx: DeviceContext, source: int, tag: int, comm: int) -> tuple[bool, int, Status]:
    """Looks once whether there is such a message, and takes it (MPI 4.1 section 3.8.2).

    Waits for the proxy's answer, as GMPI_Iprobe.

    Args: as GMPI_Probe.

    Returns:
        (whether there is one, the message as GMPI_Mprobe, else ``gmpi.MESSAGE_NULL``, Status).
        The flag is True, too, where the status has an error.
    """
    raise NotImplementedError


@block_scope
def GMPI_Mrecv(ctx: DeviceContext, buf: Buffer, count: int, datatype: int, message: int) -> Status:
    """Receives a message that GMPI_Mprobe or Improbe has taken; blocks until it is in ``buf`` (MPI
    4.1 section 3.8.3).

    Args:
        buf, count, datatype: as GMPI_Irecv.
        message: of GMPI_Mprobe or Improbe of this context; to be used once.

    Returns:
        Status, as GMPI_Recv; its ``error`` is ``gmpi.ERR_REQUEST`` where there is no such message,
        as with ``gmpi.MESSAGE_NULL``.
    """
    raise NotImplementedError


@block_scope
def GMPI_Imrecv(ctx: DeviceContext, buf: Buffer, count: int, datatype: int, message: int) -> int:
    """Starts to receive it, and returns at once (MPI 4.1 section 3.8.3).

    Args: as GMPI_Mrecv.

    Returns:
        The request (int64), as GMPI_Irecv. It cannot be cancelled.
    """
    raise NotImplementedError


@block_scope
def GMPI_Cancel(ctx: DeviceContext, request: int) -> int:
    """Cancels a receive that has not been matched; otherwise it goes on (MPI 4.1 section 3.8.4).

    Waits for the proxy's answer. The request must be waited for all the same; GMPI_Test_cancelled
    of its status says whether it was cancelled.

    Args:
        request: of GMPI_Irecv, on a communicator without ``wildcards=False``.

    Returns:
        Error class: ``gmpi.ERR_REQUEST`` where it is no such request, or was waited for before.
    """
    raise NotImplementedError


@any_thread
def GMPI_Test_cancelled(ctx: DeviceContext, status: Status) -> bool:
    """Whether the receive was cancelled that ended with this status (MPI 4.1 section 3.8.4)."""
    raise NotImplementedError


GMPI_Probe_warp = warp_scope(GMPI_Probe)
GMPI_Iprobe_warp = warp_scope(GMPI_Iprobe)
GMPI_Mprobe_warp = warp_scope(GMPI_Mprobe)
GMPI_Improbe_warp = warp_scope(GMPI_Improbe)
GMPI_Mrecv_warp = warp_scope(GMPI_Mrecv)
GMPI_Imrecv_warp = warp_scope(GMPI_Imrecv)
GMPI_Cancel_warp = warp_scope(GMPI_Cancel)
