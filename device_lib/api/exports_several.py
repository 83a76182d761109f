"""The names of synchronous sends, Request_get_status, tests of several requests, and Waitsome; see
``exports``."""

from __future__ import annotations

from typing import Any

from device_lib.api.binding import Buffer, block_scope, warp_scope
from device_lib.platform.context import DeviceContext, Status


@block_scope
def GMPI_Issend(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> int:
    """Starts a send that is complete when its receive has begun (MPI 4.1 section 3.7.2).

    On a communicator that was registered with ``wildcards=False`` it is refused with
    ``gmpi.ERR_COMM``: the direct road has no synchronous sends.

    Args: as GMPI_Isend.

    Returns:
        The request (int64), as GMPI_Isend.
    """
    raise NotImplementedError


@block_scope
def GMPI_Ssend(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> Status:
    """GMPI_Issend and GMPI_Wait: blocks until the receive has begun (MPI 4.1 section 3.4).

    Args: as GMPI_Issend.

    Returns:
        Status, as GMPI_Send.
    """
    raise NotImplementedError


@block_scope
def GMPI_Request_get_status(ctx: DeviceContext, request: int) -> tuple[bool, Status]:
    """Looks once whether a request is complete, and leaves it open (MPI 4.1 section 3.7.6).

    Does not block; makes progress as GMPI_Test does, and takes as long. What a receive has brought
    is in its buffer, which is the user's again. The request must still be waited for, tested or
    freed; a persistent or partitioned one stays active until then.

    Args:
        request: of any kind but those of the grid; ``gmpi.REQUEST_NULL`` and inactive ones are
            complete, with an empty status.

    Returns:
        (whether it is complete, Status), the same in each later call, and in the wait.
    """
    raise NotImplementedError


@block_scope
def GMPI_Testany(ctx: DeviceContext, count: int, requests: Any) -> tuple[int, bool, Status]:
    """Looks once at requests, until one of them is found complete; closes it (MPI 4.1 section
    3.7.5).

    Does not block; each look is a read of host memory.

    Args:
        count: how many requests; ``gmpi.ERR_COUNT`` where the arrays have room for fewer.
        requests: int64[count], the same for all threads of the scope; the completed one is set to
            ``gmpi.REQUEST_NULL``, unless it is partitioned.

    Returns:
        (its index or -1, whether one was complete or all are null or inactive, Status).
    """
    raise NotImplementedError


@block_scope
def GMPI_Testall(
    ctx: DeviceContext, count: int, requests: Any, statuses: Buffer | None = None
) -> tuple[bool, int]:
    """Looks once whether all requests are complete, and if so closes them (MPI 4.1 section 3.7.5).

    Unlike MPI, an entry may change before all are complete: a request that is complete is replaced
    by one that is complete at once, with its error class, and its status is stored. Call it again
    with the same arrays, or GMPI_Waitall without statuses.

    Args:
        count: how many requests; ``gmpi.ERR_COUNT`` where the arrays have room for fewer.
        requests: int64[count] in one piece, in device, shared or local memory; in the end all are
            ``gmpi.REQUEST_NULL`` but for partitioned ones.
        statuses: array of ``gmpi.STATUS_DTYPE``[count] (or int64[count, 5]) in device memory, or
            nothing; each is filled in when its request is complete.

    Returns:
        (whether all are complete, the first error class in order of the requests). A persistent or
        partitioned request stays in the array: the call that finds it complete returns its error,
        also where others are not complete.
    """
    raise NotImplementedError


@block_scope
def GMPI_Testsome(
    ctx: DeviceContext, incount: int, requests: Any, indices: Any, statuses: Buffer | None = None
) -> tuple[int, int]:
    """Looks once at each request, and closes those that are complete (MPI 4.1 section 3.7.5).

    Args:
        incount: how many requests; ``gmpi.ERR_COUNT`` where the arrays have room for fewer.
        requests: int64[incount] in one piece, in device, shared or local memory; completed ones are
            set to ``gmpi.REQUEST_NULL``, unless they are partitioned.
        indices: int64[incount] in one piece, likewise: which ones were complete.
        statuses: array of ``gmpi.STATUS_DTYPE``[incount] (or int64[incount, 5]) in device memory,
            or nothing: one for each index.

    Returns:
        (how many were complete, ``gmpi.UNDEFINED`` if all are null or inactive; the first error
        class).
    """
    raise NotImplementedError


@block_scope
def GMPI_Waitsome(
    ctx: DeviceContext, incount: int, requests: Any, indices: Any, statuses: Buffer | None = None
) -> tuple[int, int]:
    """GMPI_Testsome until at least one is complete: blocks (MPI 4.1 section 3.7.5).

    Args: as GMPI_Testsome.

    Returns: as GMPI_Testsome; never 0.
    """
    raise NotImplementedError


GMPI_Issend_warp = warp_scope(GMPI_Issend)
GMPI_Ssend_warp = warp_scope(GMPI_Ssend)
GMPI_Request_get_status_warp = warp_scope(GMPI_Request_get_status)
GMPI_Testany_warp = warp_scope(GMPI_Testany)
GMPI_Testall_warp = warp_scope(GMPI_Testall)
GMPI_Testsome_warp = warp_scope(GMPI_Testsome)
GMPI_Waitsome_warp = warp_scope(GMPI_Waitsome)
