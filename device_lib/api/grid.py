"""GMPI_*_grid: all threads of all blocks of a grid make one call together.

Block 0 makes the call of the block scope, as a leader of its grid (``context.as_leader``): where
that moves a long message, all blocks do (``grid.team.share``). The other blocks wait for jobs, and
then for the result, which is the same in all.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.finishing import failed_status
from device_lib.api.lists import WORD, elements_of
from device_lib.direct.grid_commands import leads
from device_lib.direct.grid_team import ERROR, HANDLE, make_team
from device_lib.move.message import element_at
from device_lib.platform import primitives as gpu
from device_lib.platform.context import Status, as_leader
from device_lib.platform.primitives import device, int64
from device_lib.proxied import slots
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import REQUEST_NULL


@device
def _set_null(requests, index):
    """What the leader has done with a handle of its array, in an array of the calling block's own:
    it is set to REQUEST_NULL, unless it is partitioned."""
    address, room, strided = gpu.buffer_of(requests)
    if not gpu.is_private(requests, address):
        return
    at = address + index * 8
    if strided:
        at = element_at(gpu.describe(requests, address, room, strided), index, 8)
    if not slots.is_partitioned(gpu.load_8(at)):
        gpu.store_8(at, REQUEST_NULL)


def make_grid_calls(block: SimpleNamespace) -> SimpleNamespace:
    """The GMPI_* functions of the grid scope.

    Args:
        block: what ``make_calls`` has returned for the block scope.
    """
    team = make_team()
    gather, release, serve = team.gather, team.release, team.serve
    block_test, block_waitall, block_waitany = block.test, block.waitall, block.waitany

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
        return release(
            ctx, int64(status.error), int64(status.source), int64(status.tag), int64(status.count),
            int64(status.nbytes), int64(more),
        )  # fmt: skip

    @device
    def release_word(ctx, word):
        return release(ctx, int64(word), 0, 0, 0, 0, 0)

    # What block 0 and the others do in a call, by what it returns.

    def handle_of(block_call: Callable, gather: Callable, release: Callable) -> Callable:
        @device
        def call(ctx, *arguments):
            if not leads():
                return served_handle(ctx)
            error = gather(ctx)
            handle = int64(0)
            if error == SUCCESS:
                handle = block_call(as_leader(ctx), *arguments)
                error = release(ctx, handle)
            return handle if error == SUCCESS else slots.error_handle(error)

        return call

    def error_of(block_call: Callable) -> Callable:
        @device
        def call(ctx, *arguments):
            if not leads():
                return served_error(ctx)
            error = gather(ctx)
            if error == SUCCESS:
                error = block_call(as_leader(ctx), *arguments)
                release_word(ctx, error)
            return error

        return call

    def status_of(block_call: Callable, gather: Callable = gather) -> Callable:
        @device
        def call(ctx, *arguments):
            if not leads():
                status, more = served_status(ctx)
                return status
            error = gather(ctx)
            status = failed_status(error)
            if error == SUCCESS:
                status = block_call(as_leader(ctx), *arguments)
                error = release_status(ctx, status, 0)
            return status if error == SUCCESS else failed_status(error)

        return call

    # --- point to point ---------------------------------------------------------------------------
    # With MPI's names, by which kernels may pass arguments.

    beside = team.gather_beside
    isend_of_all = handle_of(block.isend, beside, team.release_handle)
    irecv_of_all = handle_of(block.irecv, beside, team.release_handle)
    send_of_all, recv_of_all = status_of(block.send, beside), status_of(block.recv, beside)
    sendrecv_of_all, wait_of_all = status_of(block.sendrecv, beside), status_of(block.wait)

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

    @device
    def wait(ctx, request):
        return wait_of_all(ctx, request)

    @device
    def test(ctx, request):
        if not leads():
            status, more = served_status(ctx)
            return more != 0, status
        error = gather(ctx)
        completed = error != SUCCESS
        status = failed_status(error)
        if error == SUCCESS:
            completed, status = block_test(as_leader(ctx), request)
            release_status(ctx, status, 1 if completed else 0)
        return completed, status

    @device
    def waitall(ctx, count, requests, statuses=None):
        if not leads():
            result = served_error(ctx)
            end = min(int64(count), elements_of(requests, WORD))  # more was refused
            i = 0
            while i < end:
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
        status = failed_status(error)
        if error == SUCCESS:
            index, status = block_waitany(as_leader(ctx), count, requests)
            release_status(ctx, status, index)
        return index, status

    # --- collectives ------------------------------------------------------------------------------

    iallreduce_of_all = handle_of(block.iallreduce, gather, release_word)
    allreduce_of_all, bcast_of_all = error_of(block.allreduce), error_of(block.bcast)
    allgather_of_all, alltoall_of_all = error_of(block.allgather), error_of(block.alltoall)
    barrier_of_all, synchronize_of_all = error_of(block.barrier), error_of(block.synchronize)

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
