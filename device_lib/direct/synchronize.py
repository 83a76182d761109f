"""GMPI_Synchronize of requests of the direct road: all threads of a scope go on with them."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import rows
from device_lib.direct.pending import last_pending
from device_lib.direct.round_waits import DATA
from device_lib.direct.rounds import NOBODY, signature_of
from device_lib.platform.context import all_slots
from device_lib.platform.library import declared, parts_of
from device_lib.platform.primitives import device, lane_id, load_gpu, opaque, pause
from device_lib.platform.scope import Scope
from device_lib.proxied import pacing
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import COMMUNICATORS, DEVICE_PENDING, OP_WAITED, OP_WAITS

_HOST = 32  # turns between two looks at host memory


def make_complete_open(
    scope: Scope, going_on: SimpleNamespace, help_others: Callable, tell: Callable
) -> Callable:
    """(context) -> an error class: waits until each request that is open now is complete.

    Args:
        going_on: what ``make_going_on`` returned.
        help_others: goes on with requests of the proxied road.
        tell: tells the proxy about a wait that takes long, and about its end.
    """
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3
    help_one = going_on.help_one
    wait_pending = declared(f"gmpi_direct_wait_pending_{scope.name}", 8, 1)

    @device
    def wait_for(ctx, slot, handle, first):
        """(error class, where to look for others next)."""
        turns = 0
        over = 0
        told = 0
        late = 0
        began = 0
        error = SUCCESS
        while over == 0 and error == SUCCESS:
            # Whatever is open: its peer may wait for another one first.
            first = help_one(ctx, first)
            at_host = turns & (_HOST - 1) == 0
            if leads() and lane_id() == 0:
                over = 1 if rows.is_over(ctx, slot, handle) else 0
                if at_host:
                    late, error, began = pacing.long_wait_at_host(ctx, began)
                pause(64)
            over, error, late = broadcast_3(over, error, late)
            sync()
            if late != 0 and told == 0:
                told = 1
                if leads():
                    tell(ctx, OP_WAITS, slot, handle)
            if at_host and over == 0:
                help_others(ctx)
            turns += 1
        if told != 0 and error == SUCCESS and leads():
            tell(ctx, OP_WAITED, slot, handle)
        return error, first

    @device
    def complete_pending(ctx):
        """The same of collectives that do not block and are open now."""
        error = SUCCESS
        comm = 0
        while comm < COMMUNICATORS and error == SUCCESS:
            number = what = 0
            if leads() and lane_id() == 0:
                number, what = last_pending(ctx, comm)
            number, what, unused = broadcast_3(number, what, 0)
            sync()
            if number != NOBODY:
                error = wait_pending(ctx, what, number, signature_of(what), 0, DATA)
            comm += opaque(1)
        return error

    @device
    def complete_open(ctx):
        error = SUCCESS
        pending = 0
        if leads() and lane_id() == 0:
            pending = load_gpu(ctx.device + DEVICE_PENDING)
        pending, unused, ignored = broadcast_3(pending, 0, 0)
        sync()
        if pending > 0:
            error = complete_pending(ctx)
        begin = 0  # of what has not been looked at
        first = 0
        while begin < all_slots(ctx) and error == SUCCESS:
            slot = -1
            handle = 0
            if leads() and lane_id() == 0:
                slot = rows.next_open(ctx, begin)
                if slot >= begin:
                    handle = rows.handle_in(ctx, slot)
                else:  # it went around
                    slot = -1
            slot, handle, unused = broadcast_3(slot, handle, 0)
            sync()
            if slot < 0:
                return error
            if rows.is_direct_handle(handle):
                error, first = wait_for(ctx, slot, handle, first)
            begin = slot + 1
        return error

    linked: Callable = parts_of(scope.name, "gmpi_direct")("complete_open", 3, 1, complete_open)
    return linked
