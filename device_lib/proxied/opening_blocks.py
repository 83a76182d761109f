"""Opening a collective that moves blocks (``gmpi/contract/moves.py``): Gather, Alltoall, Scan, ...

What goes out and what comes back have lengths and datatypes of their own. Where both fit in the
small staging of a slot, the threads of the scope pack what goes out before the record is published.
Longer ones are moved by copy commands from the first byte to the last.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.move import layouts
from device_lib.move.copy import copy_to_staging
from device_lib.move.message import is_derived, message_bytes
from device_lib.platform.context import eager_bytes, sign32
from device_lib.platform.primitives import (
    device,
    fence_sys,
    lane_id,
    load_8,
    memory_space,
)
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import commands, ring, slots, taking
from device_lib.proxied.flaws import flaw_of
from device_lib.proxied.publishing import FLAGS_SHIFT, make_no_slot, publish
from device_lib.proxied.scattered import place
from gmpi.contract import moves, wire
from gmpi.contract.collectives import NONBLOCKING_CALL, NOT_OURS
from gmpi.contract.constants import DATATYPE_MARK, ERR_COUNT, FIRST_WITH_GAPS, IN_PLACE
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND

_blocks = device(moves.blocks)
_is_rooted = device(moves.is_rooted)
_is_shifted = device(moves.is_shifted)
_may_be_in_place = device(moves.may_be_in_place)
_out_offset = device(moves.out_offset)
_reduces = device(moves.reduces)

INVALID = -1
BEGUN = 1 << FLAGS_SHIFT  # of a call, in place of flags: its packets are stored (``short_blocks``)
SHARED = 1  # what ``memory_space`` says


@device
def derived_row(ctx, datatype):
    """Row of a derived datatype; 0: it is none, or nobody's."""
    return layouts.type_row(ctx, datatype) if is_derived(datatype) else 0


@device
def block_bytes(datatype, row, count, ranks):
    """Bytes of a block; INVALID for what the proxy is going to refuse."""
    if count < 0:
        return INVALID
    if is_derived(datatype):
        nbytes = layouts.derived_bytes(row, count) if row != 0 else INVALID
    else:
        nbytes = message_bytes(count, datatype)
        if nbytes == 0 and (count != 0 or datatype & ~0xFFFF != DATATYPE_MARK):
            nbytes = INVALID
    return nbytes if nbytes <= wire.POSITION_MASK // max(ranks, 1) else INVALID


@device
def place_of(me, ranks):
    """Rank and number of ranks in one word, as ``open_blocks`` takes them."""
    return (me & wire.LOW_32) | ranks << 32


# wide: what a record says
@device
def publish_moved(ctx, slot, large, word0, root_op, count, send, recv, room):
    """``publish`` of a request that has nothing in its record (leading warp)."""
    ticket, consumed = ring.begin_enter(ctx, lane_id() == 0)
    if large and lane_id() == 0:
        slots.open_commands(ctx, slot, send)
    # Release: staging before the record, layouts and commands before those who help.
    fence_sys()
    buffer = recv if recv != 0 else send
    buffer = room if room != 0 else buffer
    return publish(
        ctx, ticket, consumed, slot, large, wire.STATUS_PACKETS, word0, root_op, count, buffer,
        recv, 0, 0,
    )  # fmt: skip


@device
def _may_be_direct(datatype, row):
    """Whether the direct road moves elements of a datatype."""
    if row != 0:
        return True
    return datatype & ~0xFFFF == DATATYPE_MARK and datatype & 0xFF < FIRST_WITH_GAPS


@device
def _is_one_piece(out, send_buffer, send_row, back, recv_buffer, recv_row):
    """Whether no buffer that bytes are moved from or to is strided or of a derived datatype."""
    pieces = 0
    if out > 0:
        pieces = send_row | load_8(send_buffer + layouts.BUFFER_DIMS)
    if back > 0:
        pieces |= recv_row | load_8(recv_buffer + layouts.BUFFER_DIMS)
    return pieces == 0


