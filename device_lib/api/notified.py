"""One-sided calls that tell their target, and the counters that they add to, for each scope."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct.notified import make_notified
from device_lib.direct.windows import place_of, types_of, which_call
from device_lib.move.message import fitting
from device_lib.platform.primitives import buffer_of, device, int64
from device_lib.platform.scope import Scope
from gmpi.contract import windows as w
from gmpi.contract.constants import PROC_NULL


def make_notified_calls(scope: Scope, tell: Callable) -> SimpleNamespace:
    """The calls of one scope; ``tell`` is of ``epochs``."""
    notified = make_notified(scope, tell)
    store_and_tell, read_counter = notified.put_notify, notified.read_counter

    # wide: as MPI's
    @device
    def put_notify(
        ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
        target_datatype, notification_idx, win,
    ):  # fmt: skip
        address, room, strided = buffer_of(origin_addr)
        types = types_of(fitting(origin_datatype, origin_addr), target_datatype)
        return store_and_tell(
            ctx, which_call(w.PUT_NOTIFY, strided, 0), address, room, int64(origin_count), types,
            place_of(target_rank, win), int64(target_disp), int64(target_count),
            int64(notification_idx),
        )  # fmt: skip

    @device
    def win_get_notify_value(ctx, win, notification_idx):
        place = place_of(PROC_NULL, win)
        return read_counter(ctx, int64(w.GET_NOTIFY_VALUE), place, int64(notification_idx))

    @device
    def win_reset_notify_value(ctx, win, notification_idx):
        place = place_of(PROC_NULL, win)
        return read_counter(ctx, int64(w.RESET_NOTIFY_VALUE), place, int64(notification_idx))

    return SimpleNamespace(
        put_notify=put_notify,
        win_get_notify_value=win_get_notify_value,
        win_reset_notify_value=win_reset_notify_value,
    )
