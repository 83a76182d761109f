"""One-sided calls: the calling threads load, store and update the target's memory themselves.

A call begins with one barrier of the scope. It orders what its threads did with the buffers before,
and tells all of them whether any has found something wrong (``windows``). What a call brings here
has come when it returns; what it takes there has come after a flush, which is a fence.

Nothing waits for another rank. But programs call these in loops that wait for one, so some look at
the abort word now and then.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import windows
from device_lib.direct.epochs import aborted
from device_lib.move import atomics
from device_lib.move.stretch import put_stretch, take_stretch
from device_lib.move.words import gather, scatter
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, opaque, spin
from device_lib.platform.scope import Scope
from gmpi.contract import windows as w
from gmpi.contract.collectives import NOT_OURS
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import LOW_32


def make_onesided(scope: Scope, tell: Callable) -> SimpleNamespace:
    """For one scope, all of whose threads call these together; each returns the error class.

    Args:
        tell: of ``epochs``.
    """
    rank, size, sync, sync_or = scope.rank, scope.size, scope.sync, scope.sync_or
    part = parts_of(scope.name, "gmpi_window")

    # --- Put and Get ------------------------------------------------------------------------------

    # wide: as MPI's
    @device
    def put(ctx, what, address, room, count, types, place, disp, target_count):
        wrong, at, nbytes, elements, datatype, more = windows.judge(
            ctx, what, address, room, count, types, place, disp, target_count
        )
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, disp, elements, datatype, more)
        if at != windows.NOWHERE:
            put_stretch(at, address, nbytes, rank(), size())
        return SUCCESS

    # wide: as MPI's
    @device
    def get(ctx, what, address, room, count, types, place, disp, target_count):
        wrong, at, nbytes, elements, datatype, more = windows.judge(
            ctx, what, address, room, count, types, place, disp, target_count
        )
        if wrong == 0 and rank() == 0:
            wrong = aborted(ctx)
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, disp, elements, datatype, more)
        if at != windows.NOWHERE:
            take_stretch(address, at, nbytes, rank(), size())
        spin()
        sync()
        return SUCCESS

    # --- accumulating -----------------------------------------------------------------------------

    # wide: as MPI's
    @device
    def judge_update(
        ctx, what, kind, address, room, result, result_room, count, types, place, disp,
        target_count,
    ):  # fmt: skip
        """As ``windows.judge``, of a call that updates elements, each as a whole.

        Args:
            kind: of the update (``atomics``); NOT_OURS: there is none for this datatype.
            result, result_room: where what was there goes; 0: nowhere.
        """
        ignored = kind >= 0 and atomics.loads(kind)
        if ignored:  # the origin's buffer
            address = result
            room = result_room
        wrong, at, nbytes, elements, datatype, more = windows.judge(
            ctx, what, address, room, count, types, place, disp, target_count
        )
        if wrong != 0 or at == windows.NOWHERE:
            return wrong, at, nbytes, elements, datatype, more
        if kind == atomics.NOT_ALIKE:
            return w.WRONG_KIND, at, nbytes, elements, datatype, (types >> 32) & LOW_32
        if kind == NOT_OURS:
            return w.WRONG_OP, at, nbytes, elements, datatype, windows.op_of(what)
        if at & (1 << atomics.shift_of(kind)) - 1 != 0:
            return w.WRONG_ALIGNMENT, at, nbytes, elements, datatype, 1 << atomics.shift_of(kind)
        if more & w.NO_ATOMICS != 0:
            return w.WRONG_GPU, at, nbytes, elements, datatype, 0
        return wrong, at, nbytes, elements, datatype, 0

    # wide: as MPI's
    @device
    def accumulate(ctx, what, kind, address, room, count, types, place, disp, target_count):
        wrong, at, nbytes, elements, datatype, more = judge_update(
            ctx, what, kind, address, room, address, room, count, types, place, disp, target_count
        )
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, disp, elements, datatype, more)
        if at != windows.NOWHERE and not atomics.loads(kind):
            shift = atomics.shift_of(kind)
            to = rank() << shift
            while to < nbytes:
                atomics.update(kind, at + to, gather(address + to, 1 << shift))
                to += opaque(size() << shift)
        return SUCCESS

    # wide: as MPI's
    @device
    def get_accumulate(
        ctx, what, kind, address, room, result, result_room, count, types, place, disp,
        target_count,
    ):  # fmt: skip
        wrong, at, nbytes, elements, datatype, more = judge_update(
            ctx, what, kind, address, room, result, result_room, count, types, place, disp,
            target_count,
        )  # fmt: skip
        flaw = windows.flaw_of(ctx, result, result_room, nbytes, what >> windows.STRIDED_SHIFT & 1)
        if wrong == 0 and at != windows.NOWHERE and flaw != 0:
            wrong = w.WRONG_BUFFER
            more = flaw
        if wrong == 0 and rank() == 0:
            wrong = aborted(ctx)
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, disp, elements, datatype, more)
        if at != windows.NOWHERE:
            shift = atomics.shift_of(kind)
            to = rank() << shift
            while to < nbytes:
                value = 0
                if not atomics.loads(kind):
                    value = gather(address + to, 1 << shift)
                scatter(result + to, 1 << shift, atomics.fetch(kind, at + to, value))
                to += opaque(size() << shift)
        spin()
        sync()
        return SUCCESS

    # wide: as MPI's
    @device
    def compare_and_swap(
        ctx, what, kind, origin, origin_room, compare, compare_room, result, result_room, types,
        place, disp,
    ):  # fmt: skip
        wrong, at, nbytes, elements, datatype, more = judge_update(
            ctx, what, kind, origin, origin_room, result, result_room, 1, types, place, disp, 1
        )
        flaw = windows.flaw_of(ctx, compare, compare_room, nbytes, 0)
        flaw |= windows.flaw_of(ctx, result, result_room, nbytes, 0)
        if wrong == w.WRONG_OP:
            wrong = w.WRONG_DATATYPE
        if wrong == 0 and at != windows.NOWHERE and flaw != 0:
            wrong = w.WRONG_BUFFER
            more = flaw
        if wrong == 0 and rank() == 0:
            wrong = aborted(ctx)
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, disp, elements, datatype, more)
        if at != windows.NOWHERE and rank() == 0:
            shift = atomics.shift_of(kind)
            wanted = gather(compare, 1 << shift)
            value = gather(origin, 1 << shift)
            scatter(result, 1 << shift, atomics.compare_and_swap(shift, at, wanted, value))
        spin()
        sync()
        return SUCCESS

    return SimpleNamespace(
        put=part("put", 11, 1, put),
        get=part("get", 11, 1, get),
        accumulate=part("accumulate", 12, 1, accumulate),
        get_accumulate=part("get_accumulate", 14, 1, get_accumulate),
        compare_and_swap=part("compare_and_swap", 14, 1, compare_and_swap),
    )
