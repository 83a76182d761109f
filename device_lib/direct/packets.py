"""An inbox: packets in its slots, and the cells that say which slots are free.

All threads of a scope: the sender's store packets without a fence, the receiver's poll each in
their own memory. Cells are in the sender's memory; one lane stores or reads them.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.copy import load_payload, store_payload
from device_lib.move.mailbox import groups_of, mail_word, put_mail, take_mail
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64, uint32
from gmpi.contract import channels
from gmpi.contract.wire import CONTROL_ABORT, LOW_32, PACKET_BYTES, PACKET_PAYLOAD

mark_of = device(channels.number_mark)
refreshed = device(channels.is_refreshed)
count = device(channels.packets_of)
word_of_wide = device(channels.wide_word)
PATIENCE = 256  # looks at packets between two at the abort word
SHIFT = PACKET_PAYLOAD - channels.HEADER_PAYLOAD  # as if packet 0 were as full as the others


@device
def inbox_slot(inbox, number):
    """Where message ``number`` travels."""
    return inbox + (number & (channels.DEPTH - 1)) * channels.INBOX_SLOT_BYTES


@device
def _bytes_of(packet):
    """(the first byte of a message that a packet brings, how many it has room for)."""
    if packet == 0:
        return uint32(0), uint32(channels.HEADER_PAYLOAD)
    return uint32(packet * uint32(PACKET_PAYLOAD) - SHIFT), uint32(PACKET_PAYLOAD)


@device
def load_packet(source, nbytes, packet):
    """(low word, high word) of a packet of a message of at most ROOM bytes.

    Lanes that load different packets do so together: the first one is not another case.
    """
    begin, room = _bytes_of(uint32(packet))
    low, high = load_payload(source + begin, min(uint32(nbytes - begin), room))
    return low, int64(nbytes) if packet == 0 else high & LOW_32


@device
def store_packet(target, room, packet, low, word):
    """Stores what has come in a packet to the user's buffer of ``room`` bytes."""
    begin, most = _bytes_of(uint32(packet))
    if begin < uint32(room):
        store_payload(target + begin, low, word & LOW_32, min(uint32(room - begin), most))


@device
def _put_run(at, source, nbytes, last, mark, packet, step):
    mark <<= 32
    begin = uint32(packet * PACKET_PAYLOAD)
    stride = uint32(step * PACKET_PAYLOAD)
    end = uint32(last)
    at += packet * PACKET_BYTES
    while begin < end:
        low = 0
        high = 0
        if begin < nbytes:
            low, high = load_payload(source + begin, nbytes - begin)
        gpu.write_packet(at, low, high & LOW_32 | mark)
        begin = uint32(begin + stride)
        at += step * PACKET_BYTES
    return 0


@device
def await_packet(control, at, mark):
    """(low word, high word, 0) of a packet when it has come; the abort class last where waits were
    aborted before."""
    low, word = gpu.read_packet(at)
    looks = 0
    aborted = 0
    while word >> 32 & LOW_32 != mark and aborted == 0:
        looks += gpu.opaque(1)
        if looks & (PATIENCE - 1) == 0:
            aborted = gpu.load_sys(control + CONTROL_ABORT)
        gpu.spin()
        low, word = gpu.read_packet(at)
    return low, word, aborted


@device
def _take_run(control, at, target, lengths, mark, packet, step):
    nbytes = uint32(lengths)
    end = uint32(lengths >> 32)
    begin = uint32(packet * PACKET_PAYLOAD)
    stride = uint32(step * PACKET_PAYLOAD)
    at += packet * PACKET_BYTES
    while begin < end:
        low, word, aborted = await_packet(control, at, mark)
        if aborted != 0:
            return 1
        if begin < nbytes:
            store_payload(target + begin, low, word & LOW_32, uint32(nbytes - begin))
        begin = uint32(begin + stride)
        at += step * PACKET_BYTES
    return 0


_put_linked = linked("gmpi_put_packets", 7, 1, _put_run)
_take_linked = linked("gmpi_take_packets", 7, 1, _take_run)


@device
def put_run(at, source, nbytes, last, mark, packet, step):
    """Stores packets of PACKET_PAYLOAD bytes each, from ``packet`` on, each ``step``-th.

    Args:
        nbytes: of the message.
        last: bytes that packets are stored for; those behind ``nbytes`` are empty.
    """
    _put_linked(at, source, nbytes, last, mark, packet, step)


