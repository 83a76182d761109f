"""Going on with a receive of the direct road; all threads of a scope, of whoever has claimed it.

A message in a slot, or in the wide slot, is taken from there. For a long one the receive announces
its buffer, where the sender can store to that. Else it takes a staging buffer in our GPU memory,
announces its halves in turn, and empties them round after round, as many parts at a time as have
come.

One lane finds out what there is to do, and notes what has been done; all threads move the bytes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import block_jobs, long_moves, packets, registered, rows, staging, table
from device_lib.direct.grid_rounds import await_part, end_of_round, log_of, parts_of
from device_lib.platform import primitives as gpu
from device_lib.platform.context import leads_grid
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied.slots import slot_of
from gmpi.contract import channels
from gmpi.contract.constants import ERR_TRUNCATE, SUCCESS
from gmpi.contract.registered import ALIGNMENT
from gmpi.contract.wire import ERROR_SHIFT, LOW_32, SCATTERED

_NOTHING = 0  # the sender has not come so far
_SHORT = 1
LENGTH = 2  # of a long message
_ROUND = 3
_WIDE = 4

_NO_BUFFER = staging.NONE  # of a long message of which nothing is wanted
USERS_BUFFER = staging.NONE + 1  # the sender stores there itself
LOG_SHIFT = 8  # beside a buffer's number


@device
def _look(ctx, slot, looks):
    """(what there is to do, number, slot of the inbox, where the bytes go, staging buffer, length
    of the message or parts that have come, bytes to move, mark in the wide slot or parts that have
    been taken); one lane.

    The buffer is its number, or _NO_BUFFER; of rounds | log2 of their parts << LOG_SHIFT. What
    begins a round announces the next one.
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
                    return LENGTH, number, at, target, _NO_BUFFER, low, min(low, room), 0
                what = _SHORT
                wide = 0
                if length >= channels.ALL_OF_IT:
                    what = _WIDE
                    length = low & LOW_32
                    wide = low >> channels.WIDE_LENGTH_BITS & LOW_32
                buffer = _NO_BUFFER
                if target == SCATTERED:
                    buffer = staging.take(ctx)
                if buffer >= 0:
                    return what, number, at, target, buffer, length, min(length, room), wide
        else:
            come = parts_of(at, mark)
            if come > parts:
                buffer = wanted >> rows.LENGTH_BITS
                wanted &= rows.LENGTH_MASK
                log = buffer >> LOG_SHIFT
                last = end_of_round(parts, log)
                if parts + (1 << log) == last and last * channels.PART_BYTES < wanted:
                    place = _half(ctx, buffer, last)
                    _announce(sender, inbox, number, place, log, wanted, last)
                return _ROUND, number, at, target, buffer, min(come, last), wanted, parts
        looked += 1
        gpu.pause(20)
    return _NOTHING, number, at, target, _NO_BUFFER, 0, 0, 0


@device
def _half(ctx, buffer, first):
    """Where the round goes that begins with a part."""
    log = buffer >> LOG_SHIFT
    return staging.address_of(ctx, buffer) + (first >> log & 1) * (channels.PART_BYTES << log)


@device
def _announce(sender, inbox, number, place, log, wanted, first):
    """Says where the round goes that begins with a part; one lane.

    Args:
        sender, inbox: the other end of the channel, and ours.
        log: log2 of its parts, | STRAIGHT.
    """
    packets.announce(sender, number, place - inbox, wanted | log << channels.ROUND_SHIFT, first)


@device
def users_place(ctx, slot, wanted):
    """What to announce of the user's buffer; 0: the sender cannot store there."""
    stage, target, stamp, length = rows.facts(ctx, slot)
    if target == SCATTERED or wanted == 0:
        return 0
    key, sender, inbox, counters = rows.ends_of(ctx, stamp)
    return registered.place_of(ctx, target, wanted, sender)


@device
def begin_rounds(ctx, slot, number, length, wanted, place, sender, inbox):
    """Announces the first round, if there is a buffer for it; one lane.

    A grid takes several, as far as the message is so long: its rounds are as much longer.

    Args:
        place: what ``users_place`` has returned, or 0.
        sender, inbox: the other end of the channel, and ours.
    """
    buffer = _NO_BUFFER
    log = 0
    flag = 0
    if place != 0:
        buffer = USERS_BUFFER
        flag = channels.STRAIGHT
        log = log_of(wanted) - channels.LEAST_ROUND
    elif wanted > 0:
        if leads_grid(ctx):
            while (
                log < channels.MOST_BUFFERS
                and channels.PART_BYTES << channels.LEAST_ROUND + log < wanted
            ):
                log += gpu.opaque(1)
        buffer = staging.take_many(ctx, log)
        while buffer < 0 and log > 0:
            log -= gpu.opaque(1)
            buffer = staging.take_many(ctx, log)
        if buffer < 0:
            return
    log += channels.LEAST_ROUND
    buffer |= log << LOG_SHIFT
    if flag == 0:
        place = _half(ctx, buffer, 0)
    _announce(sender, inbox, number, place, log | flag, wanted, 0)
    _expect(ctx, slot, length, wanted, buffer)


