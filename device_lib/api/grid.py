"""GMPI_*_grid: all threads of all blocks of a grid make one call together.

Block 0 makes the call of the block scope, as a leader of its grid (``context.as_leader``): where
that moves a long message, all blocks do (``grid.team.share``). The other blocks wait for jobs, and
then for the result, which is the same in all.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.api.waiting import element_at
from device_lib.direct.grid_team import ERROR, HANDLE, leads, make_block_team
from device_lib.direct.partitions import is_partitioned
from device_lib.platform.context import Status, as_leader
from device_lib.platform.primitives import (
    buffer_of,
    describe,
    device,
    int64,
    is_private,
    load_8,
    store_8,
)
from device_lib.proxied import slots
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import REQUEST_NULL


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


def make_grid_calls(block: SimpleNamespace) -> SimpleNamespace:
    """The GMPI_* functions of the grid scope.

    Args:
        block: what ``make_calls`` has returned for the block scope.
    """
    team = make_block_team(block.help_others)
    gather, release, serve = team.gather, team.release, team.serve
    block_isend, block_irecv, block_iallreduce = block.isend, block.irecv, block.iallreduce
    block_wait, block_test, block_send, block_recv = block.wait, block.test, block.send, block.recv
    block_sendrecv, block_waitall, block_waitany = block.sendrecv, block.waitall, block.waitany
    block_allreduce, block_bcast, block_barrier = block.allreduce, block.bcast, block.barrier

    block_synchronize = block.synchronize

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
        release(
            ctx, int64(status.error), int64(status.source), int64(status.tag), int64(status.count),
            int64(status.nbytes), int64(more),
        )  # fmt: skip

    @device
    def release_word(ctx, word):
        release(ctx, int64(word), 0, 0, 0, 0, 0)

    # --- point to point ---------------------------------------------------------------------------

    @device
    def isend(ctx, buf, count, datatype, dest, tag, comm):
        if not leads():
            return served_handle(ctx)
        error = gather(ctx)
        handle = slots.error_handle(error)
        if error == SUCCESS:
            handle = block_isend(as_leader(ctx), buf, count, datatype, dest, tag, comm)
            release_word(ctx, handle)
        return handle

    @device
    def irecv(ctx, buf, count, datatype, source, tag, comm):
        if not leads():
            return served_handle(ctx)
        error = gather(ctx)
        handle = slots.error_handle(error)
        if error == SUCCESS:
            handle = block_irecv(as_leader(ctx), buf, count, datatype, source, tag, comm)
            release_word(ctx, handle)
        return handle

    @device
    def send(ctx, buf, count, datatype, dest, tag, comm):
        if not leads():
            status, more = served_status(ctx)
            return status
        error = gather(ctx)
        status = failed(error)
        if error == SUCCESS:
            status = block_send(as_leader(ctx), buf, count, datatype, dest, tag, comm)
            release_status(ctx, status, 0)
        return status

    @device
    def recv(ctx, buf, count, datatype, source, tag, comm):
        if not leads():
            status, more = served_status(ctx)
            return status
        error = gather(ctx)
        status = failed(error)
        if error == SUCCESS:
            status = block_recv(as_leader(ctx), buf, count, datatype, source, tag, comm)
            release_status(ctx, status, 0)
        return status

    # wide: as MPI's
    @device
    def sendrecv(
        ctx, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source,
        recvtag, comm,
    ):  # fmt: skip
        if not leads():
            status, more = served_status(ctx)
            return status
        error = gather(ctx)
        status = failed(error)
        if error == SUCCESS:
            status = block_sendrecv(
                as_leader(ctx), sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                recvtype, source, recvtag, comm,
            )  # fmt: skip
            release_status(ctx, status, 0)
        return status

    # --- completion -------------------------------------------------------------------------------

    @device
    def wait(ctx, request):
        if not leads():
            status, more = served_status(ctx)
            return status
        error = gather(ctx)
        status = failed(error)
        if error == SUCCESS:
            status = block_wait(as_leader(ctx), request)
            release_status(ctx, status, 0)
        return status

    @device
    def test(ctx, request):
        if not leads():
            status, more = served_status(ctx)
            return more != 0, status
        error = gather(ctx)
        completed = error != SUCCESS
        status = failed(error)
        if error == SUCCESS:
            completed, status = block_test(as_leader(ctx), request)
            release_status(ctx, status, 1 if completed else 0)
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
        result = gather(ctx)
        if result == SUCCESS:
            result = block_waitall(as_leader(ctx), count, requests, statuses)
            release_word(ctx, result)
        return result

    @device
    def waitany(ctx, count, requests):
        if not leads():
            status, index = served_status(ctx)
            if index >= 0:
                _set_null(requests, index)
            return index, status
        error = gather(ctx)
        index = int64(-1)
        status = failed(error)
        if error == SUCCESS:
            index, status = block_waitany(as_leader(ctx), count, requests)
            release_status(ctx, status, index)
        return index, status

    # --- collectives ------------------------------------------------------------------------------

    @device
    def iallreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        if not leads():
            return served_handle(ctx)
        error = gather(ctx)
        handle = slots.error_handle(error)
        if error == SUCCESS:
            handle = block_iallreduce(as_leader(ctx), sendbuf, recvbuf, count, datatype, op, comm)
            release_word(ctx, handle)
        return handle

    @device
    def allreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        if not leads():
            return served_error(ctx)
        error = gather(ctx)
        if error == SUCCESS:
            error = block_allreduce(as_leader(ctx), sendbuf, recvbuf, count, datatype, op, comm)
            release_word(ctx, error)
        return error

    @device
    def bcast(ctx, buf, count, datatype, root, comm):
        if not leads():
            return served_error(ctx)
        error = gather(ctx)
        if error == SUCCESS:
            error = block_bcast(as_leader(ctx), buf, count, datatype, root, comm)
            release_word(ctx, error)
        return error

    @device
    def barrier(ctx, comm):
        if not leads():
            return served_error(ctx)
        error = gather(ctx)
        if error == SUCCESS:
            error = block_barrier(as_leader(ctx), comm)
            release_word(ctx, error)
        return error

    @device
    def synchronize(ctx):
        if not leads():
            return served_error(ctx)
        error = gather(ctx)
        if error == SUCCESS:
            error = block_synchronize(as_leader(ctx))
            release_word(ctx, error)
        return error

    return SimpleNamespace(
        isend=isend, irecv=irecv, send=send, recv=recv, sendrecv=sendrecv, wait=wait, test=test,
        waitall=waitall, waitany=waitany, iallreduce=iallreduce, allreduce=allreduce, bcast=bcast,
        barrier=barrier, synchronize=synchronize,
    )  # fmt: skip
