"""Looking for messages before they are received, and cancelling receives, for each scope.

The proxy does it: one record, and its answer.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.finishing import as_it_is
from device_lib.api.messages import make_message_call, make_refused, not_direct
from device_lib.move.message import pair, word0_of
from device_lib.platform.context import row_address, status_of
from device_lib.platform.primitives import device, int64, load_gpu
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from device_lib.proxied.slots import error_handle
from gmpi.contract import wire
from gmpi.contract.constants import (
    ERR_COMM,
    MESSAGE_NO_PROC,
    MESSAGE_NULL,
    NO_MESSAGE,
    PROC_NULL,
    SUCCESS,
)
from gmpi.contract.rules import MESSAGE_COMM_SHIFT, MESSAGE_NUMBERS, MESSAGE_SHIFT


def make_looking(
    finishing: SimpleNamespace, report: Callable, open_request: Callable, open_scattered: Callable
) -> SimpleNamespace:
    """The calls of one scope.

    Args:
        finishing: ``finishing``.
        report, open_request: of ``proxied.requests``.
        open_scattered: of ``calls``.
    """
    perform, wait = finishing.perform, finishing.wait
    start_receive = make_message_call(
        wire.FLAG_BACK, not_direct, as_it_is, open_request, open_scattered
    )
    refused = make_refused(report)

    @device
    def look(ctx, op, source, tag, comm):
        if refused(ctx, op, comm):
            return status_of(COMPLETED | ERR_COMM << wire.ERROR_SHIFT, 0, NO_ORIGIN)
        return perform(ctx, word0_of(op, wire.FLAG_BACK, comm, 0), pair(source, tag), 0, 0, 0, 0)

    @device
    def probe(ctx, source, tag, comm):
        return look(ctx, wire.OP_PROBE, source, tag, comm)

    @device
    def iprobe(ctx, source, tag, comm):
        status = look(ctx, wire.OP_PROBE | wire.NONBLOCKING, source, tag, comm)
        return status.tag != NO_MESSAGE, status

    @device
    def cancel(ctx, request):
        request = int64(request)
        if request >> wire.HANDLE_ERROR_SHIFT == 0 and slots.names_slot(ctx, request):
            # One that was waited for has the slot's last handle, and the proxy does not know.
            owner = load_gpu(row_address(ctx, slots.slot_of(request)) + wire.REQUEST_OWNER)
            if owner != request:
                request |= slots.CLAIMED
        return perform(ctx, wire.OP_CANCEL, 0, request, 0, 0, 0).error

    # --- messages that nobody else can receive any more -------------------------------------------

    @device
    def take(ctx, op, source, tag, comm):
        """(message, Status)"""
        if refused(ctx, op, comm):
            return MESSAGE_NULL, status_of(COMPLETED | ERR_COMM << wire.ERROR_SHIFT, 0, NO_ORIGIN)
        word0 = word0_of(op, wire.FLAG_BACK, comm, 0)
        handle = open_request(ctx, word0, pair(source, tag), 0, 0, 0, 0)
        status = wait(ctx, handle)
        message = MESSAGE_NULL
        if status.error == SUCCESS and status.tag != NO_MESSAGE:
            message = handle & MESSAGE_NUMBERS | int64(comm) << MESSAGE_COMM_SHIFT
            message |= 1 << MESSAGE_SHIFT
            if status.source == PROC_NULL:
                message = MESSAGE_NO_PROC
        return message, status

    @device
    def mprobe(ctx, source, tag, comm):
        return take(ctx, wire.OP_PROBE | wire.MATCHED, source, tag, comm)

    @device
    def improbe(ctx, source, tag, comm):
        message, status = take(ctx, wire.OP_PROBE | wire.MATCHED_TOO, source, tag, comm)
        return status.tag != NO_MESSAGE, message, status

    @device
    def receive(ctx, call, buf, count, datatype, message):
        message = int64(message)
        comm = message >> MESSAGE_COMM_SHIFT & (1 << MESSAGE_SHIFT - MESSAGE_COMM_SHIFT) - 1
        number = message & MESSAGE_NUMBERS
        op = wire.OP_IRECV | call
        if message == MESSAGE_NO_PROC:
            number = PROC_NULL
        elif refused(ctx, op, comm):
            return error_handle(ERR_COMM)
        return start_receive(ctx, op, buf, count, datatype, number, message >> MESSAGE_SHIFT, comm)

    @device
    def imrecv(ctx, buf, count, datatype, message):
        return receive(ctx, wire.MATCHED, buf, count, datatype, message)

    @device
    def mrecv(ctx, buf, count, datatype, message):
        return wait(ctx, receive(ctx, wire.MATCHED_TOO, buf, count, datatype, message))

    return SimpleNamespace(
        probe=probe,
        iprobe=iprobe,
        cancel=cancel,
        mprobe=mprobe,
        improbe=improbe,
        imrecv=imrecv,
        mrecv=mrecv,
    )
