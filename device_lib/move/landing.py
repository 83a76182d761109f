"""Landing: messages of up to 64 KiB that the sender's threads store into the receiver's GPU memory.

The bytes travel as units, 12 and a tag, so nobody has to say that they are there: the sender needs
no fence and no flag behind them, the receiver, whose order comes through two proxies and MPI, finds
them in its own memory, and waits for each unit that is still on its way. Stores to a peer do not
make a warp wait, reads from it take more than 1 us.

A landing place belongs to one large slot of one sender. It is written again when the request that
had it is complete, which is when its receiver has seen every unit of it: also of those bytes that
it has no room for.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.copy import load_payload, store_payload
from device_lib.platform.library import linked
from device_lib.platform.primitives import (
    SIMULATOR,
    device,
    load_sys,
    load_unit,
    opaque,
    pause,
    store_unit,
)
from gmpi.contract.rules import landing_groups
from gmpi.contract.wire import (
    CONTROL_ABORT,
    LANDED_GROUPS_SHIFT,
    LANDED_TICKET_SHIFT,
    LANDING_GROUPS,
    LANDING_STRIDE,
    LANDING_UNITS,
    TAG_MASK,
    UNIT_BYTES,
    UNIT_PAYLOAD,
)

# Three words of 16 bytes fill the units of a group: whole words in, whole units out, and a thread
# needs nobody else. Groups lie in blocks of 32, first units first, so that neighbouring threads'
# units are neighbours. A thread has two or three groups under way: loads that are on their way
# together cost one latency, and code that runs once a message is paid for by its length.
_GROUP_BYTES = LANDING_UNITS * UNIT_PAYLOAD
_NEXT_UNIT = LANDING_GROUPS * UNIT_BYTES  # from one unit of a group to the next
_BLOCK_BYTES = LANDING_UNITS * _NEXT_UNIT
_landing_groups = device(landing_groups)

_PATIENCE = 256  # looks at units between two at the abort word


@device
def _group_address(place, group):
    """Where the first unit of a group is."""
    block = group // LANDING_GROUPS
    return place + block * _BLOCK_BYTES + (group & (LANDING_GROUPS - 1)) * UNIT_BYTES


@device
def _unit_address(place, unit):
    group = unit // LANDING_UNITS
    return _group_address(place, group) + (unit & (LANDING_UNITS - 1)) * _NEXT_UNIT


@device
def _in_words(address, nbytes):
    """Whether a buffer consists of words of 16 bytes."""
    return (address | nbytes) & 15 == 0


if SIMULATOR:

    def _land_words(place, source, nbytes, tag, rank, size):
        _land_units(place, source, nbytes, tag, rank, size)

    def _take_words(control, place, target, nbytes, groups, tag, rank, size):
        return _take_units(control, place, target, nbytes, groups, tag, rank, size)

else:
    from device_lib.platform.primitives_cuda import load_16_if, store_16_if

    @device
    def _load_group(source, group, nbytes):
        """Three words, of which the last group has as many as there are."""
        begin = group * _GROUP_BYTES
        a0, b0 = load_16_if(source + begin, begin < nbytes)
        a1, b1 = load_16_if(source + begin + 16, begin + 16 < nbytes)
        a2, b2 = load_16_if(source + begin + 32, begin + 32 < nbytes)
        return a0, b0, a1, b1, a2, b2

    @device
    def _land_group(place, group, groups, words, mark):
        a0, b0, a1, b1, a2, b2 = words
        if group < groups:
            at = _group_address(place, group)
            store_unit(at, a0, b0 & TAG_MASK | mark)
            store_unit(at + _NEXT_UNIT, b0 >> 32 & TAG_MASK | a1 << 32, a1 >> 32 & TAG_MASK | mark)
            store_unit(at + 2 * _NEXT_UNIT, b1, a2 & TAG_MASK | mark)
            low = a2 >> 32 & TAG_MASK | b2 << 32
            store_unit(at + 3 * _NEXT_UNIT, low, b2 >> 32 & TAG_MASK | mark)

    @device
    def _land_words(place, source, nbytes, tag, rank, size):
        groups = _landing_groups(nbytes)
        mark = tag << 32
        group = rank
        while group < groups:
            first = _load_group(source, group, nbytes)
            second = _load_group(source, group + size, nbytes)
            third = _load_group(source, group + 2 * size, nbytes)
            _land_group(place, group, groups, first, mark)
            _land_group(place, group + size, groups, second, mark)
            _land_group(place, group + 2 * size, groups, third, mark)
            group += 3 * size

    @device
    def _look_at_group(place, group, groups):
        """The units of a group, or of the last one."""
        at = _group_address(place, min(group, groups - 1))
        a, p = load_unit(at)
        b, q = load_unit(at + _NEXT_UNIT)
        c, r = load_unit(at + 2 * _NEXT_UNIT)
        d, s = load_unit(at + 3 * _NEXT_UNIT)
        return a, p, b, q, c, r, d, s

    @device
    def _have_come(units, tag):
        a, p, b, q, c, r, d, s = units
        wrong = (p >> 32 ^ tag) | (q >> 32 ^ tag) | (r >> 32 ^ tag) | (s >> 32 ^ tag)
        return wrong & TAG_MASK == 0

    @device
    def _store_group(target, group, nbytes, units):
        a, p, b, q, c, r, d, s = units
        begin = group * _GROUP_BYTES
        store_16_if(target + begin, a, p & TAG_MASK | b << 32, begin < nbytes)
        high = c
        low = b >> 32 & TAG_MASK | q << 32
        store_16_if(target + begin + 16, low, high, begin + 16 < nbytes)
        low = r & TAG_MASK | d << 32
        high = d >> 32 & TAG_MASK | s << 32
        store_16_if(target + begin + 32, low, high, begin + 32 < nbytes)

    @device
    def _take_words(control, place, target, nbytes, groups, tag, rank, size):
        group = rank
        looks = 0
        while group < groups:
            first = _look_at_group(place, group, groups)
            second = _look_at_group(place, group + size, groups)
            if _have_come(first, tag) and _have_come(second, tag):
                _store_group(target, group, nbytes, first)
                _store_group(target, group + size, nbytes, second)
                group += 2 * size
            else:
                looks += 1
                if looks & (_PATIENCE - 1) == 0 and load_sys(control + CONTROL_ABORT) != 0:
                    return 1
        return 0


@device
def _land_units(place, source, nbytes, tag, rank, size):
    """For buffers at any multiple of 4, and messages of any length."""
    unit = rank
    units = LANDING_UNITS * _landing_groups(nbytes)
    while unit < units:
        begin = unit * UNIT_PAYLOAD
        low, high = load_payload(source + begin, max(nbytes - begin, 0))
        store_unit(_unit_address(place, unit), low, (high & TAG_MASK) | tag << 32)
        unit += opaque(size)


@device
def _take_units(control, place, target, nbytes, groups, tag, rank, size):
    unit = rank
    looks = 0
    while unit < LANDING_UNITS * groups:
        low, word = load_unit(_unit_address(place, unit))
        if word >> 32 & TAG_MASK == tag:
            begin = unit * UNIT_PAYLOAD
            if begin < nbytes:
                store_payload(target + begin, low, word & TAG_MASK, nbytes - begin)
            unit += opaque(size)
        else:
            looks += 1
            if looks & (_PATIENCE - 1) == 0 and load_sys(control + CONTROL_ABORT) != 0:
                return 1
            pause(20)
    return 0


@device
def _land(place, source, nbytes, tag, rank, size):
    if _in_words(source, nbytes):
        _land_words(place, source, nbytes, tag, rank, size)
    else:
        _land_units(place, source, nbytes, tag, rank, size)
    return 0


@device
def _take_landed(control, place, target, nbytes, what, rank, size):
    tag = what & TAG_MASK
    groups = what >> 32
    if _in_words(target, nbytes):
        return _take_words(control, place, target, nbytes, groups, tag, rank, size)
    return _take_units(control, place, target, nbytes, groups, tag, rank, size)


_land_linked = linked("gmpi_land", 6, 1, _land)
_take_linked = linked("gmpi_take_landed", 7, 1, _take_landed)


@device
def land(place, source, nbytes, tag, rank, size):
    """Stores a message as units at ``place``, by all ``size`` threads of a scope.

    Args:
        place: of the receiver, mapped here.
        source: a multiple of 4.
        tag: of the send's record.
    """
    _land_linked(place, source, nbytes, tag, rank, size)


@device
def take_landed(ctx, places, landed, target, nbytes, rank, size):
    """Moves the first ``nbytes`` of a landed message to ``target`` when they have come, and waits
    for the others; by all threads of a scope.

    Args:
        places: what ``landing_places`` returned.
        landed: unit 6 of the completion of the receive.

    Returns:
        1 where waits were aborted before all of the thread's units were there, else 0.
    """
    index = landed & (1 << LANDED_GROUPS_SHIFT) - 1
    place = places + index * LANDING_STRIDE
    groups = landed >> LANDED_GROUPS_SHIFT & (1 << LANDED_TICKET_SHIFT - LANDED_GROUPS_SHIFT) - 1
    tag = (landed >> LANDED_TICKET_SHIFT << 1 | 1) & TAG_MASK
    return _take_linked(ctx.mapped, place, target, nbytes, groups << 32 | tag, rank, size)
