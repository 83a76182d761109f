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
    entry,
    get,
    jit,
    load,
    load_acquire,
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


@jit
def arrived(g):
    """Address of the record at the head, 0 while its header is not complete."""
    head = get(g, st.G_HEAD)
    ring = get(g, st.G_RING)
    last = get(g, st.G_RING_SLOTS) - 1
    address = ring + (head & last) * wire.SLOT_BYTES
    seq = ((head << 1) | 1) & wire.LOW_32
    # Acquire, last packet first: lanes mostly arrive together, so this fails at once or not at all.
    if (load_acquire(address + 3 * wire.PACKET_BYTES + 8) >> 32) & wire.LOW_32 != seq:
        return 0
    if (
        (load_acquire(address + 8) >> 32) & wire.LOW_32 != seq
        or (load_acquire(address + wire.PACKET_BYTES + 8) >> 32) & wire.LOW_32 != seq
        or (load_acquire(address + 2 * wire.PACKET_BYTES + 8) >> 32) & wire.LOW_32 != seq
    ):
        return 0
    prefetch(ring + ((head + _AHEAD) & last) * wire.SLOT_BYTES)
    return address


@jit
def opcode(address):
    return load(address) & 0xFF


@jit
def element_count(address):
    return load(address + wire.PACKET_BYTES)


@entry
def has_record(g):
    """Whether a record waits to be taken."""
    return arrived(g) != 0


@jit
def _payload_bytes(g, r):
    """What payload the decoded record says it has; 0 where that cannot be: it will be refused."""
    datatype = get(r, st.R_DATATYPE)
    size = (datatype >> 8) & 0xFF
    if datatype & ~DERIVED_MASK == DERIVED_MARK:
        size = get(
            get(g, st.G_DERIVED) + (datatype & (DERIVED_ROWS - 1)) * (st.D_COUNT * 8), st.D_SIZE
        )
    count = get(r, st.R_ELEMENTS)
    if (
        count < 0
        or count > wire.INLINE_BYTES
        or size > wire.INLINE_BYTES
        or count * size > wire.INLINE_BYTES
    ):
        return 0
    return count * size


@jit
def _payload_has_come(g, r):
    """Whether each packet of the payload is there, or the record has waited for it too long.

    It mostly comes by the same store instruction as the header. A record that says it has a
    payload and has none is corrupt: only its own request may fail of that, and no other one's
    messages may wait for it meanwhile.
    """
    at = get(r, st.R_ADDRESS) + wire.HEADER_PACKETS * wire.PACKET_BYTES + 8
    seq = get(r, st.R_SEQ)
    end = (
        at
        + (_payload_bytes(g, r) + wire.PACKET_PAYLOAD - 1)
        // wire.PACKET_PAYLOAD
        * wire.PACKET_BYTES
    )
    looks = 0
    while at < end:
        if (load_acquire(at) >> 32) & wire.LOW_32 == seq:
            at += wire.PACKET_BYTES
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
    address = arrived(g)
    if address == 0:
        return False
    r = get(g, st.G_RECORD)
    first = load(address)
    put(r, st.R_ADDRESS, address)
    put(r, st.R_SEQ, ((get(g, st.G_HEAD) << 1) | 1) & wire.LOW_32)
    put(r, st.R_OP, first & 0xFF)
    put(r, st.R_FLAGS, (first >> 8) & 0xFF)
    put(r, st.R_COMM, (first >> 16) & wire.COMMUNICATOR_MASK)
    put(r, st.R_CALL, (first >> wire.CALL_SHIFT) & wire.CALL_MASK)
    put(r, st.R_DATATYPE, (first >> 32) & wire.LOW_32)
    put(r, st.R_PEER, signed(load(address + 8)))
    put(r, st.R_ELEMENTS, load(address + wire.PACKET_BYTES))
    put(r, st.R_TAG, signed(load(address + wire.PACKET_BYTES + 8)))
    put(r, st.R_HANDLE, load(address + 2 * wire.PACKET_BYTES))
    put(r, st.R_DONE, load(address + 3 * wire.PACKET_BYTES))
    put(r, st.R_BLOCK, load(address + 3 * wire.PACKET_BYTES + 8) & wire.LOW_32)
    op = get(r, st.R_OP)
    if op == wire.OP_FAULT or op == wire.OP_WAITS or op == wire.OP_WAITED:
        return True  # their flags are an opcode
    return get(r, st.R_FLAGS) & wire.FLAG_INLINE == 0 or _payload_has_come(g, r)


@entry
def payload_to(g, r, target, nbytes):
    """Copies the ``nbytes`` (at most 144) that came in the record to host memory: whether it could.

    Writes whole packets: up to 11 bytes past the end, which belong to the caller's staging buffer.
    ``decode`` has waited for them.
    """
    at = get(r, st.R_ADDRESS) + wire.HEADER_PACKETS * wire.PACKET_BYTES
    seq = get(r, st.R_SEQ)
    end = target + nbytes
    while target < end:
        word = load_acquire(at + 8)
        if (word >> 32) & wire.LOW_32 != seq:
            return False
        store(target, load(at))
        store_int(target + 8, word)
        at += wire.PACKET_BYTES
        target += wire.PACKET_PAYLOAD
    return True


@entry
def take(g):
    """The record at the head has been read: its slot may be written again.

    Tags repeat after 2**31 tickets, and always in the same slot. Headers are written in each lap;
    but a packet of payload that no record has touched since would then pass for new. So in one lap
    of 2**30 tickets each slot forgets its payload, while it is still the proxy's.
    """
    head = get(g, st.G_HEAD)
    if head & (_FORGETS_EVERY - 1) < get(g, st.G_RING_SLOTS):
        slot = get(g, st.G_RING) + (head & (get(g, st.G_RING_SLOTS) - 1)) * wire.SLOT_BYTES
        for packet in range(wire.HEADER_PACKETS, wire.SLOT_PACKETS):
            store(slot + packet * wire.PACKET_BYTES + 8, 0)
    put(g, st.G_HEAD, head + 1)
    put(g, st.G_LATE_SINCE, 0)


@entry
def return_slots(g):
    """Publishes how many records have been taken; release, after the last read of their slots."""
    store_release(get(g, st.G_CONTROL) + wire.CONTROL_CONSUMED, get(g, st.G_HEAD))
