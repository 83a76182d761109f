"""A message that fits a slot, but has more packets than a warp has lanes, by one full warp.

All packets but the first bring 12 bytes each. A lane moves each 32nd of these, several at a time: a
wait for memory takes longer than all their instructions. There are registers for six where they are
sent, for four where they are awaited. That goes for those that are full, where all bytes lie at
multiples of 4; the others, at most one of such a message, are moved one by one.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import packets
from device_lib.move.copy import load_payload, store_12, store_payload
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import FULL_WARP
from gmpi.contract.channels import HEADER_PAYLOAD
from gmpi.contract.wire import CONTROL_ABORT, LOW_32, PACKET_BYTES, PACKET_PAYLOAD

_STEP = FULL_WARP * PACKET_BYTES  # from a lane's packet to its next
_PAYLOAD_STEP = FULL_WARP * PACKET_PAYLOAD


@device
def full_packets(address, nbytes):
    """How many packets are moved several at a time; they are counted without the first one."""
    rest = uint32(max(nbytes, HEADER_PAYLOAD) - HEADER_PAYLOAD)
    many = uint32(rest * uint32(43691)) >> uint32(19)  # divided by 12
    return many if address & 3 == 0 else uint32(0)


@device
def _load_12_if(address, wanted):
    first = gpu.load_4_if(address, wanted)
    second = gpu.load_4_if(address + 4, wanted)
    third = gpu.load_4_if(address + 8, wanted)
    return int64(first) | int64(second) << 32, int64(third)


@device
def load_six(source, packet, end):
    """A lane's next six packets, as far as they are before ``end``, all under way together.

    Args:
        source: of the message.
        packet: the first of the six.
    """
    at = source + HEADER_PAYLOAD + packet * uint32(PACKET_PAYLOAD)
    a, p = _load_12_if(at, packet < end)
    b, q = _load_12_if(at + _PAYLOAD_STEP, packet + uint32(FULL_WARP) < end)
    c, r = _load_12_if(at + 2 * _PAYLOAD_STEP, packet + uint32(2 * FULL_WARP) < end)
    d, s = _load_12_if(at + 3 * _PAYLOAD_STEP, packet + uint32(3 * FULL_WARP) < end)
    e, t = _load_12_if(at + 4 * _PAYLOAD_STEP, packet + uint32(4 * FULL_WARP) < end)
    f, u = _load_12_if(at + 5 * _PAYLOAD_STEP, packet + uint32(5 * FULL_WARP) < end)
    return a, p, b, q, c, r, d, s, e, t, f, u


@device
def put(slot, source, nbytes, mark, first, end, six):
    """Stores a message to its slot.

    Args:
        mark: of its number.
        first: its first 8 bytes.
        end: what ``full_packets`` returned.
        six: what ``load_six`` returned of the lane's first packets.
    """
    lane = uint32(gpu.lane_id())
    bits = int64(mark) << 32
    if lane == 0:
        gpu.write_packet(slot, first, int64(nbytes) | bits)
    slot += PACKET_BYTES
    packet = lane
    while packet < end:
        at = slot + packet * uint32(PACKET_BYTES)
        a, p, b, q, c, r, d, s, e, t, f, u = six
        gpu.write_packet(at, a, p | bits)
        if packet + uint32(FULL_WARP) < end:
            gpu.write_packet(at + _STEP, b, q | bits)
        if packet + uint32(2 * FULL_WARP) < end:
            gpu.write_packet(at + 2 * _STEP, c, r | bits)
        if packet + uint32(3 * FULL_WARP) < end:
            gpu.write_packet(at + 3 * _STEP, d, s | bits)
        if packet + uint32(4 * FULL_WARP) < end:
            gpu.write_packet(at + 4 * _STEP, e, t | bits)
        if packet + uint32(5 * FULL_WARP) < end:
            gpu.write_packet(at + 5 * _STEP, f, u | bits)
        packet = uint32(packet + uint32(6 * FULL_WARP))
        six = load_six(source, packet, end)
    packet = uint32(end + lane)
    begin = uint32(packet * uint32(PACKET_PAYLOAD) + uint32(HEADER_PAYLOAD))
    while begin < nbytes:
        low, high = load_payload(source + begin, uint32(nbytes - begin))
        gpu.write_packet(slot + packet * uint32(PACKET_BYTES), low, high & LOW_32 | bits)
        packet = uint32(packet + uint32(FULL_WARP))
        begin = uint32(begin + uint32(_PAYLOAD_STEP))


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
    end = full_packets(target, nbytes)
    slot += PACKET_BYTES
    packet = lane
    looks = uint32(0)
    while packet < end:
        at = slot + packet * uint32(PACKET_BYTES)
        second = packet + uint32(FULL_WARP) < end
        third = packet + uint32(2 * FULL_WARP) < end
        fourth = packet + uint32(3 * FULL_WARP) < end
        a, p = gpu.read_packet(at)
        b, q = gpu.read_packet_if(at + _STEP, bits, second)
        c, r = gpu.read_packet_if(at + 2 * _STEP, bits, third)
        d, s = gpu.read_packet_if(at + 3 * _STEP, bits, fourth)
        if ((p ^ bits) | (q ^ bits) | (r ^ bits) | (s ^ bits)) >> 32 & LOW_32 == 0:
            to = target + HEADER_PAYLOAD + packet * uint32(PACKET_PAYLOAD)
            store_12(to, a, p)
            if second:
                store_12(to + _PAYLOAD_STEP, b, q)
            if third:
                store_12(to + 2 * _PAYLOAD_STEP, c, r)
            if fourth:
                store_12(to + 3 * _PAYLOAD_STEP, d, s)
            packet = uint32(packet + uint32(4 * FULL_WARP))
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
    packet = uint32(end + lane)
    begin = uint32(packet * uint32(PACKET_PAYLOAD) + uint32(HEADER_PAYLOAD))
    while begin < nbytes:
        at = slot + packet * uint32(PACKET_BYTES)
        low, word, aborted = packets.await_packet(ctx.mapped, at, int64(mark))
        if aborted != 0:
            return 1
        store_payload(target + begin, low, word & LOW_32, uint32(nbytes - begin))
        packet = uint32(packet + uint32(FULL_WARP))
        begin = uint32(begin + uint32(_PAYLOAD_STEP))
    return 0
