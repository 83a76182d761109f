"""Going on with a receive of the direct road; all threads of a scope, of whoever has claimed it.

A message in a slot, or in the wide slot, is taken from there. For a long one the receive takes a
staging buffer in our GPU memory, announces it, and empties it round after round, as many parts at a
time as have come.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import cells, packets, rows
from device_lib.move.copy import copy_from_staging
from device_lib.move.layouts import layout_of, unpack_layout
from device_lib.platform.primitives import (
    clear_bits_32_gpu,
    device,
    first_bit,
    lane_id,
    load_gpu,
    or_32_gpu,
    pause,
    read_packet,
)
from device_lib.platform.scope import Scope
from gmpi.contract.channels import (
    ALL_OF_IT,
    FILLED,
    LONG,
    PART_BYTES,
    PARTS,
    ROW_LOCAL,
    ROW_REMOTE,
    STAGED,
    STAGED_BYTES,
    WIDE_LENGTH_BITS,
)
from gmpi.contract.constants import ERR_TRUNCATE, SUCCESS
from gmpi.contract.wire import (
    DEVICE_DIRECT,
    DEVICE_STAGED,
    ERROR_SHIFT,
    LAYOUT_RECV,
    LOW_32,
    SCATTERED,
)

_NOTHING = 0  # the sender has not come so far
_SHORT = 1
_LENGTH = 2  # of a long message
_ROUND = 3
_WIDE = 4

_NO_BUFFER = STAGED  # of a long message of which nothing is wanted
_ALL = (1 << STAGED) - 1


@device
def _parts_of(at, mark):
    """How many parts of the long message in an inbox slot have come; one lane."""
    parts, word = read_packet(at + FILLED)
    return parts if word >> 32 & LOW_32 == mark else 0


@device
def _await_part(at, mark, parts, looks):
    """The same, as soon as more than ``parts`` have come; one lane."""
    come = parts
    looked = 0
    while come <= parts and looked < looks:
        come = _parts_of(at, mark)
        looked += 1
        pause(20)
    return max(come, parts)


@device
def _look(ctx, slot, looks):
    """(what there is to do, number, stage, length of the message, its parts that have come); one
    lane."""
    number = rows.number_of(ctx, slot)
    stage = rows.stage_of(ctx, slot)
    inbox = load_gpu(rows.channel_of(ctx, slot) + ROW_LOCAL)
    at = packets.inbox_slot(inbox, number)
    mark = packets.mark_of(number)
    looked = 0
    while looked < looks:
        if stage == rows.BEGINS:
            low, word = read_packet(at)
            if word >> 32 & LOW_32 == mark:
                length = word & LOW_32
                if length == LONG:
                    return _LENGTH, number, stage, low, 0
                what = _SHORT
                if length >= ALL_OF_IT:
                    what = _WIDE
                    length = low & LOW_32
                    rows.set_field(ctx, slot, rows.OUTCOME, low >> WIDE_LENGTH_BITS)
                if rows.field(ctx, slot, rows.ADDRESS) != SCATTERED:
                    return what, number, stage, length, 0
                buffer = _take_buffer(ctx)
                if buffer >= 0:
                    rows.set_field(ctx, slot, rows.WANTED, buffer << rows.LENGTH_BITS)
                    return what, number, stage, length, 0
        else:
            come = _parts_of(at, mark)
            if come > stage - rows.ROUNDS:
                return _ROUND, number, stage, rows.field(ctx, slot, rows.OUTCOME), come
        looked += 1
        pause(20)
    return _NOTHING, number, stage, 0, 0


@device
def _take_buffer(ctx):
    """A staging buffer, -1 where none is free; one lane."""
    word = ctx.device + DEVICE_STAGED
    free = ~load_gpu(word) & _ALL
    while free != 0:
        bit = first_bit(free)
        old = or_32_gpu(word, 1 << bit)
        if old >> bit & 1 == 0:
            return bit
        free = ~old & _ALL
    return -1


@device
def _buffer_address(ctx, buffer):
    return load_gpu(ctx.device + DEVICE_DIRECT) + buffer * STAGED_BYTES


@device
def _announce(ctx, slot, number, buffer, turn):
    """Says where a round goes; one lane."""
    channel = rows.channel_of(ctx, slot)
    place = _buffer_address(ctx, buffer) - load_gpu(channel + ROW_LOCAL)
    wanted = rows.field(ctx, slot, rows.WANTED) & rows.LENGTH_MASK
    cells.announce(load_gpu(channel + ROW_REMOTE), number, place, wanted, turn)


@device
def _begin_rounds(ctx, slot, number, length, room):
    """Announces the first round, if there is a buffer for it; one lane."""
    wanted = min(length, room)
    buffer = _NO_BUFFER
    if wanted > 0:
        buffer = _take_buffer(ctx)
        if buffer < 0:
            return
    rows.set_field(ctx, slot, rows.WANTED, wanted | buffer << rows.LENGTH_BITS)
    rows.set_field(ctx, slot, rows.OUTCOME, length)
    rows.set_stage(ctx, slot, rows.ROUNDS)
    _announce(ctx, slot, number, buffer, 0)


@device
def _finish(ctx, slot, number, length, room, announced):
    """One lane, when all have taken their part."""
    channel = rows.channel_of(ctx, slot)
    cells.give_back(load_gpu(channel + ROW_REMOTE), number, announced)
    error = ERR_TRUNCATE if length > room else SUCCESS
    rows.set_field(ctx, slot, rows.OUTCOME, min(length, room) | error << ERROR_SHIFT)
    rows.set_field(ctx, slot, rows.WANTED, length)
    rows.set_stage(ctx, slot, rows.FINISHED)


def make_advance_receive(scope: Scope) -> Callable:
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    broadcast = scope.broadcast
    broadcast_5 = scope.broadcast_5

    @device
    def take_parts(ctx, slot, at, parts, come, looks):
        """Takes the parts that have come, and those of the round that come meanwhile.

        Args:
            at: slot of the inbox.
            parts: that have been taken before.

        Returns:
            (how many of the message have been taken, whether those are all that is wanted)
        """
        target = rows.field(ctx, slot, rows.ADDRESS)
        wanted = rows.field(ctx, slot, rows.WANTED)
        staging = _buffer_address(ctx, wanted >> rows.LENGTH_BITS)
        wanted &= rows.LENGTH_MASK
        begin = parts * PART_BYTES
        while parts < come:
            end = min(come * PART_BYTES, wanted)
            there = staging + (begin & STAGED_BYTES - 1)
            if target == SCATTERED:
                layout = layout_of(ctx, slot, LAYOUT_RECV)
                unpack_layout(layout, there, begin, end, rank(), size())
            else:
                copy_from_staging(target + begin, there, end - begin, rank(), size())
            parts = come
            begin = end
            if begin < wanted and parts & PARTS - 1 != 0:
                sync()  # before the next broadcast
                if leads() and lane_id() == 0:
                    come = _await_part(at, packets.mark_of(rows.number_of(ctx, slot)), parts, looks)
                come = broadcast(come)
        return parts, begin >= wanted

    # long: one step of each kind, of which all threads take their part
    @device
    def advance_receive(ctx, slot, looks):
        """Whether the receive is complete.

        Args:
            looks: how often to look whether the sender has come so far.
        """
        what = _NOTHING
        number = 0
        stage = 0
        length = 0
        come = 0
        if leads() and lane_id() == 0:
            what, number, stage, length, come = _look(ctx, slot, looks)
        what, number, stage, length, come = broadcast_5(what, number, stage, length, come)
        if what == _NOTHING:
            sync()  # before the next broadcast
            return False
        room = rows.length_of(ctx, slot)
        target = rows.field(ctx, slot, rows.ADDRESS)
        inbox = load_gpu(rows.channel_of(ctx, slot) + ROW_LOCAL)
        at = packets.inbox_slot(inbox, number)
        buffer = _NO_BUFFER
        parts = 0
        in_slot = what == _SHORT or what == _WIDE
        last = in_slot
        aborted = 0
        if in_slot:
            moved = min(length, room)
            place = target
            if target == SCATTERED:
                buffer = rows.field(ctx, slot, rows.WANTED) >> rows.LENGTH_BITS
                place = _buffer_address(ctx, buffer)
            if what == _SHORT:
                aborted = packets.take_packets(
                    ctx, at, place, length, moved, number, rank(), size()
                )
            else:
                mark = rows.field(ctx, slot, rows.OUTCOME) & LOW_32
                wide = packets.wide_slot_of(at, number)
                aborted = packets.take_wide(ctx, wide, place, moved, length, mark, rank(), size())
                aborted |= packets.await_rest(ctx, at, number, packets.AFTER_HEADER, rank(), size())
            if target == SCATTERED:
                sync()
                layout = layout_of(ctx, slot, LAYOUT_RECV)
                unpack_layout(layout, place, 0, moved, rank(), size())
        elif what == _ROUND:
            buffer = rows.field(ctx, slot, rows.WANTED) >> rows.LENGTH_BITS
            parts, last = take_parts(ctx, slot, at, stage - rows.ROUNDS, come, looks)
            if last:
                aborted = packets.await_rest(ctx, at, number, packets.AFTER_FILLED, rank(), size())
        aborted = sync_or(aborted)
        if leads() and lane_id() == 0 and not aborted:
            if what == _LENGTH:
                _begin_rounds(ctx, slot, number, length, room)
            elif what == _ROUND and not last:
                rows.set_stage(ctx, slot, rows.ROUNDS + parts)
                if parts & PARTS - 1 == 0:
                    _announce(ctx, slot, number, buffer, parts // PARTS)
            if last:
                if buffer != _NO_BUFFER:
                    clear_bits_32_gpu(ctx.device + DEVICE_STAGED, 1 << buffer)
                _finish(ctx, slot, number, length, room, what == _ROUND)
        sync()
        return last and not aborted

    return advance_receive
