"""The GMPI_* device functions, made for every scope.

``make_calls(scope)`` returns the functions of one scope; ``gmpi`` exports those of the block scope
under MPI's names and those of the warp scope with ``_warp`` appended. Each one says what MPI's
arguments mean for the record and hands over to the three functions that do the work, which are
compiled apart (``library``): open, finish, finish_all.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.closing import (
    COMPLETED,
    FAULT,
    ORDERED,
    RESUMED,
    STAGED,
    make_carry_out,
    make_finish,
    make_report,
    make_unpack,
)
from device_lib.closing_all import make_finish_all
from device_lib.context import Status, all_slots, eager_bytes, world_rank, world_size
from device_lib.library import linked
from device_lib.message import inspect, inspect_reduction, message_bytes
from device_lib.opening import make_open
from device_lib.primitives import buffer_of, device, lane_id, load_sys
from device_lib.ring import post
from device_lib.slots import error_handle
from device_lib.scope import Scope, warp_lanes, warp_mask
from gmpi.constants import COMM_WORLD, GMPI_ERR_NO_RESOURCE, PROC_NULL, SUCCESS
from gmpi.wire import (
    BYTES_MASK,
    COMMUNICATOR_BYTES,
    COMMUNICATORS,
    ERROR_SHIFT,
    INLINE_BYTES,
    MAPPED_COMMUNICATORS,
    OP_ALLREDUCE,
    OP_BARRIER,
    OP_BCAST,
    OP_IRECV,
    OP_ISEND,
    OP_NULL,
    OP_PING,
    OP_SYNCHRONIZE,
    OP_WAIT,
    REQUEST_NULL,
    TAG_MASK,
)


@device
def _sign32(value):
    """The low 32 bits as a signed number."""
    return ((value & TAG_MASK) ^ 0x80000000) - 0x80000000


@device
def _word0(op, flags, comm, datatype):
    """Low word of a record's first unit; a handle that does not fit its field becomes invalid."""
    if comm < 0 or comm >= COMMUNICATORS:
        comm = 0xFFFF
    if datatype < 0 or datatype > TAG_MASK:
        datatype = TAG_MASK
    return op | flags << 8 | comm << 16 | datatype << 32


@device
def _status(outcome, count, origin):
    return Status(
        outcome >> ERROR_SHIFT & 0xFF,
        _sign32(origin),
        _sign32(origin >> 32),
        _sign32(count),
        outcome & BYTES_MASK,
    )


@device
def _communicator_word(ctx, comm):
    if comm < 0 or comm >= COMMUNICATORS:
        return 0xFFFFFFFF  # rank -1, size 0
    return load_sys(ctx.mapped + MAPPED_COMMUNICATORS + comm * COMMUNICATOR_BYTES)


@device
def comm_rank(ctx, comm):
    """Rank of this process in the communicator (any thread; MPI 4.1 section 7.4.1)."""
    if comm == COMM_WORLD:
        return world_rank(ctx)
    return _sign32(_communicator_word(ctx, comm))


@device
def comm_size(ctx, comm):
    """Number of processes in the communicator (any thread; MPI 4.1 section 7.4.1)."""
    if comm == COMM_WORLD:
        return world_size(ctx)
    return _sign32(_communicator_word(ctx, comm) >> 32)