@device
def take_run(ctx, at, target, nbytes, last, mark, packet, step):
    """Moves the first ``nbytes`` bytes that such packets bring to ``target``, when they have come.

    Args:
        last: bytes that packets were stored for. Also what there is no room for is waited for: a
            packet that comes later would fall on the next message.

    Returns:
        1 where waits were aborted before, else 0.
    """
    return _take_linked(ctx.mapped, at, target, nbytes | last << 32, mark, packet, step)


@device
def put_packets(slot, source, nbytes, number, rank, size):
    """Stores a message of at most ROOM bytes into an inbox slot."""
    mark = mark_of(number)
    packet = rank
    if rank == 0:
        low, high = load_packet(source, nbytes, 0)
        gpu.write_packet(slot, low, high | mark << 32)
        packet = size
    last = channels.SLOT_PACKETS * PACKET_PAYLOAD if refreshed(number) else nbytes + SHIFT
    put_run(slot, source - SHIFT, nbytes + SHIFT, last, mark, packet, size)


@device
def take_packets(ctx, slot, target, nbytes, room, number, rank, size):
    """Moves the first ``room`` bytes of such a message to ``target``: as ``take_run``."""
    mark = mark_of(number)
    packet = rank
    aborted = 0
    if rank == 0:
        low, word, aborted = await_packet(ctx.mapped, slot, mark)
        store_packet(target, room, 0, low, word)
        packet = size
    if aborted != 0:
        return 1
    last = channels.SLOT_PACKETS * PACKET_PAYLOAD if refreshed(number) else nbytes + SHIFT
    return take_run(ctx, slot, target - SHIFT, room + SHIFT, last, mark, packet, size)


@device
def write_length(slot, nbytes, number):
    """Says that a long message comes in rounds."""
    gpu.write_packet(slot, nbytes, channels.LONG | mark_of(number) << 32)


@device
def write_wide_header(slot, nbytes, number, wide):
    """Says that a message is in the wide slot, whose number is ``wide`` there."""
    length = nbytes | mark_of(wide) << channels.WIDE_LENGTH_BITS
    gpu.write_packet(slot, length, word_of_wide(wide) | mark_of(number) << 32)


@device
def wide_mail(nbytes, mark):
    """``mail_word`` of a message in the wide slot.

    Args:
        nbytes: of the message.
        mark: what its packets carry.
    """
    every = word_of_wide(mark >> 1) == channels.ALL_OF_IT
    return mail_word(groups_of(channels.WIDE_ROOM if every else nbytes), mark)


@device
def put_wide(place, source, nbytes, wide, rank, size):
    """Stores the message whose number is ``wide`` to the wide slot at ``place``."""
    put_mail(place, source, nbytes, wide_mail(nbytes, mark_of(wide)), rank, size)


@device
def take_wide(ctx, place, target, nbytes, length, mark, rank, size):
    """Moves the first ``nbytes`` bytes of a message of ``length`` from the wide slot at ``place``.

    Args:
        mark: what its packets carry.

    Returns:
        1 where waits were aborted before, else 0.
    """
    return take_mail(ctx, place, target, nbytes, wide_mail(length, mark), rank, size)


@device
def wide_slot_of(slot, number):
    """The wide slot of the inbox that the slot of a message is in."""
    return slot - (number & (channels.DEPTH - 1)) * channels.INBOX_SLOT_BYTES + channels.WIDE_SLOT


# Packets of a slot that a message in the wide slot, or in rounds, leaves alone: from here on.
AFTER_HEADER = 1
AFTER_FILLED = 2


@device
def refresh_rest(slot, number, first, rank, size):
    """Writes the packets from ``first`` on, which a message in rounds or in the wide slot does not
    need, where its turn is to."""
    if refreshed(number):
        put_run(
            slot, 0, 0, channels.SLOT_PACKETS * PACKET_PAYLOAD, mark_of(number), first + rank, size
        )


@device
def await_rest(ctx, slot, number, first, rank, size):
    """Waits for these packets; 1 where waits were aborted before, else 0."""
    if not refreshed(number):
        return 0
    last = channels.SLOT_PACKETS * PACKET_PAYLOAD
    return take_run(ctx, slot, 0, 0, last, mark_of(number), first + rank, size)


