"""The names of one-sided calls that users import; see ``exports``.

The host makes windows (``Context.win``); kernels use them. A target is a rank of the window's
communicator, also the calling one, or ``gmpi.PROC_NULL``. Nothing runs there. Each call returns its
error class, and the host raises the first one.

MPI's rules hold (MPI 4.1 chapter 12): which accesses conflict, and that a call lies in an epoch,
between two GMPI_Win_fence, or between GMPI_Win_lock_all and GMPI_Win_unlock_all. An epoch is open
for all threads of the rank.
"""

from __future__ import annotations

from device_lib.api.binding import Buffer, block_scope, warp_scope
from device_lib.platform.context import DeviceContext


# wide: as MPI's
@block_scope
def GMPI_Put(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    win: int,
) -> int:
    """Stores elements in the target's window (MPI 4.1 section 12.3.1).

    The buffer may be changed, and the bytes are there, after a flush or the end of the epoch.

    Args:
        origin_addr: what to store: an array in one piece in device or shared memory.
        origin_count: elements of ``origin_datatype``, 0 or more.
        origin_datatype: a constant such as ``gmpi.FLOAT``.
        target_count, target_datatype: the same in the window: the same number of bytes.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Get(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    win: int,
) -> int:
    """Loads elements from the target's window (MPI 4.1 section 12.3.2).

    They are in the buffer when it returns, which MPI promises only after a flush.

    Args: as GMPI_Put; ``origin_addr`` is where to.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Rput(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    win: int,
) -> int:
    """GMPI_Put with a request (MPI 4.1 section 12.3.5).

    Args: as GMPI_Put.

    Returns:
        The request (int64), for GMPI_Wait and the like: the buffer may be changed after that. The
        bytes are there after a flush.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Rget(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    win: int,
) -> int:
    """GMPI_Get with a request (MPI 4.1 section 12.3.5).

    Args: as GMPI_Get.

    Returns:
        The request (int64), for GMPI_Wait and the like.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Accumulate(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    op: int,
    win: int,
) -> int:
    """Combines elements with those in the target's window (MPI 4.1 section 12.3.4).

    Each element is updated atomically with respect to these calls of all ranks, but not to a Put.

    Args:
        origin_addr: what to combine with: an array in one piece in device or shared memory.
        origin_count: elements of ``origin_datatype``.
        origin_datatype: a constant such as ``gmpi.FLOAT``, of up to 8 bytes; of complex numbers
            only for ``gmpi.SUM``.
        target_count, target_datatype: the same in the window: the same number of bytes.
        op: gmpi.SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, REPLACE or NO_OP.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Get_accumulate(
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
    win: int,
) -> int:
    """GMPI_Accumulate, and what was there before (MPI 4.1 section 12.3.4).

    The result is in its buffer when it returns.

    Args: as GMPI_Accumulate, without complex numbers. The result's are equal to the target's, in
        another buffer. With ``gmpi.NO_OP`` the origin's are not looked at: a Get whose elements are
        loaded as a whole.
    """
    raise NotImplementedError


@block_scope
def GMPI_Fetch_and_op(
    ctx: DeviceContext,
    origin_addr: Buffer,
    result_addr: Buffer,
    datatype: int,
    target_rank: int,
    target_disp: int,
    op: int,
    win: int,
) -> int:
    """GMPI_Get_accumulate of one element (MPI 4.1 section 12.3.4).

    Args:
        origin_addr: the element to combine with.
        result_addr: where the element goes that was in the window before.
        datatype: of all three, as for GMPI_Get_accumulate.
        op: as for GMPI_Accumulate.
    """
    raise NotImplementedError


@block_scope
def GMPI_Compare_and_swap(
    ctx: DeviceContext,
    origin_addr: Buffer,
    compare_addr: Buffer,
    result_addr: Buffer,
    datatype: int,
    target_rank: int,
    target_disp: int,
    win: int,
) -> int:
    """Replaces an element of the window if it is as expected (MPI 4.1 section 12.3.4).

    Args:
        origin_addr: the new element.
        compare_addr: what is expected.
        result_addr: where the element goes that was in the window before.
        datatype: of all four: an integer, a logical one or ``gmpi.BYTE``.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Raccumulate(
    ctx: DeviceContext,
    origin_addr: Buffer,
    origin_count: int,
    origin_datatype: int,
    target_rank: int,
    target_disp: int,
    target_count: int,
    target_datatype: int,
    op: int,
    win: int,
) -> int:
    """GMPI_Accumulate with a request (MPI 4.1 section 12.3.5).

    Args: as GMPI_Accumulate.

    Returns:
        The request (int64), for GMPI_Wait and the like: the buffer may be changed after that. The
        elements are updated after a flush.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Rget_accumulate(
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
    win: int,
) -> int:
    """GMPI_Get_accumulate with a request (MPI 4.1 section 12.3.5).

    Args: as GMPI_Get_accumulate.

    Returns:
        The request (int64), for GMPI_Wait and the like.
    """
    raise NotImplementedError


GMPI_Put_warp = warp_scope(GMPI_Put)
GMPI_Get_warp = warp_scope(GMPI_Get)
GMPI_Rput_warp = warp_scope(GMPI_Rput)
GMPI_Rget_warp = warp_scope(GMPI_Rget)
GMPI_Accumulate_warp = warp_scope(GMPI_Accumulate)
GMPI_Get_accumulate_warp = warp_scope(GMPI_Get_accumulate)
GMPI_Fetch_and_op_warp = warp_scope(GMPI_Fetch_and_op)
GMPI_Compare_and_swap_warp = warp_scope(GMPI_Compare_and_swap)
GMPI_Raccumulate_warp = warp_scope(GMPI_Raccumulate)
GMPI_Rget_accumulate_warp = warp_scope(GMPI_Rget_accumulate)
