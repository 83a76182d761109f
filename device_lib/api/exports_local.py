"""The names of calls that any thread makes alone; see ``exports``."""

from __future__ import annotations

from typing import Any

from device_lib.api.binding import any_thread
from device_lib.platform.context import DeviceContext, Status


@any_thread
def GMPI_Cart_coords(ctx: DeviceContext, comm: int, rank: int, maxdims: int, coords: Any) -> int:
    """The coordinates of a rank (MPI 4.1 section 8.5.5).

    Args:
        comm: a handle that ``Context.comm()`` returned of a Cartesian communicator of up to 8
            dimensions.
        rank: in ``comm``.
        maxdims: length of ``coords``, at least the number of dimensions.
        coords: array of integers, also of one thread (``cuda.local.array``): filled in.

    Returns:
        ``gmpi.SUCCESS``; ``gmpi.ERR_TOPOLOGY``: it is not Cartesian; ``gmpi.ERR_RANK``;
        ``gmpi.ERR_ARG``: ``coords`` is too short.
    """
    raise NotImplementedError


@any_thread
def GMPI_Cart_rank(ctx: DeviceContext, comm: int, coords: Any) -> int:
    """The rank at some coordinates (MPI 4.1 section 8.5.5).

    Args:
        ctx, comm: as GMPI_Cart_coords.
        coords: array of integers, one for each dimension; of a periodic one any number.

    Returns:
        The rank; ``gmpi.PROC_NULL`` outside of a dimension that is not periodic, where MPI defines
        nothing; ``gmpi.UNDEFINED`` if ``comm`` is not Cartesian.
    """
    raise NotImplementedError


@any_thread
def GMPI_Cart_shift(ctx: DeviceContext, comm: int, direction: int, disp: int) -> tuple[int, int]:
    """The ranks to receive from and send to for a shift (MPI 4.1 section 8.5.6).

    Args:
        ctx, comm: as GMPI_Cart_coords.
        direction: which dimension, from 0.
        disp: by how much, upwards or (below 0) downwards.

    Returns:
        (source, dest), ``gmpi.PROC_NULL`` where there is none; both ``gmpi.UNDEFINED`` if ``comm``
        is not Cartesian or has no such dimension.
    """
    raise NotImplementedError


@any_thread
def GMPI_Cartdim_get(ctx: DeviceContext, comm: int) -> int:
    """Number of dimensions of ``comm``; 0: it is not Cartesian (MPI 4.1 section 8.5.5)."""
    raise NotImplementedError


@any_thread
def GMPI_Cart_get(
    ctx: DeviceContext, comm: int, maxdims: int, dims: Any, periods: Any, coords: Any
) -> int:
    """The shape of a Cartesian communicator, and this rank's coordinates (MPI 4.1 section 8.5.5).

    Args:
        ctx, comm: as GMPI_Cart_coords.
        maxdims: length of the arrays, at least the number of dimensions.
        dims, periods, coords: arrays of integers: filled in; a period is 0 or 1.

    Returns:
        As GMPI_Cart_coords.
    """
    raise NotImplementedError


@any_thread
def GMPI_Wtime(ctx: DeviceContext) -> float:
    """Seconds since some time in the past, of the GPU's global timer (MPI 4.1 section 9.6).

    Not the time of ``MPI.Wtime()`` on the host; the same in all kernels on one GPU.
    """
    raise NotImplementedError


@any_thread
def GMPI_Type_size(ctx: DeviceContext, datatype: int) -> int:
    """Packed bytes of one element (MPI 4.1 section 5.1.5).

    Returns:
        The bytes; ``gmpi.UNDEFINED`` for what is no datatype.
    """
    raise NotImplementedError


@any_thread
def GMPI_Get_count(ctx: DeviceContext, status: Status, datatype: int) -> int:
    """How many elements a receive has got (MPI 4.1 section 3.2.5).

    Args:
        status: what a wait, a test or GMPI_Recv has returned.
        datatype: as GMPI_Type_size.

    Returns:
        The number; ``gmpi.UNDEFINED`` if it is no whole number, or ``datatype`` is none.
    """
    raise NotImplementedError


@any_thread
def GMPI_Get_elements(ctx: DeviceContext, status: Status, datatype: int) -> int:
    """How many basic elements a receive has got (MPI 4.1 section 5.1.11).

    Args: as GMPI_Get_count.

    Returns:
        The number; ``gmpi.UNDEFINED`` if it is no whole number, or the basic elements of the
        datatype are not all of one size (the host's status can tell then), or it is none.
    """
    raise NotImplementedError


@any_thread
def GMPI_Error_class(ctx: DeviceContext, errorcode: int) -> int:
    """The class of an error code (MPI 4.1 section 9.4): the same number, since all that calls
    return are classes."""
    raise NotImplementedError
