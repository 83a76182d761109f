"""Sends whose bytes the proxy keeps, calls that send and receive, and GMPI_Abort, for each scope.

A buffered send is complete when the proxy has its bytes, whether or not anybody receives them. So
the calls here that start a send and a receive at once, and return one request, are a buffered send
followed by a receive: the buffer may be the same one.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.api.local import type_size
from device_lib.api.messages import make_refused
from device_lib.move.message import is_scattered, pair, word0_of
from device_lib.platform.context import Status, eager_bytes, may_go_direct, status_of
from device_lib.platform.primitives import buffer_of, device, int64
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from device_lib.proxied.slots import error_handle
from gmpi.contract import wire
from gmpi.contract.constants import ERR_COMM, PROC_NULL, SUCCESS


@device
def _failed(error):
    return status_of(COMPLETED | error << wire.ERROR_SHIFT, 0, NO_ORIGIN)


@device
def both_of(sent, received):
    """The Status of a send and a receive: the receive's, with the send's error if that is the only
    one."""
    if received.error != SUCCESS or sent.error == SUCCESS:
        return received
    return Status(sent.error, received.source, received.tag, received.count, received.nbytes)


def make_combined(sending: SimpleNamespace, finishing: SimpleNamespace, requests: SimpleNamespace):
    """The calls of one scope.

    Args:
        sending: ``start_send`` and ``start_receive`` of ``calls``.
        finishing: ``finishing``.
        requests: ``proxied.requests``.
    """
    start_send, start_receive = sending.start_send, sending.start_receive
    wait, perform = finishing.wait, finishing.perform
    report, keep_bytes = requests.report, requests.keep_bytes
    refused = make_refused(report)

    @device
    def start_buffered(ctx, op, buf, count, datatype, dest, tag, comm):
        if refused(ctx, op, comm):
            return error_handle(ERR_COMM)
        return start_send(ctx, op, buf, count, datatype, dest, tag, comm)

    @device
    def ibsend(ctx, buf, count, datatype, dest, tag, comm):
        handle = start_buffered(ctx, wire.OP_BSEND, buf, count, datatype, dest, tag, comm)
        return keep_bytes(ctx, handle)

    @device
    def bsend(ctx, buf, count, datatype, dest, tag, comm):
        op = wire.OP_BSEND | wire.BLOCKING
        return wait(ctx, start_buffered(ctx, op, buf, count, datatype, dest, tag, comm))

    # A send that may rely on its receive being posted, and need not.
    @device
    def irsend(ctx, buf, count, datatype, dest, tag, comm):
        return start_send(ctx, wire.OP_ISEND | wire.READY, buf, count, datatype, dest, tag, comm)

    @device
    def rsend(ctx, buf, count, datatype, dest, tag, comm):
        op = wire.OP_ISEND | wire.READY_BLOCKING
        return wait(ctx, start_send(ctx, op, buf, count, datatype, dest, tag, comm))

    # wide: as MPI's
    @device
    def start_both(
        ctx, call, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
        source, recvtag, comm,
    ):  # fmt: skip
        op = wire.OP_BSEND | call
        sent = wait(ctx, start_buffered(ctx, op, sendbuf, sendcount, sendtype, dest, sendtag, comm))
        if sent.error != SUCCESS:
            return error_handle(sent.error)
        op = wire.OP_IRECV | call
        return start_receive(ctx, op, recvbuf, recvcount, recvtype, source, recvtag, comm)

    # wide: as MPI's
    @device
    def isendrecv(
        ctx, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source,
        recvtag, comm,
    ):  # fmt: skip
        return start_both(
            ctx, wire.COMBINED, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
            recvtype, source, recvtag, comm,
        )  # fmt: skip

    # wide: as MPI's
    @device
    def isendrecv_replace(ctx, buf, count, datatype, dest, sendtag, source, recvtag, comm):
        return start_both(
            ctx, wire.COMBINED_REPLACE, buf, count, datatype, dest, sendtag, buf, count, datatype,
            source, recvtag, comm,
        )  # fmt: skip

    # wide: as MPI's
    @device
    def sendrecv_replace(ctx, buf, count, datatype, dest, sendtag, source, recvtag, comm):
        op = wire.OP_ISEND | wire.REPLACE
        nbytes = int64(count) * type_size(ctx, datatype)
        at, room, strided = buffer_of(buf)
        direct = may_go_direct(ctx, word0_of(op, 0, comm, 0))
        if direct and dest != PROC_NULL:
            # Out of the buffer before anything comes to it, whether or not its receive is posted:
            # so also where the channel goes by the proxies, which hold a longer one up.
            if is_scattered(datatype, strided) or nbytes > eager_bytes(ctx):
                report(ctx, word0_of(op, 0, comm, 0), int64(comm), ERR_COMM)
                return _failed(ERR_COMM)
        elif nbytes > eager_bytes(ctx):
            op = wire.OP_BSEND | wire.REPLACE
        outgoing = start_send(ctx, op, buf, count, datatype, dest, sendtag, comm)
        sent = _failed(SUCCESS)
        kept = direct or nbytes > eager_bytes(ctx)
        if kept:
            sent = wait(ctx, outgoing)
            if sent.error != SUCCESS:
                return sent
        op = wire.OP_IRECV | wire.REPLACE
        incoming = start_receive(ctx, op, buf, count, datatype, source, recvtag, comm)
        if not kept:  # the call has packed it
            sent = wait(ctx, outgoing)
        return both_of(sent, wait(ctx, incoming))

    @device
    def abort(ctx, comm, errorcode):
        return perform(
            ctx, word0_of(wire.OP_ABORT, 0, comm, 0), pair(0, 0), int64(errorcode), 0, 0, 0
        ).error

    return SimpleNamespace(
        ibsend=ibsend,
        bsend=bsend,
        irsend=irsend,
        rsend=rsend,
        isendrecv=isendrecv,
        isendrecv_replace=isendrecv_replace,
        sendrecv_replace=sendrecv_replace,
        abort=abort,
    )
