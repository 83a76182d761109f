"""Blocks of an exchange that go straight to the receiver's registered array.

A receive *answers* as soon as it is entered, before it knows of its message: where the block goes,
or that it must come by the inbox. So a block takes one way, and not three. The sender looks for the
answer for a moment; where none comes, it takes the inbox, if the block fits there.

Called by one lane, except where it says otherwise. A receive may answer where the message that had
its slot before has been taken: so in a call with several messages of one channel only the first
ones do. Blocks of up to 64 KiB always come by the inbox: to wait for the answer, and for the fence
behind a block that went straight, takes as long as a second copy.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import announcing, packets, receives, registered, rows, table
from device_lib.direct.grid_rounds import log_of
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from gmpi.contract import channels
from gmpi.contract.wire import SCATTERED

# In LENGTH of a receive:
ANSWERED = 1 << rows.LENGTH_BITS  # it has said where the block goes
STAGED_ONLY = 2 << rows.LENGTH_BITS  # a long block comes by staging, wherever it goes
NO_ANSWER = 0
BY_INBOX = 1
STRAIGHT = 2
_SHORTER = 1 << 16  # bytes; of blocks that are longer there are answers
_LOOKS = 2 if gpu.SIMULATOR else 6  # of some 0.6 us each


@device
def is_answered(number, nbytes):
    """Both ends say the same where they have the same length."""
    return may_be_answered(nbytes) and not packets.refreshed(number)


@device
def may_be_answered(nbytes):
    return nbytes > _SHORTER


@device
def place_for_answer(ctx, nbytes, address, remote):
    """``registered.place_by_warp`` of a block that may have an answer; all lanes of a warp.

    Args:
        address: of the user's buffer, or SCATTERED.
        remote: where the other end of the channel is.
    """
    if not may_be_answered(nbytes) or address == SCATTERED:
        return 0
    return registered.place_by_warp(ctx, address, nbytes, remote)


@device
def answer(ctx, slot, number, nbytes, place, remote, local):
    """Tells the sender of a receive where its block goes; the LENGTH of its row.

    Args:
        place: what ``place_for_answer`` has found.
        remote, local: where the other end of the channel is, and ours.
    """
    if not is_answered(number, nbytes):
        return nbytes
    if place == 0:
        packets.announce_inbox(remote, number)
        return nbytes
    announce_place(remote, number, place - local, nbytes)
    return expect(ctx, slot, nbytes)


@device
def announce_place(remote, number, place, nbytes):
    """Says that a block goes straight to a place, relative to our inbox.

    The fence: what this GPU has stored there comes first, and so does an earlier answer that nobody
    has waited for.
    """
    gpu.fence_sys()
    log = log_of(nbytes)
    wanted = nbytes | (log | channels.STRAIGHT) << channels.ROUND_SHIFT
    packets.announce(remote, number, place, wanted, 0)


@device
def expect(ctx, slot, nbytes):
    """Notes in the row of a receive that its block comes straight: its LENGTH."""
    buffer = announcing.USERS_BUFFER | log_of(nbytes) << announcing.LOG_SHIFT
    rows.set_field(ctx, slot, rows.WANTED, nbytes | buffer << rows.LENGTH_BITS)
    return nbytes | ANSWERED


@device
def answer_to(cells, number, nbytes):
    """(what has been answered to a send: NO_ANSWER so far, BY_INBOX or STRAIGHT; where to, relative
    to the inbox; parts of the round)."""
    first, place, wanted, beside = packets.announced(cells, number)
    if first < 0 or (first == 0 and not beside):
        return NO_ANSWER, 0, 0
    log = wanted >> channels.ROUND_SHIFT
    if first != 0 or wanted & (1 << channels.ROUND_SHIFT) - 1 != nbytes:
        return BY_INBOX, 0, 0
    return STRAIGHT, place, 1 << (log & channels.STRAIGHT - 1)


@device
def _ask(ctx, slot):
    """Looks for the answer to a send; where the block goes straight, its length is sent."""
    stage, address, stamp, length = rows.facts(ctx, slot)
    number = stamp >> 1 & channels.NUMBERS
    length &= rows.LENGTH_MASK
    if address == SCATTERED or length > channels.WIDE_ROOM or not is_answered(number, length):
        return 0
    row = rows.channel_of(ctx, slot)
    key, remote, local, counters = table.entries(row)
    first = packets.first_announced(local, number)
    looked = 1
    while first < 0 and looked < _LOOKS:
        gpu.spin()
        first = packets.first_announced(local, number)
        looked += gpu.opaque(1)
    if first == 0:  # so the slot is free, too
        at = packets.inbox_slot(remote, number)
        packets.write_length(at, length, number)
        rows.set_stage(ctx, slot, rows.ROUNDS)
    return 0


ask = linked("gmpi_direct_exchange_ask", 4, 1, _ask)


@device
def _note(ctx, slot, what, number, buffer, length, wanted, parts):
    """As ``receives.note``: a receive that has answered need not say it again."""
    if what == receives.LENGTH:
        said = rows.field(ctx, slot, rows.LENGTH)
        if said & ANSWERED != 0:
            rows.set_field(ctx, slot, rows.OUTCOME, length)
            rows.set_stage(ctx, slot, rows.ROUNDS)
        else:
            place = int64(0)
            if said & STAGED_ONLY == 0:
                place = int64(announcing.users_place(ctx, slot, wanted))
            key, sender, inbox, counters = rows.ends_of(ctx, rows.field(ctx, slot, rows.STAMP))
            announcing.begin_rounds(ctx, slot, number, length, wanted, place, sender, inbox)
        return 0
    return receives.note(ctx, slot, what, number, buffer, length, wanted, parts)


note = linked("gmpi_direct_exchange_note", 10, 1, _note)
