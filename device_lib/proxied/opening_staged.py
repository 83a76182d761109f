"""Opening short sends that do not fit their record: slot, pack, publish, a function each.

What ``opening.open_any`` does for every request, for the commonest kind: contiguous bytes, a free
slot at the first try, a ring with room. The parts call nothing and need few registers; one function
that calls ``copy_to_staging`` in its middle saves thirty of them on the stack, and fetches them
again after the fence, which empties L1: together 1 us on an H200.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives as gpu
from device_lib.platform.context import context_id, record_address, ring_slots
from device_lib.platform.primitives import device
from device_lib.platform.scope import ALL_LANES
from device_lib.proxied import commands, ring, slots
from device_lib.proxied.opening import UNFINISHED
from gmpi.contract import wire


@device
def begin_staged(ctx):
    """Takes a small slot: (slot, where its staging is), or (-1, 0) when a guess was not free.

    Called by all lanes of one full warp, after a barrier of the scope.
    """
    slot = 0
    if gpu.lane_id() == 0:
        slot = slots.guess(ctx)
        if not slots.take_if_free(ctx, slot):
            slot = -1
    slot = gpu.shuffle(ALL_LANES, slot, 0)
    if slot < 0:
        return -1, 0
    return slot, commands.small_staging(ctx, slot)


@device
def publish_staged(ctx, word0, count, send, peer_tag, slot):
    """Publishes a send whose bytes are in the staging of ``slot``; all lanes of one full warp.

    Called after a barrier of the threads that packed.

    Returns:
        The handle, or ``UNFINISHED`` with slot and ticket when the ring seems to be full: call
        ``open_any`` with it.
    """
    lane = gpu.lane_id()
    ticket, consumed = ring.begin_enter(ctx, lane == 0)
    low, high = ring.header_packet(lane, word0, peer_tag, count, send, gpu.block_id())
    constant = 1 << wire.HANDLE_PACKETS_SHIFT | slot << wire.HANDLE_SLOT_SHIFT
    constant = gpu.opaque(constant | context_id(ctx) << wire.HANDLE_CONTEXT_SHIFT)
    gpu.fence_sys()  # release: the staging is complete before the record says so
    found = 0
    if lane == 0:
        found = ring.seq_of(ticket)
        if ticket - consumed >= ring_slots(ctx):
            found |= UNFINISHED
    found = gpu.shuffle(ALL_LANES, found, 0)
    handle = found | constant
    low = handle if lane == wire.HANDLE_PACKET else low
    if found & UNFINISHED != 0:
        return found | slot << wire.HANDLE_SLOT_SHIFT
    if lane < wire.HEADER_PACKETS:
        record = record_address(ctx, (found & wire.LOW_32) >> 1)
        gpu.write_packet(record + lane * wire.PACKET_BYTES, low, (high & wire.LOW_32) | found << 32)
    if lane == 0:
        slots.open_row(ctx, slot, handle, 0)
    return handle
