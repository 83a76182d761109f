"""A message in a slot of an inbox, stored or taken by one full warp: what ``one_warp`` consists of.

Of what memory is asked, everything that can be is under way together; no fence is on the way: what
is read was stored in one piece, or has been there since the channel was opened.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import many_packets, own, packets, rows, table
from device_lib.direct.claims import CLAIMED, LOST, NOT_YET
from device_lib.direct.words import peer_tag_of
from device_lib.move.copy import load_payload, store_payload
from device_lib.move.message import is_sound
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import ALL_LANES, FULL_WARP
from device_lib.proxied import slots
from device_lib.proxied.closing import NO_ORIGIN
from gmpi.contract import channels
from gmpi.contract.wire import LOW_32, PACKET_BYTES, PACKET_PAYLOAD, SCATTERED

ONE_EACH = (
    channels.HEADER_PAYLOAD + (FULL_WARP - 1) * PACKET_PAYLOAD
)  # bytes: a packet for each lane
TAKEN = 5  # as ``claims``: the message is in the user's buffer

LOOKS = 2 if gpu.SIMULATOR else 64  # for a message, before others' requests are thought of
# As long as the block has no other request that it must go on with: half of the time that those of
# other blocks are left alone. Who stops looking, and goes on by ``requests``, loses microseconds.
LOOKS_ALONE = 4 if gpu.SIMULATOR else 512


@device
def draw_send(ctx, word0, peer_tag, count):
    """What a send begins with, by all lanes of the leading warp, which wait for none of it.

    Returns:
        (whether its arguments are sound; what ``table.road_of`` returned; whether the lane has
        drawn a number, as lane 0 does; row, where the other end is, where ours is, counters, as
        from ``table.glance``; the number, as if it wrapped with 32 bits only; slots that are known
        to be free)
    """
    sound = is_sound(word0, count) & table.may_have_key(word0, peer_tag)
    key = table.key_as_it_is(word0, peer_tag)
    road = table.road_of(ctx, key)
    found, at, remote, local, counters = table.glance(ctx, key)
    draws = found & sound & (gpu.lane_id() == 0)
    number, free = gpu.draw_if(
        counters + channels.COUNTER_NUMBER, counters + channels.COUNTER_FREE, draws
    )
    return sound, road, draws, at, remote, local, counters, number, free


@device
def free_slots(mask, lanes, local, counters, number):
    """How many slots from a message's own on are free; all lanes of a warp, for lane 0's values.

    As many as DEPTH: all messages before have been taken.

    Args:
        mask, lanes: of the warp.
    """
    local = gpu.shuffle(mask, local, 0)
    number = gpu.shuffle_32(mask, number, 0)
    # All credits at once, each by a lane: the next messages need not ask.
    lane = gpu.lane_id()
    credit = False
    if lane < channels.DEPTH:
        credit = packets.has_credit(local, number + lane & channels.NUMBERS)
    ahead = gpu.first_bit(~gpu.ballot(mask, credit) & LOW_32 | 1 << min(channels.DEPTH, lanes))
    if lane == 0 and ahead > 0:
        table.set_known_free(counters, number + ahead & channels.NUMBERS)
    return ahead


@device
def _begin(lane):
    """The first byte of a message that a lane's packet brings."""
    return uint32(lane * uint32(PACKET_PAYLOAD) - packets.SHIFT) if lane != 0 else uint32(0)


@device
def _room(lane):
    """How many it has room for."""
    return uint32(PACKET_PAYLOAD if lane != 0 else channels.HEADER_PAYLOAD)


@device
def _load(nbytes, address):
    """(low word, high word) of the lane's packet of a message."""
    begin = uint32(0)
    there = uint32(nbytes)
    lane = uint32(0)
    if nbytes > channels.HEADER_PAYLOAD:
        lane = uint32(gpu.lane_id())
        begin = _begin(lane)
        there = min(_room(lane), uint32(nbytes - begin)) if begin < nbytes else uint32(0)
    low, high = load_payload(address + begin, there)
    return low, high if lane != 0 else int64(nbytes)


