"""What a rank notes of collectives that do not block: their records, and who has taken them.

See ``gmpi/contract/collectives.py``. One lane calls these, except where a thread may.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct.rounds import NOBODY, signature_of, who_differs
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device
from gmpi.contract import collectives, wire

_credits_at = device(collectives.credits_at)
_pending_bytes_at = device(collectives.pending_bytes_at)
pending_place = device(collectives.pending_place)
_records_at = device(collectives.records_at)
_RING = collectives.PENDING - 1


@device
def record_at(area, ranks, number):
    return area + _records_at(ranks) + (number & _RING) * wire.PACKET_BYTES


@device
def record_of(area, ranks, number):
    """(where the result of a call goes, its word)."""
    return gpu.read_packet(record_at(area, ranks, number))


@device
def packed_at(area, ranks, number):
    """Where the bytes of a call lie packed."""
    return area + _pending_bytes_at(ranks) + (number & _RING) * collectives.PENDING_ROOM


@device
def has_room(row, number, known):
    """Whether all ranks have taken the call whose inboxes ``number`` gets; one lane.

    Args:
        known: what KNOWN says.
    """
    if number - known < collectives.PENDING:
        return True
    area, where = gpu.load_16(row + collectives.AREA)
    ranks = where >> collectives.RANKS_SHIFT
    at = area + _credits_at(ranks)
    least = number
    peer = 0
    while peer < ranks:
        least = min(least, gpu.read_packet(at + peer * wire.PACKET_BYTES)[0])
        peer += gpu.opaque(1)
    gpu.store_gpu(row + collectives.KNOWN, least)
    return number - least < collectives.PENDING


@device
def tell_credit(row, taken):
    """Tells all ranks, and itself, how many calls this one has taken; one lane."""
    where = gpu.load_16(row + collectives.AREA)[1]
    ranks = where >> collectives.RANKS_SHIFT
    me = where & wire.LOW_32
    at = _credits_at(ranks) + me * (wire.PACKET_BYTES - collectives.INBOX_BYTES)
    peer = 0
    while peer < ranks:
        there = gpu.load_8(row + collectives.PEERS + peer * 8)
        gpu.write_packet(there + at, taken, 0)
        peer += gpu.opaque(1)


@device
def _signed(row, area, ranks, lag):
    """(number, signature) of the first call that has not been taken, or of one of ``lag`` before
    it; NOBODY, 0: there is no such call."""
    started, taken = gpu.load_pair_gpu(row + collectives.STARTED)
    number = taken - lag
    what = record_of(area, ranks, number)[1]
    if number < 0 or number >= started:
        return NOBODY, 0
    return number, signature_of(what)


@device
def signature_before(row, lag):
    """Our signature of that call, for reports; any thread."""
    area, place = gpu.load_16(row + collectives.AREA)
    return _signed(row, area, place >> collectives.RANKS_SHIFT, lag)[1]


@device
def who_differs_in(row, area, ranks, lag):
    """``who_differs`` in that call. A rank that has gone wrong in a call which others need nothing
    from it for stays there: they see it when they wait for a later one, or for room.

    Args:
        lag: at most PENDING.
    """
    number, signature = _signed(row, area, ranks, lag)
    if number == NOBODY:
        return NOBODY, 0
    other, theirs = who_differs(area + pending_place(number), ranks, number, signature)
    if other != NOBODY:
        gpu.fence_gpu()
        known = gpu.load_gpu(row + collectives.KNOWN)
        # Then another block may have started the call that has its record now.
        if has_room(row, number + collectives.PENDING, known):
            return NOBODY, 0
    return other, theirs
