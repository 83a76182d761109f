"""The names of one-sided calls that tell their target; see ``exports``.

Notified communication as the draft of MPI after 5.0 has it (section 12.6): a window has counters in
each rank's memory (``num_notify`` of ``Context.win``), and a call adds 1 to one of the target's.
"""

from __future__ import annotations

from device_lib.api.binding import Buffer, block_scope, warp_scope
from device_lib.platform.context import DeviceContext


# wide: as MPI's
@block_scope
def GMPI_Put_notify(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    notification_idx: int,
    win: int,
) -> int:
    """GMPI_Put, which then adds 1 to a counter of the target (MPI after 5.0, draft, section 12.6).

    Who sees the count there finds the bytes; no flush is needed. The buffer may be changed after a
    flush or the end of the epoch, as with GMPI_Put.

    Args:
        origin_addr, origin_count, origin_datatype: as GMPI_Put.
        target_count, target_datatype: likewise. Without elements it only counts.
        notification_idx: which of the target's counters, from 0 on; else ``gmpi.ERR_ARG``.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Get_notify(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    notification_idx: int,
    win: int,
) -> int:
    """GMPI_Get, which then adds 1 to a counter of the target (MPI after 5.0, draft, section 12.6).

    Who sees the count there may store to its memory again: the bytes have been read.

    Args: as GMPI_Get; ``notification_idx`` as GMPI_Put_notify.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Accumulate_notify(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    op: int,
    notification_idx: int,
    win: int,
) -> int:
    """GMPI_Accumulate, which then adds 1 to a counter of the target (MPI after 5.0, draft,
    section 12.6).

    Who sees the count there finds the elements updated; no flush is needed.

    Args: as GMPI_Accumulate; ``notification_idx`` as GMPI_Put_notify.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Get_accumulate_notify(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    result_addr: Buffer,
    result_count: int,
    result_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    op: int,
    notification_idx: int,
    win: int,
) -> int:
    """GMPI_Get_accumulate, which then adds 1 to a counter of the target (MPI after 5.0, draft,
    section 12.6). With ``gmpi.NO_OP``, too.

    Args: as GMPI_Get_accumulate; ``notification_idx`` as GMPI_Put_notify.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Rput_notify(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    notification_idx: int,
    win: int,
) -> int:
    """GMPI_Put_notify with a request (MPI after 5.0, draft, section 12.6).

    Args: as GMPI_Put_notify.

    Returns:
        The request (int64), for GMPI_Wait and the like: the buffers may be changed after that.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Rget_notify(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    notification_idx: int,
    win: int,
) -> int:
    """GMPI_Get_notify with a request (MPI after 5.0, draft, section 12.6).

    Args: as GMPI_Get_notify.

    Returns:
        The request (int64), for GMPI_Wait and the like: the buffers may be changed after that.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Raccumulate_notify(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    op: int,
    notification_idx: int,
    win: int,
) -> int:
    """GMPI_Accumulate_notify with a request (MPI after 5.0, draft, section 12.6).

    Args: as GMPI_Accumulate_notify.

    Returns:
        The request (int64), for GMPI_Wait and the like: the buffers may be changed after that.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Rget_accumulate_notify(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    result_addr: Buffer,
    result_count: int,
    result_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    op: int,
    notification_idx: int,
    win: int,
) -> int:
    """GMPI_Get_accumulate_notify with a request (MPI after 5.0, draft, section 12.6).

    Args: as GMPI_Get_accumulate_notify.

    Returns:
        The request (int64), for GMPI_Wait and the like: the buffers may be changed after that.
    """
    raise NotImplementedError


@block_scope
def GMPI_Win_get_notify_value(
    ctx: DeviceContext, win: int, notification_idx: int
) -> tuple[int, int]:
    """A counter of this rank's (MPI after 5.0, draft, section 12.6); needs no epoch.

    What was stored by the calls that it has counted is found by the calling threads when they load
    it, by GMPI_Get or themselves. Waits for nobody: a loop that waits ends at any error.

    Args:
        notification_idx: which one, from 0 on.

    Returns:
        (its value; the error class, ``gmpi.ERR_ARG`` where there is no such counter).
    """
    raise NotImplementedError


@block_scope
def GMPI_Win_reset_notify_value(
    ctx: DeviceContext, win: int, notification_idx: int
) -> tuple[int, int]:
    """Sets a counter of this rank's to 0, and returns what it was, at once (MPI after 5.0, draft,
    section 12.6). No count is lost.

    Args, Returns: as GMPI_Win_get_notify_value.
    """
    raise NotImplementedError


GMPI_Put_notify_warp = warp_scope(GMPI_Put_notify)
GMPI_Get_notify_warp = warp_scope(GMPI_Get_notify)
GMPI_Accumulate_notify_warp = warp_scope(GMPI_Accumulate_notify)
GMPI_Get_accumulate_notify_warp = warp_scope(GMPI_Get_accumulate_notify)
GMPI_Rput_notify_warp = warp_scope(GMPI_Rput_notify)
GMPI_Rget_notify_warp = warp_scope(GMPI_Rget_notify)
GMPI_Raccumulate_notify_warp = warp_scope(GMPI_Raccumulate_notify)
GMPI_Rget_accumulate_notify_warp = warp_scope(GMPI_Rget_accumulate_notify)
GMPI_Win_get_notify_value_warp = warp_scope(GMPI_Win_get_notify_value)
GMPI_Win_reset_notify_value_warp = warp_scope(GMPI_Win_reset_notify_value)
