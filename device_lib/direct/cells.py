"""What sender and receiver of a channel tell each other in the sender's memory; one lane.

For each slot of the inbox the credit, which says that the slot is free, and the announcement, which
says where the next round of a long message goes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct.packets import mark_of, refreshed
from device_lib.platform.primitives import device, fence_sys, opaque, read_packet, write_packet
from gmpi.contract import channels
from gmpi.contract.wire import LOW_32

_NO_ROUND = LOW_32  # of an announcement that is only refreshed


@device
def _cell(cells, number):
    return cells + (number & (channels.DEPTH - 1)) * channels.CELL_BYTES


@device
def begin(cells):
    """Before the first message: those of a former turn have been taken."""
    number = 0
    while number < channels.DEPTH:
        write_packet(
            _cell(cells, number) + channels.CREDIT, 0, mark_of(number - channels.DEPTH) << 32
        )
        number += opaque(1)


@device
def has_credit(cells, number):
    """Whether the slot of a message is free: the one before it in the same slot has been taken."""
    low, word = read_packet(_cell(cells, number) + channels.CREDIT)
    return word >> 32 & LOW_32 == mark_of(number - channels.DEPTH)


@device
def all_taken(cells, number):
    """Whether all messages before this one have been taken; later ones may have been, too."""
    before = number - 1
    seen = 0
    while seen < channels.DEPTH:
        low, word = read_packet(_cell(cells, before) + channels.CREDIT)
        if (word >> 33) - before & channels.NUMBERS >= channels.HALF_TURN:
            return False
        before -= 1
        seen += opaque(1)
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
        fence_sys()  # nobody waits for it: it must not fall on the slot's next announcement
    write_packet(_cell(cells, number) + channels.CREDIT, 0, mark_of(number) << 32)


@device
def announce(cells, number, place, wanted, first):
    """Says where a round of a message goes.

    Args:
        place: relative to the inbox, whose address is another one for the sender.
        wanted: bytes of all rounds together | log2 of a round's parts << ROUND_SHIFT.
        first: the round's first part.
    """
    mark = mark_of(number) << 32
    write_packet(_cell(cells, number) + channels.WANTED, wanted, mark)
    write_packet(_cell(cells, number) + channels.ANNOUNCED, place, first | mark)


@device
def announcement(cells, number, first):
    """(whether the round that begins with part ``first`` has been announced, place, wanted)."""
    cell = _cell(cells, number)
    place, word = read_packet(cell + channels.ANNOUNCED)
    wanted, beside = read_packet(cell + channels.WANTED)
    mark = mark_of(number)
    said = word >> 32 & LOW_32 == mark and beside >> 32 & LOW_32 == mark
    return said and word & LOW_32 == first, place, wanted
