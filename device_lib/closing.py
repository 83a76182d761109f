"""Closing a request: wait, unpack, free the slot. The second half of every call.

``finish_small`` waits for a request of the small class and is tuned for latency: flag, status and
payload come back in one read by the lanes of one warp, and it calls no other function, so it saves
no registers on the stack. It never moves staged bytes: it says so, and the caller runs ``unpack``
or ``help``. ``finish_any`` waits for everything else: large requests, whose orders it carries out,
and scopes of fewer than 32 threads.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib import completion, orders, ring, slots
from device_lib.context import chunk_bytes, completion_address
from device_lib.copy import copy_from_staging, copy_to_staging, store_payload
from device_lib.primitives import (
    device,
    fence_sys,
    lane_id,
    load_unit,
    relax,
    shuffle,
    vote_all,
)
from device_lib.scope import ALL_LANES, Scope, warp_lanes, warp_mask
from gmpi.constants import ANY_SOURCE, ANY_TAG, ERR_REQUEST
from gmpi.wire import (
    BYTES_MASK,
    CONTROL_ATTENTION,
    ERROR_SHIFT,
    OP_FAULT,
    PACK,
    STATUS_UNITS,
    TAG_MASK,
    UNIT_BYTES,
    UNIT_PAYLOAD,
)

# What the finish functions return: (outcome, count, origin). Outcome is unit 0 of the completion
# with these bits in place of its kind; count is its high word, origin is unit 1.
COMPLETED = 1 << 56
STAGED = 1 << 57  # complete, but the payload is still in staging: ``unpack``
FAULT = 1 << 58  # with COMPLETED: no such request, and the proxy does not know yet: ``report``
HELP = 1 << 59  # not complete, and others have orders that nobody carries out: ``help``
# None of them: patience ran out.

NO_ORIGIN = (ANY_SOURCE & TAG_MASK) + (ANY_TAG << 32)  # ANY_TAG is negative: an int64

# ``patience`` of the finish functions: how many looks, 0 for no limit, plus this flag when the
# caller has already claimed the request by an earlier call.
RESUMED = 1 << 32


def make_finish_small(scope: Scope) -> Callable:
    """The fast way to wait: small requests, full leading warp; all threads of the scope call it."""
    leads = scope.leads
    sync = scope.sync_full
    broadcast_3 = scope.broadcast_3_full

    @device
    def finish_small(ctx, handle, patience):
        """Waits until the request is complete, or looks ``patience`` times if that is not 0."""
        sync()
        outcome = COMPLETED | FAULT | ERR_REQUEST << ERROR_SHIFT
        count = 0
        origin = NO_ORIGIN
        if leads():
            lane = lane_id()
            leader = lane == 0
            if slots.names_slot(ctx, handle):
                slot = slots.slot_of(handle)
                units = slots.units_of(handle)
                expected = handle & TAG_MASK
                address = completion_address(ctx, slot) + min(lane, units - 1) * UNIT_BYTES
                # The first look and the claim are under way together.
                low, word = load_unit(address)
                owner, recv = slots.begin_claim(ctx, handle, leader)
                owner = handle if patience & RESUMED != 0 else owner
                recv = shuffle(ALL_LANES, recv if owner == handle else -1, 0)
                outcome = 0 if recv >= 0 else outcome
                looks = patience & TAG_MASK
                polls = 0
                while outcome == 0:
                    if vote_all(ALL_LANES, word >> 32 & TAG_MASK == expected):
                        outcome = COMPLETED
                    else:
                        polls += 1
                        if polls & (completion.CONTROL_EVERY - 1) == 0:
                            attention, aborted = load_unit(ctx.mapped + CONTROL_ATTENTION)
                            if shuffle(ALL_LANES, aborted, 0) != 0:
                                outcome = FAULT
                                low = aborted
                            elif shuffle(ALL_LANES, attention, 0) != 0:
                                outcome = HELP
                        if polls == looks and outcome == 0:
                            outcome = STAGED
                        relax()
                        if outcome == 0:
                            low, word = load_unit(address)
                # From here on only what lane 0 finds counts: it is broadcast below.
                if outcome == COMPLETED:
                    count = word
                    status = low
                    if units >= STATUS_UNITS:
                        origin = shuffle(ALL_LANES, low, 1)
                        nbytes = shuffle(ALL_LANES, low, 0) & BYTES_MASK
                        at = (lane - STATUS_UNITS) * UNIT_PAYLOAD
                        if lane >= STATUS_UNITS and lane < units and at < nbytes:
                            store_payload(recv + at, low, word & TAG_MASK, nbytes - at)
                        if units == STATUS_UNITS and recv != 0 and nbytes > 0:
                            outcome = STAGED
                            fence_sys()  # acquire: MPI wrote the staging before the completion
                    if outcome == COMPLETED and leader:
                        slots.release(ctx, slot)
                    outcome |= status & (COMPLETED - 1)
                elif outcome == FAULT:
                    outcome = COMPLETED | (low & 0xFF) << ERROR_SHIFT
                elif outcome == STAGED:
                    outcome = 0  # patience is over
                    if leader:
                        slots.unclaim(ctx, handle)
        return broadcast_3(outcome, count, origin)

    return finish_small


def make_unpack(scope: Scope) -> Callable:
    """What follows STAGED; all threads of the scope call it together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync

    @device
    def unpack(ctx, handle, outcome):
        """Moves the payload from the request's staging to the user and frees the slot."""
        slot = slots.slot_of(handle)
        staging = orders.small_staging(ctx, slot)
        target = slots.receive_address(ctx, slot)
        copy_from_staging(target, staging, outcome & BYTES_MASK, rank(), size())
        sync()  # the payload is in place for every thread, staging is no longer read
        if leads() and lane_id() == 0:
            slots.release(ctx, slot)
        return 0

    return unpack


