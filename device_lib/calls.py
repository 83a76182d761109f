"""The GMPI_* device functions, made for every scope.

``make_calls(scope)`` returns the functions of one scope; ``gmpi`` exports those of the block scope
under MPI's names and those of the warp scope with ``_warp`` appended. Each one says what MPI's
arguments mean for the record and hands over to the three functions that do the work, which are
compiled apart (``library``): open, finish, finish_all.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.blocking import transact
from device_lib.closing import (
    COMPLETED,
    FAULT,
    HELP,
    NO_ORIGIN,
    STAGED,
    finish_small,
    make_finish_any,
    make_help,
    make_report,
    make_unpack,
)
from device_lib.closing_all import make_finish_all
from device_lib.context import (
    Status,
    eager_bytes,
    large_slots,
    request_slots,
    world_rank,
    world_size,
)
from device_lib.layouts import is_derived
from device_lib.library import linked
from device_lib.message import inspect, inspect_reduction, message_bytes
from device_lib.opening import UNFINISHED, make_open_any, open_inline
from device_lib.primitives import buffer_of, describe, device, int64, lane_id, load_sys
from device_lib.ring import post
from device_lib.scattered import make_open_scattered
from device_lib.scope import Scope, warp_lanes, warp_mask
from device_lib.slots import error_handle, is_large
from gmpi.constants import COMM_WORLD, GMPI_ERR_NO_RESOURCE, IN_PLACE, PROC_NULL, SUCCESS
from gmpi.wire import (
    BYTES_MASK,
    COMMUNICATOR_BYTES,
    COMMUNICATORS,
    ERROR_SHIFT,
    FLAG_BACK,
    FLAG_OUT,
    HANDLE_ERROR_SHIFT,
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

FULL_WARP = 32  # threads of a leading warp that the fast paths need


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
    return op | flags << 8 | int64(comm) << 16 | int64(datatype) << 32


@device
def _pair(peer, tag):
    """Peer or root, and message tag or reduction, in one word."""
    return (int64(peer) & TAG_MASK) | int64(tag) << 32


@device
def _message(ctx, op, way, buf, count, datatype, peer, comm):
    """(first word of the record, bytes to move, address) of one buffer to or from one peer."""
    nbytes = message_bytes(count, datatype)
    if peer == PROC_NULL:
        nbytes = 0
    address, nbytes, flags = inspect(ctx, buf, nbytes, way)
    return _word0(op, flags, comm, datatype), nbytes, address


@device
def _reduction(ctx, sendbuf, recvbuf, count, datatype, comm):
    """(first word of the record, bytes to move, where from, where to)."""
    nbytes = message_bytes(count, datatype)
    send, recv, nbytes, flags = inspect_reduction(ctx, sendbuf, recvbuf, nbytes)
    return _word0(OP_ALLREDUCE, flags, comm, datatype), nbytes, send, recv


@device
def _is_scattered(datatype, strided):
    """Whether the bytes do not lie in one piece. False at compile time for a contiguous array and a
    constant of ``gmpi``: then nothing of that way is in the kernel."""
    return strided != 0 or is_derived(datatype)


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
    return load_sys(ctx.mapped + MAPPED_COMMUNICATORS + int64(comm) * COMMUNICATOR_BYTES)


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


_open_inline = linked("gmpi_open_inline", 8, 1, open_inline)
_finish_small = linked("gmpi_finish_small", 5, 3, finish_small)
_transact = linked("gmpi_transact", 8, 4, transact)


def make_calls(scope: Scope) -> SimpleNamespace:
    """All GMPI_* functions for one scope."""

    def part(name: str, arguments: int, results: int, body):
        return linked(f"gmpi_{name}_{scope.name}", arguments, results, body)

    open_any = part("open_any", 9, 1, make_open_any(scope))
    finish_any = part("finish_any", 5, 3, make_finish_any(scope))
    unpack = part("unpack", 5, 1, make_unpack(scope))
    open_scattered = part("open_scattered", 8, 1, make_open_scattered(scope))
    help_others = part("help", 3, 1, make_help(scope))
    report = part("report", 6, 1, make_report(scope))
    finish_all = part("finish_all", 6, 1, make_finish_all(scope))
    leads = scope.leads
    leading_lanes = scope.leading_lanes
    sync_full = scope.sync_full
    share_full = scope.share_full
    share_4_full = scope.share_4_full

    # --- both halves of every call ----------------------------------------------------------------

    @device
    def is_inline(ctx, word0, nbytes):
        """Whether the functions for one full warp can do it."""
        small = nbytes <= INLINE_BYTES
        if word0 & FLAG_OUT << 8 == 0:
            small = nbytes <= eager_bytes(ctx)
        return small and leading_lanes() == FULL_WARP

    @device
    def open_rest(ctx, word0, peer_tag, count, nbytes, send, recv, unfinished):
        handle = open_any(ctx, word0, peer_tag, count, send, recv, unfinished)
        if handle == error_handle(GMPI_ERR_NO_RESOURCE):
            most = request_slots(ctx)
            if nbytes > eager_bytes(ctx):
                most = large_slots(ctx)
            report(ctx, word0 & 0xFF, most, GMPI_ERR_NO_RESOURCE)
        return handle

    @device
    def open_request(ctx, word0, peer_tag, count, nbytes, send, recv):
        handle = UNFINISHED
        count = int64(count)
        if is_inline(ctx, word0, nbytes):
            # What other threads of the scope wrote to the buffers, or still read from them.
            sync_full()
            if leads():
                handle = _open_inline(ctx, word0, count, send, peer_tag, recv)
            handle = share_full(handle)
        if handle & UNFINISHED != 0:
            handle = open_rest(ctx, word0, peer_tag, count, nbytes, send, recv, handle)
        return handle

    @device
    def complete(ctx, request, patience):
        """(completed, Status) of a request, after ``patience`` looks, 0 for as many as it takes."""
        request = int64(request)
        if request == REQUEST_NULL:
            return True, _status(COMPLETED, 0, NO_ORIGIN)
        if request >> HANDLE_ERROR_SHIFT == 1:
            return True, _status(COMPLETED | (request & 0xFF) << ERROR_SHIFT, 0, NO_ORIGIN)
        outcome = HELP
        count = 0
        origin = 0
        if is_large(request) == 0 and patience == 0 and leading_lanes() == FULL_WARP:
            resumed = 0
            while outcome & HELP != 0:
                sync_full()
                if leads():
                    outcome, count, origin = _finish_small(ctx, request, resumed)
                outcome, count, origin, resumed = share_4_full(outcome, count, origin, 1)
                if outcome & HELP != 0:
                    help_others(ctx)
        else:
            outcome, count, origin = finish_any(ctx, request, patience)
        if outcome & STAGED != 0:
            unpack(ctx, request, outcome)
        if outcome & FAULT != 0:
            report(ctx, OP_WAIT, request, outcome >> ERROR_SHIFT & 0xFF)
        return outcome & (COMPLETED | STAGED) != 0, _status(outcome, count, origin)

    @device
    def perform(ctx, word0, peer_tag, count, nbytes, send, recv):
        """``open_request`` and ``complete`` for calls that block: the Status."""
        outcome = 0
        elements = 0
        origin = 0
        handle = UNFINISHED
        count = int64(count)
        if is_inline(ctx, word0, nbytes):
            sync_full()
            if leads():
                outcome, elements, origin, handle = _transact(
                    ctx, word0, count, send, peer_tag, recv
                )
            outcome, elements, origin, handle = share_4_full(outcome, elements, origin, handle)
        if outcome & STAGED != 0:
            unpack(ctx, handle, outcome)
        elif outcome & COMPLETED == 0:
            if outcome == 0:
                handle = open_rest(ctx, word0, peer_tag, count, nbytes, send, recv, handle)
            completed, status = complete(ctx, handle, 0)
            return status
        return _status(outcome, elements, origin)

    # --- point to point (MPI 4.1 chapter 3) -----------------------------------------------------

    @device
    def isend(ctx, buf, count, datatype, dest, tag, comm):
        at, room, strided = buffer_of(buf)
        if _is_scattered(datatype, strided):
            word0 = _word0(OP_ISEND, FLAG_OUT, comm, datatype)
            words = describe(buf, at, room, strided)
            return open_scattered(ctx, word0, _pair(dest, tag), int64(count), words, 0)
        word0, nbytes, address = _message(ctx, OP_ISEND, FLAG_OUT, buf, count, datatype, dest, comm)
        return open_request(ctx, word0, _pair(dest, tag), count, nbytes, address, 0)

    @device
    def irecv(ctx, buf, count, datatype, source, tag, comm):
        at, room, strided = buffer_of(buf)
        if _is_scattered(datatype, strided):
            word0 = _word0(OP_IRECV, FLAG_BACK, comm, datatype)
            words = describe(buf, at, room, strided)
            return open_scattered(ctx, word0, _pair(source, tag), int64(count), 0, words)
        word0, nbytes, address = _message(
            ctx, OP_IRECV, FLAG_BACK, buf, count, datatype, source, comm
        )
        return open_request(ctx, word0, _pair(source, tag), count, nbytes, 0, address)

    @device
    def wait(ctx, request):
        completed, status = complete(ctx, request, 0)
        return status

    @device
    def test(ctx, request):
        return complete(ctx, request, 1)

    @device
    def send(ctx, buf, count, datatype, dest, tag, comm):
        at, room, strided = buffer_of(buf)
        if _is_scattered(datatype, strided):
            return wait(ctx, isend(ctx, buf, count, datatype, dest, tag, comm))
        word0, nbytes, address = _message(ctx, OP_ISEND, FLAG_OUT, buf, count, datatype, dest, comm)
        return perform(ctx, word0, _pair(dest, tag), count, nbytes, address, 0)

    @device
    def recv(ctx, buf, count, datatype, source, tag, comm):
        at, room, strided = buffer_of(buf)
        if _is_scattered(datatype, strided):
            return wait(ctx, irecv(ctx, buf, count, datatype, source, tag, comm))
        word0, nbytes, address = _message(
            ctx, OP_IRECV, FLAG_BACK, buf, count, datatype, source, comm
        )
        return perform(ctx, word0, _pair(source, tag), count, nbytes, 0, address)

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
        at, room, strided = buffer_of(sendbuf)
        to, to_room, to_strided = buffer_of(recvbuf)
        if _is_scattered(datatype, strided | to_strided):
            word0 = _word0(OP_ALLREDUCE, FLAG_OUT | FLAG_BACK, comm, datatype)
            back = describe(recvbuf, to, to_room, to_strided)
            words = describe(sendbuf, at, room, strided)
            words = back if at == IN_PLACE else words
            return open_scattered(ctx, word0, _pair(0, op), int64(count), words, back)
        word0, nbytes, send, recv = _reduction(ctx, sendbuf, recvbuf, count, datatype, comm)
        return open_request(ctx, word0, _pair(0, op), count, nbytes, send, recv)

    @device
    def allreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        at, room, strided = buffer_of(sendbuf)
        to, to_room, to_strided = buffer_of(recvbuf)
        if _is_scattered(datatype, strided | to_strided):
            request = iallreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm)
            return wait(ctx, request).error
        word0, nbytes, send, recv = _reduction(ctx, sendbuf, recvbuf, count, datatype, comm)
        return perform(ctx, word0, _pair(0, op), count, nbytes, send, recv).error

    @device
    def bcast(ctx, buf, count, datatype, root, comm):
        nbytes = message_bytes(count, datatype)
        way = FLAG_OUT
        if root != comm_rank(ctx, comm):
            way = FLAG_BACK
        at, room, strided = buffer_of(buf)
        if _is_scattered(datatype, strided):
            word0 = _word0(OP_BCAST, way, comm, datatype)
            words = describe(buf, at, room, strided)
            request = open_scattered(ctx, word0, _pair(root, 0), int64(count), words, words)
            return wait(ctx, request).error
        address, nbytes, flags = inspect(ctx, buf, nbytes, way)
        word0 = _word0(OP_BCAST, flags, comm, datatype)
        return perform(ctx, word0, _pair(root, 0), count, nbytes, address, address).error

    @device
    def barrier(ctx, comm):
        word0 = _word0(OP_BARRIER, 0, comm, 0)
        return perform(ctx, word0, 0, 0, 0, 0, 0).error

    # --- this context -----------------------------------------------------------------------------

    @device
    def synchronize(ctx):
        return perform(ctx, OP_SYNCHRONIZE, 0, 0, 0, 0, 0).error

    @device
    def ping(ctx):
        return perform(ctx, OP_PING, 0, 0, 0, 0, 0)

    @device
    def post_null(ctx, value):
        if leads():
            post(ctx, lane_id(), warp_lanes(), warp_mask(), OP_NULL, value, 0, 0)

    return SimpleNamespace(
        open_request=open_request,
        complete=complete,
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