def make_open_blocks(
    scope: Scope, help_others: Callable, report: Callable, direct: SimpleNamespace,
    start_pending: Callable,
) -> Callable:  # fmt: skip
    """For one scope, all of whose threads call it.

    Args:
        direct: ``direct.block_collectives``.
        start_pending: starts one that does not block, on the direct road (``pending_starts``).
    """
    rank = scope.rank
    size = scope.size
    take_slot = taking.make_take_slot(scope, help_others)
    no_slot = make_no_slot(report)
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3
    broadcast = scope.broadcast
    direct_word, has_failed = direct.word, direct.has_failed
    in_one_piece, scattered = direct.in_one_piece, direct.scattered

    # long: what MPI says of these arguments, in one sequence
    # wide: as MPI's
    @device
    def open_blocks(
        ctx, word0, root_op, who, send_count, send_type, send_buffer, recv_count, recv_type,
        recv_buffer,
    ):  # fmt: skip
        """The request.

        Args:
            word0: first word of the record, without flags and datatype; or with BEGUN.
            root_op: root and reduction, as in a record.
            who: what ``place_of`` returned for the communicator.
            send_buffer, recv_buffer: what ``primitives.describe`` wrote.
        """
        sync()
        begun = word0 & BEGUN
        word0 ^= begun
        op = word0 & 0xFF
        me = sign32(who)
        ranks = who >> 32
        root = sign32(root_op)
        in_place = 0
        shift = 0  # blocks before the first one that goes out
        bad = 0
        send_at = load_8(send_buffer + layouts.BUFFER_ADDRESS)
        recv_at = load_8(recv_buffer + layouts.BUFFER_ADDRESS)
        out_blocks = _blocks(op, moves.OUT, me, ranks, root, 0)
        if out_blocks > 0 and send_at == IN_PLACE:
            in_place = 1
            if not _may_be_in_place(op, moves.OUT, me, root) or recv_at == IN_PLACE:
                bad = wire.FLAG_NULL_BUFFER
            if _is_shifted(op):
                shift = me
            send_at = recv_at
            send_buffer = recv_buffer
            send_count = recv_count
            send_type = recv_type
        elif recv_at == IN_PLACE and _blocks(op, moves.BACK, me, ranks, root, 0) > 0:
            in_place = 1
            if not _may_be_in_place(op, moves.BACK, me, root):
                bad = wire.FLAG_NULL_BUFFER
        reduced = _reduces(op)
        back_blocks = _blocks(op, moves.BACK, me, ranks, root, 0 if reduced else in_place)
        if not reduced:
            root_op = (root_op & wire.LOW_32) | in_place << 32

        send_row = derived_row(ctx, send_type)
        recv_row = derived_row(ctx, recv_type)
        sent = block_bytes(send_type, send_row, send_count, ranks) if out_blocks > 0 else 0
        received = block_bytes(recv_type, recv_row, recv_count, ranks) if back_blocks > 0 else 0
        # What the record says of a block: the proxy refuses what is wrong with it.
        count = send_count
        datatype = send_type
        nbytes = sent
        if out_blocks == 0 or (sent != INVALID and received == INVALID):
            count = recv_count
            datatype = recv_type
            nbytes = received
        if datatype < 0 or datatype > wire.LOW_32:
            datatype = wire.LOW_32
        word0 |= datatype << wire.DATATYPE_SHIFT
        sound = not _is_rooted(op) or (root >= 0 and root < ranks)
        if out_blocks > 0:
            sound = sound and _may_be_direct(send_type, send_row)
        if back_blocks > 0:
            sound = sound and _may_be_direct(recv_type, recv_row)
        if nbytes == INVALID or (reduced and is_derived(datatype)):
            nbytes = 0
            sound = False
        elif out_blocks > 0 and back_blocks > 0 and sent != received:
            report(ctx, word0, sent, ERR_COUNT | received << 8)
            return slots.error_handle(ERR_COUNT)
        reached = (out_blocks + shift) * send_count  # elements of the buffer
        shift *= nbytes
        out = out_blocks * nbytes
        back = back_blocks * nbytes
        need = _out_offset(back) + out
        large = 1 if need > eager_bytes(ctx) else 0
        flaws = 0
        room = 0
        if bad != 0 and nbytes > 0:
            flaws = bad
        if out > 0 and flaws == 0:
            flaws = flaw_of(ctx, send_buffer, send_row, reached, out + shift, wire.FLAG_OUT)
            room = load_8(send_buffer + layouts.BUFFER_BYTES)
            if flaws == 0 and large and memory_space(send_at) == SHARED:
                flaws = wire.FLAG_PRIVATE_BUFFER
        if back > 0 and flaws == 0:
            flaws = flaw_of(
                ctx, recv_buffer, recv_row, back_blocks * recv_count, back, wire.FLAG_BACK
            )
            room = load_8(recv_buffer + layouts.BUFFER_BYTES)
            if flaws == 0 and large and memory_space(recv_at) == SHARED:
                flaws = wire.FLAG_PRIVATE_BUFFER
        if flaws != 0:
            out = 0
            back = 0
            large = 0
        else:
            room = 0
            flaws = (wire.FLAG_OUT if out > 0 else 0) | (wire.FLAG_BACK if back > 0 else 0)
        word0 |= flaws << FLAGS_SHIFT

        what = NOT_OURS
        if sound and flaws & wire.FLAWS == 0:
            what = direct_word(ctx, word0, root_op, nbytes)
        if what != NOT_OURS:
            if not _is_one_piece(out, send_buffer, send_row, back, recv_buffer, recv_row):
                if has_failed(ctx, what):
                    what = NOT_OURS
                else:
                    large = 0
            else:
                send = send_at + shift if out > 0 else 0
                recv = recv_at if back > 0 else 0
                if what & NONBLOCKING_CALL != 0:
                    return start_pending(ctx, what, -1, send, recv, nbytes, 0)
                error = in_one_piece(ctx, what, send, recv, nbytes, begun)
                if error != NOT_OURS:
                    return slots.error_handle(error)
                what = NOT_OURS

        slot = take_slot(ctx, -1, taking.LARGE if large else taking.SMALL)
        sync()
        send = 0
        recv = 0
        if leads():
            lane = lane_id()
            lanes = warp_lanes()
            mask = warp_mask()
            if slot >= 0 and out > 0:
                end = out + shift
                send = place(ctx, slot, LAYOUT_SEND, send_buffer, send_row, end, lane, lanes, mask)
            if slot >= 0 and back > 0:
                recv = place(ctx, slot, LAYOUT_RECV, recv_buffer, recv_row, back, lane, lanes, mask)
        slot, send, recv = broadcast_3(slot, send, recv)
        sync()  # the layouts are written; the next broadcast may begin
        if slot < 0:
            return no_slot(ctx, word0, slot, large)
        if what != NOT_OURS and what & NONBLOCKING_CALL != 0:
            return start_pending(ctx, what, slot, send, recv, nbytes, shift)
        if what != NOT_OURS:
            error = scattered(ctx, what, slot, send, recv, nbytes, shift)
            sync()
            if leads() and lane_id() == 0:
                slots.release(ctx, slot)
            return slots.error_handle(error)
        if out > 0 and large == 0:
            packed = commands.small_staging(ctx, slot) + _out_offset(back)
            if send == wire.SCATTERED:
                layout = layouts.layout_of(ctx, slot, LAYOUT_SEND)
                layouts.pack_layout(layout, packed, shift, shift + out, rank(), size())
            else:
                copy_to_staging(packed, send + shift, out, rank(), size())
        sync()
        handle = 0
        if leads():
            handle = publish_moved(ctx, slot, large, word0, root_op, count, send, recv, room)
        return broadcast(handle)

    return open_blocks
