"""Going on with a receive of the direct road; all lanes of the warp that has claimed it.

A message in a slot, or in the wide slot, is taken from there. For a long one the receive announces
its buffer, where the sender can store to that. Else it takes a staging buffer in our GPU memory,
announces both halves, and empties them round after round, as many parts at a time as have come.

One lane finds out what there is to do, and notes what has been done; all move the bytes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import block_jobs, long_moves, packets, rows, staging
from device_lib.direct.announcing import (
    LOG_SHIFT,
    NO_BUFFER,
    USERS_BUFFER,
    announce_half,
    begin,
    is_known,
    users_place,
    was_in_vain,
)
from device_lib.direct.grid_rounds import await_part, end_of_round, parts_of
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device
from device_lib.platform.scope import WARP, broadcast_warp_8
from gmpi.contract import channels
from gmpi.contract.constants import ERR_TRUNCATE, SUCCESS
from gmpi.contract.wire import ERROR_SHIFT, LOW_32, SCATTERED

_NOTHING = 0  # the sender has not come so far
_SHORT = 1
LENGTH = 2  # of a long message
_ROUND = 3
_WIDE = 4


@device
def _look(ctx, slot, looks):
    """(what there is to do, number, slot of the inbox, where the bytes go, staging buffer, length
    of the message or parts that have come, bytes to move, mark in the wide slot or parts that have
    been taken); one lane.

    The buffer is its number, or NO_BUFFER; of rounds | log2 of their parts << LOG_SHIFT.
    """
    stage, target, stamp, room = rows.facts(ctx, slot)
    key, sender, inbox, counters = rows.ends_of(ctx, stamp)
    number = stamp >> 1 & channels.NUMBERS
    room &= rows.LENGTH_MASK
    at = packets.inbox_slot(inbox, number)
    mark = packets.mark_of(number)
    parts = stage - rows.ROUNDS
    wanted = rows.field(ctx, slot, rows.WANTED)
    looked = 0
    while looked < looks:
        if stage == rows.BEGINS:
            low, word = gpu.read_packet(at)
            if word >> 32 & LOW_32 == mark:
                length = word & LOW_32
                if length == channels.LONG:
                    return LENGTH, number, at, target, NO_BUFFER, low, min(low, room), 0
                what = _SHORT
                wide = 0
                if length >= channels.ALL_OF_IT:
                    what = _WIDE
                    length = low & LOW_32
                    wide = low >> channels.WIDE_LENGTH_BITS & LOW_32
                buffer = NO_BUFFER
                if target == SCATTERED:
                    buffer = staging.take(ctx)
                if buffer >= 0:
                    return what, number, at, target, buffer, length, min(length, room), wide
        else:
            come = parts_of(at, mark)
            if come > parts:
                buffer = wanted >> rows.LENGTH_BITS
                wanted &= rows.LENGTH_MASK
                last = end_of_round(parts, buffer >> LOG_SHIFT)
                return _ROUND, number, at, target, buffer, min(come, last), wanted, parts
        looked += 1
        gpu.pause(20)
    return _NOTHING, number, at, target, NO_BUFFER, 0, 0, 0


@device
def _announce_next(ctx, slot, number, buffer, wanted, parts):
    """Where so many parts have been taken, the half of their round is free for the next but one."""
    log = buffer >> LOG_SHIFT
    first = parts + (1 << log)
    if parts & (1 << log) - 1 == 0 and first * channels.PART_BYTES < wanted:
        key, sender, inbox, counters = rows.ends_of(ctx, rows.field(ctx, slot, rows.STAMP))
        announce_half(ctx, sender, inbox, number, buffer, wanted, first)


@device
def note(ctx, slot, what, number, buffer, length, wanted, parts):
    """What has been done with a receive; one lane."""
    if what == LENGTH:
        said = rows.field(ctx, slot, rows.LENGTH)
        place = 0 if is_known(said, wanted) else users_place(ctx, slot, wanted)
        key, sender, inbox, counters = rows.ends_of(ctx, rows.field(ctx, slot, rows.STAMP))
        begin(ctx, slot, number, length, wanted, place, sender, inbox, said)
        return 0
    if not _is_last(what, wanted, parts):
        _announce_next(ctx, slot, number, buffer, wanted, parts)
        rows.set_stage(ctx, slot, rows.ROUNDS + parts)
        return 0
    if staging.number_of(buffer) < staging.NONE:
        log = max(buffer >> LOG_SHIFT, channels.LEAST_ROUND) - channels.LEAST_ROUND
        staging.give_back(ctx, buffer, log)
    stamp = rows.field(ctx, slot, rows.STAMP)
    said = rows.field(ctx, slot, rows.LENGTH)
    noted = rows.field(ctx, slot, rows.OUTCOME)  # all under way at once
    room = said & rows.LENGTH_MASK
    if what == _ROUND:
        length = noted
    else:
        was_in_vain(said)
    key, sender, inbox, counters = rows.ends_of(ctx, stamp)
    packets.give_back(sender, number, what == _ROUND)
    error = ERR_TRUNCATE if length > room else SUCCESS
    rows.set_field(ctx, slot, rows.OUTCOME, min(length, room) | error << ERROR_SHIFT)
    rows.set_field(ctx, slot, rows.WANTED, length)
    index = stamp >> 32 & rows.INDEX_MASK
    rows.set_field(ctx, slot, rows.STAGE, rows.FINISHED | index << rows.INDEX_SHIFT)
    return 0


@device
def _is_last(what, wanted, parts):
    """Whether a receive is over with this step: ``parts`` taken, of a message in rounds."""
    return (
        what == _SHORT
        or what == _WIDE
        or (what == _ROUND and parts * channels.PART_BYTES >= wanted)
    )


_look_linked = linked("gmpi_direct_look_receive", 5, 8, _look)
_note_linked = linked("gmpi_direct_note_receive", 10, 1, note)


def make_advance_receive(note: Callable = _note_linked) -> Callable:
    """For a warp: of a block, too, the leading one alone calls (``block_jobs``).

    Args:
        note: as this file's, linked.
    """
    rank = WARP.rank
    size = WARP.size
    leads = WARP.leads
    sync = WARP.sync
    sync_or = WARP.sync_or
    broadcast = WARP.broadcast

    # wide: what ``_look`` has returned
    @device
    def take_message(ctx, slot, what, number, at, target, buffer, length, moved, wide):
        """Takes what is in a slot, or in the wide slot: 1 where waits were aborted before."""
        place = target
        if target == SCATTERED:
            place = staging.address_of(ctx, buffer)
        if what == _SHORT:
            aborted = packets.take_packets(ctx, at, place, length, moved, number, rank(), size())
        else:
            slot_too = packets.wide_slot_of(at, number)
            aborted = block_jobs.take_wide(ctx, slot_too, place, moved, length, wide)
            aborted |= packets.await_rest(ctx, at, number, packets.AFTER_HEADER, rank(), size())
        if target == SCATTERED:
            sync()
            long_moves.take(ctx, slot, place, target, 0, moved)
        return aborted

    # wide: what ``_look`` has returned
    @device
    def take_parts(ctx, slot, number, at, target, buffer, come, wanted, parts, looks):
        """Takes the parts that have come, and those of the round that come meanwhile: how many of
        the message have been taken.

        Args:
            parts: that have been taken before.
        """
        if staging.number_of(buffer) == USERS_BUFFER:
            if leads() and gpu.lane_id() == 0:
                gpu.fence_sys()  # what the sender has stored: before other threads read it
            return come
        halves = staging.address_of(ctx, buffer)
        log = buffer >> LOG_SHIFT
        begin = parts * channels.PART_BYTES
        last = end_of_round(parts, log)
        while parts < come:
            end = min(come * channels.PART_BYTES, wanted)
            there = halves + (begin & (2 * channels.PART_BYTES << log) - 1)
            long_moves.take(ctx, slot, there, target, begin, end)
            parts = come
            begin = end
            if begin < wanted and parts < last:
                sync()  # before the next broadcast
                if leads() and gpu.lane_id() == 0:
                    come = min(await_part(at, packets.mark_of(number), parts, looks), last)
                come = broadcast(come)
        return parts

    @device
    def advance_receive(ctx, slot, looks):
        """Whether the receive is complete.

        Args:
            looks: how often to look whether the sender has come so far.
        """
        what = _NOTHING
        number = 0
        at = 0
        target = 0
        buffer = 0
        length = 0
        wanted = 0
        parts = 0
        if leads() and gpu.lane_id() == 0:
            what, number, at, target, buffer, length, wanted, parts = _look_linked(ctx, slot, looks)
        what, number, at, target, buffer, length, wanted, parts = broadcast_warp_8(
            what, number, at, target, buffer, length, wanted, parts
        )
        if what == _NOTHING:
            sync()  # before the next broadcast
            return False
        aborted = 0
        if what == _SHORT or what == _WIDE:
            aborted = take_message(
                ctx, slot, what, number, at, target, buffer, length, wanted, parts
            )
        elif what == _ROUND:
            sync()  # before the next broadcast
            parts = take_parts(ctx, slot, number, at, target, buffer, length, wanted, parts, looks)
            if _is_last(what, wanted, parts):
                aborted = packets.await_rest(ctx, at, number, packets.AFTER_FILLED, rank(), size())
        aborted = sync_or(aborted)
        if leads() and gpu.lane_id() == 0 and not aborted:
            note(ctx, slot, what, number, buffer, length, wanted, parts)
        sync()
        return _is_last(what, wanted, parts) and not aborted

    return advance_receive
