"""Compiled code in place of a kernel, for looking at the proxy without a GPU."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract.wire import (
    HANDLE_CONTEXT_SHIFT,
    HANDLE_LARGE_SHIFT,
    HANDLE_SLOT_SHIFT,
    HANDLE_UNITS_SHIFT,
    SLOT_BYTES,
    TAG_MASK,
    UNIT_BYTES,
)
from host_proxy.platform.native import get, jit, load_acquire
from host_proxy.platform.state import (
    G_COMPLETIONS,
    G_CONTEXT,
    G_REQUEST_SLOTS,
    G_RING,
    G_RING_SLOTS,
)
from host_proxy.records.completion import write_unit


@jit
def tag_of(ticket):
    return (ticket << 1 | 1) & TAG_MASK


@jit
def make_handle(g, ticket, slot, units):
    """Handle of the request that the record with this ticket opens in a slot."""
    large = 1 if slot >= get(g, G_REQUEST_SLOTS) else 0
    return (
        tag_of(ticket) | slot << HANDLE_SLOT_SHIFT | units << HANDLE_UNITS_SHIFT
        | large << HANDLE_LARGE_SHIFT | get(g, G_CONTEXT) << HANDLE_CONTEXT_SHIFT
    )  # fmt: skip


@jit
def record_address(g, ticket):
    return get(g, G_RING) + (ticket & (get(g, G_RING_SLOTS) - 1)) * SLOT_BYTES


@jit
def word0(op, flags, datatype):
    """The first word of a record on the context's communicator."""
    return op | flags << 8 | datatype << 32


@jit
def publish(g, ticket, first_word, peer, count, tag, handle, position):
    """Writes the header units of a record; there must be room in the ring."""
    address = record_address(g, ticket)
    mark = tag_of(ticket)
    write_unit(address, first_word, peer, mark)
    write_unit(address + UNIT_BYTES, count, tag, mark)
    write_unit(address + 2 * UNIT_BYTES, handle, 0, mark)
    write_unit(address + 3 * UNIT_BYTES, position, 0, mark)


@jit
def has_come(g, handle, slot, unit):
    """Whether a unit of the completion of the request in a slot is there."""
    address = get(g, G_COMPLETIONS) + slot * SLOT_BYTES + unit * UNIT_BYTES
    return (load_acquire(address + 8) >> 32) & TAG_MASK == handle & TAG_MASK
