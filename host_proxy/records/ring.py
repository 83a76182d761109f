"""Consumer of the request ring (producer: ``device_lib/proxied/ring.py``).

Records are taken strictly in ticket order. A record is there when each packet it needs has its
sequence number; the packets of one record arrive in any order, so each is looked at on its own.
Nothing is written back to the ring; producers learn from the consumed count, in a line of its own,
that slots are free again.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract import wire
from gmpi.contract.layouts import DERIVED_MARK, DERIVED_MASK, DERIVED_ROWS
from host_proxy.platform import state as st
from host_proxy.platform.idle import now_ns
from host_proxy.platform.native import (
    apart,
    entry,
    entry_inlined,
    get,
    inlined,
    jit,
    load,
    load_acquire_int,
    load_int,
    pause,
    prefetch,
    put,
    store,
    store_int,
    store_release,
)

_FORGETS_EVERY = 1 << 30  # tickets
_LOOKS = 256  # at a payload that is on its way, before the proxy looks after other requests
PATIENCE_NS = 5_000_000_000  # a payload that has not come by then never comes
_AHEAD = 4  # records whose lines are asked for before their turn


@jit
def signed(value):
    """The low 32 bits as a signed number."""
    return ((value & wire.LOW_32) ^ 0x80000000) - 0x80000000


@inlined
def place_of(g):
    """Where the ring is, as ``record_at`` wants it."""
    return get(g, st.G_RING), get(g, st.G_RING_SLOTS) - 1


@inlined
def record_at(place, ticket):
    """Address of the record with a ticket."""
    ring, last = place
    return ring + (ticket & last) * wire.SLOT_BYTES


@inlined
def _has_come(packet, seq):
    """Whether the packet at an address has a sequence number. Acquire: the rest of it is there."""
    return load_acquire_int(packet + 12) == seq


@inlined
def arrived(place, head):
    """Whether the header of the record with the ticket ``head`` is complete."""
    address = record_at(place, head)
    seq = ((head << 1) | 1) & wire.LOW_32
    # Last packet first: lanes mostly arrive together, so this fails at once or not at all.
    if not _has_come(address + 3 * wire.PACKET_BYTES, seq):
        return False
    if (
        not _has_come(address, seq)
        or not _has_come(address + wire.PACKET_BYTES, seq)
        or not _has_come(address + 2 * wire.PACKET_BYTES, seq)
    ):
        return False
    prefetch(record_at(place, head + _AHEAD))
    return True


@jit
def opcode(address):
    return load(address) & 0xFF


@jit
def element_count(address):
    return load(address + wire.PACKET_BYTES)


@entry
def has_record(g):
    """Whether a record waits to be taken."""
    return arrived(place_of(g), get(g, st.G_HEAD))


@inlined
def _payload_bytes(g, r):
    """What payload the decoded record says it has; 0 where that cannot be: it will be refused."""
    datatype = get(r, st.R_DATATYPE)
    size = (datatype >> 8) & 0xFF
    if datatype & ~DERIVED_MASK == DERIVED_MARK:
        size = get(
            get(g, st.G_DERIVED) + (datatype & (DERIVED_ROWS - 1)) * (st.D_COUNT * 8), st.D_SIZE
        )
    count = get(r, st.R_ELEMENTS)
    if (count | size) & ~0xFF != 0:  # one is negative or longer; else their product is exact
        return 0
    nbytes = count * size
    return nbytes if nbytes <= wire.INLINE_BYTES else 0


@inlined
def _payload_has_come(g, r):
    """Whether each packet of the payload is there, or the record has waited for it too long.

    It mostly comes by the same store instruction as the header. A record that says it has a
    payload and has none is corrupt: only its own request may fail of that, and no other one's
    messages may wait for it meanwhile.
    """
    at = get(r, st.R_ADDRESS) + wire.HEADER_PACKETS * wire.PACKET_BYTES
    seq = get(r, st.R_SEQ)
    missing = _payload_bytes(g, r)
    while missing > 0:
        if not _has_come(at, seq):
            return _wait_for_payload(g, seq, at, missing)
        at += wire.PACKET_BYTES
        missing -= wire.PACKET_PAYLOAD
    return True


@apart
def _wait_for_payload(g, seq, at, missing):
    """``_payload_has_come`` from the packet on that is on its way, with so many bytes missing."""
    looks = 0
    while missing > 0:
        if _has_come(at, seq):
            at += wire.PACKET_BYTES
            missing -= wire.PACKET_PAYLOAD
            continue
        looks += 1
        if get(g, st.G_LATE_SINCE) != 0:
            return now_ns(g) - get(g, st.G_LATE_SINCE) > PATIENCE_NS
        if looks > _LOOKS:
            put(g, st.G_LATE_SINCE, now_ns(g))
            return False
        pause()
    return True


@entry
def decode(g):
    """Reads the record at the head into the record array; False: not there as a whole yet."""
    head = get(g, st.G_HEAD)
    place = place_of(g)
    return arrived(place, head) and read(g, head, record_at(place, head))


@inlined
def read(g, head, address):
    """``decode`` of the record with the ticket ``head``, whose header is complete."""
    r = get(g, st.G_RECORD)
    first = load(address)
    flags = (first >> 8) & 0xFF
    put(r, st.R_ADDRESS, address)
    put(r, st.R_SEQ, ((head << 1) | 1) & wire.LOW_32)
    put(r, st.R_OP, first & 0xFF)
    put(r, st.R_FLAGS, flags)
    put(r, st.R_COMM, (first >> 16) & wire.COMMUNICATOR_MASK)
    put(r, st.R_CALL, (first >> wire.CALL_SHIFT) & wire.CALL_MASK)
    put(r, st.R_DATATYPE, (first >> 32) & wire.LOW_32)
    put(r, st.R_PEER, signed(load(address + 8)))
    put(r, st.R_ELEMENTS, load(address + wire.PACKET_BYTES))
    put(r, st.R_TAG, signed(load(address + wire.PACKET_BYTES + 8)))
    put(r, st.R_HANDLE, load(address + 2 * wire.PACKET_BYTES))
    put(r, st.R_DONE, load(address + 3 * wire.PACKET_BYTES))
    put(r, st.R_BLOCK, load(address + 3 * wire.PACKET_BYTES + 8) & wire.LOW_32)
    if flags & wire.FLAG_INLINE == 0:
        return True
    op = first & 0xFF
    if op == wire.OP_FAULT or op == wire.OP_WAITS or op == wire.OP_WAITED:
        return True  # their flags are an opcode
    return _payload_has_come(g, r)


@entry_inlined
def payload_to(g, r, target, nbytes):
    """Copies the ``nbytes`` (at most 144) that came in the record to host memory: whether it could.

    Writes whole packets: up to 11 bytes past the end, which belong to the caller's staging buffer.
    ``decode`` has waited for them.
    """
    at = get(r, st.R_ADDRESS) + wire.HEADER_PACKETS * wire.PACKET_BYTES
    seq = get(r, st.R_SEQ)
    end = target + nbytes
    while target < end:
        if not _has_come(at, seq):
            return False
        store(target, load(at))
        store_int(target + 8, load_int(at + 8))
        at += wire.PACKET_BYTES
        target += wire.PACKET_PAYLOAD
    return True


@entry
def take(g):
    """The record at the head has been read: its slot may be written again."""
    take_to(g, get(g, st.G_HEAD))


@inlined
def take_to(g, head):
    """``take`` of the record with the ticket ``head``; returns the next one's.

    Tags repeat after 2**31 tickets, and always in the same slot. Headers are written in each lap;
    but a packet of payload that no record has touched since would then pass for new. So in one lap
    of 2**30 tickets each slot forgets its payload, while it is still the proxy's.
    """
    if head & (_FORGETS_EVERY - 1) < get(g, st.G_RING_SLOTS):
        _forget_payload(g, head)
    put(g, st.G_HEAD, head + 1)
    put(g, st.G_LATE_SINCE, 0)
    return head + 1


@apart
def _forget_payload(g, head):
    slot = record_at(place_of(g), head)
    for packet in range(wire.HEADER_PACKETS, wire.SLOT_PACKETS):
        store(slot + packet * wire.PACKET_BYTES + 8, 0)


@entry
def return_slots(g):
    """Publishes how many records have been taken; release, after the last read of their slots."""
    store_release(get(g, st.G_CONTROL) + wire.CONTROL_CONSUMED, get(g, st.G_HEAD))
