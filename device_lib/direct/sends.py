"""Going on with a send of the direct road; all lanes of the warp that has claimed it.

A message of at most WIDE_ROOM bytes is stored when its slot of the inbox is free, or the wide slot
is; data with gaps are packed first. Of a long one the length is. Then it is pushed to where the
receiver says: a round for each announcement, part by part, so that the receiver takes one part
while the next is on its way; to the user's buffer as a whole.

One lane finds out what there is to do, and notes what has been done; all move the bytes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import block_jobs, long_moves, packets, rows, staging, table
from device_lib.direct.grid_rounds import parts_for, round_bytes
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, lane_id, pause
from device_lib.platform.scope import WARP, broadcast_warp_8
from gmpi.contract import channels, registered
from gmpi.contract.wire import SCATTERED

_NOTHING = 0  # the receiver has not come so far
_SHORT = 1
_LENGTH = 2  # of a long message
_ROUND = 3
_WIDE = 4


@device
def _look(ctx, slot, looks):
    """(what there is to do, number, parts that have been pushed or the staging buffer that it is
    packed to first, slot of the inbox, where to, where from, bytes, number in the wide slot or what
    was said of a round's parts); one lane."""
    stage, address, stamp, length = rows.facts(ctx, slot)
    key, inbox, ours, counters = rows.ends_of(ctx, stamp)
    number = stamp >> 1 & channels.NUMBERS
    length &= rows.LENGTH_MASK
    at = packets.inbox_slot(inbox, number)
    parts = stage - rows.ROUNDS
    looked = 0
    while looked < looks:
        if stage == rows.BEGINS:
            if packets.has_credit(ours, number):
                if length > channels.WIDE_ROOM:
                    return _LENGTH, number, 0, at, 0, address, length, 0
                if length <= channels.ROOM or packets.all_taken(ours, number):
                    buffer = staging.NONE
                    if address == SCATTERED:
                        buffer = staging.take(ctx)
                    if buffer >= 0:
                        if buffer != staging.NONE:
                            address = staging.address_of(ctx, buffer)
                        if length <= channels.ROOM:
                            return _SHORT, number, buffer, at, 0, address, length, 0
                        wide = table.next_wide(counters)
                        to = packets.wide_slot_of(at, number)
                        return _WIDE, number, buffer, at, to, address, length, wide
        else:
            said, place, wanted = packets.announcement(ours, number, parts)
            log = wanted >> channels.ROUND_SHIFT
            wanted = min(length, wanted & (1 << channels.ROUND_SHIFT) - 1)
            if said and may_push(log, wanted):
                return _ROUND, number, parts, at, inbox + place, address, wanted, log
        looked += 1
        pause(20)
    return _NOTHING, number, parts, at, 0, address, 0, 0


@device
def may_push(log, nbytes):
    """Whether a message goes where its receiver has announced. The user's buffer was announced
    before the length was known; where that does not fit, another announcement follows.

    Args:
        log: what the announcement says of a round's parts.
        nbytes: that the receiver wants of the message.
    """
    return log & channels.STRAIGHT == 0 or nbytes & registered.ALIGNMENT - 1 == 0


@device
def announced_to(cells, number, nbytes):
    """(whether the receiver of a long message has announced anything; bytes that it wants, where,
    if they go straight to the user's buffer, else 0, 0).

    Args:
        cells: our end of the channel.
    """
    said, place, wanted = packets.announcement(cells, number, 0)
    log = wanted >> channels.ROUND_SHIFT
    nbytes = min(nbytes, wanted & (1 << channels.ROUND_SHIFT) - 1)
    if said and log & channels.STRAIGHT != 0 and may_push(log, nbytes):
        return said, nbytes, place
    return said, 0, 0


@device
def first_stage(ctx, row, number, nbytes):
    """The stage that a send is entered with: if its slot is free, the length of a long message is
    sent at once. One lane.

    Args:
        row: of the channel.
    """
    if nbytes <= channels.WIDE_ROOM or packets.refreshed(number):
        return rows.BEGINS
    key, inbox, ours, counters = table.entries(table.row_of(ctx, row))
    if not packets.has_credit(ours, number):
        return rows.BEGINS
    at = packets.inbox_slot(inbox, number)
    packets.write_length(at, nbytes, number)
    return rows.ROUNDS


@device
def _is_last(what, nbytes, parts):
    """Whether a send is over with this step: ``parts`` pushed, of a message in rounds."""
    return (
        what == _SHORT
        or what == _WIDE
        or (what == _ROUND and parts * channels.PART_BYTES >= nbytes)
    )


@device
def _note(ctx, slot, what, number, at, nbytes, wide_or_parts):
    """What has been done with a send; one lane."""
    if what == _LENGTH:
        packets.write_length(at, nbytes, number)
        rows.set_stage(ctx, slot, rows.ROUNDS)
        return 0
    if what == _WIDE:
        packets.write_wide_header(at, nbytes, number, wide_or_parts)
    if _is_last(what, nbytes, wide_or_parts):
        rows.set_field(ctx, slot, rows.OUTCOME, rows.length_of(ctx, slot))
        rows.set_stage(ctx, slot, rows.FINISHED)
    else:
        rows.set_stage(ctx, slot, rows.ROUNDS + wide_or_parts)
    return 0


_look_linked = linked("gmpi_direct_look_send", 5, 8, _look)
_note_linked = linked("gmpi_direct_note_send", 9, 1, _note)


def make_advance_send() -> Callable:
    """For a warp: of a block, too, the leading one alone calls (``block_jobs``)."""
    rank = WARP.rank
    size = WARP.size
    leads = WARP.leads
    sync = WARP.sync

    # wide: what ``_look`` has returned
    @device
    def push_round(ctx, slot, number, parts, at, to, address, total, log):
        """Pushes a round: how many parts of the message have been pushed.

        Args:
            parts: that have been pushed before.
            at: slot of the inbox.
            to: where the round goes.
            total: bytes that are wanted of the message.
            log: log2 of the round's parts, | STRAIGHT.
        """
        begin = parts * channels.PART_BYTES
        end = min(total, begin + round_bytes(log))
        piece = channels.PART_BYTES if log & channels.STRAIGHT == 0 else round_bytes(log)
        long_moves.push(ctx, slot, to - begin, address, begin, end, piece, at, number)
        return parts_for(end)

    @device
    def advance_send(ctx, slot, looks):
        """Whether the send is complete.

        Args:
            looks: how often to look whether the receiver has come so far.
        """
        what = _NOTHING
        number = 0
        parts = 0
        at = 0
        to = 0
        address = 0
        nbytes = 0
        wide = 0
        if leads() and lane_id() == 0:
            what, number, parts, at, to, address, nbytes, wide = _look_linked(ctx, slot, looks)
        what, number, parts, at, to, address, nbytes, wide = broadcast_warp_8(
            what, number, parts, at, to, address, nbytes, wide
        )
        if what == _NOTHING:
            sync()  # before the next broadcast
            return False
        packed = (what == _SHORT or what == _WIDE) and parts != staging.NONE
        if packed:
            block_jobs.pack(ctx, slot, address, nbytes)
            sync()
        if what == _SHORT:
            packets.put_packets(at, address, nbytes, number, rank(), size())
        elif what == _LENGTH:
            packets.refresh_rest(at, number, packets.AFTER_FILLED, rank(), size())
        elif what == _WIDE:
            packets.refresh_rest(at, number, packets.AFTER_HEADER, rank(), size())
            block_jobs.put_wide(ctx, to, address, nbytes, wide)
        else:
            wide = push_round(ctx, slot, number, parts, at, to, address, nbytes, wide)
        sync()
        if leads() and lane_id() == 0:
            if packed:
                staging.give_back_packed(ctx, parts)
            _note_linked(ctx, slot, what, number, at, nbytes, wide)
        sync()
        return _is_last(what, nbytes, wide)

    return advance_send
