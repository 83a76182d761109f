"""Consumer of the request ring (producer: ``device_lib/ring.py``).

Records are taken strictly in ticket order. A record is there when each unit it needs has its tag;
the units of one record arrive in any order, so each is looked at on its own. Nothing is written
back to the ring; producers learn from the consumed count, in a line of its own, that slots are
free again.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.wire import (
    CONTROL_CONSUMED,
    FLAG_INLINE,
    HEADER_UNITS,
    SLOT_BYTES,
    TAG_MASK,
    UNIT_BYTES,
    UNIT_PAYLOAD,
)
from host_proxy.native import entry, jit, load, load_acquire, store, store_int, store_release
from host_proxy.state import G_CONTROL, G_HEAD, G_RING, G_RING_SLOTS

# A decoded record: int64[R_COUNT]
(
    R_ADDRESS,
    R_MARK,  # the tag, where it stands in a unit's second word
    R_OP,
    R_FLAGS,
    R_COMM,
    R_DATATYPE,
    R_PEER,
    R_ELEMENTS,
    R_TAG,
    R_HANDLE,
    R_REDUCTION,
    R_DONE,  # CHUNK: the order that was carried out
    R_BLOCK,
    R_BYTES,  # elements times size, filled in by the checks
    R_COUNT,
) = range(15)


@jit
def signed(value):
    """The low 32 bits as a signed number."""
    return ((value & TAG_MASK) ^ 0x80000000) - 0x80000000


@entry
def decode(g, r):
    """Reads the header of the next record into ``r``; False while it is not there."""
    head = g[G_HEAD]
    address = g[G_RING] + (head & (g[G_RING_SLOTS] - 1)) * SLOT_BYTES
    mark = ((head << 1) | 1) & TAG_MASK
    # Acquire, last unit first: lanes mostly arrive together, so this fails at once or not at all.
    word3 = load_acquire(address + 3 * UNIT_BYTES + 8)
    if (word3 >> 32) & TAG_MASK != mark:
        return False
    word0 = load_acquire(address + 8)
    word1 = load_acquire(address + UNIT_BYTES + 8)
    word2 = load_acquire(address + 2 * UNIT_BYTES + 8)
    if (
        (word0 >> 32) & TAG_MASK != mark
        or (word1 >> 32) & TAG_MASK != mark
        or (word2 >> 32) & TAG_MASK != mark
    ):
        return False
    first = load(address)
    r[R_ADDRESS] = address
    r[R_MARK] = mark
    r[R_OP] = first & 0xFF
    r[R_FLAGS] = (first >> 8) & 0xFF
    r[R_COMM] = (first >> 16) & 0xFFFF
    r[R_DATATYPE] = (first >> 32) & TAG_MASK
    r[R_PEER] = signed(word0)
    r[R_ELEMENTS] = load(address + UNIT_BYTES)
    r[R_TAG] = signed(word1)
    r[R_HANDLE] = load(address + 2 * UNIT_BYTES)
    r[R_REDUCTION] = signed(word1)
    r[R_DONE] = load(address + 3 * UNIT_BYTES)
    r[R_BLOCK] = word3 & TAG_MASK
    return True


@entry
def payload_to(r, target, nbytes):
    """Copies the ``nbytes`` (at most 144) that came in the record to host memory.

    Writes whole units: up to 11 bytes past the end, which belong to the caller's staging buffer.
    """
    at = r[R_ADDRESS] + HEADER_UNITS * UNIT_BYTES
    end = target + nbytes
    while target < end:
        word = load_acquire(at + 8)
        while (word >> 32) & TAG_MASK != r[R_MARK]:  # it is on its way: same store instruction
            word = load_acquire(at + 8)
        store(target, load(at))
        store_int(target + 8, word)
        at += UNIT_BYTES
        target += UNIT_PAYLOAD


@jit
def has_payload(r):
    return r[R_FLAGS] & FLAG_INLINE != 0


@entry
def take(g):
    """The record at the head has been read: its slot may be written again."""
    g[G_HEAD] += 1


@entry
def return_slots(g):
    """Publishes how many records have been taken; release, after the last read of their slots."""
    store_release(g[G_CONTROL] + CONTROL_CONSUMED, g[G_HEAD])
