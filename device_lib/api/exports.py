"""The names users import: what each call takes, does and returns, bound to its code (``calls``).

Every function is declared once, with types and text for ``help()`` and editors, and never run:
``block_scope`` puts the compiled function of the block scope in its place, ``warp_scope`` the one
of the warp scope under its own name.

**Scope.** ``GMPI_Name`` is called by all threads of a *block*, ``GMPI_Name_warp`` by all threads of
a *warp*, ``GMPI_Name_grid`` by all threads of all blocks of a launch (``exports_grid``): together,
not in a branch that some of them do not take, and with equal arguments. The call is executed once.
Results are the same in all of its threads.

**Memory.** What the threads of the scope stored in a buffer before the call is what is sent; what
was received is visible to all of them when the wait returns. Between blocks, ordinary CUDA rules
apply (``grid.sync()``, fences and flags).

**Order.** Calls of one block, or of one warp, reach MPI in program order, so its messages do not
overtake each other (MPI 4.1 section 3.5). Between blocks there is no order: use different tags.

**Errors** are values. A call that was refused still returns a request; waiting for it returns a
status whose ``error`` is not ``gmpi.SUCCESS``. The host raises the first one when it synchronizes.
"""

from __future__ import annotations

from typing import Any

from device_lib.api.binding import Buffer, any_thread, block_scope, not_blocking, warp_scope
from device_lib.platform.context import DeviceContext, Status

# --- point to point -------------------------------------------------------------------------------


