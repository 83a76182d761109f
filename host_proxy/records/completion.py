"""Producer of completions and orders (consumer: ``device_lib/proxied/completion.py``,
``orders.py``).

A unit's low word is stored first and the word with its tag after it, with release: a lane that
sees the tag in its 16-byte read of the line sees the low word too. MPI's writes to staging come
before the completion that announces them, for the same reason.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract.wire import (
    BASE_UNIT,
    BLOCK_BITS,
    BYTES_MASK,
    CONTROL_ATTENTION,
    CONTROL_ORDERS,
    DERIVED_MARK,
    DERIVED_MASK,
    DERIVED_ROWS,
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
from host_proxy.platform.flight import completed
from host_proxy.platform.native import bump, entry, get, jit, load, put, store_release
from host_proxy.platform.state import (
    COMPLETE,
    D_COUNT,
    D_SIZE,
    G_ATTENTION,
    G_BLOCKS,
    G_CLOSED,
    G_COMPLETIONS,
    G_CONTROL,
    G_DATATYPES,
    G_DERIVED,
    G_HELPED,
    G_LARGE_SLOTS,
    G_NARROW_BLOCKS,
    G_NOW,
    G_ORDERED,
    G_PATIENCE_NS,
    G_QUIET,
    G_QUIET_SINCE,
    G_REQUEST_SLOTS,
    G_SLOT_TABLE,
    G_SMALL,
    G_SMALL_STRIDE,
    G_UNDEFINED,
    S_BLOCK,
    S_DATATYPE,
    S_HANDLE,
    S_ORDERS,
    S_ROW_BYTES,
    S_SLOT,
    S_STATE,
    S_TOLD,
    TR_COMPLETED,
)
from host_proxy.platform.trace import stamp
from host_proxy.records.narrow import (
    find_overdue_narrow,
    forget_narrow,
    hear_narrow,
    is_narrow,
    show_blocks,
    show_narrow,
)


@jit
def write_unit(address, low, high, tag):
    store_release(address, low)
    store_release(address + 8, (high & TAG_MASK) | (tag << 32))


@jit
def staging(g, slot):
    """Address of the payload in the slot's small staging buffer."""
    return get(g, G_SMALL) + slot * get(g, G_SMALL_STRIDE) + STAGING_LEAD


@jit
def size_of(g, datatype):
    """Packed bytes of an element; the handle has been checked."""
    if datatype & ~DERIVED_MASK == DERIVED_MARK:
        return get(get(g, G_DERIVED), (datatype & (DERIVED_ROWS - 1)) * D_COUNT + D_SIZE)
    return get(get(g, G_DATATYPES), (datatype & 0xFF) * D_COUNT + D_SIZE)


@jit
def elements(g, row, nbytes):
    """Received elements of the datatype of the call, or UNDEFINED (MPI_Get_count)."""
    if nbytes == 0:
        return 0
    size = size_of(g, get(row, S_DATATYPE))
    count = nbytes // size
    if count * size != nbytes or count > 0x7FFFFFFF:
        return get(g, G_UNDEFINED)
    return count


@jit
def write(g, slot, handle, nbytes, error, count, origin, orders):
    """Writes a completion into the slot: all the units that the handle makes the waiter poll."""
    address = get(g, G_COMPLETIONS) + slot * SLOT_BYTES
    tag = handle & TAG_MASK
    units = (handle >> HANDLE_UNITS_SHIFT) & HANDLE_UNITS_MASK
    low = (nbytes & BYTES_MASK) | (error & 0xFF) << ERROR_SHIFT | KIND_DONE << KIND_SHIFT
    if units >= STATUS_UNITS:
        if units > STATUS_UNITS and (handle >> HANDLE_LARGE_SHIFT) & 1 == 0:
            source = staging(g, slot)
            for unit in range(STATUS_UNITS, units):
                write_unit(address + unit * UNIT_BYTES, load(source), load(source + 8), tag)
                source += UNIT_PAYLOAD
        write_unit(address + UNIT_BYTES, origin, orders, tag)
    write_unit(address, low, count, tag)


@entry
def tell(g, row, nbytes, error, source, tag, orders):
    """Writes the completion of an open request. ``orders``: how many the waiter must see done."""
    count = elements(g, row, nbytes)
    origin = (source & TAG_MASK) | (tag & TAG_MASK) << 32
    put(row, S_TOLD, 1)
    write(g, get(row, S_SLOT), get(row, S_HANDLE), nbytes, error, count, origin, orders)
    stamp(g, row, TR_COMPLETED)
    completed(g, row, nbytes, error)


@entry
def close(g, row):
    """Forgets a request whose completion is written."""
    put(row, S_STATE, COMPLETE)
    bump(g, G_CLOSED, 1)
    if get(g, G_ORDERED) | get(g, G_HELPED) | get(g, G_NARROW_BLOCKS):
        forget_orders(g, row)


