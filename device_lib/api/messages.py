"""What a call makes of MPI's arguments for one message (MPI 4.1 chapter 3).

Every call that sends or receives one, at once or in each round of a persistent request, is made
here: it takes MPI's arguments, and hands over the words of a record.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import table
from device_lib.direct.one_warp import PROXIED_ROAD
from device_lib.move import message
from device_lib.platform.context import has_direct, may_go_direct
from device_lib.platform.primitives import buffer_of, describe, device, int64
from gmpi.contract.constants import ERR_COMM, PROC_NULL
from gmpi.contract.wire import FLAG_OUT


@device
def not_direct(ctx, word0, peer_tag, count, nbytes, address):
    """For calls that leave the road to a later one."""
    return PROXIED_ROAD


def make_refused(report: Callable) -> Callable:
    """(ctx, op, comm) -> whether a call is refused because its communicator is one of the direct
    road, which has none of its kind; then that is reported."""

    @device
    def refused(ctx, op, comm):
        word0 = message.word0_of(op, 0, comm, 0)
        if may_go_direct(ctx, word0):
            report(ctx, word0, int64(comm), ERR_COMM)
            return True
        return False

    return refused


def make_message_call(
    way: int, direct: Callable, end: Callable, proxied: Callable, scattered: Callable
) -> Callable:
    """(ctx, op, buf, count, datatype, peer, tag, comm) -> what the three functions return.

    Args:
        way: FLAG_OUT or FLAG_BACK.
        direct: of ``direct.one_warp``, or ``not_direct``.
        end: (ctx, request) -> result, where the message has gone the direct road.
        proxied: (ctx, word0, peer_tag, count, nbytes, send, recv) -> result.
        scattered: (ctx, word0, peer_tag, count, send, recv) -> result, of derived datatypes and
            strided views: what ``describe`` has written.
    """
    sends = way == FLAG_OUT
    # Over at once, by each thread for itself: at the edge of a grid of ranks each step has some.
    to_nobody = direct is not not_direct

    @device
    def call(ctx, op, buf, count, datatype, peer, tag, comm):
        datatype = message.fitting(datatype, buf)
        at, room, strided = buffer_of(buf)
        if message.is_scattered(datatype, strided):
            word0 = message.word0_of(op, way, comm, datatype)
            words = describe(buf, at, room, strided)
            send, recv = (words, 0) if sends else (0, words)
            return scattered(ctx, word0, message.pair(peer, tag), int64(count), send, recv)
        nbytes = message.message_bytes(count, datatype)
        if peer == PROC_NULL:
            nbytes = 0
        address, nbytes, flags = message.inspect(ctx, buf, nbytes, way)
        word0 = message.word0_of(op, flags, comm, datatype)
        if has_direct(ctx):
            if to_nobody and peer == PROC_NULL and message.is_sound(word0, int64(count)):
                handle = table.without_channel(ctx, word0, message.pair(peer, tag))
            else:
                handle = direct(ctx, word0, message.pair(peer, tag), int64(count), nbytes, address)
            if handle != PROXIED_ROAD:
                return end(ctx, handle)
        send, recv = (address, 0) if sends else (0, address)
        return proxied(ctx, word0, message.pair(peer, tag), count, nbytes, send, recv)

    return call