@block_scope
def GMPI_Isend(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> int:
    """Starts a send and returns at once (MPI 4.1 section 3.7.2).

    Args:
        buf: what to send; must stay unchanged until the request is complete.
        count: elements of ``datatype``, 0 or more; the array must hold as many.

    Returns:
        The request (int64), for exactly one GMPI_Wait, Waitall, or successful Waitany or Test.
        Messages above ``eager_bytes`` move on while threads of this grid wait for any request.
    """
    raise NotImplementedError


@block_scope
def GMPI_Irecv(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, source: int, tag: int, comm: int
) -> int:
    """Starts a receive and returns at once (MPI 4.1 section 3.7.2).

    Args:
        buf: where to; must not be read or written until the request is complete.
        count: room for how many elements of ``datatype``; a longer message ends with
            ``gmpi.ERR_TRUNCATE`` and the bytes that fit.
        source: rank in ``comm``, ``gmpi.ANY_SOURCE`` or ``gmpi.PROC_NULL``.
        tag: 0 .. MPI_TAG_UB, or ``gmpi.ANY_TAG``.

    Returns:
        The request (int64), for exactly one GMPI_Wait, Waitall, or successful Waitany or Test.
        Messages above ``eager_bytes`` move on while threads of this grid wait for any request.
    """
    raise NotImplementedError


@block_scope
def GMPI_Send(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, dest: int, tag: int, comm: int
) -> Status:
    """GMPI_Isend and GMPI_Wait: blocks until ``buf`` may be reused (MPI 4.1 section 3.2.1).

    Args: as GMPI_Isend.

    Returns:
        Status; of a send only ``error`` and ``nbytes`` mean anything.
    """
    raise NotImplementedError


@block_scope
def GMPI_Recv(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, source: int, tag: int, comm: int
) -> Status:
    """GMPI_Irecv and GMPI_Wait: blocks until the message is in ``buf`` (MPI 4.1 section 3.2.4).

    Args: as GMPI_Irecv.

    Returns:
        Status: ``error``, ``source``, ``tag``, ``count`` in elements, ``nbytes``.
    """
    raise NotImplementedError


# wide: as MPI's
@block_scope
def GMPI_Sendrecv(
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
) -> Status:
    """Sends and receives at the same time; blocks until both are done (MPI 4.1 section 3.10).

    Args: as GMPI_Isend and GMPI_Irecv. ``sendbuf`` and ``recvbuf`` must not overlap.

    Returns:
        Status of the receive; its ``error`` is that of the send when only the send failed. Where
        the send is refused the receive is waited for all the same: its message may be under way.
    """
    raise NotImplementedError


# --- completion -----------------------------------------------------------------------------------


@block_scope
def GMPI_Wait(ctx: DeviceContext, request: int) -> Status:
    """Blocks until a request is complete, and closes it (MPI 4.1 section 3.7.3).

    Args:
        request: what the call that started the operation returned; ``gmpi.REQUEST_NULL`` returns
            an empty status at once. Any scope of the same context may wait for it, once. A
            partitioned request is complete with all its partitions. It stays yours, inactive.

    Returns:
        Status. ``error`` is ``gmpi.ERR_REQUEST`` for a request that is not open, and
        ``gmpi.GMPI_ERR_ABORTED`` when the host has ended all waits.
    """
    raise NotImplementedError


@block_scope
def GMPI_Waitall(
    ctx: DeviceContext, count: int, requests: Any, statuses: Buffer | None = None
) -> int:
    """Blocks until all requests are complete, and closes them (MPI 4.1 section 3.7.5).

    Polls up to 32 requests in one read of host memory: faster than one GMPI_Wait for each.

    Args:
        count: how many requests; ``gmpi.ERR_COUNT`` where the arrays have room for fewer.
        requests: int64[count] in device, shared or local memory, set to ``gmpi.REQUEST_NULL``
            except where they are partitioned; or a tuple of requests.
        statuses: array of ``gmpi.STATUS_DTYPE``[count] (or int64[count, 5]) in device memory, or
            nothing.

    Returns:
        ``gmpi.SUCCESS``, or the first error class in order of the requests.
    """
    raise NotImplementedError


@block_scope
def GMPI_Waitany(ctx: DeviceContext, count: int, requests: Any) -> tuple[int, Status]:
    """Blocks until one of the requests is complete, and closes it (MPI 4.1 section 3.7.5).

    Polls up to 32 requests in one read of host memory, more in turns.

    Args:
        count: how many requests; ``gmpi.ERR_COUNT`` where the arrays have room for fewer.
        requests: int64[count], the same for all threads of the scope; the completed one is set to
            ``gmpi.REQUEST_NULL``, unless it is partitioned.

    Returns:
        (its index, Status); (-1, an empty status) when all are ``gmpi.REQUEST_NULL`` or inactive.
    """
    raise NotImplementedError


@block_scope
def GMPI_Test(ctx: DeviceContext, request: int) -> tuple[bool, Status]:
    """Looks once whether a request is complete, and if so closes it (MPI 4.1 section 3.7.3).

    Does not block, but takes a read of host memory: a PCIe round trip.

    Returns:
        (whether it is complete, Status); do not use the request again after True.
    """
    raise NotImplementedError


# --- collectives: all ranks of the communicator, in the same order --------------------------------


@block_scope
def GMPI_Allreduce(
    ctx: DeviceContext,
    sendbuf: Buffer,
    recvbuf: Buffer,
    count: int,
    datatype: int,
    op: int,
    comm: int,
) -> int:
    """Reduces ``count`` elements over all ranks; blocks (MPI 4.1 section 6.9.6).

    One scope per rank calls it: it does not reduce over the threads of the scope.

    Args:
        sendbuf: this rank's elements, or ``gmpi.IN_PLACE`` to take them from ``recvbuf``.
        recvbuf: the result, on every rank.
        count: elements of ``datatype``, equal on all ranks.
        datatype: a constant such as ``gmpi.DOUBLE``, equal on all ranks.
        op: gmpi.SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR or BXOR; of pairs MINLOC or MAXLOC;
            or a number of Context.op().
    """
    raise NotImplementedError


GMPI_Iallreduce = not_blocking(GMPI_Allreduce)


@block_scope
def GMPI_Bcast(
    ctx: DeviceContext, buf: Buffer, count: int, datatype: int, root: int, comm: int
) -> int:
    """Sends the root's elements to all other ranks; blocks (MPI 4.1 section 6.4).

    Args:
        buf: what to send at the root, where to elsewhere.
        count: elements of ``datatype``, equal on all ranks.
        datatype: a constant such as ``gmpi.DOUBLE``, or a handle of ``Context.commit()``.
    """
    raise NotImplementedError


@block_scope
def GMPI_Barrier(ctx: DeviceContext, comm: int) -> int:
    """Blocks until all ranks have called it (MPI 4.1 section 6.3).

    One scope per rank calls it: it is no barrier of the grid.
    """
    raise NotImplementedError


# --- this context ---------------------------------------------------------------------------------


@block_scope
def GMPI_Synchronize(ctx: DeviceContext) -> int:
    """Blocks until every request that this rank opened before it, in any block, is complete.

    The requests stay open: each must still be waited for (GMPI paper, table 1).
    """
    raise NotImplementedError


@any_thread
def GMPI_Comm_rank(ctx: DeviceContext, comm: int) -> int:
    """Rank of this process in ``comm``; -1 for a handle that does not exist (MPI 4.1 7.4.1)."""
    raise NotImplementedError


@any_thread
def GMPI_Comm_size(ctx: DeviceContext, comm: int) -> int:
    """Number of processes in ``comm``; 0 for a handle that does not exist (MPI 4.1 7.4.1)."""
    raise NotImplementedError


GMPI_Isend_warp = warp_scope(GMPI_Isend)
GMPI_Irecv_warp = warp_scope(GMPI_Irecv)
GMPI_Send_warp = warp_scope(GMPI_Send)
GMPI_Recv_warp = warp_scope(GMPI_Recv)
GMPI_Sendrecv_warp = warp_scope(GMPI_Sendrecv)
GMPI_Wait_warp = warp_scope(GMPI_Wait)
GMPI_Waitall_warp = warp_scope(GMPI_Waitall)
GMPI_Waitany_warp = warp_scope(GMPI_Waitany)
GMPI_Test_warp = warp_scope(GMPI_Test)
GMPI_Allreduce_warp = warp_scope(GMPI_Allreduce)
GMPI_Iallreduce_warp = warp_scope(GMPI_Iallreduce)
GMPI_Bcast_warp = warp_scope(GMPI_Bcast)
GMPI_Barrier_warp = warp_scope(GMPI_Barrier)
GMPI_Synchronize_warp = warp_scope(GMPI_Synchronize)
