"""The names of partitioned requests that users import; see ``exports``.

They are calls of kernels. The requests are made here or by the host (``Context.Psend_init``,
``Precv_init``): it makes no difference to the other calls, nor to the other rank.
"""

from __future__ import annotations

from typing import Any

from device_lib.api.binding import Buffer, block_scope, warp_scope
from device_lib.platform.context import DeviceContext


@block_scope
def GMPI_Psend_init(
    ctx: DeviceContext,
    buf: Buffer,
    partitions: int,
    count: int,
    datatype: int,
    dest: int,
    tag: int,
    comm: int,
) -> int:
    """Makes a partitioned send (MPI 4.1 section 4.2.1), as ``Context.Psend_init`` does on the host.

    Local: waits for this rank's proxy, some 10 microseconds or more, and not for the receiver.
    Sends and receives are matched in the order in which a rank makes them; between blocks there is
    none. Nothing keeps the array: it must live until the request is freed.

    Args:
        buf: an array in one piece in device memory, or an address, whose length is not checked.
            Whether it is registered is looked up by its address.
        partitions: 1 or more; the receiver may have another number of them.
        count: elements of ``datatype`` in one partition.

    Returns:
        The request (int64), for all scopes of this kernel, and for kernels that are launched later.
        It stays until GMPI_Request_free or ``Context.Request_free``. Where it was refused, which
        the host reports, waiting for it gives the error class: ``gmpi.GMPI_ERR_NO_RESOURCE`` where
        there is no room for one more request, or no staging for a long receive.
    """
    raise NotImplementedError


@block_scope
def GMPI_Precv_init(
    ctx: DeviceContext,
    buf: Buffer,
    partitions: int,
    count: int,
    datatype: int,
    source: int,
    tag: int,
    comm: int,
) -> int:
    """Makes a partitioned receive (MPI 4.1 section 4.2.1), as ``Context.Precv_init``.

    Args: as GMPI_Psend_init; ``source`` is a rank or ``gmpi.PROC_NULL``, and there are no
        wildcards. More than 2 MiB go into registered memory (``Context.empty``,
        ``Context.register``), or into staging of a request that the host has freed: none can be
        allocated while a kernel runs.

    Returns:
        The request, as GMPI_Psend_init.
    """
    raise NotImplementedError


@block_scope
def GMPI_Request_free(ctx: DeviceContext, request: int) -> int:
    """Frees a request, which needs no wait any more (MPI 4.1 section 3.7.3).

    A send or a receive that is open goes on. Its buffer is the user's again, and what comes is in
    it, when a GMPI_Synchronize that is called later has returned, or Context.synchronize, or when
    the context has closed. A persistent or partitioned request must not be active. No other scope
    may use the request meanwhile. Waits for this rank's proxy, except for messages of the direct
    road and persistent requests.

    Args:
        request: of GMPI_Isend and the like, or GMPI_Irecv; or of GMPI_Send_init and the like, or
            of GMPI_Psend_init or GMPI_Precv_init, here or of the host. Set what has kept it to
            ``gmpi.REQUEST_NULL``: it is the kernel's own copy.

    Returns:
        Error class: ``gmpi.ERR_REQUEST`` where it is of a nonblocking collective, is active, was
        completed or freed before, or is no request; that of the call which was refused and has
        returned this request.
    """
    raise NotImplementedError


@block_scope
def GMPI_Start(ctx: DeviceContext, request: int) -> int:
    """Begins the next round of a persistent or partitioned request (MPI 4.1 sections 3.9, 4.2.2).

    Called once a round, by one scope; what others do with the request in this round comes after it.

    Args:
        request: of GMPI_Send_init and the like, or of GMPI_Psend_init or GMPI_Precv_init, here or
            of the host; inactive.

    Returns:
        Error class: ``gmpi.ERR_REQUEST`` where it is active, or no such request.
    """
    raise NotImplementedError


@block_scope
def GMPI_Startall(ctx: DeviceContext, count: int, requests: Any) -> int:
    """GMPI_Start for each of several requests (MPI 4.1 section 3.9).

    Args:
        count: how many requests; ``gmpi.ERR_COUNT`` where the arrays have room for fewer.
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
        partition: 0 .. partitions - 1. What the threads of the scope wrote to it is sent.
        request: of a send.

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
def GMPI_Pready_list(
    ctx: DeviceContext, length: int, array_of_partitions: Any, request: int
) -> int:
    """GMPI_Pready for several partitions, in any order (MPI 4.1 section 4.2.3).

    Args:
        length: how many; ``gmpi.ERR_COUNT`` where the list has fewer.
        array_of_partitions: int32[length] or int64[length] in device, shared or local memory, or a
            constant.
        request: as GMPI_Pready.

    Returns:
        ``gmpi.SUCCESS``, or the first error class, as GMPI_Pready; all others are ready.
    """
    raise NotImplementedError


@block_scope
def GMPI_Parrived(ctx: DeviceContext, request: int, partition: int) -> bool:
    """Whether a partition of a started receive has come, and is in the buffer (MPI 4.1 section
    4.2.4).

    Any block or warp may call it. Where it is True, the threads of the scope see the partition.
    Does not block, but looks for some microseconds.

    Args:
        request: of a receive. Where it is inactive, the answer is True.
        partition: 0 .. partitions - 1.

    Returns:
        True also where it is refused, which the host reports, and where waits have been aborted: a
        loop that waits for it ends.
    """
    raise NotImplementedError


GMPI_Psend_init_warp = warp_scope(GMPI_Psend_init)
GMPI_Precv_init_warp = warp_scope(GMPI_Precv_init)
GMPI_Request_free_warp = warp_scope(GMPI_Request_free)
GMPI_Start_warp = warp_scope(GMPI_Start)
GMPI_Startall_warp = warp_scope(GMPI_Startall)
GMPI_Pready_warp = warp_scope(GMPI_Pready)
GMPI_Pready_range_warp = warp_scope(GMPI_Pready_range)
GMPI_Pready_list_warp = warp_scope(GMPI_Pready_list)
GMPI_Parrived_warp = warp_scope(GMPI_Parrived)
