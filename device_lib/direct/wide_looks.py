"""What a message that is too large for a slot looks for, for a moment, before it is left to
``requests``: the wide slot, the buffer that its receiver has announced, or its bytes. Called by the
leading warp."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import own, packets, rows, table
from device_lib.direct.grid_rounds import parts_for, parts_there
from device_lib.direct.sends import announced_to
from device_lib.direct.warp_messages import LOOKS_ALONE, free_slots, others_are_noted
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import ALL_LANES, FULL_WARP
from gmpi.contract import channels
from gmpi.contract.wire import LOW_32

# What has become of a send, in lane 0.
LEFT = 0  # to ``requests``
IN_WIDE_SLOT = 1
LONG = 2  # the same, but its length may be sent before

# For the wide slot: the other end of an exchange takes our last message as we take its own, and to
# go on by ``requests`` takes longer. More for longer messages, which take longer to move: if one
# rank has been late, they come together again.
_LOOKS_FOR_SLOT = 2 if gpu.SIMULATOR else 8
_LOOKS_SHIFT = 12  # and another one for each 4 KiB
_LOOKS_FOR_PLACE = 2 if gpu.SIMULATOR else 3  # where a receiver has announced its buffer
_IN_EXCHANGE = 4 if gpu.SIMULATOR else 12  # the same, where the block has a long receive open, too
_IN_SEND = 4 if gpu.SIMULATOR else 64  # the same, where the call has to wait for it anyhow


@device
def ask_for_wide(ctx, nbytes, draws, local, counters):
    """(number in the wide slot, in lane 0; the credit of a slot, for the lane), both on their way
    together with the number of the message; all lanes of the leading warp. The number is drawn in
    vain where the slot is not free.

    Args:
        draws: as of ``way_of``.
    """
    asks = draws & (nbytes <= channels.WIDE_ROOM)
    wide = gpu.add_if(counters + channels.COUNTER_WIDE, 1, asks)
    cells = local if gpu.ballot(ALL_LANES, asks) != 0 else ctx.device  # which can be read
    return wide & channels.NUMBERS, packets.credit_word(cells, gpu.lane_id())


@device
def _all_taken(number, credit):
    """Whether all messages before one have been taken; all lanes, for lane 0's number.

    Args:
        credit: what ``ask_for_wide`` has returned.
    """
    number = gpu.shuffle_32(ALL_LANES, uint32(number), 0)
    ahead = uint32(uint32(gpu.lane_id()) - number) & uint32(channels.DEPTH - 1)
    before = int64(uint32(number + ahead - uint32(channels.DEPTH)))
    return gpu.ballot(ALL_LANES, credit >> 32 & LOW_32 != packets.mark_of(before)) == 0


@device
def way_of(nbytes, draws, number, free, local, counters, credit):
    """Which way is free for a message, in lane 0; the leading warp.

    Args:
        draws: whether lane 0 has drawn ``number`` and ``free``, as in ``one_warp``.
        credit: as of ``_all_taken``.
    """
    in_wide = nbytes <= channels.WIDE_ROOM
    wanted = channels.DEPTH if in_wide else 1
    ahead = table.slots_ahead(free, number)
    taken = _all_taken(number, credit)
    if in_wide and taken:
        ahead = channels.DEPTH
        if draws:
            table.set_known_free(counters, number + channels.DEPTH & channels.NUMBERS)
    missing = gpu.shuffle(ALL_LANES, 1 if draws and ahead < wanted else 0, 0) != 0
    looks = _LOOKS_FOR_SLOT + (nbytes >> _LOOKS_SHIFT) if in_wide else 1
    while missing and looks > 0:
        ahead = free_slots(ALL_LANES, FULL_WARP, local, counters, uint32(number))
        missing = ahead < wanted
        looks -= 1
    way = LEFT
    if draws and ahead >= wanted and not packets.refreshed(number):
        way = IN_WIDE_SLOT if in_wide else LONG
    return way


@device
def await_pushed(handle, slot, mark, nbytes, waits):
    """Whether all of a long message is in the user's buffer, and to be seen there: within a moment,
    if the caller waits and its block has no other request that it must go on with. The leading
    warp."""
    parts = parts_for(nbytes)
    looks = uint32(LOOKS_ALONE if waits and not others_are_noted(handle) else 1)
    come = parts_there(slot, int64(mark))
    while come < parts and looks > 1:
        gpu.spin()
        come = parts_there(slot, int64(mark))
        looks = uint32(looks - 1)
    return gpu.ballot(ALL_LANES, come < parts) == 0


@device
def look_for_place(ctx, local, number, nbytes, blocks):
    """(bytes that a receiver wants of a long message, where), as ``announced_to``; lane 0. Both
    ranks of an exchange post, then send: the other one's buffer is announced at this moment. So it
    is where they take turns: who has received our last message posts its receive as we send.

    Args:
        blocks: whether the call returns when the message has gone.
    """
    said, wanted, place = announced_to(local, number, nbytes)
    looks = _LOOKS_FOR_PLACE
    if blocks:
        looks = _IN_SEND
    elif own.are_noted_besides(rows.direct_handle(ctx, 0, 0, 0)):
        looks = _IN_EXCHANGE
    while not said and looks > 1:
        gpu.spin()
        said, wanted, place = announced_to(local, number, nbytes)
        looks -= gpu.opaque(1)
    return wanted, place
