"""Going on with a send of the direct road; all threads of a scope, of whoever has claimed it.

A message of at most WIDE_ROOM bytes is stored when its slot of the inbox is free, or the wide slot
is. Of a long one the length is. Then it is pushed to where the receiver says: a round for each
announcement, part by part, so that the receiver takes one part while the next is on its way.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import cells, packets, rows, table
from device_lib.move.copy import copy_to_staging
from device_lib.move.layouts import layout_of, pack_layout
from device_lib.platform.primitives import (
    device,
    fence_sys,
    lane_id,
    load_gpu,
    pause,
    write_packet,
)
from device_lib.platform.scope import Scope
from gmpi.contract.channels import (
    FILLED,
    LONG,
    PART_BYTES,
    PARTS,
    ROOM,
    ROW_COUNTERS,
    ROW_LOCAL,
    ROW_REMOTE,
    STAGED_BYTES,
    WIDE_ROOM,
    WIDE_SLOT,
)
from gmpi.contract.wire import LAYOUT_SEND, SCATTERED

_NOTHING = 0  # the receiver has not come so far
_SHORT = 1
_LENGTH = 2  # of a long message
_ROUND = 3
_WIDE = 4


@device
def _look(ctx, slot, looks):
    """(what there is to do, number, stage, where a round goes, bytes wanted); one lane.

    In the wide slot: the number there in place of where.
    """
    number = rows.number_of(ctx, slot)
    stage = rows.stage_of(ctx, slot)
    length = rows.length_of(ctx, slot)
    ours = load_gpu(rows.channel_of(ctx, slot) + ROW_LOCAL)
    looked = 0
    while looked < looks:
        if stage == rows.BEGINS:
            if cells.has_credit(ours, number):
                in_one_piece = rows.field(ctx, slot, rows.ADDRESS) != SCATTERED
                if in_one_piece and length <= ROOM:
                    return _SHORT, number, stage, 0, 0
                if not in_one_piece or length > WIDE_ROOM:
                    return _LENGTH, number, stage, 0, 0
                if cells.all_taken(ours, number):
                    return _WIDE, number, stage, _wide_number(ctx, slot), 0
        else:
            turn = (stage - rows.ROUNDS) // PARTS
            said, place, wanted = cells.announcement(ours, number, turn)
            if said:
                return _ROUND, number, stage, place, wanted
        looked += 1
        pause(20)
    return _NOTHING, number, stage, 0, 0


@device
def _wide_number(ctx, slot):
    return table.next_wide(load_gpu(rows.channel_of(ctx, slot) + ROW_COUNTERS))


def make_advance_send(scope: Scope) -> Callable:
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    broadcast_5 = scope.broadcast_5

    @device
    def push_round(ctx, slot, at, to, number, parts, total):
        """Pushes what is left of a round: how many parts of the message have been pushed.

        Args:
            at: slot of the inbox.
            to: where the round goes.
            parts: that have been pushed before.
            total: bytes that are wanted of the message.
        """
        address = rows.field(ctx, slot, rows.ADDRESS)
        end = min(total, (parts // PARTS + 1) * STAGED_BYTES)
        begin = parts * PART_BYTES
        pushing = True  # nothing wanted: one part without bytes
        while pushing:
            nbytes = min(end - begin, PART_BYTES)
            there = to + (begin & STAGED_BYTES - 1)
            if address == SCATTERED:
                layout = layout_of(ctx, slot, LAYOUT_SEND)
                pack_layout(layout, there, begin, begin + nbytes, rank(), size())
            else:
                copy_to_staging(there, address + begin, nbytes, rank(), size())
            sync()
            parts += 1
            begin += nbytes
            if leads() and lane_id() == 0:  # the others go on with the next part
                fence_sys()
                write_packet(at + FILLED, parts, packets.mark_of(number) << 32)
            pushing = begin < end
        return parts

    @device
    def advance_send(ctx, slot, looks):
        """Whether the send is complete.

        Args:
            looks: how often to look whether the receiver has come so far.
        """
        what = _NOTHING
        number = 0
        stage = 0
        place = 0
        wanted = 0
        if leads() and lane_id() == 0:
            what, number, stage, place, wanted = _look(ctx, slot, looks)
        what, number, stage, place, wanted = broadcast_5(what, number, stage, place, wanted)
        if what == _NOTHING:
            sync()  # before the next broadcast
            return False
        length = rows.length_of(ctx, slot)
        address = rows.field(ctx, slot, rows.ADDRESS)
        inbox = load_gpu(rows.channel_of(ctx, slot) + ROW_REMOTE)
        at = packets.inbox_slot(inbox, number)
        last = what == _SHORT or what == _WIDE
        next_stage = rows.ROUNDS
        if what == _SHORT:
            packets.put_packets(at, address, length, number, rank(), size())
        elif what == _LENGTH:
            packets.refresh_rest(at, number, packets.AFTER_FILLED, rank(), size())
        elif what == _WIDE:
            packets.refresh_rest(at, number, packets.AFTER_HEADER, rank(), size())
            packets.put_wide(inbox + WIDE_SLOT, address, length, place, rank(), size())
        else:
            total = min(length, wanted)
            parts = stage - rows.ROUNDS
            parts = push_round(ctx, slot, at, inbox + place, number, parts, total)
            last = parts * PART_BYTES >= total
            next_stage = rows.ROUNDS + parts
        sync()
        if leads() and lane_id() == 0:
            mark = packets.mark_of(number) << 32
            if what == _LENGTH:
                write_packet(at, length, LONG | mark)
            elif what == _WIDE:
                packets.write_wide_header(at, length, number, place)
            if last:
                rows.set_field(ctx, slot, rows.OUTCOME, length)
                next_stage = rows.FINISHED
            rows.set_stage(ctx, slot, next_stage)
        sync()
        return last

    return advance_send
