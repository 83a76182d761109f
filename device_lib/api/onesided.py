"""One-sided communication (MPI 4.1 chapter 12): MPI's arguments, for each scope."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.notified import make_notified_calls
from device_lib.direct import windows
from device_lib.direct.collective_waits import NOTHING_DONE
from device_lib.direct.epochs import make_epochs, make_tell
from device_lib.direct.onesided import make_onesided
from device_lib.direct.onesided_short import make_short
from device_lib.direct.windows import place_of, types_of, which_call
from device_lib.move.atomics import NOT_ALIKE, kind_of, may_compare
from device_lib.move.message import fitting, message_bytes
from device_lib.platform.primitives import buffer_of, device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied.slots import error_handle
from gmpi.contract import windows as w
from gmpi.contract.collectives import NOT_OURS
from gmpi.contract.constants import NO_OP, PROC_NULL, REPLACE, SUCCESS


@device
def _update(origin_type, target_type, op, fetches):
    """How elements are updated; NOT_OURS: they cannot be; NOT_ALIKE: those of the two sides are not
    of one type."""
    kind = kind_of(op, origin_type, fetches)
    return kind if kind == kind_of(op, target_type, fetches) else int64(NOT_ALIKE)


@device
def _nothing_short(ctx, strided, address, room, nbytes, target_bytes, place, disp):
    return NOTHING_DONE


def make_onesided_calls(scope: Scope, barrier: Callable) -> SimpleNamespace:
    """The calls of one scope.

    Args:
        barrier: the call of that name.
    """
    tell = make_tell(scope)
    complete_any, open_passive, close_passive, begin_fence, end_fence = make_epochs(scope, tell)
    moves, short = make_onesided(scope, tell), make_short(scope, complete_any)
    update_there, update_both, swap = moves.accumulate, moves.get_accumulate, moves.compare_and_swap
    put_short, fetch_short, complete, sync = short.put, short.fetch, short.complete, scope.sync

    # --- Put and Get ------------------------------------------------------------------------------

    def mover(move: Callable, move_short: Callable) -> Callable:
        """``move`` with MPI's arguments, and which of the calls it is.

        Args:
            move_short: what is tried first, of ``onesided_short``.
        """

        # wide: as MPI's
        @device
        def start(
            ctx, call, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
            target_count, target_datatype, win,
        ):  # fmt: skip
            address, room, strided = buffer_of(origin_addr)
            origin_datatype = fitting(origin_datatype, origin_addr)
            place, disp = place_of(target_rank, win), int64(target_disp)
            if move_short(
                ctx, strided, address, room, message_bytes(origin_count, origin_datatype),
                message_bytes(target_count, target_datatype), place, disp,
            ) == SUCCESS:  # fmt: skip
                return SUCCESS
            return move(
                ctx, which_call(call, strided, 0), address, room, int64(origin_count),
                types_of(origin_datatype, target_datatype), place, disp, int64(target_count),
            )  # fmt: skip

        return start

    def mover_of(start: Callable, number: int) -> Callable:
        # wide: as MPI's
        @device
        def call(
            ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
            target_datatype, win,
        ):  # fmt: skip
            return start(
                ctx, number, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
                target_count, target_datatype, win,
            )  # fmt: skip

        return call

    start_put, start_get = mover(moves.put, put_short), mover(moves.get, _nothing_short)
    put, get = mover_of(start_put, w.PUT), mover_of(start_get, w.GET)
    put_for_request, get_for_request = mover_of(start_put, w.RPUT), mover_of(start_get, w.RGET)

    # wide: as MPI's
    @device
    def rput(
        ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
        target_datatype, win,
    ):  # fmt: skip
        error = put_for_request(
            ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
            target_count, target_datatype, win,
        )  # fmt: skip
        sync()  # all have read the buffer
        return error_handle(error)

    # wide: as MPI's
    @device
    def rget(
        ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
        target_datatype, win,
    ):  # fmt: skip
        return error_handle(get_for_request(
            ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
            target_count, target_datatype, win,
        ))  # fmt: skip

    # --- accumulating -----------------------------------------------------------------------------

    # wide: as MPI's
    @device
    def start_accumulate(
        ctx, number, origin_addr, origin_count, origin_datatype, target_rank, target_disp,
        target_count, target_datatype, op, win,
    ):  # fmt: skip
        address, room, strided = buffer_of(origin_addr)
        origin_datatype = fitting(origin_datatype, origin_addr)
        return update_there(
            ctx, which_call(number, strided, op),
            _update(origin_datatype, target_datatype, op, 0), address, room, int64(origin_count),
            types_of(origin_datatype, target_datatype), place_of(target_rank, win),
            int64(target_disp), int64(target_count),
        )  # fmt: skip

    # wide: as MPI's
    @device
    def start_get_accumulate(
        ctx, number, origin_addr, origin_count, origin_datatype, result_addr, result_count,
        result_datatype, target_rank, target_disp, target_count, target_datatype, op, win,
    ):  # fmt: skip
        address, room, strided = buffer_of(origin_addr)
        result, result_room, result_strided = buffer_of(result_addr)
        origin_datatype = fitting(origin_datatype, origin_addr)
        result_datatype = fitting(result_datatype, result_addr)
        if op == NO_OP:  # the origin's arguments are not looked at
            origin_count, origin_datatype = result_count, result_datatype
        kind = _update(origin_datatype, target_datatype, op, 1)
        if result_count != target_count or _update(result_datatype, target_datatype, op, 1) != kind:
            # That is what it is refused for.
            kind = int64(NOT_ALIKE)
            origin_count, origin_datatype = result_count, result_datatype
        return update_both(
            ctx, which_call(number, strided | result_strided, op), kind, address, room,
            result, result_room, int64(origin_count), types_of(origin_datatype, target_datatype),
            place_of(target_rank, win), int64(target_disp), int64(target_count),
        )  # fmt: skip

    # wide: as MPI's
    @device
    def accumulate(
        ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
        target_datatype, op, win,
    ):  # fmt: skip
        return start_accumulate(
            ctx, w.ACCUMULATE, origin_addr, origin_count, origin_datatype, target_rank,
            target_disp, target_count, target_datatype, op, win,
        )  # fmt: skip

    # wide: as MPI's
    @device
    def raccumulate(
        ctx, origin_addr, origin_count, origin_datatype, target_rank, target_disp, target_count,
        target_datatype, op, win,
    ):  # fmt: skip
        error = start_accumulate(
            ctx, w.RACCUMULATE, origin_addr, origin_count, origin_datatype, target_rank,
            target_disp, target_count, target_datatype, op, win,
        )  # fmt: skip
        sync()  # all have read the buffer
        return error_handle(error)

    # wide: as MPI's
    @device
    def get_accumulate(
        ctx, origin_addr, origin_count, origin_datatype, result_addr, result_count, result_datatype,
        target_rank, target_disp, target_count, target_datatype, op, win,
    ):  # fmt: skip
        return start_get_accumulate(
            ctx, w.GET_ACCUMULATE, origin_addr, origin_count, origin_datatype, result_addr,
            result_count, result_datatype, target_rank, target_disp, target_count,
            target_datatype, op, win,
        )  # fmt: skip

    # wide: as MPI's
    @device
    def rget_accumulate(
        ctx, origin_addr, origin_count, origin_datatype, result_addr, result_count, result_datatype,
        target_rank, target_disp, target_count, target_datatype, op, win,
    ):  # fmt: skip
        return error_handle(start_get_accumulate(
            ctx, w.RGET_ACCUMULATE, origin_addr, origin_count, origin_datatype, result_addr,
            result_count, result_datatype, target_rank, target_disp, target_count,
            target_datatype, op, win,
        ))  # fmt: skip

    @device
    def fetch_and_op(ctx, origin_addr, result_addr, datatype, target_rank, target_disp, op, win):
        address, room, strided = buffer_of(origin_addr)
        result, result_room, result_strided = buffer_of(result_addr)
        datatype = fitting(datatype, result_addr)
        if op != NO_OP:
            datatype = fitting(datatype, origin_addr)
        kind, nbytes = kind_of(op, datatype, 1), message_bytes(1, datatype)
        place, disp = place_of(target_rank, win), int64(target_disp)
        if fetch_short(
            ctx, 0, kind, address, room, result, result_room, nbytes, nbytes, place, disp
        ) == SUCCESS:  # fmt: skip
            return SUCCESS
        return update_both(
            ctx, which_call(w.FETCH_AND_OP, 0, op), kind, address, room, result, result_room,
            int64(1), types_of(datatype, datatype), place, disp, int64(1),
        )  # fmt: skip

    @device
    def compare_and_swap(
        ctx, origin_addr, compare_addr, result_addr, datatype, target_rank, target_disp, win
    ):
        origin, origin_room, strided = buffer_of(origin_addr)
        compare, compare_room, compare_strided = buffer_of(compare_addr)
        result, result_room, result_strided = buffer_of(result_addr)
        datatype = fitting(fitting(fitting(datatype, origin_addr), compare_addr), result_addr)
        kind = kind_of(REPLACE, datatype, 1) if may_compare(datatype) else int64(NOT_OURS)
        return swap(
            ctx, which_call(w.COMPARE_AND_SWAP, 0, 0), kind, origin, origin_room, compare,
            compare_room, result, result_room, types_of(datatype, datatype),
            place_of(target_rank, win), int64(target_disp),
        )  # fmt: skip

    # --- epochs and completion --------------------------------------------------------------------

    @device
    def win_flush(ctx, rank, win):
        return complete(ctx, int64(w.FLUSH), place_of(rank, win))

    @device
    def win_flush_all(ctx, win):
        return complete(ctx, int64(w.FLUSH_ALL), place_of(PROC_NULL, win))

    @device
    def win_flush_local(ctx, rank, win):
        return complete(ctx, int64(w.FLUSH_LOCAL), place_of(rank, win))

    @device
    def win_flush_local_all(ctx, win):
        return complete(ctx, int64(w.FLUSH_LOCAL_ALL), place_of(PROC_NULL, win))

    @device
    def win_lock_all(ctx, assertion, win):
        return open_passive(ctx, int64(w.LOCK_ALL), place_of(PROC_NULL, win), int64(assertion))

    @device
    def win_unlock_all(ctx, win):
        return close_passive(ctx, int64(w.UNLOCK_ALL), place_of(PROC_NULL, win))

    @device
    def win_fence(ctx, assertion, win):
        place = place_of(PROC_NULL, win)
        error = begin_fence(ctx, int64(w.FENCE), place, int64(assertion))
        if error == SUCCESS:
            error = barrier(ctx, windows.comm_of(ctx, win))
            if error == SUCCESS:
                error = end_fence(ctx, place, int64(assertion))
        return error

    starts = SimpleNamespace(get=start_get, accumulate=start_accumulate, both=start_get_accumulate)
    return SimpleNamespace(
        put=put, get=get, rput=rput, rget=rget, accumulate=accumulate,
        get_accumulate=get_accumulate, fetch_and_op=fetch_and_op,
        compare_and_swap=compare_and_swap, win_fence=win_fence, win_flush=win_flush,
        win_flush_all=win_flush_all, win_lock_all=win_lock_all, win_unlock_all=win_unlock_all,
        raccumulate=raccumulate, rget_accumulate=rget_accumulate,
        win_flush_local=win_flush_local, win_flush_local_all=win_flush_local_all,
        **vars(make_notified_calls(scope, tell, starts)),
    )  # fmt: skip
