"""Where a long message goes: what its receiver announces to the sender.

A buffer that the sender can store to is announced as soon as its receive has been entered
(``tests/model/channel.pml``). So a sender that comes later need not wait. A staging buffer, of
which there are few, is announced when the length of a message has come.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import packets, registered, rows, staging, table
from device_lib.direct.grid_rounds import log_of, parts_of
from device_lib.platform import primitives as gpu
from device_lib.platform.context import leads_grid
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import ALL_LANES
from device_lib.proxied.slots import slot_of
from gmpi.contract import channels
from gmpi.contract.registered import ALIGNMENT
from gmpi.contract.wire import LOW_32, SCATTERED

NO_BUFFER = staging.NONE  # of a long message of which nothing is wanted
USERS_BUFFER = staging.NONE + 1  # the sender stores there itself
LOG_SHIFT = 8  # beside a buffer's number


@device
def announce(sender, inbox, number, place, log, wanted, first):
    """Says where the round goes that begins with a part; one lane.

    Args:
        sender, inbox: the other end of the channel, and ours.
        log: log2 of its parts, | STRAIGHT.
    """
    packets.announce(sender, number, place - inbox, wanted | log << channels.ROUND_SHIFT, first)


@device
def announce_users(sender, inbox, number, place, log, wanted):
    """Says that a message goes to the user's buffer, at ``place``; one lane, after a barrier. What
    this GPU has stored there comes first: it could be on its way for longer than it takes the
    sender to store the message.
    """
    gpu.fence_sys()
    announce(sender, inbox, number, place, log | channels.STRAIGHT, wanted, 0)


@device
def announce_half(ctx, sender, inbox, number, buffer, wanted, first):
    """The same of a round that goes to a half of staging; one lane."""
    log = buffer >> LOG_SHIFT
    place = staging.address_of(ctx, buffer) + (first >> log & 1) * (channels.PART_BYTES << log)
    announce(sender, inbox, number, place, log, wanted, first)


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
    """Announces the first two rounds, if there is a buffer for them; one lane.

    A grid takes several, as far as the message is so long: its rounds are as much longer.

    Args:
        place: what ``users_place`` has returned, or 0.
        sender, inbox: the other end of the channel, and ours.
    """
    buffer = NO_BUFFER
    log = 0
    if place != 0:
        buffer = USERS_BUFFER
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
    if place != 0:
        announce_users(sender, inbox, number, place, log, wanted)
    else:
        first = 1 << log if channels.PART_BYTES << log < wanted else 0
        announce_half(ctx, sender, inbox, number, buffer, wanted, first)
    _expect(ctx, slot, length, wanted, buffer)


@device
def _expect(ctx, slot, length, wanted, buffer):
    """Notes that a message comes in rounds, of which the first have been announced."""
    rows.set_field(ctx, slot, rows.WANTED, wanted | buffer << rows.LENGTH_BITS)
    rows.set_field(ctx, slot, rows.OUTCOME, length)
    rows.set_stage(ctx, slot, rows.ROUNDS)


@device
def _may_announce(low, word, pushed, number):
    """Whether a receive may announce its user's buffer, by what is in the slot of its message: the
    length of a long one, or all of the message that had it before, which needs its own announcement
    no more.

    Args:
        low, word: first packet in the slot.
        pushed: parts that have come of the message before.
    """
    before = packets.mark_of(number - channels.DEPTH)
    is_long = word & LOW_32 == channels.LONG
    if word >> 32 & LOW_32 == packets.mark_of(number):
        return is_long
    if word >> 32 & LOW_32 != before:
        return False
    return not is_long or pushed * channels.PART_BYTES >= low


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
    slot = slot_of(handle)
    key, sender, inbox = table.ends_of(ctx, index)
    # Under way while the array is looked for.
    at = packets.inbox_slot(inbox, number)
    low, word = gpu.read_packet(at)
    pushed = parts_of(at, packets.mark_of(number - channels.DEPTH))
    length = rows.field(ctx, slot, rows.LENGTH)
    place = registered.place_by_warp(ctx, target, room, sender)
    if gpu.lane_id() == 0 and place != 0 and not packets.refreshed(number):
        if _may_announce(low, word, pushed, number):
            announce_users(sender, inbox, number, place, log_of(room), room)
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
def is_known(said, wanted):
    """Whether the sender knows where a message goes.

    Args:
        said: LENGTH of the receive's row.
    """
    return said & rows.ANNOUNCED != 0 and wanted & ALIGNMENT - 1 == 0


# wide: what a receive is about
@device
def begin(ctx, slot, number, length, wanted, place, sender, inbox, said):
    """The length of a long message has come; one lane.

    Args:
        place, sender, inbox: as of ``begin_rounds``.
        said: LENGTH of the receive's row.
    """
    if is_known(said, wanted):
        _expect(ctx, slot, length, wanted, USERS_BUFFER | log_of(wanted) << LOG_SHIFT)
    else:
        was_in_vain(said)
        begin_rounds(ctx, slot, number, length, wanted, place, sender, inbox)
    return 0


_begin_linked = linked("gmpi_direct_begin_long", 11, 1, begin)


@device
def begin_long(ctx, handle, target, said, length, sender, inbox):
    """The length of a long message has come for a receive that the caller has just claimed: whether
    it goes straight to the user's buffer. The leading warp, a full one.

    Args:
        said: LENGTH of its row.
    """
    said = gpu.shuffle(ALL_LANES, said, 0)  # who has entered it: others may not see ANNOUNCED yet
    number = handle >> 1 & channels.NUMBERS
    wanted = min(length, said & rows.LENGTH_MASK)
    known = is_known(said, wanted)
    place = int64(0)
    if not known and target != SCATTERED and wanted > 0:
        place = registered.place_by_warp(ctx, target, wanted, sender)
    if gpu.lane_id() == 0:
        slot = slot_of(handle)
        _begin_linked(ctx, slot, number, length, wanted, place, sender, inbox, said)
    return known or place != 0