# A slot's cell: the credit, which says that the slot is free, and the announcement, which says
# where a round of a long message goes.

BY_INBOX = LOW_32 - 1  # in place of a round's first part: the message comes by the inbox
_NO_ROUND = LOW_32  # the same, of an announcement that is only refreshed


@device
def _cell(cells, number):
    return cells + (number & (channels.DEPTH - 1)) * channels.CELL_BYTES


@device
def begin_cells(cells):
    """Before the first message: those of a former turn have been taken."""
    number = 0
    while number < channels.DEPTH:
        gpu.write_packet(
            _cell(cells, number) + channels.CREDIT, 0, mark_of(number - channels.DEPTH) << 32
        )
        number += gpu.opaque(1)


@device
def credit_word(cells, number):
    """The high word of the credit of a message's slot."""
    low, word = gpu.read_packet(_cell(cells, number) + channels.CREDIT)
    return word


@device
def has_credit(cells, number):
    """Whether the slot of a message is free: the one before it in the same slot has been taken."""
    return credit_word(cells, number) >> 32 & LOW_32 == mark_of(number - channels.DEPTH)


@device
def all_taken(cells, number):
    """Whether all messages before this one have been taken; later ones may have been, too."""
    before = number - 1
    seen = 0
    while seen < channels.DEPTH:
        if (credit_word(cells, before) >> 33) - before & channels.NUMBERS >= channels.HALF_TURN:
            return False
        before -= 1
        seen += gpu.opaque(1)
    return True


@device
def credit_of(cells, number):
    """Where the credit of a message's slot is."""
    return _cell(cells, number) + channels.CREDIT


@device
def give_back(cells, number, announced):
    """A message has been taken, and every packet of it seen."""
    if refreshed(number) and not announced:
        announce(cells, number, 0, 0, _NO_ROUND)
        gpu.fence_sys()  # nobody waits for it: it must not fall on the slot's next announcement
    gpu.write_packet(_cell(cells, number) + channels.CREDIT, 0, mark_of(number) << 32)


@device
def announce(cells, number, place, wanted, first):
    """Says where a round of a message goes, and that it and all before it may be pushed.

    Args:
        place: relative to the inbox, whose address is another one for the sender.
        wanted: bytes of all rounds together | log2 of a round's parts << ROUND_SHIFT.
        first: the round's first part.
    """
    mark = mark_of(number) << 32
    gpu.write_packet(_cell(cells, number) + channels.WANTED, wanted, mark)
    gpu.write_packet(_cell(cells, number) + channels.ANNOUNCED, place, first | mark)


@device
def announce_inbox(cells, number):
    """Says that a message comes by the inbox, in no round."""
    at = _cell(cells, number) + channels.ANNOUNCED
    gpu.write_packet(at, 0, BY_INBOX | mark_of(number) << 32)


@device
def first_announced(cells, number):
    """The first part of the round that has been announced last; -1: none has."""
    place, word = gpu.read_packet(_cell(cells, number) + channels.ANNOUNCED)
    return word & LOW_32 if word >> 32 & LOW_32 == mark_of(number) else -1


@device
def announced(cells, number):
    """(the first part of the round that has been announced last, -1: none has; place; wanted;
    whether that is there, too), both packets under way together."""
    cell = _cell(cells, number)
    place, word = gpu.read_packet(cell + channels.ANNOUNCED)
    wanted, beside = gpu.read_packet(cell + channels.WANTED)
    mark = mark_of(number)
    first = word & LOW_32 if word >> 32 & LOW_32 == mark else -1
    return first, place, wanted, beside >> 32 & LOW_32 == mark


@device
def announcement(cells, number, first):
    """(whether the round that begins with part ``first`` has been announced, or a later one; where
    it goes; wanted)."""
    cell = _cell(cells, number)
    place, word = gpu.read_packet(cell + channels.ANNOUNCED)
    wanted, beside = gpu.read_packet(cell + channels.WANTED)
    mark = mark_of(number)
    last = word & LOW_32
    said = word >> 32 & LOW_32 == mark and beside >> 32 & LOW_32 == mark
    log = wanted >> channels.ROUND_SHIFT & channels.STRAIGHT - 1
    place += ((first >> log & 1) - (last >> log & 1)) * (channels.PART_BYTES << log)
    return said and first <= last and last < BY_INBOX, place, wanted
