"""Looking at a request without closing it: what it has brought is in the user's buffer, and a later
wait finds it complete.

A buffered send is looked at until the proxy has its bytes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.platform.context import row_address
from device_lib.platform.primitives import device, fence_gpu, lane_id, store_gpu
from device_lib.platform.scope import Scope
from device_lib.proxied import commands, completion, slots
from device_lib.proxied.closing import COMPLETED, FAULT, NO_ORIGIN, make_follow, make_take_out
from gmpi.contract.constants import ERR_REQUEST
from gmpi.contract.wire import (
    BYTES_MASK,
    ERROR_SHIFT,
    HANDLE_ERROR_SHIFT,
    REQUEST_RECV,
    STATUS_PACKETS,
)


def make_look_at(scope: Scope) -> Callable:
    """For one scope, all of whose threads call it together."""
    leads = scope.leads
    sync = scope.sync
    broadcast_5 = scope.broadcast_5
    follow = make_follow(scope, False)
    take_out = make_take_out(scope)

    @device
    def give_back(ctx, handle, recv, has_come):
        """The claim, to whoever waits for it later; one lane."""
        slot = slots.slot_of(handle)
        if has_come and recv != 0:
            # What the payload is moved to from now on: the buffer is the user's again.
            store_gpu(row_address(ctx, slot) + REQUEST_RECV, commands.small_staging(ctx, slot))
            fence_gpu()
        slots.unclaim(ctx, handle)

    @device
    def look_at(ctx, handle, patience):
        """As ``closing.finish_any``, and the request stays open; never STAGED."""
        event, ours, recv, status, count, origin = follow(ctx, handle, patience)
        outcome = COMPLETED | FAULT | ERR_REQUEST << ERROR_SHIFT
        staged = 0
        if event == completion.DONE:
            outcome = COMPLETED | status & (COMPLETED - 1)
            if leads():
                if slots.packets_polled(handle) < STATUS_PACKETS:
                    origin = NO_ORIGIN
                nbytes = status & BYTES_MASK
                kept = commands.small_staging(ctx, slots.slot_of(handle))
                if recv != 0 and recv != kept and nbytes > 0:
                    staged = 1 if completion.is_staged(ctx, handle, nbytes) else 0
        elif event == completion.NOTHING:
            outcome = 0
        elif event == completion.ABORTED:
            outcome = COMPLETED | (status & 0xFF) << ERROR_SHIFT
        outcome, count, origin, staged, unused = broadcast_5(outcome, count, origin, staged, 0)
        if staged != 0:
            take_out(ctx, handle, outcome)
        if leads() and ours and lane_id() == 0:
            give_back(ctx, handle, recv, event == completion.DONE)
        sync()
        return outcome, count, origin

    return look_at


def make_keep_bytes(look_at: Callable) -> Callable:
    """What follows the opening of a buffered send; ``look_at`` of the scope."""

    @device
    def keep_bytes(ctx, handle):
        """Waits until the proxy has the bytes, for no other rank (MPI 4.1 section 3.6); the handle.

        Those of a short one are in its record or in staging. A long one's are moved by threads: by
        the caller's, now, since nobody need come back soon to wait for it.
        """
        if handle >> HANDLE_ERROR_SHIFT == 0 and slots.is_large(handle) != 0:
            look_at(ctx, handle, 0)
        return handle

    return keep_bytes