@device
def _may_put(local, counters, number, free, draws):
    """Whether the slot of a message is free, in lane 0; the leading warp.

    Args:
        free: slots that are known to be free, as ``table.known_free``.
        draws: in lane 0, whether it has drawn ``number`` and ``free``. They are on their way: what
            does not depend on them comes before this.
    """
    ahead = uint32(table.slots_ahead(free, number))
    if gpu.ballot(ALL_LANES, draws and ahead == 0) != 0:
        ahead = uint32(free_slots(ALL_LANES, FULL_WARP, local, counters, number))
    return draws and ahead > 0 and not packets.refreshed(number)


@device
def put(nbytes, address, remote, local, counters, number, free, draws):
    """Whether a message of at most ONE_EACH bytes has been stored in its slot, in lane 0; the
    leading warp. Arguments as of ``_may_put``."""
    low, high = _load(nbytes, address)
    ready = _may_put(local, counters, number, free, draws)
    puts = ready
    lane = uint32(0)
    if nbytes > channels.HEADER_PAYLOAD:
        lane = uint32(gpu.lane_id())
        number = gpu.shuffle_32(ALL_LANES, number, 0)
        puts = gpu.ballot(ALL_LANES, ready) != 0 and _begin(lane) < nbytes
    if puts:
        at = packets.inbox_slot(remote, number) + lane * PACKET_BYTES
        gpu.write_packet(at, low, high | int64(packets.mark_of(number)) << 32)
    return ready


@device
def put_many(nbytes, address, remote, local, counters, number, free, draws):
    """The same of a longer one."""
    many = many_packets.together(address, nbytes)
    six = many_packets.load_six(address, many)
    ready = _may_put(local, counters, number, free, draws)
    if gpu.ballot(ALL_LANES, ready) != 0:
        number = gpu.shuffle_32(ALL_LANES, number, 0)
        slot = packets.inbox_slot(remote, number)
        many_packets.put(slot, address, nbytes, packets.mark_of(number), many, six)
    return ready


@device
def look_at_one(slot, room, bits):
    """(low word, high word) of the lane's packet, of a message that has one for each lane; of the
    first packet where there is no room for the lane's.

    Args:
        room: of the user's buffer.
        bits: the message's mark, where a packet has it.
    """
    lane = uint32(gpu.lane_id())
    return gpu.read_packet(slot + lane * PACKET_BYTES if _begin(lane) < room else slot)


@device
def store_some(ctx, target, nbytes, slot, mark, found):
    """Whether the lanes have stored a message to the user's buffer; not where waits were aborted.

    Args:
        found: what ``look_at_one`` has returned.
    """
    low, word = found
    lane = uint32(gpu.lane_id())
    begin = uint32(0)
    there = uint32(nbytes)
    stores = lane == 0
    if nbytes > channels.HEADER_PAYLOAD:
        begin = _begin(lane)
        stores = begin < nbytes
        there = min(_room(lane), uint32(nbytes - begin))
        missing = stores and uint32(word >> 32) != mark
        if gpu.ballot(ALL_LANES, missing) != 0:
            aborted = 0
            if missing:
                place = slot + lane * PACKET_BYTES
                low, word, aborted = packets.await_packet(ctx.mapped, place, int64(mark))
            if gpu.ballot(ALL_LANES, aborted != 0) != 0:
                return False
    if stores:
        store_payload(target + begin, low, word & LOW_32, there)
    return True


@device
def store_many(ctx, target, nbytes, slot, mark, found):
    """The same of a message that may have more packets than there are lanes.

    Args:
        found: what ``many_packets.look`` has returned.
    """
    aborted = many_packets.take(ctx, slot, target, nbytes, mark, found)
    return gpu.ballot(ALL_LANES, aborted != 0) == 0