@device
def _expect(ctx, slot, length, wanted, buffer):
    """Notes that a message comes in rounds, whose first one has been announced."""
    rows.set_field(ctx, slot, rows.WANTED, wanted | buffer << rows.LENGTH_BITS)
    rows.set_field(ctx, slot, rows.OUTCOME, length)
    rows.set_stage(ctx, slot, rows.ROUNDS)


@device
def _leaves_cell(at, number):
    """Whether the message that had a slot before needs its announcement no more: then nobody but
    the receive of this one announces there. One lane."""
    mark = packets.mark_of(number - channels.DEPTH)
    low, word = gpu.read_packet(at)
    pushed = parts_of(at, mark)  # under way together
    if word >> 32 & LOW_32 != mark:
        return False
    return word & LOW_32 != channels.LONG or pushed * channels.PART_BYTES >= low


@device
def _announce_early(ctx, handle, index, target, room):
    """Announces the user's buffer of a long receive that has just been entered, before its message
    is known of: so the sender need not wait for it. The leading warp.

    Only where the sender can store there. What is announced and not asked for, for the message is
    not long, must not fall on the next announcement in that cell: then a fence comes before the
    credit (``was_in_vain``).

    Args:
        index: of the channel's row.
        target: in one piece.
    """
    number = handle >> 1 & channels.NUMBERS
    key, sender, inbox = table.ends_of(ctx, index)
    place = registered.place_by_warp(ctx, target, room, sender)
    if gpu.lane_id() == 0 and place != 0 and not packets.refreshed(number):
        if _leaves_cell(packets.inbox_slot(inbox, number), number):
            log = log_of(room) | channels.STRAIGHT
            wanted = room | log << channels.ROUND_SHIFT
            packets.announce(sender, number, place - inbox, wanted, 0)
            slot = slot_of(handle)
            length = rows.field(ctx, slot, rows.LENGTH)
            rows.set_field(ctx, slot, rows.LENGTH, length | rows.ANNOUNCED)
    return 0


@device
def was_in_vain(said):
    """Before anything else is stored in the cell of a receive: nobody has read its early
    announcement. One lane.

    Args:
        said: LENGTH of its receive's row.
    """
    if said & rows.ANNOUNCED != 0:
        gpu.fence_sys()


announce_early = linked("gmpi_direct_announce", 7, 1, _announce_early)


@device
def _is_known(said, wanted):
    """Whether the sender knows where a message goes.

    Args:
        said: LENGTH of the receive's row.
    """
    return said & rows.ANNOUNCED != 0 and wanted & ALIGNMENT - 1 == 0


# wide: what a receive is about
@device
def _begin(ctx, slot, number, length, wanted, place, sender, inbox, said):
    """The length of a long message has come; one lane.

    Args:
        place, sender, inbox: as of ``begin_rounds``.
        said: LENGTH of the receive's row.
    """
    if _is_known(said, wanted):
        _expect(ctx, slot, length, wanted, USERS_BUFFER | log_of(wanted) << LOG_SHIFT)
    else:
        was_in_vain(said)
        begin_rounds(ctx, slot, number, length, wanted, place, sender, inbox)
    return 0


@device
def note(ctx, slot, what, number, buffer, length, wanted, parts):
    """What has been done with a receive; one lane."""
    if what == LENGTH:
        said = rows.field(ctx, slot, rows.LENGTH)
        place = 0 if _is_known(said, wanted) else users_place(ctx, slot, wanted)
        key, sender, inbox, counters = rows.ends_of(ctx, rows.field(ctx, slot, rows.STAMP))
        _begin(ctx, slot, number, length, wanted, place, sender, inbox, said)
        return 0
    if not _is_last(what, wanted, parts):
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
    rows.set_stage_of(ctx, slot, rows.FINISHED, stamp >> 32 & rows.INDEX_MASK)
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


_begin_linked = linked("gmpi_direct_begin_long", 11, 1, _begin)


# wide: what a receive is about
@device
def begin_long(ctx, handle, target, said, length, sender, inbox):
    """The length of a long message has come for a receive that the caller has just claimed: whether
    it goes straight to the user's buffer. The leading warp.

    Args:
        said: LENGTH of its row.
    """
    number = handle >> 1 & channels.NUMBERS
    wanted = min(length, said & rows.LENGTH_MASK)
    known = _is_known(said, wanted)
    place = int64(0)
    if not known and target != SCATTERED and wanted > 0:
        place = registered.place_by_warp(ctx, target, wanted, sender)
    if gpu.lane_id() == 0:
        slot = slot_of(handle)
        _begin_linked(ctx, slot, number, length, wanted, place, sender, inbox, said)
    return known or place != 0


def make_advance_receive(scope: Scope, note: Callable = _note_linked) -> Callable:
    """For one scope, whose leading warp alone calls (``block_jobs``).

    Args:
        note: as this file's, linked.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    broadcast = scope.broadcast
    broadcast_8 = scope.broadcast_8

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
        what, number, at, target, buffer, length, wanted, parts = broadcast_8(
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
