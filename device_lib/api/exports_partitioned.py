"""The names of partitioned requests that users import; see ``exports``.

They are calls of kernels. The host makes the requests: ``Context.Psend_init``, ``Precv_init``.
"""

from __future__ import annotations

from typing import Any

from device_lib.api.exports import block_scope, warp_scope
from device_lib.platform.context import DeviceContext


@block_scope
def GMPI_Start(ctx: DeviceContext, request: int) -> int:
    """Begins the next round of a partitioned request (MPI 4.1 section 4.2.2).

    Called once a round, by one scope; what others do with the request in this round comes after it.

    Args:
        ctx: ``Context.device``, passed to the kernel.
        request: what ``Context.Psend_init`` or ``Context.Precv_init`` returned; inactive.

    Returns:
        Error class: ``gmpi.ERR_REQUEST`` where it is active, or no such request.
    """
    raise NotImplementedError


@block_scope
def GMPI_Startall(ctx: DeviceContext, count: int, requests: Any) -> int:
    """GMPI_Start for each of several requests (MPI 4.1 section 3.9).

    Args:
        ctx: ``Context.device``, passed to the kernel.
        count: how many requests.
        requests: int64[count] in device, shared or local memory, in one piece; or a tuple.

    Returns:
        ``gmpi.SUCCESS``, or the first error class.
    """
    raise NotImplementedError


@block_scope
def GMPI_Pready(ctx: DeviceContext, partition: int, request: int) -> int:
    """Says that a partition of a started send may be sent (MPI 4.1 section 4.2.3).

    Any block or warp may call it, for each partition once a round. It does not wait for the
    receiver.

    Args:
        ctx: ``Context.device``, passed to the kernel.
        partition: 0 .. partitions - 1. What the threads of the scope wrote to it is sent.
        request: of ``Context.Psend_init``.

    Returns:
        Error class: ``gmpi.ERR_ARG`` for a partition that does not exist, or is ready already;
        ``gmpi.ERR_REQUEST`` for a request that has not been started.
    """
    raise NotImplementedError


@block_scope
def GMPI_Pready_range(
    ctx: DeviceContext, partition_low: int, partition_high: int, request: int
) -> int:
    """GMPI_Pready for all partitions from one to another, which is included.

    Args: as GMPI_Pready.

    Returns:
        Error class, as GMPI_Pready.
    """
    raise NotImplementedError


@block_scope
def GMPI_Parrived(ctx: DeviceContext, request: int, partition: int) -> bool:
    """Whether a partition of a started receive has come, and is in the buffer (MPI 4.1 section
    4.2.4).

    Any block or warp may call it. Where it is True, the threads of the scope see the partition.
    Does not block, but looks for some microseconds.

    Args:
        ctx: ``Context.device``, passed to the kernel.
        request: of ``Context.Precv_init``. Where it is inactive, the answer is True.
        partition: 0 .. partitions - 1.

    Returns:
        True also where it is refused, which the host reports, and where waits have been aborted: a
        loop that waits for it ends.
    """
    raise NotImplementedError


GMPI_Start_warp = warp_scope(GMPI_Start)
GMPI_Startall_warp = warp_scope(GMPI_Startall)
GMPI_Pready_warp = warp_scope(GMPI_Pready)
GMPI_Pready_range_warp = warp_scope(GMPI_Pready_range)
GMPI_Parrived_warp = warp_scope(GMPI_Parrived)
