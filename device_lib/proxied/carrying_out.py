"""Carrying out an order: the bytes of a chunk between the user's buffer and staging, or from a
landing place, by all threads of the scope that has claimed it (``orders.py``), and the answer.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.copy import copy_from_staging, copy_to_staging
from device_lib.move.landing import take_landed
from device_lib.move.layouts import layout_of, pack_layout, unpack_layout
from device_lib.platform.context import chunk_buffers, chunk_bytes, gpu_staging
from device_lib.platform.primitives import device, lane_id, load_sys
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import orders, ring
from gmpi.contract.wire import (
    CONTROL_ABORT,
    IN_SMALL,
    LANDED_MARK,
    LAYOUT_RECV,
    LAYOUT_SEND,
    PACK,
    SCATTERED,
)

# Bytes that a thread may move while its scope holds a ticket, for which the ring waits.
_TICKET_BYTES = 256


def make_carry_out(scope: Scope) -> Callable:
    """Moves the bytes of a claimed order; all threads of the scope call it together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or

    @device
    def answer(ctx, slot, index, order, own, ticket, consumed):
        """Says that an order has been carried out; the leading warp, after a barrier."""
        lane = lane_id()
        if own != 0:
            orders.answer_last(
                ctx, lane, warp_lanes(), warp_mask(), ticket, consumed, own, index, order
            )
        else:
            orders.answer(ctx, lane, warp_lanes(), warp_mask(), slot, index, order)

    # wide: what an order says
    @device
    def take_in(ctx, slot, index, order, length, buffers, places, own, address):
        """``carry_out`` for a message that has landed."""
        target = address
        scattered = address & SCATTERED != 0
        if scattered:  # by way of our own chunk buffer
            target = chunk_buffers(ctx, gpu_staging(ctx), slot)
        failed = take_landed(ctx, places, buffers, target, length, rank(), size())
        ticket = 0
        consumed = 0
        if leads() and own != 0:
            # The ring waits for this ticket while other warps' units are still on their way: for
            # stores of the sender, which wait for nobody.
            ticket, consumed = ring.begin_enter(ctx, lane_id() == 0)
        aborted = 0
        if sync_or(failed):
            aborted = load_sys(ctx.mapped + CONTROL_ABORT)
        elif scattered:
            begin = orders.position_of(order)
            layout = layout_of(ctx, slot, LAYOUT_RECV)
            unpack_layout(layout, target, begin, begin + length, rank(), size())
            sync()
        if leads() and (own != 0 or aborted == 0):
            answer(ctx, slot, index, order, own, ticket, consumed)
        sync()
        return aborted

    @device
    def carry_out(ctx, place, order, length, buffers, places, own, recv):
        """Carries out an order.

        Args:
            place: slot << 8 | index of the staging buffer.
            places: what ``landing_places`` returned.
            own: handle of the request if this is its last order and the caller waits for it; else
                0. Only the leading warp needs it.
            recv: address of the user's buffer that the order is about; 0: it is in the request.

        Returns:
            0, or the class of an abort that came before the bytes.
        """
        slot = place >> 8
        index = place & 0xFF
        staging = buffers + index * chunk_bytes(ctx)
        if buffers == IN_SMALL:
            staging = orders.small_staging(ctx, slot)
        ticket = 0
        consumed = 0
        landed = buffers & LANDED_MARK != 0
        early = own != 0 and length <= size() * _TICKET_BYTES and not landed
        if leads() and early:
            ticket, consumed = ring.begin_enter(ctx, lane_id() == 0)
        address = recv + orders.position_of(order)
        if recv == 0:
            address = orders.user_address(ctx, slot, order)
        if landed:
            return take_in(ctx, slot, index, order, length, buffers, places, own, address)
        if address & SCATTERED != 0:
            begin = orders.position_of(order)
            end = begin + length
            if orders.direction_of(order) == PACK:
                layout = layout_of(ctx, slot, LAYOUT_SEND)
                pack_layout(layout, staging, begin, end, rank(), size())
            else:
                layout = layout_of(ctx, slot, LAYOUT_RECV)
                unpack_layout(layout, staging, begin, end, rank(), size())
        elif orders.direction_of(order) == PACK:
            copy_to_staging(staging, address, length, rank(), size())
        else:
            copy_from_staging(address, staging, length, rank(), size())
        sync()
        if leads():
            if own != 0 and not early:
                ticket, consumed = ring.begin_enter(ctx, lane_id() == 0)
            answer(ctx, slot, index, order, own, ticket, consumed)
        sync()
        return 0

    return carry_out