def make_carry_out(scope: Scope) -> Callable:
    """Moves the bytes of a claimed order; all threads of the scope call it together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync

    @device
    def carry_out(ctx, place, order, length, buffers):
        """``place`` is slot << 8 | index of the staging buffer."""
        slot = place >> 8
        staging = buffers + (place & 0xFF) * chunk_bytes(ctx)
        address = orders.user_address(ctx, slot, order)
        if orders.direction_of(order) == PACK:
            copy_to_staging(staging, address, length, rank(), size())
        else:
            copy_from_staging(address, staging, length, rank(), size())
        sync()
        if leads():
            orders.answer(ctx, lane_id(), warp_lanes(), warp_mask(), slot, place & 0xFF, order)
            if lane_id() == 0:
                orders.count_finished(ctx, slot)
        sync()

    return carry_out


def make_help(scope: Scope) -> Callable:
    """What follows HELP; all threads of the scope call it together."""
    leads = scope.leads
    sync = scope.sync
    broadcast_5 = scope.broadcast_5
    carry_out = make_carry_out(scope)

    @device
    def help_others(ctx):
        """Carries out one order of any request, if there still is one."""
        sync()
        index = -1
        place = 0
        order = 0
        length = 0
        buffers = 0
        if leads():
            lane = lane_id()
            attention, aborted = completion.look_at_control(ctx, lane, warp_mask())
            slot, index, order, length, buffers = orders.take_other(
                ctx, attention, lane, warp_lanes(), warp_mask()
            )
            place = slot << 8 | (index & 0xFF)
        index, place, order, length, buffers = broadcast_5(index, place, order, length, buffers)
        if index >= 0:
            sync()
            carry_out(ctx, place, order, length, buffers)
        return 0

    return help_others


def make_finish_any(scope: Scope) -> Callable:
    """The complete way to wait; all threads of the scope call it together."""
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3
    broadcast_5 = scope.broadcast_5
    carry_out = make_carry_out(scope)

    @device
    def finish_any(ctx, handle, patience):
        """As ``finish_small``, for every request; carries out orders meanwhile, its own first."""
        sync()
        ours = False
        recv = 0
        if leads():
            ours, recv = completion.claim(
                ctx, handle, patience & RESUMED != 0, lane_id(), warp_mask()
            )
        event = completion.ORDER
        status = 0
        count = 0
        origin = NO_ORIGIN
        while event == completion.ORDER:
            event = completion.FOREIGN
            place = 0
            order = 0
            length = 0
            buffers = 0
            if leads() and ours:
                event, place, order, length, buffers, status, count, origin = (
                    completion.await_event(
                        ctx, handle, recv, lane_id(), warp_lanes(), warp_mask(),
                        patience & TAG_MASK,
                    )
                )  # fmt: skip
            event, place, order, length, buffers = broadcast_5(event, place, order, length, buffers)
            sync()
            if event == completion.ORDER:
                carry_out(ctx, place, order, length, buffers)
        outcome = COMPLETED | FAULT | ERR_REQUEST << ERROR_SHIFT
        if event == completion.DONE:
            outcome = COMPLETED | status & (COMPLETED - 1)
            if leads():
                if slots.units_of(handle) < STATUS_UNITS:
                    origin = NO_ORIGIN
                nbytes = status & BYTES_MASK
                if recv != 0 and nbytes > 0 and completion.is_staged(ctx, handle, nbytes):
                    outcome = STAGED | status & (COMPLETED - 1)
                elif lane_id() == 0:
                    slots.release(ctx, slots.slot_of(handle))
        elif event == completion.NOTHING:
            outcome = 0
            if leads() and lane_id() == 0:
                slots.unclaim(ctx, handle)
        elif event == completion.ABORTED:
            outcome = COMPLETED | (status & 0xFF) << ERROR_SHIFT
        return broadcast_3(outcome, count, origin)

    return finish_any


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
