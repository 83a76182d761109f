"""Closing a request: wait, carry out orders meanwhile, unpack. The second half of every call.

``finish`` waits. It is the path of a small message and tuned for latency: flag, status and payload
come back in one read by the lanes of one warp, and it calls no other function, so it saves no
registers on the stack. Whatever moves more bytes is left to ``carry_out`` and ``unpack``, which
the caller runs when ``finish`` says so; then it calls ``finish`` again.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib import completion, orders, ring, slots
from device_lib.copy import copy_from_staging, copy_to_staging
from device_lib.primitives import device, lane_id
from device_lib.scope import Scope, warp_lanes, warp_mask
from gmpi.constants import ANY_SOURCE, ANY_TAG, ERR_REQUEST
from gmpi.wire import (
    BYTES_MASK,
    ERROR_SHIFT,
    FRAGMENT,
    HANDLE_ERROR_SHIFT,
    OP_FAULT,
    PACK,
    REQUEST_NULL,
    STATUS_UNITS,
    TAG_MASK,
)

# What ``finish`` returns: (outcome, count, origin). One of three bits says how to read it.
COMPLETED = 1 << 56  # outcome: unit 0 of the completion; count: its high word; origin: unit 1
STAGED = 1 << 57  # the same, but the payload is still in staging: run ``unpack``
ORDERED = 1 << 58  # outcome: slot << 8 | buffer; count: length; origin: the order. ``carry_out``
# None of them: patience ran out.
FAULT = 1 << 59  # with COMPLETED: no such request, and the proxy does not know yet

NO_ORIGIN = (ANY_SOURCE & TAG_MASK) + (ANY_TAG << 32)  # ANY_TAG is negative: an int64

# ``patience`` of ``finish``: how many looks, 0 for no limit, plus this flag on a second call.
RESUMED = 1 << 32


@device
def failed(error):
    """The result of a request that ended without a completion."""
    return COMPLETED | error << ERROR_SHIFT, 0, NO_ORIGIN


def make_finish(scope: Scope) -> Callable:
    """The waiting function of one scope; all its threads call it together."""
    leads = scope.leads
    sync = scope.sync
    broadcast_5 = scope.broadcast_5

    @device
    def finish(ctx, handle, patience):
        """Waits until the request is complete, or looks ``patience`` times if that is not 0."""
        sync()
        if handle == REQUEST_NULL:
            return failed(0)
        if handle >> HANDLE_ERROR_SHIFT == 1:
            return failed(handle & 0xFF)
        event = completion.FOREIGN
        low = 0
        word = 0
        origin = 0
        place = 0
        if leads():
            ours, recv = completion.claim(
                ctx, handle, patience & RESUMED != 0, lane_id(), warp_mask()
            )
            if ours:
                event, slot, index, low, word, origin = completion.await_event(
                    ctx, handle, recv, lane_id(), warp_lanes(), warp_mask(), patience & TAG_MASK
                )
                place = slot << 8 | index
                if event == completion.DONE and recv != 0 and completion.is_staged(handle):
                    place = -1
                if lane_id() == 0:
                    if event == completion.NOTHING:
                        slots.unclaim(ctx, handle)
                    elif event == completion.DONE and place >= 0:
                        slots.release(ctx, slot)
        event, low, word, origin, place = broadcast_5(event, low, word, origin, place)
        if event == completion.DONE:
            if slots.units_of(handle) < STATUS_UNITS:
                origin = NO_ORIGIN
            if place < 0:
                return low & (COMPLETED - 1) | STAGED, word, origin
            return low & (COMPLETED - 1) | COMPLETED, word, origin
        if event == completion.ORDER:
            return ORDERED | place, word, low
        if event == completion.NOTHING:
            return 0, 0, 0
        if event == completion.ABORTED:
            return failed(low & 0xFF)
        return COMPLETED | FAULT | ERR_REQUEST << ERROR_SHIFT, 0, NO_ORIGIN

    return finish


def make_unpack(scope: Scope) -> Callable:
    """What follows STAGED in one scope; all its threads call it together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync

    @device
    def unpack(ctx, handle, outcome):
        """Moves the payload from the request's staging to the user and frees the slot."""
        slot = slots.slot_of(handle)
        staging = orders.staging_of(ctx, slot, FRAGMENT)
        target = slots.receive_address(ctx, slot)
        copy_from_staging(target, staging, outcome & BYTES_MASK, rank(), size())
        sync()  # the payload is in place for every thread, staging is no longer read
        if leads() and lane_id() == 0:
            slots.release(ctx, slot)
        return 0

    return unpack


def make_carry_out(scope: Scope) -> Callable:
    """What follows ORDERED in one scope; all its threads call it together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync

    @device
    def carry_out(ctx, place, order, length):
        """Moves the bytes of a claimed order; the leader answers it."""
        slot = place >> 8 & 0xFFFF
        index = place & 0xFF
        staging = orders.staging_of(ctx, slot, index)
        address = orders.user_address(ctx, slot, order)
        if orders.direction_of(order) == PACK:
            copy_to_staging(staging, address, length, rank(), size())
        else:
            copy_from_staging(address, staging, length, rank(), size())
        sync()
        if leads():
            orders.answer(ctx, lane_id(), warp_lanes(), warp_mask(), slot, index, order)
        return 0

    return carry_out


def make_report(scope: Scope) -> Callable:
    """Tells the host of a call that the device refused; all threads of the scope call it."""
    leads = scope.leads
    sync = scope.sync

    @device
    def report(ctx, op, value, error):
        sync()
        if leads():
            word0 = OP_FAULT | op << 8
            ring.post(ctx, lane_id(), warp_lanes(), warp_mask(), word0, value, 0, error)
        return 0

    return report
