"""The context as a kernel sees it, and the status that calls return.

Five integers passed by value: kernel arguments sit in the constant bank, so no load from memory
precedes the first store of a record, and a call keeps few registers alive.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

from device_lib.primitives import device
from gmpi import wire
from gmpi.wire import (
    BUSY_BITS,
    HANDLE_CONTEXT_MASK,
    IDENTITY_RANK_SHIFT,
    IDENTITY_SIZE_SHIFT,
    MAPPED_RING,
    POSITION_STEP,
    SIZES_CHUNK_SHIFT,
    SIZES_EAGER_SHIFT,
    SIZES_LARGE_SHIFT,
    SIZES_REQUEST_SHIFT,
    SLOT_BYTES,
)


class DeviceContext(NamedTuple):
    """``Context.device``: the first argument of every ``GMPI_*`` call (see ``gmpi/wire.py``)."""

    mapped: int
    device: int
    sizes: int
    identity: int
    resource_ns: int


class Status(NamedTuple):
    """What ``GMPI_Wait`` returns (MPI 4.1 section 3.2.5), the same in every thread of the scope.

    Attributes:
        error: error class, ``gmpi.SUCCESS`` when all is well.
        source: rank of the sender in the communicator of the receive.
        tag: tag of the message.
        count: received elements of the datatype of the receive; ``gmpi.UNDEFINED`` when the
            message is no whole number of elements.
        nbytes: received bytes.
    """

    error: int
    source: int
    tag: int
    count: int
    nbytes: int


_mapped_completions = device(wire.mapped_completions)
_mapped_small = device(wire.mapped_small)
_mapped_large = device(wire.mapped_large)
_device_requests = device(wire.device_requests)
_device_claims = device(wire.device_claims)


@device
def context_id(ctx):
    return ctx.identity & HANDLE_CONTEXT_MASK


@device
def world_rank(ctx):
    return ctx.identity >> IDENTITY_RANK_SHIFT & 0xFFFFFFF


@device
def world_size(ctx):
    return ctx.identity >> IDENTITY_SIZE_SHIFT & 0xFFFFFFF


@device
def ring_slots(ctx):
    return 1 << (ctx.sizes & 31)


@device
def request_words(ctx):
    """Words of busy bits of the small class."""
    return ctx.sizes >> SIZES_REQUEST_SHIFT & 0xFFF


@device
def large_words(ctx):
    return (large_slots(ctx) + BUSY_BITS - 1) // BUSY_BITS


@device
def request_slots(ctx):
    return request_words(ctx) * BUSY_BITS


@device
def large_slots(ctx):
    return ctx.sizes >> SIZES_LARGE_SHIFT & 0x7F


@device
def all_slots(ctx):
    return request_slots(ctx) + large_slots(ctx)


@device
def eager_bytes(ctx):
    return (ctx.sizes >> SIZES_EAGER_SHIFT & 0x3FFF) * POSITION_STEP


@device
def chunk_bytes(ctx):
    return (ctx.sizes >> SIZES_CHUNK_SHIFT & 0x3FFFFF) * POSITION_STEP


@device
def record_address(ctx, ticket):
    return ctx.mapped + MAPPED_RING + (ticket & (ring_slots(ctx) - 1)) * SLOT_BYTES


@device
def completion_address(ctx, slot):
    return ctx.mapped + _mapped_completions(ring_slots(ctx)) + slot * SLOT_BYTES


@device
def small_address(ctx, slot):
    """The slot's small staging buffer (its lead, in front of the payload)."""
    stride = wire.STAGING_LEAD + eager_bytes(ctx)
    return ctx.mapped + _mapped_small(ring_slots(ctx), all_slots(ctx)) + slot * stride


@device
def chunk_address(ctx, slot, index):
    """One of the chunk buffers of a large slot."""
    begin = _mapped_large(ring_slots(ctx), all_slots(ctx), eager_bytes(ctx))
    number = (slot - request_slots(ctx)) * wire.LARGE_BUFFERS + index
    return ctx.mapped + begin + number * chunk_bytes(ctx)


@device
def busy_address(ctx, word):
    return ctx.device + wire.DEVICE_BUSY + word * wire.BUSY_STRIDE


@device
def row_address(ctx, slot):
    """The slot's row in device memory: ``REQUEST_*`` fields."""
    return ctx.device + _device_requests(all_slots(ctx)) + slot * wire.REQUEST_BYTES


@device
def claim_address(ctx, slot, index):
    """Claim word of one staging buffer of a large slot."""
    row = ctx.device + _device_claims(all_slots(ctx))
    return row + (slot - request_slots(ctx)) * wire.CLAIM_BYTES + index * 8
