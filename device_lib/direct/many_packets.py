"""A message that fits a slot, but has more packets than a warp has lanes, by one full warp.

Lane ``k`` moves packets ``k``, ``k + 32`` and so on, several at a time: a wait for memory takes
longer than all their instructions. There are registers for six where they are sent, for four where
they are awaited. That goes for whole words at multiples of 4; the last packet need not be full. Of
other messages what fills packets is moved like that, and the rest one by one: at most one packet
where the buffer lies at a multiple of 4.

All packets but the first bring 12 bytes each, as if the first one began 4 bytes before the message.
Where a lane is in the message is how many bytes are *left*, from the beginning of its next packet
on.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import packets
from device_lib.move.copy import load_words, store_words
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import FULL_WARP
from gmpi.contract.channels import HEADER_PAYLOAD
from gmpi.contract.wire import CONTROL_ABORT, LOW_32, PACKET_BYTES, PACKET_PAYLOAD

_STEP = FULL_WARP * PACKET_BYTES  # from a lane's packet to its next
_PAYLOAD_STEP = FULL_WARP * PACKET_PAYLOAD


@device
def packets_of(nbytes):
    """How many packets so many bytes fill: divided by 12."""
    return uint32(uint32(nbytes * uint32(43691)) >> uint32(19))


@device
def together(address, nbytes):
    """How many bytes of a message are moved several packets at a time.

    Args:
        address: of the user's buffer.
    """
    if address & 3 != 0 or nbytes < uint32(HEADER_PAYLOAD):
        return uint32(0)
    if nbytes & uint32(3) == 0:
        return uint32(nbytes)
    rest = packets_of(uint32(nbytes - uint32(HEADER_PAYLOAD))) * uint32(PACKET_PAYLOAD)
    return uint32(uint32(HEADER_PAYLOAD) + uint32(rest))


@device
def _minus(left, done):
    return uint32(left - uint32(done)) if left > uint32(done) else uint32(0)


@device
def _left_at(many):
    """What is left from the lane's first packet on, of what ``together`` returned."""
    shifted = uint32(many + uint32(packets.SHIFT)) if many != 0 else uint32(0)
    return _minus(shifted, uint32(gpu.lane_id()) * uint32(PACKET_PAYLOAD))


@device
def _begin_in(buffer):
    """Where the lane's first packet begins in a buffer; of lane 0, before it."""
    return buffer + uint32(gpu.lane_id()) * uint32(PACKET_PAYLOAD) - packets.SHIFT


@device
def _first_of(address, left, whole):
    """(where the bytes of the lane's first packet are, how many are left from there on, but not
    more than the packet has room for); ``whole``: whether it is not that of the message."""
    if whole:
        return address, left
    return address + packets.SHIFT, min(_minus(left, packets.SHIFT), uint32(HEADER_PAYLOAD))


@device
def load_six(buffer, many):
    """The lane's first six packets of a message, as far as there are so many, all under way
    together."""
    address = _begin_in(buffer)
    left = _left_at(many)
    begin, there = _first_of(address, left, gpu.lane_id() != 0)
    a, p = load_words(begin, there, 0)
    b, q, c, r, d, s, e, t, f, u = _load_five(address, left)
    return a, p, b, q, c, r, d, s, e, t, f, u


@device
def _load_five(address, left):
    """Five packets behind one at ``address``."""
    b, q = load_words(address, left, _PAYLOAD_STEP)
    c, r = load_words(address, left, 2 * _PAYLOAD_STEP)
    d, s = load_words(address, left, 3 * _PAYLOAD_STEP)
    e, t = load_words(address, left, 4 * _PAYLOAD_STEP)
    f, u = load_words(address, left, 5 * _PAYLOAD_STEP)
    return b, q, c, r, d, s, e, t, f, u


@device
def put(slot, source, nbytes, mark, many, six):
    """Stores a message to its slot.

    Args:
        mark: of its number.
        many: what ``together`` returned.
        six: what ``load_six`` returned.
    """
    bits = int64(mark) << 32
    at = slot + uint32(gpu.lane_id()) * uint32(PACKET_BYTES)
    address = _begin_in(source)
    left = _left_at(many)
    a, p, b, q, c, r, d, s, e, t, f, u = six
    if gpu.lane_id() == 0:
        p = int64(nbytes)
    while left != 0:
        gpu.write_packet(at, a, p | bits)
        if left > uint32(_PAYLOAD_STEP):
            gpu.write_packet(at + _STEP, b, q | bits)
        if left > uint32(2 * _PAYLOAD_STEP):
            gpu.write_packet(at + 2 * _STEP, c, r | bits)
        if left > uint32(3 * _PAYLOAD_STEP):
            gpu.write_packet(at + 3 * _STEP, d, s | bits)
        if left > uint32(4 * _PAYLOAD_STEP):
            gpu.write_packet(at + 4 * _STEP, e, t | bits)
        if left > uint32(5 * _PAYLOAD_STEP):
            gpu.write_packet(at + 5 * _STEP, f, u | bits)
        at += 6 * _STEP
        address += 6 * _PAYLOAD_STEP
        left = _minus(left, 6 * _PAYLOAD_STEP)
        a, p = load_words(address, left, 0)
        b, q, c, r, d, s, e, t, f, u = _load_five(address, left)
    packet, end = _rest(nbytes, many)
    while packet < end:
        low, high = packets.load_packet(source, nbytes, packet)
        gpu.write_packet(slot + packet * uint32(PACKET_BYTES), low, high | bits)
        packet = uint32(packet + uint32(FULL_WARP))