@entry
def complete(g, row, nbytes, error, source, tag):
    """Ends the open request of a slot."""
    tell(g, row, nbytes, error, source, tag, 0)
    close(g, row)


@jit
def slot_address(g, row):
    return get(g, G_COMPLETIONS) + get(row, S_SLOT) * SLOT_BYTES


@entry
def set_base(g, row, base, ready):
    """Says where (GPU) the chunk buffers are that the orders of this request are about, and what
    their ready word will be (0: they have none)."""
    tag = get(row, S_HANDLE) & TAG_MASK
    write_unit(slot_address(g, row) + BASE_UNIT * UNIT_BYTES, base, ready, tag)


@entry
def order(g, row, index, position, length, direction):
    """Asks threads that wait to move ``length`` bytes at ``position`` to or from buffer ``index``.

    The buffer's unit may have an earlier order of this request, with the same tag. It loses its tag
    first: a lane that reads between two of our stores must not see one order's position with
    another's length, and the last chunk is shorter.
    """
    address = slot_address(g, row) + (STATUS_UNITS + index) * UNIT_BYTES
    tag = get(row, S_HANDLE) & TAG_MASK
    store_release(address + 8, 0)
    write_unit(address, position | direction << DIRECTION_SHIFT, length, tag)
    bump(row, S_ORDERS, 1)
    if is_narrow(g, row):
        show_narrow(g, row)
        return
    bit = _bit(g, row)
    if get(g, G_ORDERED) & bit == 0:
        put(g, G_QUIET, get(g, G_QUIET) & ~bit)
        show_orders(g, get(g, G_ORDERED) | bit)
    if get(g, G_HELPED) & bit:
        draw_attention(g, get(g, G_ATTENTION) | bit)


@entry
def order_done(g, row):
    """An order of the slot has been carried out."""
    bump(row, S_ORDERS, -1)
    if is_narrow(g, row):
        hear_narrow(g, row)
        if get(row, S_ORDERS) == 0:
            forget_narrow(g, row)
        return
    bit = _bit(g, row)
    put(g, G_QUIET, get(g, G_QUIET) & ~bit)
    if get(row, S_ORDERS) == 0:
        draw_attention(g, get(g, G_ATTENTION) & ~bit)
        show_orders(g, get(g, G_ORDERED) & ~bit)


# --- who is to carry orders out -------------------------------------------------------------------


@jit
def _bit(g, row):
    """The bit of a large slot."""
    return 1 << (get(row, S_SLOT) - get(g, G_REQUEST_SLOTS))


@jit
def draw_attention(g, slots):
    """Tells all that wait which large slots have orders that nobody has come for."""
    if get(g, G_ATTENTION) != slots:
        put(g, G_ATTENTION, slots)
        store_release(get(g, G_CONTROL) + CONTROL_ATTENTION, slots)


@jit
def show_orders(g, slots):
    """Tells all that wait which large slots have orders, and which blocks have opened them."""
    put(g, G_ORDERED, slots)
    blocks = 0
    for slot in range(get(g, G_LARGE_SLOTS)):
        if slots >> slot & 1:
            row = get(g, G_SLOT_TABLE) + (get(g, G_REQUEST_SLOTS) + slot) * S_ROW_BYTES
            blocks |= 1 << (get(row, S_BLOCK) & BLOCK_BITS)
    store_release(get(g, G_CONTROL) + CONTROL_ORDERS, slots)
    put(g, G_BLOCKS, blocks)
    show_blocks(g)


@entry
def find_overdue(g):
    """Leaves orders that nobody has come for to everybody that waits; in each turn of the loop
    while there are orders.

    An order is overdue when nothing was heard of its request between two looks: no new order where
    there was none, no answer. The next orders of such a request are everybody's
    at once.
    """
    if get(g, G_NOW) - get(g, G_QUIET_SINCE) < get(g, G_PATIENCE_NS):
        return
    put(g, G_QUIET_SINCE, get(g, G_NOW))
    overdue = get(g, G_QUIET) & get(g, G_ORDERED)
    put(g, G_HELPED, get(g, G_HELPED) | overdue)
    draw_attention(g, get(g, G_ATTENTION) | overdue)
    put(g, G_QUIET, get(g, G_ORDERED))
    find_overdue_narrow(g)


@jit
def forget_orders(g, row):
    """The request of a slot is over, and with it the orders that nobody has answered."""
    if get(row, S_SLOT) < get(g, G_REQUEST_SLOTS):
        return
    if is_narrow(g, row):
        forget_narrow(g, row)
        return
    bit = _bit(g, row)
    put(g, G_HELPED, get(g, G_HELPED) & ~bit)
    draw_attention(g, get(g, G_ATTENTION) & ~bit)
    if get(g, G_ORDERED) & bit:
        show_orders(g, get(g, G_ORDERED) & ~bit)
