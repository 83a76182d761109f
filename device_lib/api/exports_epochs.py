"""The names of calls that open, close and complete epochs of one-sided calls; see ``exports``.

What they complete is in ``exports_onesided``. Each returns its error class, and the host raises the
first one.
"""

from __future__ import annotations

from device_lib.api.binding import block_scope, warp_scope
from device_lib.platform.context import DeviceContext


@block_scope
def GMPI_Win_fence(
    ctx: DeviceContext,
    assertion: int,
    win: int,
) -> int:
    """Ends an epoch and begins one; blocks until all ranks have called it (MPI 4.1 section 12.5.1).

    One scope per rank calls it. What the calling threads have stored, and other threads whose
    stores they have seen (``grid.sync()``), is there for all ranks when it returns.

    Args:
        assertion: 0, or gmpi.MODE_NOSTORE, MODE_NOPUT, MODE_NOPRECEDE and MODE_NOSUCCEED, added.
            After MODE_NOSUCCEED no epoch is open.
    """
    raise NotImplementedError


@block_scope
def GMPI_Win_flush(
    ctx: DeviceContext,
    rank: int,
    win: int,
) -> int:
    """Completes what this rank has begun at one target (MPI 4.1 section 12.5.4).

    That is, what the calling threads have stored, and other threads whose stores they have seen
    (``grid.sync()``). A rank that is told of the flush finds it there.

    Args:
        rank: of the window, or ``gmpi.PROC_NULL``.
    """
    raise NotImplementedError


@block_scope
def GMPI_Win_flush_all(
    ctx: DeviceContext,
    win: int,
) -> int:
    """GMPI_Win_flush for all targets (MPI 4.1 section 12.5.4)."""
    raise NotImplementedError


@block_scope
def GMPI_Win_flush_local(
    ctx: DeviceContext,
    rank: int,
    win: int,
) -> int:
    """Completes here what this rank has begun at one target (MPI 4.1 section 12.5.4).

    The buffers of the calling threads' calls may be changed. Whether the bytes are there is not
    known: GMPI_Win_flush says it, and takes longer.

    Args: as GMPI_Win_flush.
    """
    raise NotImplementedError


@block_scope
def GMPI_Win_flush_local_all(
    ctx: DeviceContext,
    win: int,
) -> int:
    """GMPI_Win_flush_local for all targets (MPI 4.1 section 12.5.4)."""
    raise NotImplementedError


@block_scope
def GMPI_Win_lock_all(
    ctx: DeviceContext,
    assertion: int,
    win: int,
) -> int:
    """Opens an epoch in which all ranks may be targets (MPI 4.1 section 12.5.3).

    Does not wait: there are no exclusive locks. Several scopes may each open one.

    Args:
        assertion: 0 or ``gmpi.MODE_NOCHECK``.
    """
    raise NotImplementedError


@block_scope
def GMPI_Win_unlock_all(
    ctx: DeviceContext,
    win: int,
) -> int:
    """Completes as GMPI_Win_flush_all, and closes an epoch (MPI 4.1 section 12.5.3).

    Returns:
        Error class; ``gmpi.ERR_RMA_SYNC`` where none of GMPI_Win_lock_all is open.
    """
    raise NotImplementedError


GMPI_Win_fence_warp = warp_scope(GMPI_Win_fence)
GMPI_Win_flush_warp = warp_scope(GMPI_Win_flush)
GMPI_Win_flush_all_warp = warp_scope(GMPI_Win_flush_all)
GMPI_Win_flush_local_warp = warp_scope(GMPI_Win_flush_local)
GMPI_Win_flush_local_all_warp = warp_scope(GMPI_Win_flush_local_all)
GMPI_Win_lock_all_warp = warp_scope(GMPI_Win_lock_all)
GMPI_Win_unlock_all_warp = warp_scope(GMPI_Win_unlock_all)
