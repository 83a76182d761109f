"""Compiled code in place of a kernel, for looking at the proxy without a GPU."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract.wire import (
    HANDLE_CONTEXT_SHIFT,
    HANDLE_LARGE_SHIFT,
    HANDLE_PACKETS_SHIFT,
    HANDLE_SLOT_SHIFT,
    LOW_32,
    PACKET_BYTES,
    SLOT_BYTES,
)
from host_proxy.platform.native import get, jit, load_acquire
from host_proxy.platform.state import (
    G_COMPLETIONS,
    G_CONTEXT,
    G_REQUEST_SLOTS,
    G_RING,
    G_RING_SLOTS,
)
from host_proxy.records.completion import write_packet


@jit
def seq_of(ticket):
    return (ticket << 1 | 1) & LOW_32


@jit
def make_handle(g, ticket, slot, packets):
    """Handle of the request that the record with this ticket opens in a slot."""
    large = 1 if slot >= get(g, G_REQUEST_SLOTS) else 0
    return (
        seq_of(ticket) | slot << HANDLE_SLOT_SHIFT | packets << HANDLE_PACKETS_SHIFT
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
    """Writes the header packets of a record; there must be room in the ring."""
    address = record_address(g, ticket)
    seq = seq_of(ticket)
    write_packet(address, first_word, peer, seq)
    write_packet(address + PACKET_BYTES, count, tag, seq)
    write_packet(address + 2 * PACKET_BYTES, handle, 0, seq)
    write_packet(address + 3 * PACKET_BYTES, position, 0, seq)


@jit
def has_come(g, handle, slot, packet):
    """Whether a packet of the completion of the request in a slot is there."""
    address = get(g, G_COMPLETIONS) + slot * SLOT_BYTES + packet * PACKET_BYTES
    return (load_acquire(address + 8) >> 32) & LOW_32 == handle & LOW_32
