"""Direct collectives of strided views and derived datatypes: packed round by round.

The other ranks may have theirs in one piece, so these take the same rounds.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct.long_collectives import is_long
from device_lib.direct.rounds import kind_of, row_of
from device_lib.move.layouts import layout_of, pack_layout, unpack_layout
from device_lib.move.message import is_derived, is_sound
from device_lib.platform.context import may_collect_direct
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, fence_gpu, int64, lane_id, load_16
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import slots, taking
from device_lib.proxied.scattered import place
from gmpi.contract import collectives
from gmpi.contract.constants import SUCCESS
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND
from gmpi.contract.wire import (
    BLOCKING,
    COMMUNICATORS,
    DATATYPE_SHIFT,
    LOW_32,
    NONBLOCKING,
    OP_BCAST,
    SCATTERED,
)

_reduction_word = device(collectives.reduction_word)
_call_word = device(collectives.call_word)


@device
def allreduce_word(word0, op, nbytes):
    """The word of an Allreduce by its record's first one; NOT_OURS: the GPU cannot reduce it.

    ``is_sound`` comes first.
    """
    what = _reduction_word(int64(op), word0 >> DATATYPE_SHIFT & LOW_32)
    if what == collectives.NOT_OURS:
        return collectives.NOT_OURS
    return _call_word(
        what, nbytes >> (what >> collectives.SIZE_SHIFT & 3), word0 >> 16 & (COMMUNICATORS - 1)
    )


@device
def bcast_word(word0, root, nbytes):
    """The same of a Bcast; NOT_OURS: no rank can be this root."""
    if root < 0 or root > collectives.ROOT_MASK:
        return collectives.NOT_OURS
    what = int64(root) | collectives.BCAST << collectives.KIND_SHIFT
    return _call_word(what, nbytes, word0 >> 16 & (COMMUNICATORS - 1))


def make_take_placed(scope: Scope, help_others: Callable) -> Callable:
    """(ctx, type_row, send_buffer, sent, recv_buffer, received) -> (a slot, or an error class below
    0; where each buffer is, or SCATTERED, and then its layout is in the slot). All threads of a
    scope call it.

    ``sent`` and ``received`` are bytes; a buffer of which none are moved is not looked at.

    Args:
        help_others: executes commands of the proxied road.
    """
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3
    take_slot = taking.make_take_slot(scope, help_others)

    @device
    def take_placed(ctx, type_row, send_buffer, sent, recv_buffer, received):
        slot = take_slot(ctx, -1, taking.SMALL)
        if slot < 0:
            return slot, 0, 0
        sync()
        send = 0
        recv = 0
        if leads():
            lane, lanes, mask = lane_id(), warp_lanes(), warp_mask()
            if sent > 0:
                send = place(ctx, slot, LAYOUT_SEND, send_buffer, type_row, sent, lane, lanes, mask)
            if received > 0:
                recv = place(
                    ctx, slot, LAYOUT_RECV, recv_buffer, type_row, received, lane, lanes, mask
                )
            fence_gpu()  # before the layouts of the slot's next owner, on another multiprocessor
        slot, send, recv = broadcast_3(slot, send, recv)
        sync()
        return slot, send, recv

    return take_placed


def make_scattered(
    scope: Scope, direct: SimpleNamespace, help_others: Callable, start_pending: Callable
) -> Callable:
    """For one scope, all of whose threads call it together: what ``make_open_scattered`` takes.

    Args:
        direct: what ``make_collectives`` returned.
        help_others: executes commands of the proxied road.
        start_pending: starts one that does not block (``pending_starts``).
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    take_placed = make_take_placed(scope, help_others)
    allreduce, bcast = direct.allreduce_longer, direct.bcast_longer
    collect_long = direct.long

    @device
    def collect(ctx, what, nbytes, type_row, send_buffer, recv_buffer):
        reduces = kind_of(what) == collectives.ALLREDUCE
        area, where = load_16(row_of(ctx, what) + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        packed = area + 2 * ranks * collectives.INBOX_BYTES
        sends = reduces or where & LOW_32 == what & collectives.ROOT_MASK
        receives = reduces or not sends
        sent, received = nbytes if sends else 0, nbytes if receives else 0
        slot, send, recv = take_placed(ctx, type_row, send_buffer, sent, recv_buffer, received)
        if slot < 0:
            return slots.error_handle(-slot)
        error = SUCCESS
        begin = 0
        going = not is_long(ctx, what, nbytes)
        if not going:
            error = collect_long(ctx, what, slot, send, recv, nbytes)
        while going:
            some = min(nbytes - begin, collectives.ROOM)
            source = send + begin
            target = recv + begin
            if send == SCATTERED:
                source = packed
                layout = layout_of(ctx, slot, LAYOUT_SEND)
                pack_layout(layout, packed, begin, begin + some, rank(), size())
            if recv == SCATTERED:
                target = packed
            if reduces:
                error = allreduce(ctx, what, source, target, some)
            else:
                error = bcast(ctx, what, source if sends else target, some)
            if recv == SCATTERED and error == SUCCESS:
                layout = layout_of(ctx, slot, LAYOUT_RECV)
                unpack_layout(layout, packed, begin, begin + some, rank(), size())
            sync()
            begin += collectives.ROOM
            going = error == SUCCESS and begin < nbytes
        if leads() and lane_id() == 0:
            slots.release(ctx, slot)
        return 0 if error == collectives.NOT_OURS else slots.error_handle(error)

    collect_linked = parts_of(scope.name, "gmpi_direct")("collect_scattered", 8, 1, collect)

    @device
    def start(ctx, word0, peer_tag, count, nbytes, type_row, send_buffer, recv_buffer):
        """The handle of a call, which is complete if it blocks; 0: it goes by the proxies.

        Args:
            type_row: of a derived datatype, else 0.
            send_buffer, recv_buffer: what ``primitives.describe`` wrote.
        """
        datatype = word0 >> DATATYPE_SHIFT & LOW_32
        what = collectives.NOT_OURS
        blocks = word0 & BLOCKING != 0
        if word0 & 0xFF == OP_BCAST:
            blocks = word0 & NONBLOCKING == 0
            if is_sound(word0, count) or (is_derived(datatype) and type_row != 0 and count >= 0):
                what = bcast_word(word0, peer_tag & LOW_32, nbytes)
        elif is_sound(word0, count):
            what = allreduce_word(word0, peer_tag >> 32, nbytes)
        if what == collectives.NOT_OURS or not may_collect_direct(ctx, word0):
            return 0
        if not blocks:
            return start_pending(ctx, what, nbytes, type_row, send_buffer, recv_buffer)
        return collect_linked(ctx, what, nbytes, type_row, send_buffer, recv_buffer)

    return start