def make_calls(scope: Scope) -> SimpleNamespace:
    """All GMPI_* functions for one scope."""
    inline, staged = make_open(scope)
    open_inline = linked(f"gmpi_open_inline_{scope.name}", 9, 1, inline, context=True)
    open_staged = linked(f"gmpi_open_staged_{scope.name}", 9, 1, staged, context=True)
    finish = linked(f"gmpi_finish_{scope.name}", 2, 3, make_finish(scope), context=True)
    unpack = linked(f"gmpi_unpack_{scope.name}", 2, 1, make_unpack(scope), context=True)
    report = linked(f"gmpi_report_{scope.name}", 3, 1, make_report(scope), context=True)
    carry_out = linked(f"gmpi_carry_out_{scope.name}", 3, 1, make_carry_out(scope), context=True)
    everything = make_finish_all(scope, carry_out)
    finish_all = linked(f"gmpi_finish_all_{scope.name}", 3, 1, everything, context=True)
    leads = scope.leads

    @device
    def open_request(ctx, word0, peer, count, tag, reduction, send, out, recv, back):
        handle = 0
        if out <= INLINE_BYTES and back <= eager_bytes(ctx):
            handle = open_inline(ctx, word0, peer, count, tag, reduction, send, out, recv, back)
        else:
            handle = open_staged(ctx, word0, peer, count, tag, reduction, send, out, recv, back)
        if handle == error_handle(GMPI_ERR_NO_RESOURCE):
            report(ctx, word0 & 0xFF, all_slots(ctx), GMPI_ERR_NO_RESOURCE)
        return handle

    # --- point to point (MPI 4.1 chapter 3) -----------------------------------------------------

    @device
    def isend(ctx, buf, count, datatype, dest, tag, comm):
        nbytes = message_bytes(count, datatype)
        if dest == PROC_NULL:
            nbytes = 0
        address, nbytes, flaws = inspect(ctx, buf, nbytes)
        word0 = _word0(OP_ISEND, flaws, comm, datatype)
        return open_request(ctx, word0, dest, count, tag, 0, address, nbytes, 0, 0)

    @device
    def irecv(ctx, buf, count, datatype, source, tag, comm):
        nbytes = message_bytes(count, datatype)
        if source == PROC_NULL:
            nbytes = 0
        address, nbytes, flaws = inspect(ctx, buf, nbytes)
        word0 = _word0(OP_IRECV, flaws, comm, datatype)
        return open_request(ctx, word0, source, count, tag, 0, 0, 0, address, nbytes)

    @device
    def complete(ctx, request, patience):
        outcome, count, origin = finish(ctx, request, patience)
        while outcome & ORDERED != 0:
            carry_out(ctx, outcome, origin, count)
            outcome, count, origin = finish(ctx, request, patience | RESUMED)
        if outcome & STAGED != 0:
            unpack(ctx, request, outcome)
        if outcome & FAULT != 0:
            report(ctx, OP_WAIT, request, outcome >> ERROR_SHIFT & 0xFF)
        return outcome & (COMPLETED | STAGED) != 0, _status(outcome, count, origin)

    @device
    def wait(ctx, request):
        completed, status = complete(ctx, request, 0)
        return status

    @device
    def test(ctx, request):
        return complete(ctx, request, 1)

    @device
    def send(ctx, buf, count, datatype, dest, tag, comm):
        return wait(ctx, isend(ctx, buf, count, datatype, dest, tag, comm))

    @device
    def recv(ctx, buf, count, datatype, source, tag, comm):
        return wait(ctx, irecv(ctx, buf, count, datatype, source, tag, comm))

    @device
    def sendrecv(
        ctx, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source,
        recvtag, comm,
    ):  # fmt: skip
        incoming = irecv(ctx, recvbuf, recvcount, recvtype, source, recvtag, comm)
        outgoing = isend(ctx, sendbuf, sendcount, sendtype, dest, sendtag, comm)
        sent = wait(ctx, outgoing)
        status = wait(ctx, incoming)
        if status.error != SUCCESS or sent.error == SUCCESS:
            return status
        return Status(sent.error, status.source, status.tag, status.count, status.nbytes)

    @device
    def waitall(ctx, count, requests, statuses=None):
        address, room, strided = buffer_of(requests)
        if statuses is None:
            return finish_all(ctx, count, address, 0)
        status_address, status_room, status_strided = buffer_of(statuses)
        return finish_all(ctx, count, address, status_address)

    @device
    def waitany(ctx, count, requests):
        while True:
            active = 0
            for i in range(count):
                request = requests[i]
                if request != REQUEST_NULL:
                    active += 1
                    completed, status = complete(ctx, request, 1)
                    if completed:
                        requests[i] = REQUEST_NULL
                        return i, status
            if active == 0:
                return -1, wait(ctx, REQUEST_NULL)

    # --- collectives (MPI 4.1 chapter 6) ----------------------------------------------------------

    @device
    def iallreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        nbytes = message_bytes(count, datatype)
        send, recv, nbytes, flaws = inspect_reduction(ctx, sendbuf, recvbuf, nbytes)
        word0 = _word0(OP_ALLREDUCE, flaws, comm, datatype)
        return open_request(ctx, word0, 0, count, 0, op, send, nbytes, recv, nbytes)

    @device
    def allreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        return wait(ctx, iallreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm)).error

    @device
    def bcast(ctx, buf, count, datatype, root, comm):
        nbytes = message_bytes(count, datatype)
        address, nbytes, flaws = inspect(ctx, buf, nbytes)
        word0 = _word0(OP_BCAST, flaws, comm, datatype)
        out = nbytes
        back = 0
        if root != comm_rank(ctx, comm):
            out = 0
            back = nbytes
        request = open_request(ctx, word0, root, count, 0, 0, address, out, address, back)
        return wait(ctx, request).error

    @device
    def barrier(ctx, comm):
        word0 = _word0(OP_BARRIER, 0, comm, 0)
        return wait(ctx, open_request(ctx, word0, 0, 0, 0, 0, 0, 0, 0, 0)).error

    # --- this context --------------------------------------------------------------------------------

    @device
    def synchronize(ctx):
        return wait(ctx, open_request(ctx, OP_SYNCHRONIZE, 0, 0, 0, 0, 0, 0, 0, 0)).error

    @device
    def ping(ctx):
        return wait(ctx, open_request(ctx, OP_PING, 0, 0, 0, 0, 0, 0, 0, 0))

    @device
    def post_null(ctx):
        if leads():
            post(ctx, lane_id(), warp_lanes(), warp_mask(), OP_NULL, 0, 0, 0)

    return SimpleNamespace(
        isend=isend,
        irecv=irecv,
        wait=wait,
        test=test,
        send=send,
        recv=recv,
        sendrecv=sendrecv,
        waitall=waitall,
        waitany=waitany,
        iallreduce=iallreduce,
        allreduce=allreduce,
        bcast=bcast,
        barrier=barrier,
        synchronize=synchronize,
        ping=ping,
        post_null=post_null,
    )
