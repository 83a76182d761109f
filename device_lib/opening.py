"""Opening a request: slot, pack, publish. The first half of every call.

``make_open(scope)`` returns the one function behind Isend, Irecv, Allreduce, Barrier, ...: what
differs between them is in the record.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib import orders, ring, slots
from device_lib.context import chunk_bytes, eager_bytes
from device_lib.copy import copy_to_staging
from device_lib.primitives import device, fence_sys, lane_id, opaque, shuffle
from device_lib.scope import Scope, warp_lanes, warp_mask
from gmpi.wire import (
    FLAG_INLINE,
    FRAGMENT,
    HANDLE_ERROR_SHIFT,
    INLINE_BYTES,
    LARGE_BUFFERS,
    OP_IRECV,
    OP_NULL,
    PACK,
    STATUS_UNITS,
    UNIT_PAYLOAD,
    chunk_bytes_of,
)

_chunk_bytes_of = device(chunk_bytes_of)


@device
def units_back(word0, back):
    """Units of the completion: status for a receive, payload as far as it fits."""
    if back > INLINE_BYTES:
        return STATUS_UNITS
    if back > 0 or word0 & 0xFF == OP_IRECV:
        return STATUS_UNITS + (back + UNIT_PAYLOAD - 1) // UNIT_PAYLOAD
    return 1


@device
def _publish(
    ctx, lane, lanes, mask, slot, large, word0, peer, count, tag, reduction, send, inline, recv,
    back,
):  # fmt: skip
    """Takes a ticket, and a small slot if ``slot`` is -1, and writes the record (one warp).

    Ticket, slot and the state of the ring come from three independent accesses to device memory,
    so together they cost one latency. When the slot tried first is taken, the ticket is ours all
    the same and the ring waits for it: it goes out as a NULL record, and a second one follows.

    Returns:
        The handle.
    """
    while True:
        ticket = 0
        consumed = 0
        if lane == 0:
            ticket = ring.take_ticket(ctx)
            if slot < 0:
                slot = slots.try_first(ctx)
            consumed = ring.last_known_consumed(ctx)
        ticket = shuffle(mask, ticket, 0)
        slot = shuffle(mask, slot, 0)
        consumed = shuffle(mask, consumed, 0)
        handle = 0
        first = OP_NULL
        payload = 0
        if slot >= 0:
            handle = slots.make_handle(ctx, slot, ticket, units_back(word0, back), large)
            first = word0
            payload = inline
            if lane == 0:
                slots.open_row(ctx, slot, handle, send, recv, back)
        aborted = ring.wait_for_room(ctx, lane, mask, ticket, consumed)
        if aborted != 0:
            return slots.error_handle(aborted)
        ring.write(
            ctx, lane, lanes, ticket, first, peer, count, tag, handle, reduction, 0, send, payload
        )
        if handle != 0:
            return handle
        slot = slots.acquire(ctx, lane, mask, 0)
        if slot < 0:
            return slots.error_handle(-slot)


def make_open(scope: Scope) -> tuple[Callable, Callable]:
    """(open_inline, open_staged) of one scope; all its threads call them together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    broadcast = scope.broadcast

    @device
    def open_inline(ctx, word0, peer, count, tag, reduction, send, out, recv, back):
        """Publishes a request with ``out`` bytes (at most 144) from ``send`` in its record.

        ``back`` bytes will come to ``recv``; where both are non-zero they are equal. Arguments
        are the same in all threads of the scope.

        Returns:
            The handle, in all threads.
        """
        sync()  # what other threads of the scope wrote to the buffers, or still read from them
        handle = 0
        if leads():
            flags = 0
            if out > 0:
                flags = FLAG_INLINE << 8
            handle = _publish(
                ctx, lane_id(), warp_lanes(), warp_mask(), -1, 0, word0 | flags, peer, count, tag,
                reduction, send, out, recv, back,
            )  # fmt: skip
        return broadcast(handle)

    @device
    def open_staged(ctx, word0, peer, count, tag, reduction, send, out, recv, back):
        """The same for any size: packs into the staging of the slot, then publishes."""
        sync()
        large = 0
        if max(out, back) > eager_bytes(ctx):
            large = 1
        slot = 0
        if leads():
            slot = slots.acquire(ctx, lane_id(), warp_mask(), large)
        slot = broadcast(slot)
        if slot < 0:
            return slots.error_handle(-slot)
        if out > 0:
            fragment = orders.staging_of(ctx, slot, FRAGMENT)
            copy_to_staging(fragment, send, min(out, eager_bytes(ctx)), rank(), size())
        sync()
        handle = 0
        if leads():
            if out > 0:
                fence_sys()  # release: the staging is complete before the record says so
            handle = _publish(
                ctx, lane_id(), warp_lanes(), warp_mask(), slot, large, word0, peer, count, tag,
                reduction, send, 0, recv, back,
            )  # fmt: skip
        handle = broadcast(handle)
        if large and handle >> HANDLE_ERROR_SHIFT == 0:
            pack_first_chunks(ctx, handle, slot, send, out)
        return handle

    @device
    def pack_first_chunks(ctx, handle, slot, send, out):
        """Fills the chunk buffers, all of them free, at once; the proxy orders the rest."""
        chunk = _chunk_bytes_of(out, eager_bytes(ctx), chunk_bytes(ctx))
        index = 0
        position = eager_bytes(ctx)
        while index < LARGE_BUFFERS and position < out:
            staging = orders.staging_of(ctx, slot, index)
            copy_to_staging(staging, send + position, min(chunk, out - position), rank(), size())
            sync()
            if leads():
                orders.report_chunk(
                    ctx, lane_id(), warp_lanes(), warp_mask(), handle, position, PACK, index
                )
            index += opaque(1)
            position += chunk

    return open_inline, open_staged
