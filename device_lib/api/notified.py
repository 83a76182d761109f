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
from device_lib.proxied.slots import error_handle
from gmpi.contract import windows as w
from gmpi.contract.constants import PROC_NULL, SUCCESS


def make_notified_calls(scope: Scope, tell: Callable, starts: SimpleNamespace) -> SimpleNamespace:
    """The calls of one scope.

    Args:
        tell: of ``epochs``.
        starts: ``get``, ``accumulate`` and ``both`` (Get_accumulate): (ctx, number of the call,
            MPI's arguments) -> error class.
    """
    start_get, start_accumulate, start_get_accumulate = starts.get, starts.accumulate, starts.both
    notified = make_notified(scope, tell)
    store_and_tell, read_counter = notified.put_notify, notified.read_counter
    judge_counter, count, sync = notified.judge_counter, notified.count, scope.sync

    def number_of(name: str, with_request: bool) -> int:
        return int(getattr(w, f"{'R' if with_request else ''}{name}_NOTIFY"))

    def result_of(with_request: bool) -> Callable:
        """What a call returns, by its error class."""

        @device
        def request(error):
            sync()  # all have read the buffer
            return error_handle(error)

        @device
        def alone(error):
            return error

        return request if with_request else alone

    def put_of(with_request: bool) -> Callable:
        number, result = number_of("PUT", with_request), result_of(with_request)

        # wide: as MPI's
        @device
        def put_notify(
            ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
            target_count, target_datatype, notification_idx, win,
        ):  # fmt: skip
            address, room, strided = buffer_of(origin_addr)
            types = types_of(fitting(origin_datatype, origin_addr), target_datatype)
            return result(store_and_tell(
                ctx, which_call(number, strided, 0), address, room, int64(origin_count), types,
                place_of(target_rank, win), int64(target_disp), int64(target_count),
                int64(notification_idx),
            ))  # fmt: skip

        return put_notify

    def get_of(with_request: bool) -> Callable:
        number, result = number_of("GET", with_request), result_of(with_request)

        # wide: as MPI's
        @device
        def get_notify(
            ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
            target_count, target_datatype, notification_idx, win,
        ):  # fmt: skip
            place, index = place_of(target_rank, win), int64(notification_idx)
            error = judge_counter(ctx, int64(number), place, index)
            if error == SUCCESS:
                error = start_get(
                    ctx, number, origin_addr, origin_count, origin_datatype, target_rank,
                    target_disp, target_count, target_datatype, win,
                )  # fmt: skip
                if error == SUCCESS:
                    error = count(ctx, place, index)
            return result(error)

        return get_notify

    def accumulate_of(with_request: bool) -> Callable:
        number, result = number_of("ACCUMULATE", with_request), result_of(with_request)

        # wide: as MPI's
        @device
        def accumulate_notify(
            ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
            target_count, target_datatype, op, notification_idx, win,
        ):  # fmt: skip
            place, index = place_of(target_rank, win), int64(notification_idx)
            error = judge_counter(ctx, int64(number), place, index)
            if error == SUCCESS:
                error = start_accumulate(
                    ctx, number, origin_addr, origin_count, origin_datatype, target_rank,
                    target_disp, target_count, target_datatype, op, win,
                )  # fmt: skip
                if error == SUCCESS:
                    error = count(ctx, place, index)
            return result(error)

        return accumulate_notify

    def get_accumulate_of(with_request: bool) -> Callable:
        number, result = number_of("GET_ACCUMULATE", with_request), result_of(with_request)

        # wide: as MPI's
        @device
        def get_accumulate_notify(
            ctx, origin_addr, origin_count, origin_datatype, result_addr, result_count,
            result_datatype, target_rank, target_disp, target_count, target_datatype, op,
            notification_idx, win,
        ):  # fmt: skip
            place, index = place_of(target_rank, win), int64(notification_idx)
            error = judge_counter(ctx, int64(number), place, index)
            if error == SUCCESS:
                error = start_get_accumulate(
                    ctx, number, origin_addr, origin_count, origin_datatype, result_addr,
                    result_count, result_datatype, target_rank, target_disp, target_count,
                    target_datatype, op, win,
                )  # fmt: skip
                if error == SUCCESS:
                    error = count(ctx, place, index)
            return result(error)

        return get_accumulate_notify

    @device
    def win_get_notify_value(ctx, win, notification_idx):
        place = place_of(PROC_NULL, win)
        return read_counter(ctx, int64(w.GET_NOTIFY_VALUE), place, int64(notification_idx))

    @device
    def win_reset_notify_value(ctx, win, notification_idx):
        place = place_of(PROC_NULL, win)
        return read_counter(ctx, int64(w.RESET_NOTIFY_VALUE), place, int64(notification_idx))

    return SimpleNamespace(
        put_notify=put_of(False), rput_notify=put_of(True),
        get_notify=get_of(False), rget_notify=get_of(True),
        accumulate_notify=accumulate_of(False), raccumulate_notify=accumulate_of(True),
        get_accumulate_notify=get_accumulate_of(False),
        rget_accumulate_notify=get_accumulate_of(True),
        win_get_notify_value=win_get_notify_value,
        win_reset_notify_value=win_reset_notify_value,
    )  # fmt: skip
