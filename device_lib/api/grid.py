"""GMPI_*_grid: all threads of all blocks of a grid make one call together.

Block 0 makes the call of the block scope, as a leader of its grid (``grid_scope.as_leader``): where
that moves a long message, all blocks do (``grid_sharing.share``). The other blocks wait for jobs,
and then for the result, which is the same in all. Where a request is opened on the direct road,
they do not wait at all: they know its handle.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.waiting import element_at
from device_lib.direct.grid_handles import handle_of_step, is_short, record
from device_lib.direct.grid_steps import leads
from device_lib.direct.grid_team import ERROR, HANDLE, make_block_team
from device_lib.direct.partitions import is_partitioned
from device_lib.platform.context import Status, may_go_direct
from device_lib.platform.grid_scope import as_leader, as_opener
from device_lib.platform.library import linked
from device_lib.platform.primitives import (
    buffer_of,
    describe,
    device,
    int64,
    is_private,
    load_8,
    store_8,
    sync_block,
)
from device_lib.proxied import slots
from gmpi.contract.channels import ROOM
from gmpi.contract.constants import DATATYPE_MARK, SUCCESS
from gmpi.contract.wire import REQUEST_NULL

_AT_ONCE = 2  # a request is opened while the other blocks go on
_SHORT = 1  # the leading block moves the message alone


@device
def _way_of_message(ctx, buf, count, datatype, peer, tag, comm):
    """Of a request: _AT_ONCE on the direct road, | _SHORT; 0: the others wait for its handle."""
    if not may_go_direct(ctx, int64(comm) << 16):
        return 0
    size = int64(datatype) >> 8 & 0xFF
    known = int64(datatype) & ~0xFFFF == DATATYPE_MARK and int64(count) <= ROOM
    return _AT_ONCE | _SHORT if known and int64(count) * size <= ROOM else _AT_ONCE


@device
def _way_of_collective(ctx, sendbuf, recvbuf, count, datatype, op, comm):
    return 0


@device
def _set_null(requests, index):
    """What the leader has done with a handle of its array, in an array of the calling block's own:
    it is set to REQUEST_NULL, unless it is partitioned."""
    address, room, strided = buffer_of(requests)
    if not is_private(requests, address):
        return
    at = address + index * 8
    if strided:
        at = element_at(describe(requests, address, room, strided), index, 8)
    if not is_partitioned(load_8(at)):
        store_8(at, REQUEST_NULL)


# long: a name for each
def make_grid_calls(block: SimpleNamespace) -> SimpleNamespace:
    """The GMPI_* functions of the grid scope.

    Args:
        block: what ``make_calls`` has returned for the block scope.
    """
    team = make_block_team(block.help_others)
    come, lead, release, serve = team.come, team.lead, team.release, team.serve
    block_wait, block_test = block.wait, block.test
    block_waitall, block_waitany = block.waitall, block.waitany

    @device
    def failed(error):
        return Status(int64(error), -1, -1, 0, 0)

    @device
    def served_handle(ctx):
        handle, b, c, d, e, f = serve(ctx, HANDLE)
        return handle

    @device
    def served_error(ctx):
        error, b, c, d, e, f = serve(ctx, ERROR)
        return error

    @device
    def served_status(ctx):
        """(Status, completed or index)."""
        error, source, tag, count, nbytes, more = serve(ctx, ERROR)
        return Status(error, source, tag, count, nbytes), more

    @device
    def release_status(ctx, status, more):
        """The Status, or that of an error with which the others leave."""
        error = release(
            ctx, int64(status.error), int64(status.source), int64(status.tag), int64(status.count),
            int64(status.nbytes), int64(more),
        )  # fmt: skip
        return status if error == SUCCESS else failed(error)

    @device
    def release_error(ctx, error):
        gave_up = release(ctx, int64(error), 0, 0, 0, 0, 0)
        return int64(error) if gave_up == SUCCESS else gave_up

    @device
    def left(ctx, way):
        """The handle of a request that the leader opens, for another block, which does not wait."""
        error, step = come(ctx, 1)
        if error != SUCCESS:
            return slots.error_handle(error)
        return handle_of_step(ctx, step, way & _SHORT)

    @device
    def opened(ctx, handle, way):
        """The handle for all blocks; the leader, which has opened a request."""
        sync_block()
        if way != 0:
            return handle_of_step(ctx, record(ctx, handle), way & _SHORT)
        error = release(ctx, handle, 0, 0, 0, 0, 0)
        return handle if error == SUCCESS else slots.error_handle(error)

    left_linked = linked("gmpi_grid_left", 4, 1, left)
    opened_linked = linked("gmpi_grid_opened", 5, 1, opened)

    # What block 0 and the others do in a call, by what it returns.

    def handle_of(block_call: Callable, way_of: Callable) -> Callable:
        @device
        def call(ctx, *arguments):
            way = way_of(ctx, *arguments)
            if not leads():
                return left_linked(ctx, way) if way != 0 else served_handle(ctx)
            error = lead(ctx, way, 1)
            handle = slots.error_handle(error)
            if error == SUCCESS:
                handle = opened_linked(ctx, block_call(as_opener(ctx), *arguments), way)
            return handle

        return call

    def error_of(block_call: Callable) -> Callable:
        @device
        def call(ctx, *arguments):
            if not leads():
                return served_error(ctx)
            error = lead(ctx, 0, 1)
            if error == SUCCESS:
                error = release_error(ctx, block_call(as_leader(ctx), *arguments))
            return error

        return call

    def status_of(block_call: Callable) -> Callable:
        @device
        def call(ctx, *arguments):
            if not leads():
                status, more = served_status(ctx)
                return status
            error = lead(ctx, 0, 1)
            status = failed(error)
            if error == SUCCESS:
                status = release_status(ctx, block_call(as_leader(ctx), *arguments), 0)
            return status

        return call

    # --- point to point ---------------------------------------------------------------------------
    # With MPI's names, by which kernels may pass arguments.

    isend_of_all = handle_of(block.isend, _way_of_message)
    irecv_of_all = handle_of(block.irecv, _way_of_message)
    send_of_all, recv_of_all = status_of(block.send), status_of(block.recv)
    sendrecv_of_all = status_of(block.sendrecv)

    @device
    def isend(ctx, buf, count, datatype, dest, tag, comm):
        return isend_of_all(ctx, buf, count, datatype, dest, tag, comm)

    @device
    def irecv(ctx, buf, count, datatype, source, tag, comm):
        return irecv_of_all(ctx, buf, count, datatype, source, tag, comm)

    @device
    def send(ctx, buf, count, datatype, dest, tag, comm):
        return send_of_all(ctx, buf, count, datatype, dest, tag, comm)

    @device
    def recv(ctx, buf, count, datatype, source, tag, comm):
        return recv_of_all(ctx, buf, count, datatype, source, tag, comm)

    # wide: as MPI's
    @device
    def sendrecv(
        ctx, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source,
        recvtag, comm,
    ):  # fmt: skip
        return sendrecv_of_all(
            ctx, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source,
            recvtag, comm,
        )  # fmt: skip

    # --- completion -------------------------------------------------------------------------------

    # A short message needs no more of the other blocks than that they came when it was opened. For
    # a long one there may be jobs, which only blocks do that have come: those that have not may
    # wait for something else, and go on with this request meanwhile.

    @device
    def leader_of(ctx, alone):
        return as_opener(ctx) if alone else as_leader(ctx)

    @device
    def wait(ctx, request):
        if not leads():
            status, more = served_status(ctx)
            return status
        alone = is_short(int64(request))
        error = lead(ctx, 0, 0 if alone else 1)
        status = failed(error)
        if error == SUCCESS:
            status = release_status(ctx, block_wait(leader_of(ctx, alone), request), 0)
        return status

    @device
    def test(ctx, request):
        if not leads():
            status, more = served_status(ctx)
            return more != 0, status
        alone = is_short(int64(request))
        error = lead(ctx, 0, 0 if alone else 1)
        completed = error != SUCCESS
        status = failed(error)
        if error == SUCCESS:
            completed, status = block_test(leader_of(ctx, alone), request)
            status = release_status(ctx, status, 1 if completed else 0)
        return completed, status

    @device
    def waitall(ctx, count, requests, statuses=None):
        if not leads():
            result = served_error(ctx)
            i = 0
            while i < count:
                _set_null(requests, i)
                i += 1
            return result
        result = lead(ctx, 0, 1)  # the array may be in memory of all blocks
        if result == SUCCESS:
            result = release_error(ctx, block_waitall(as_leader(ctx), count, requests, statuses))
        return result

    @device
    def waitany(ctx, count, requests):
        if not leads():
            status, index = served_status(ctx)
            if index >= 0:
                _set_null(requests, index)
            return index, status
        error = lead(ctx, 0, 1)
        index = int64(-1)
        status = failed(error)
        if error == SUCCESS:
            index, status = block_waitany(as_leader(ctx), count, requests)
            status = release_status(ctx, status, index)
        return index, status

    # --- collectives ------------------------------------------------------------------------------

    iallreduce_of_all = handle_of(block.iallreduce, _way_of_collective)
    synchronize_of_all = error_of(block.synchronize)
    allreduce_of_all, bcast_of_all = error_of(block.allreduce), error_of(block.bcast)
    allgather_of_all, alltoall_of_all = error_of(block.allgather), error_of(block.alltoall)
    barrier_of_all = error_of(block.barrier)

    @device
    def iallreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        return iallreduce_of_all(ctx, sendbuf, recvbuf, count, datatype, op, comm)

    @device
    def allreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        return allreduce_of_all(ctx, sendbuf, recvbuf, count, datatype, op, comm)

    @device
    def bcast(ctx, buf, count, datatype, root, comm):
        return bcast_of_all(ctx, buf, count, datatype, root, comm)

    @device
    def allgather(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm):
        return allgather_of_all(
            ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm
        )

    @device
    def alltoall(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm):
        return alltoall_of_all(
            ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm
        )

    @device
    def barrier(ctx, comm):
        return barrier_of_all(ctx, comm)

    @device
    def synchronize(ctx):
        return synchronize_of_all(ctx)

    return SimpleNamespace(
        isend=isend, irecv=irecv, send=send, recv=recv, sendrecv=sendrecv, wait=wait, test=test,
        waitall=waitall, waitany=waitany, iallreduce=iallreduce, allreduce=allreduce, bcast=bcast,
        allgather=allgather, alltoall=alltoall, barrier=barrier, synchronize=synchronize,
    )  # fmt: skip