def make_finish(store: Callable):
    """For ``make_take``: the end of a receive that fits a slot.

    Args:
        store: ``store_some``, or ``store_many``.
    """

    # wide: what ``take`` holds, in registers
    @device
    def finish(ctx, handle, target, length, origin, credit, slot, mark, nbytes, found):
        if nbytes > uint32(length & rows.LENGTH_MASK):  # or not in the slot
            return CLAIMED, 0, 0, NO_ORIGIN
        if not store(ctx, target, nbytes, slot, mark, found):
            return CLAIMED, 0, 0, NO_ORIGIN
        if gpu.lane_id() == 0:  # the lanes have seen their packets
            gpu.write_packet(credit, 0, int64(mark) << 32)
            rows.close_row(ctx, handle)
        return TAKEN, int64(nbytes), length, origin

    return finish


def make_take(look: Callable, finish: Callable):
    """
    Args:
        look: (slot, room, bits) -> low and high word of the lane's first packets: ``look_at_one``,
            or ``many_packets.look``.
        finish: (ctx, handle, target, length, origin, credit, slot, mark, nbytes, found) -> what
            ``take`` returns: ends a receive whose message has come. Its user's buffer, LENGTH and
            origin; where the slot and its credit are; the message's mark, and what its first packet
            says of its length, the same in all lanes; and what ``look`` has returned last.
    """

    @device
    def take(ctx, handle, looks, leave):
        """(what has become of it, bytes, LENGTH, origin), the same in all lanes; of a receive in
        one piece.

        All lanes load and decide alike: where they part, a warp loses more than the loads cost.

        Args:
            looks: how often to look for the message.
            leave: whether to give the claim back where it has not come.
        """
        if not rows.names_request(ctx, handle):
            return LOST, 0, 0, NO_ORIGIN
        lane = uint32(gpu.lane_id())
        row = rows.row_of(ctx, handle)
        length = gpu.load_gpu(row + rows.LENGTH)
        target, stamp = gpu.read_packet(row + rows.ADDRESS)
        owner = gpu.cas_if(row + rows.OWNER, handle, handle | slots.CLAIMED, lane == 0)
        key, remote, local = table.ends_of(ctx, stamp >> 32 & rows.INDEX_MASK)
        number = uint32(handle >> 1 & channels.NUMBERS)
        # The row is all there, and what it says is for this way.
        quick = stamp & LOW_32 == handle & LOW_32 and target != SCATTERED
        quick = quick and key >> channels.KEY_RECEIVES_SHIFT & 1 != 0
        quick = (
            quick and length >> rows.LENGTH_BITS + 8 & 0xFF != 0 and not packets.refreshed(number)
        )
        if gpu.ballot(ALL_LANES, lane == 0 and owner != handle) != 0:
            return LOST, 0, 0, NO_ORIGIN
        if gpu.ballot(ALL_LANES, not quick) != 0:
            return CLAIMED, 0, 0, NO_ORIGIN
        mark = uint32(packets.mark_of(number))
        room = uint32(length & rows.LENGTH_MASK)
        slot = packets.inbox_slot(local, number)
        bits = int64(mark) << 32
        # What is needed afterwards, while nothing is there.
        credit = gpu.opaque(packets.credit_of(remote, number))
        origin = gpu.opaque(peer_tag_of(key))
        tried = uint32(looks)
        longer = tried > 1 and leave == 0
        found = look(slot, room, bits)
        come = gpu.ballot(ALL_LANES, uint32(found[1] >> 32) == mark)
        while come & 1 == 0:
            tried = uint32(tried - 1)
            if tried == 0:
                if not longer or own.are_noted_besides(handle):
                    if leave != 0 and lane == 0:
                        rows.leave(ctx, handle)
                    return NOT_YET if leave != 0 else CLAIMED, 0, 0, NO_ORIGIN
                longer = False
                tried = uint32(LOOKS_ALONE)
            gpu.spin()
            found = look(slot, room, bits)
            come = gpu.ballot(ALL_LANES, uint32(found[1] >> 32) == mark)
        nbytes = gpu.shuffle_32(ALL_LANES, uint32(found[1]), 0)
        return finish(ctx, handle, target, length, origin, credit, slot, mark, nbytes, found)

    return take