@device
def _rest(nbytes, many):
    """(the lane's first packet of those that are moved one by one, the end of these)."""
    before = uint32(0)
    if many != 0:
        before = uint32(uint32(1) + packets_of(uint32(many - uint32(HEADER_PAYLOAD))))
    end = uint32(packets.count(int64(nbytes))) if many < nbytes or many == 0 else before
    return uint32(before + uint32(gpu.lane_id())), end


@device
def look(slot, room, bits):
    """(low and high word of the lane's first four packets, one after the other).

    Args:
        room: of the user's buffer: packets for which it has none are not loaded.
        bits: the message's mark, where a packet has it.
    """
    at = slot + uint32(gpu.lane_id()) * uint32(PACKET_BYTES)
    left = _left_at(room)
    a, p = gpu.read_packet(at if left != 0 else slot)
    b, q, c, r, d, s = _look_at_three(at, left, bits)
    return a, p, b, q, c, r, d, s


@device
def _look_at_three(at, left, bits):
    """Three packets behind one at ``at``."""
    b, q = gpu.read_packet_if(at + _STEP, bits, left > uint32(_PAYLOAD_STEP))
    c, r = gpu.read_packet_if(at + 2 * _STEP, bits, left > uint32(2 * _PAYLOAD_STEP))
    d, s = gpu.read_packet_if(at + 3 * _STEP, bits, left > uint32(3 * _PAYLOAD_STEP))
    return b, q, c, r, d, s


@device
def _is_missing(word, bits, wanted):
    return wanted and (word ^ bits) >> 32 & LOW_32 != 0


@device
def take(ctx, slot, target, nbytes, mark, four):
    """Stores a message whose first packet has come to the user's buffer.

    Args:
        four: what ``look`` returned.

    Returns:
        1 where waits were aborted before a lane's packets were there, else 0.
    """
    bits = int64(mark) << 32
    many = together(target, nbytes)
    at = slot + uint32(gpu.lane_id()) * uint32(PACKET_BYTES)
    address = _begin_in(target)
    left = _left_at(many)
    whole = gpu.lane_id() != 0
    a, p, b, q, c, r, d, s = four
    looks = uint32(0)
    while left != 0:
        missing = _is_missing(p, bits, True)
        missing = missing or _is_missing(q, bits, left > uint32(_PAYLOAD_STEP))
        missing = missing or _is_missing(r, bits, left > uint32(2 * _PAYLOAD_STEP))
        missing = missing or _is_missing(s, bits, left > uint32(3 * _PAYLOAD_STEP))
        if not missing:
            begin, there = _first_of(address, left, whole)
            store_words(begin, a, p, there, 0)
            store_words(address, b, q, left, _PAYLOAD_STEP)
            store_words(address, c, r, left, 2 * _PAYLOAD_STEP)
            store_words(address, d, s, left, 3 * _PAYLOAD_STEP)
            whole = True
            at += 4 * _STEP
            address += 4 * _PAYLOAD_STEP
            left = _minus(left, 4 * _PAYLOAD_STEP)
        else:
            looks = uint32(looks + uint32(1))
            if (
                looks & (packets.PATIENCE - 1) == 0
                and gpu.load_sys(ctx.mapped + CONTROL_ABORT) != 0
            ):
                return 1
            gpu.spin()
        if left != 0:
            a, p = gpu.read_packet(at)
            b, q, c, r, d, s = _look_at_three(at, left, bits)
    packet, end = _rest(nbytes, many)
    while packet < end:
        place = slot + packet * uint32(PACKET_BYTES)
        low, word, aborted = packets.await_packet(ctx.mapped, place, int64(mark))
        if aborted != 0:
            return 1
        packets.store_packet(target, nbytes, packet, low, word)
        packet = uint32(packet + uint32(FULL_WARP))
    return 0
