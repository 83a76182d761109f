"""Producer of completions and orders (consumer: ``device_lib/completion.py``, ``orders.py``).

A unit's low word is stored first and the word with its tag after it, with release: a lane that
sees the tag in its 16-byte read of the line sees the low word too. MPI's writes to staging come
before the completion that announces them, for the same reason.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.wire import (
    BYTES_MASK,
    CONTROL_ATTENTION,
    DIRECTION_SHIFT,
    ERROR_SHIFT,
    HANDLE_LARGE_SHIFT,
    HANDLE_UNITS_MASK,
    HANDLE_UNITS_SHIFT,
    KIND_DONE,
    KIND_SHIFT,
    SLOT_BYTES,
    STAGING_LEAD,
    STATUS_UNITS,
    TAG_MASK,
    UNIT_BYTES,
    UNIT_PAYLOAD,
)
from host_proxy.native import entry, jit, load, store, store_release
from host_proxy.state import (
    COMPLETE,
    G_ATTENTION,
    G_CLOSED,
    G_COMPLETIONS,
    G_CONTROL,
    G_REQUEST_SLOTS,
    G_SMALL,
    G_SMALL_STRIDE,
    G_UNDEFINED,
    S_DATATYPE,
    S_ERROR,
    S_HANDLE,
    S_ORDERS,
    S_STATE,
    T_DATATYPES,
    T_SIZE,
    TR_COMPLETED,
)
from host_proxy.trace import stamp


@jit
def write_unit(address, low, high, tag):
    store(address, low)
    store_release(address + 8, (high & TAG_MASK) | (tag << 32))


@jit
def staging(g, slot):
    """Address of the payload in the slot's small staging buffer."""
    return g[G_SMALL] + slot * g[G_SMALL_STRIDE] + STAGING_LEAD


@jit
def elements(g, s, t, slot, nbytes):
    """Received elements of the datatype of the call, or UNDEFINED (MPI_Get_count)."""
    size = t[T_DATATYPES + (s[slot, S_DATATYPE] & 0xFF), T_SIZE]
    if size <= 0 or nbytes % size != 0 or nbytes // size > 0x7FFFFFFF:
        return g[G_UNDEFINED]
    return nbytes // size


@jit
def write(g, slot, handle, nbytes, error, count, origin):
    """Writes a completion into the slot: all the units that the handle makes the waiter poll."""
    address = g[G_COMPLETIONS] + slot * SLOT_BYTES
    tag = handle & TAG_MASK
    units = (handle >> HANDLE_UNITS_SHIFT) & HANDLE_UNITS_MASK
    low = (nbytes & BYTES_MASK) | (error & 0xFF) << ERROR_SHIFT | KIND_DONE << KIND_SHIFT
    if units > STATUS_UNITS and (handle >> HANDLE_LARGE_SHIFT) & 1 == 0:
        source = staging(g, slot)
        for unit in range(STATUS_UNITS, units):
            write_unit(address + unit * UNIT_BYTES, load(source), load(source + 8), tag)
            source += UNIT_PAYLOAD
    if units >= STATUS_UNITS:
        write_unit(address + UNIT_BYTES, origin, 0, tag)
    write_unit(address, low, count, tag)


@entry
def complete(g, s, t, slot, nbytes, error, source, tag):
    """Ends the open request of a slot."""
    count = elements(g, s, t, slot, nbytes)
    origin = (source & TAG_MASK) | (tag & TAG_MASK) << 32
    s[slot, S_STATE] = COMPLETE
    s[slot, S_ERROR] = error
    g[G_CLOSED] += 1
    write(g, slot, s[slot, S_HANDLE], nbytes, error, count, origin)
    stamp(g, s, slot, TR_COMPLETED)


@entry
def order(g, s, slot, index, position, length, direction):
    """Asks waiting threads to move ``length`` bytes at ``position`` to or from buffer ``index``."""
    address = g[G_COMPLETIONS] + slot * SLOT_BYTES + (STATUS_UNITS + index) * UNIT_BYTES
    write_unit(
        address, position | direction << DIRECTION_SHIFT, length, s[slot, S_HANDLE] & TAG_MASK
    )
    s[slot, S_ORDERS] += 1
    g[G_ATTENTION] |= 1 << (slot - g[G_REQUEST_SLOTS])
    store_release(g[G_CONTROL] + CONTROL_ATTENTION, g[G_ATTENTION])


@entry
def order_done(g, s, slot):
    """An order of the slot has been carried out."""
    s[slot, S_ORDERS] -= 1
    if s[slot, S_ORDERS] == 0:
        g[G_ATTENTION] &= ~(1 << (slot - g[G_REQUEST_SLOTS]))
        store_release(g[G_CONTROL] + CONTROL_ATTENTION, g[G_ATTENTION])
