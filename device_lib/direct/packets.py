"""Messages of at most ROOM bytes: packets in an inbox slot; all threads of a scope.

The sender stores them without a fence, the receiver polls each in its own memory.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.copy import load_payload, store_payload
from device_lib.platform.library import linked
from device_lib.platform.primitives import (
    device,
    load_sys,
    opaque,
    read_packet,
    spin,
    write_packet,
)
from gmpi.contract.channels import (
    DEPTH,
    HEADER_PAYLOAD,
    INBOX_SLOT_BYTES,
    SLOT_PACKETS,
    is_refreshed,
    number_mark,
    packets_of,
)
from gmpi.contract.wire import CONTROL_ABORT, LOW_32, PACKET_BYTES, PACKET_PAYLOAD

mark_of = device(number_mark)
refreshed = device(is_refreshed)
count = device(packets_of)
_PATIENCE = 256  # looks at packets between two at the abort word


@device
def inbox_slot(inbox, number):
    """Where message ``number`` travels."""
    return inbox + (number & (DEPTH - 1)) * INBOX_SLOT_BYTES


@device
def load_packet(source, nbytes, packet):
    """(low word, high word) of a packet of a message of at most ROOM bytes."""
    if packet == 0:
        low, high = load_payload(source, min(nbytes, HEADER_PAYLOAD))
        return low, nbytes
    begin = HEADER_PAYLOAD + (packet - 1) * PACKET_PAYLOAD
    low, high = load_payload(source + begin, nbytes - begin)
    return low, high & LOW_32


@device
def store_packet(target, room, packet, low, word):
    """Stores what has come in a packet to the user's buffer of ``room`` bytes."""
    begin = 0
    left = min(room, HEADER_PAYLOAD)
    if packet > 0:
        begin = HEADER_PAYLOAD + (packet - 1) * PACKET_PAYLOAD
        left = room - begin
    if left > 0:
        store_payload(target + begin, low, word & LOW_32, left)


@device
def packets_to_take(number, nbytes):
    """How many packets a message of at most ROOM bytes has written."""
    return SLOT_PACKETS if refreshed(number) else count(nbytes)


@device
def _put(slot, source, nbytes, number, rank, size):
    mark = mark_of(number) << 32
    used = count(nbytes)
    packets = packets_to_take(number, nbytes)
    packet = rank
    while packet < packets:
        low = 0
        high = 0
        if packet < used:
            low, high = load_packet(source, nbytes, packet)
        write_packet(slot + packet * PACKET_BYTES, low, high | mark)
        packet += opaque(size)
    return 0


@device
def await_packet(control, at, mark):
    """(low word, high word, 0) of a packet when it has come; the abort class last where waits were
    aborted before."""
    low, word = read_packet(at)
    looks = 0
    aborted = 0
    while word >> 32 & LOW_32 != mark and aborted == 0:
        looks += opaque(1)
        if looks & (_PATIENCE - 1) == 0:
            aborted = load_sys(control + CONTROL_ABORT)
        spin()
        low, word = read_packet(at)
    return low, word, aborted


@device
def _take(control, slot, target, lengths, number, rank, size):
    mark = mark_of(number)
    nbytes = lengths & LOW_32
    room = lengths >> 32
    packets = packets_to_take(number, nbytes)
    packet = rank
    while packet < packets:
        low, word, aborted = await_packet(control, slot + packet * PACKET_BYTES, mark)
        if aborted != 0:
            return 1
        store_packet(target, room, packet, low, word)
        packet += opaque(size)
    return 0


_put_linked = linked("gmpi_put_packets", 6, 1, _put)
_take_linked = linked("gmpi_take_packets", 7, 1, _take)


@device
def put_packets(slot, source, nbytes, number, rank, size):
    """Stores a message of ``nbytes`` into an inbox slot."""
    _put_linked(slot, source, nbytes, number, rank, size)


@device
def take_packets(ctx, slot, target, nbytes, room, number, rank, size):
    """Moves the first ``room`` bytes of a message to ``target``, when all of it has come.

    Also what there is no room for is waited for: a packet that comes later would fall on the slot's
    next message.

    Returns:
        1 where waits were aborted before, else 0.
    """
    return _take_linked(ctx.mapped, slot, target, nbytes | room << 32, number, rank, size)


_FIRST_UNUSED = 2  # by a long message: its length and FILLED come before


@device
def refresh_rest(slot, number, rank, size):
    """Writes the packets that a long message does not need, where its turn is to."""
    if refreshed(number):
        packet = _FIRST_UNUSED + rank
        while packet < SLOT_PACKETS:
            write_packet(slot + packet * PACKET_BYTES, 0, mark_of(number) << 32)
            packet += opaque(size)


@device
def await_rest(ctx, slot, number, rank, size):
    """Waits for these packets; 1 where waits were aborted before, else 0."""
    if not refreshed(number):
        return 0
    packet = _FIRST_UNUSED + rank
    while packet < SLOT_PACKETS:
        place = slot + packet * PACKET_BYTES
        low, word, aborted = await_packet(ctx.mapped, place, mark_of(number))
        if aborted != 0:
            return 1
        packet += opaque(size)
    return 0
