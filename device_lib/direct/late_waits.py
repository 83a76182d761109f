"""Long waits on the direct road, as the proxy knows them: by a slot that stands for the wait.

All threads of a scope call these.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace

from device_lib.direct import rows
from device_lib.platform.primitives import device, lane_id
from device_lib.platform.scope import Scope
from device_lib.proxied import slots, taking


def make_late_waits(scope: Scope, help_others: Callable, closes: bool = True) -> SimpleNamespace:
    """For one scope.

    Args:
        help_others: executes commands of the proxied road.
        closes: as of ``make_take_slot``.
    """
    return _make(scope, help_others, closes)


@cache  # by all three: the same functions for whoever leaves the last one out
def _make(scope: Scope, help_others: Callable, closes: bool) -> SimpleNamespace:
    leads = scope.leads
    sync = scope.sync
    take_slot = taking.make_take_slot(scope, help_others, closes)

    @device
    def begin(ctx):
        """The handle by which the proxy is to be told of a wait; -1: there is no slot for it."""
        slot = take_slot(ctx, -1, taking.SMALL)
        sync()
        handle = -1
        if slot >= 0:
            handle = rows.direct_handle(ctx, slot, 0, 0)
        return handle

    @device
    def end(ctx, handle):
        """The wait is over, and the proxy has been told so."""
        sync()
        if leads() and lane_id() == 0:
            slots.release(ctx, slots.slot_of(handle))

    return SimpleNamespace(begin=begin, end=end)
