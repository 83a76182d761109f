"""What a test does that has found nothing: programs test again and again, as others wait."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.platform.primitives import device, lane_id, timer_ns
from device_lib.platform.scope import Scope
from device_lib.proxied import pacing, slots


def make_look_on(scope: Scope, go_on: Callable, help_others: Callable) -> Callable:
    """(ctx) -> error class of aborted waits, or 0; all threads of a scope. It goes on with others'
    requests, and looks at host memory where it is the caller's turn.

    Args:
        go_on: what ``make_go_on`` returned.
        help_others: executes commands of the proxied road.
    """
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3

    @device
    def look_on(ctx):
        looked = error = 0
        if leads() and lane_id() == 0:
            looked, error = pacing.look_for_all(ctx, timer_ns(), False)
        error, looked, unused = broadcast_3(error, looked, 0)
        sync()  # before the next broadcast
        if error == 0:
            go_on(ctx, slots.guess(ctx))
            if looked != 0:
                help_others(ctx)
        return error & 0xFF

    return look_on
