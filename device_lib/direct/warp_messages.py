"""A message in a slot of an inbox, stored or taken by one full warp: what ``one_warp`` consists of.

Of what memory is asked, everything that can be is under way together; no fence is on the way: what
is read was stored in one piece, or has been there since the channel was opened.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from device_lib.direct import many_packets, own, packets, rows, table
from device_lib.direct.announcing import was_in_vain
from device_lib.direct.claims import CLAIMED, LOST, NOT_YET
from device_lib.direct.words import peer_tag_of
from device_lib.move.copy import load_payload, store_bytes, store_words
from device_lib.move.message import is_sound
from device_lib.platform import primitives as gpu
from device_lib.platform.context import row_address
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import ALL_LANES, FULL_WARP
from device_lib.proxied import slots
from gmpi.contract import channels
from gmpi.contract.wire import LOW_32, PACKET_BYTES, PACKET_PAYLOAD, SCATTERED

ONE_EACH = (
    channels.HEADER_PAYLOAD + (FULL_WARP - 1) * PACKET_PAYLOAD
)  # bytes: a packet for each lane
_READY = channels.NUMBERS + 1  # beside the number of a message: its slot is free
TAKEN = 5  # as ``claims``: the message is in the user's buffer

LOOKS = 2 if gpu.SIMULATOR else 64  # for a message, before others' requests are thought of
# As long as the block has no other request that it must go on with: half of the time that those of
# other blocks are left alone. Who stops looking, and goes on by ``requests``, loses microseconds.
LOOKS_ALONE = 4 if gpu.SIMULATOR else 512


@device
def number_of(handle):
    """Of the message that a receive waits for."""
    return uint32(handle >> 1 & channels.NUMBERS)


@device
def draw_send(ctx, word0, peer_tag, count):
    """What a send begins with, by all lanes of the leading warp, which wait for none of it.

    Returns:
        (whether its arguments are sound; whether its channel was found; what ``table.road_of``
        returned; whether the lane has drawn a number, as lane 0 does; row, where the other end is,
        where ours is, counters, as from ``table.glance``; the number, as if it wrapped with 32 bits
        only; slots that are known to be free)
    """
    sound = is_sound(word0, count) & table.may_have_key(word0, peer_tag)
    key = table.key_as_it_is(word0, peer_tag)
    road = table.road_of(ctx, key)
    found, at, remote, local, counters = table.glance(ctx, key)
    draws = found & sound & (gpu.lane_id() == 0)
    number, free = gpu.draw_if(counters + channels.COUNTER_FREE, draws)
    return sound, found, road, draws, at, remote, local, counters, number, free


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
    lane = uint32(gpu.lane_id())
    begin = _begin(lane)
    there = min(_room(lane), uint32(nbytes - begin)) if begin < nbytes else uint32(0)
    low, high = load_payload(address + begin, there)
    return low, high if lane != 0 else int64(nbytes)


@device
def _may_put(local, counters, number, free, draws):
    """(number of a message, whether its slot is free), the same in all lanes of the leading warp.

    Args:
        free: slots that are known to be free, as ``table.known_free``.
        draws: in lane 0, whether it has drawn ``number`` and ``free``. They are on their way: what
            does not depend on them comes before this.
    """
    known = draws and table.slots_ahead(free, number) != 0
    # Both in one word: the lanes decide alike, without a vote.
    both = gpu.shuffle_32(ALL_LANES, uint32(number | (_READY if known else 0)), 0)
    ready = both >= _READY
    if not ready and gpu.ballot(ALL_LANES, draws) != 0:
        ready = free_slots(ALL_LANES, FULL_WARP, local, counters, number) > 0
    number = uint32(both & uint32(channels.NUMBERS))
    return number, ready & (not packets.refreshed(number))


@device
def put(nbytes, address, remote, local, counters, number, free, draws):
    """Whether a message of at most ONE_EACH bytes has been stored in its slot; the leading warp.
    Arguments as of ``_may_put``."""
    low, high = _load(nbytes, address)
    lane = uint32(gpu.lane_id())
    puts = (lane == 0) | (_begin(lane) < nbytes)
    number, ready = _may_put(local, counters, number, free, draws)
    at = packets.inbox_slot(remote, number) + lane * PACKET_BYTES
    mark = int64(packets.mark_of(number)) << 32
    gpu.write_packet_if(at, low, high | mark, ready & puts)
    return ready


@device
def put_many(nbytes, address, remote, local, counters, number, free, draws):
    """The same of a longer one."""
    many = many_packets.together(address, nbytes)
    six = many_packets.load_six(address, many)
    number, ready = _may_put(local, counters, number, free, draws)
    if ready:
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
def _lanes_of(nbytes):
    """A bit for each lane that has a packet of a message of at most ONE_EACH bytes."""
    rest = uint32(nbytes + uint32(PACKET_PAYLOAD - 1 - channels.HEADER_PAYLOAD))
    behind = many_packets.packets_of(rest) if nbytes > channels.HEADER_PAYLOAD else uint32(0)
    return uint32(uint32(LOW_32) >> uint32(uint32(FULL_WARP - 1) - behind))


@device
def _some_are_easy(target, nbytes, room, come):
    return (
        (nbytes <= room)
        & (_lanes_of(nbytes) & ~come == 0)
        & ((uint32(target) | nbytes) & uint32(3) == 0)
    )


@device
def _place_in(nbytes):
    """(where the lane's packet begins in a message, how many bytes of it the packet brings)."""
    lane = uint32(gpu.lane_id())
    begin = _begin(lane)
    return begin, min(_room(lane), uint32(nbytes - begin)) if begin < nbytes else uint32(0)


@device
def _store_some(ctx, target, nbytes, slot, mark, found):
    begin, there = _place_in(nbytes)
    store_words(target + begin, found[0], found[1] & LOW_32, there, 0)
    return True


@device
def _store_odd_ones(target, nbytes, come, found):
    if _lanes_of(nbytes) & ~come != 0:
        return False
    begin, there = _place_in(nbytes)
    store_bytes(target + begin, found[0], found[1] & LOW_32, there)
    return True


@device
def _many_are_easy(target, nbytes, room, come):
    return nbytes <= room


@device
def _are_in_one_piece(target, nbytes, room, come):
    return (nbytes <= room) & (target != SCATTERED)


@device
def _store_many(ctx, target, nbytes, slot, mark, found):
    aborted = many_packets.take(ctx, slot, target, nbytes, mark, found)
    return gpu.ballot(ALL_LANES, aborted != 0) == 0


@device
def _none_is_odd(target, nbytes, come, found):
    return False


class Packets(NamedTuple):
    """How the packets of a message are taken.

    Attributes:
        look: (slot, room, bits) -> low and high word of the lane's first packets.
        are_easy: (target, nbytes, room, come) -> whether ``store`` can have a message whose first
            packet has come: one branch for all that is rare, since each takes some 20 cycles.
        store: (ctx, target, nbytes, slot, mark, found) -> whether it is in the user's buffer; not
            where waits were aborted.
        store_odd: (target, nbytes, come, found) -> the same of what is not easy and fits; not where
            more packets are to come.

        may_be_scattered: whether a receive of data with gaps is taken, too: by ``take_beyond``.

    ``nbytes`` is what the first packet says, the same in all lanes; ``room`` that of the user's
    buffer; ``found`` what ``look`` has returned last; ``come`` a bit for each lane whose first
    packet that is.
    """

    look: Callable
    are_easy: Callable
    store: Callable
    store_odd: Callable
    may_be_scattered: bool = False


ONE_FOR_EACH = Packets(look_at_one, _some_are_easy, _store_some, _store_odd_ones)
MANY = Packets(many_packets.look, _many_are_easy, _store_many, _none_is_odd)
ANY = Packets(many_packets.look, _are_in_one_piece, _store_many, _none_is_odd, True)


@device
def _lies_in_one_piece(target, length):
    return (target != SCATTERED) & (length >> rows.LENGTH_BITS + 8 & 0xFF != 0)


@device
def _lies_anywhere(target, length):
    return (target == SCATTERED) | _lies_in_one_piece(target, length)


@device
def _claim(ctx, handle, is_for_us):
    """Claims a receive that is not taken by anybody: (whether it is ours; whether it is for
    ``take``; user's buffer, LENGTH; key, where the other end is, where ours is); all lanes."""
    named = rows.names_request(ctx, handle)
    row = row_address(ctx, slots.slot_of(handle) if named else 0)
    length = gpu.load_gpu(row + rows.LENGTH)
    target, stamp = gpu.read_packet(row + rows.ADDRESS)
    claims = named & (gpu.lane_id() == 0)
    owner = gpu.cas_if(row + rows.OWNER, handle, handle | slots.CLAIMED, claims)
    key, remote, local = table.ends_of(ctx, stamp >> 32 & rows.INDEX_MASK)
    # The row is all there, and what it says is for this way.
    quick = (
        (stamp & LOW_32 == handle & LOW_32)
        & is_for_us(target, length)
        & (key >> channels.KEY_RECEIVES_SHIFT & 1 != 0)
        & (not packets.refreshed(number_of(handle)))
    )
    ours = gpu.ballot(ALL_LANES, claims & (owner == handle)) != 0
    quick = ours & (gpu.ballot(ALL_LANES, not quick) == 0)
    return ours, quick, target, length, key, remote, local


@device
def others_are_noted(handle):
    """``own.are_noted_besides``, the same in all lanes: other warps of the block note theirs
    meanwhile."""
    noted = 1 if own.are_noted_besides(handle) else 0
    return gpu.shuffle_32(ALL_LANES, uint32(noted), 0) != 0


def make_take(how: Packets, tell: Callable, take_beyond: Callable | None = None):
    """
    Args:
        tell: what ``telling.make_tell`` returned.
        take_beyond: (ctx, handle, target, length, origin, credit, slot, mark, nbytes, found, waits)
            -> what ``take`` returns, and has told: a message that is larger than the user's buffer,
            not in the slot, or for data with gaps. Where the slot and its credit are; the message's
            mark; whether the caller waits. Without it such a message is CLAIMED.
    """
    look, are_easy, store, store_odd, may_be_scattered = how
    is_for_us = _lies_anywhere if may_be_scattered else _lies_in_one_piece

    @device
    def take(ctx, handle, looks, leave):
        """(what has become of it, bytes, LENGTH, origin), the same in all lanes; of a receive in
        one piece. Only of what is TAKEN the last three say anything. The others have been told.

        All lanes load and decide alike: where they part, a warp loses more than the loads cost.

        Args:
            looks: how often to look for the message.
            leave: whether to give the claim back where it has not come.
        """
        ours, looking, target, length, key, remote, local = _claim(ctx, handle, is_for_us)
        lane = uint32(gpu.lane_id())
        number = number_of(handle)
        mark = uint32(packets.mark_of(number))
        room = uint32(length & rows.LENGTH_MASK)
        slot = packets.inbox_slot(local, number)
        bits = int64(mark) << 32
        # What is needed afterwards, while nothing is there.
        credit = gpu.opaque(packets.credit_of(remote, number))
        origin = gpu.opaque(peer_tag_of(key))
        tried = uint32(looks)
        longer = (tried > 1) & (leave == 0)
        state = CLAIMED if ours else LOST
        nbytes = uint32(0)
        while looking:
            found = look(slot, room, bits)
            come = uint32(gpu.ballot(ALL_LANES, uint32(found[1] >> 32) == mark))
            if come & 1 != 0:
                nbytes = gpu.shuffle_32(ALL_LANES, uint32(found[1]), 0)
                if are_easy(target, nbytes, room, come):
                    if store(ctx, target, nbytes, slot, mark, found):
                        state = TAKEN
                    break
                if nbytes > room or (may_be_scattered and target == SCATTERED):
                    if take_beyond is not None:
                        return take_beyond(
                            ctx, handle, target, length, origin, credit, slot, mark, nbytes, found,
                            (uint32(looks) > 1) & (leave == 0),
                        )  # fmt: skip
                    break
                if store_odd(target, nbytes, come, found):
                    state = TAKEN
                    break
            tried = uint32(tried - 1)
            if tried == 0:
                if not longer or others_are_noted(handle):
                    if leave != 0:
                        state = NOT_YET
                        if lane == 0:
                            rows.leave(ctx, handle)
                    break
                longer = False
                tried = uint32(LOOKS_ALONE)
            gpu.spin()
        # Without a branch; and the others need not wait until the row is closed.
        tell(state, int64(nbytes), length, origin)
        if may_be_scattered and lane == 0:
            was_in_vain(length)
        rows.close_taken(ctx, handle, credit, bits, (lane == 0) & (state == TAKEN))
        return state, int64(nbytes), length, origin

    return take
