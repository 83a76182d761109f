"""A message that fits a slot, but has more packets than a warp has lanes, by one full warp.

All packets but the first bring 12 bytes each. A lane moves each 32nd of these, several at a time: a
wait for memory takes longer than all their instructions. There are registers for six where they are
sent, for four where they are awaited. That goes for whole words at multiples of 4, the last packet
need not be full. Of other messages what fills packets is moved like that, and the rest, at most one
packet where words lie at multiples of 4, one by one.

Where a lane is in the message is how many bytes are *left* from the lane's next packet on.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import packets
from device_lib.move.copy import load_payload, load_words, store_payload, store_words
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import FULL_WARP
from gmpi.contract.channels import HEADER_PAYLOAD
from gmpi.contract.wire import CONTROL_ABORT, LOW_32, PACKET_BYTES, PACKET_PAYLOAD

_STEP = FULL_WARP * PACKET_BYTES  # from a lane's packet to its next
_PAYLOAD_STEP = FULL_WARP * PACKET_PAYLOAD


@device
def _packets_of(nbytes):
    """How many packets so many bytes fill: divided by 12."""
    return uint32(uint32(nbytes * uint32(43691)) >> uint32(19))


@device
def together(address, nbytes):
    """How many bytes of a message, behind those of the first packet, are moved several packets at a
    time.

    Args:
        address: of the user's buffer.
    """
    rest = uint32(max(nbytes, HEADER_PAYLOAD) - HEADER_PAYLOAD)
    if address & 3 != 0:
        return uint32(0)
    if rest & uint32(3) != 0:
        return uint32(_packets_of(rest) * uint32(PACKET_PAYLOAD))
    return rest


@device
def _minus(left, done):
    return uint32(left - uint32(done)) if left > uint32(done) else uint32(0)


@device
def left_of(many):
    """What is left from the lane's first packet on, of what ``together`` returned."""
    return _minus(many, uint32(gpu.lane_id()) * uint32(PACKET_PAYLOAD))


@device
def first_payload(address):
    """Where the bytes of the lane's first packet are in a buffer."""
    return address + HEADER_PAYLOAD + uint32(gpu.lane_id()) * uint32(PACKET_PAYLOAD)


@device
def load_six(address, left):
    """A lane's next six packets, as far as there are so many, all under way together.

    Args:
        address: of the bytes of the first of the six.
    """
    a, p = load_words(address, left, 0)
    b, q = load_words(address, left, _PAYLOAD_STEP)
    c, r = load_words(address, left, 2 * _PAYLOAD_STEP)
    d, s = load_words(address, left, 3 * _PAYLOAD_STEP)
    e, t = load_words(address, left, 4 * _PAYLOAD_STEP)
    f, u = load_words(address, left, 5 * _PAYLOAD_STEP)
    return a, p, b, q, c, r, d, s, e, t, f, u


@device
def put(slot, source, nbytes, mark, first, many, six):
    """Stores a message to its slot.

    Args:
        mark: of its number.
        first: its first 8 bytes.
        many: what ``together`` returned.
        six: what ``load_six`` returned of the lane's first packets.
    """
    lane = uint32(gpu.lane_id())
    bits = int64(mark) << 32
    if lane == 0:
        gpu.write_packet(slot, first, int64(nbytes) | bits)
    slot += PACKET_BYTES
    at = slot + lane * uint32(PACKET_BYTES)
    address = first_payload(source)
    left = left_of(many)
    while left != 0:
        a, p, b, q, c, r, d, s, e, t, f, u = six
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
        six = load_six(address, left)
    packet, begin = _first_of_rest(nbytes, many)
    while begin < nbytes:
        low, high = load_payload(source + begin, uint32(nbytes - begin))
        gpu.write_packet(slot + packet * uint32(PACKET_BYTES), low, high & LOW_32 | bits)
        packet = uint32(packet + uint32(FULL_WARP))
        begin = uint32(begin + uint32(_PAYLOAD_STEP))


@device
def _first_of_rest(nbytes, many):
    """(the lane's first packet of those that are moved one by one, counted without the message's
    first one; the first byte that it brings: ``nbytes`` or more if there is none)."""
    packet = uint32(_packets_of(many) + uint32(gpu.lane_id()))
    begin = uint32(packet * uint32(PACKET_PAYLOAD) + uint32(HEADER_PAYLOAD))
    return packet, begin if many + uint32(HEADER_PAYLOAD) < nbytes else uint32(nbytes)


@device
def take(ctx, slot, target, nbytes, mark, first):
    """Stores a message whose first packet has come to the user's buffer.

    Args:
        first: its first 8 bytes, in lane 0.

    Returns:
        1 where waits were aborted before a lane's packets were there, else 0.
    """
    lane = uint32(gpu.lane_id())
    bits = int64(mark) << 32
    many = together(target, nbytes)
    slot += PACKET_BYTES
    at = slot + lane * uint32(PACKET_BYTES)
    to = first_payload(target)
    left = left_of(many)
    looks = uint32(0)
    while left != 0:
        a, p = gpu.read_packet(at)
        b, q = gpu.read_packet_if(at + _STEP, bits, left > uint32(_PAYLOAD_STEP))
        c, r = gpu.read_packet_if(at + 2 * _STEP, bits, left > uint32(2 * _PAYLOAD_STEP))
        d, s = gpu.read_packet_if(at + 3 * _STEP, bits, left > uint32(3 * _PAYLOAD_STEP))
        if ((p ^ bits) | (q ^ bits) | (r ^ bits) | (s ^ bits)) >> 32 & LOW_32 == 0:
            store_words(to, a, p, left, 0)
            store_words(to, b, q, left, _PAYLOAD_STEP)
            store_words(to, c, r, left, 2 * _PAYLOAD_STEP)
            store_words(to, d, s, left, 3 * _PAYLOAD_STEP)
            at += 4 * _STEP
            to += 4 * _PAYLOAD_STEP
            left = _minus(left, 4 * _PAYLOAD_STEP)
        else:
            looks = uint32(looks + uint32(1))
            if (
                looks & (packets.PATIENCE - 1) == 0
                and gpu.load_sys(ctx.mapped + CONTROL_ABORT) != 0
            ):
                return 1
            gpu.spin()
    if lane == 0:
        store_payload(target, first, 0, min(nbytes, uint32(HEADER_PAYLOAD)))
    packet, begin = _first_of_rest(nbytes, many)
    while begin < nbytes:
        place = slot + packet * uint32(PACKET_BYTES)
        low, word, aborted = packets.await_packet(ctx.mapped, place, int64(mark))
        if aborted != 0:
            return 1
        store_payload(target + begin, low, word & LOW_32, uint32(nbytes - begin))
        packet = uint32(packet + uint32(FULL_WARP))
        begin = uint32(begin + uint32(_PAYLOAD_STEP))
    return 0
