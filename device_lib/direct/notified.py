"""One-sided calls that tell the target, and the counters that they add to.

A window has counters in each rank's GPU memory, beside the memory of the window
(``gmpi/contract/windows.py``). Who stores adds 1 to one of the target's when the bytes are there:
a barrier of the scope, a fence of system scope, and one atomic addition. The target looks at its
own memory; who sees a count finds what was stored before it was added. GMPI_Put_notify has all of
this in one function, with one barrier less. Any other call is made between ``judge_counter`` and
``count``.

This is notified communication as the draft of MPI after 5.0 has it (section 12.6).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import windows
from device_lib.direct.epochs import aborted, make_fence
from device_lib.move import atomics
from device_lib.move.stretch import put_stretch
from device_lib.platform.context import sign32
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, fence_sys, load_8, load_16, load_sys, spin
from device_lib.platform.scope import Scope
from gmpi.contract import windows as w
from gmpi.contract.constants import INT64_T, PROC_NULL, REPLACE, SUCCESS, SUM

_COUNTER_SHIFT = 3  # log2 of its bytes


@device
def _counter_at(counters, number, index):
    """Its address; NOWHERE: there is no such one."""
    if index < 0 or index >= number:
        return windows.NOWHERE
    return counters + (index << _COUNTER_SHIFT)


@device
def _target_counter(ctx, place, index):
    """(what is wrong, or 0; address of the target's counter, what the record says more), of a call
    that may be made."""
    rank = sign32(place)
    if rank == PROC_NULL:
        return 0, windows.NOWHERE, 0
    target = windows.target_of(windows.row_of(ctx, place >> 32), rank)
    counters, number = load_16(target + w.COUNTERS)
    counter = _counter_at(counters, number, index)
    if counter == windows.NOWHERE:
        return w.WRONG_NOTIFICATION, counter, number
    if load_8(target + w.MOST) & w.NO_ATOMICS != 0:
        return w.WRONG_GPU, windows.NOWHERE, 0
    return 0, counter, 0


def make_notified(scope: Scope, tell: Callable) -> SimpleNamespace:
    """For one scope, all of whose threads call these together.

    Args:
        tell: of ``epochs``.
    """
    rank, size, sync, sync_or = scope.rank, scope.size, scope.sync, scope.sync_or
    broadcast_3 = scope.broadcast_3
    fence = make_fence(scope)
    part = parts_of(scope.name, "gmpi_window")

    # wide: as MPI's
    @device
    def put_notify(ctx, what, address, room, count, types, place, disp, target_count, index):
        """The error class."""
        wrong, at, nbytes, elements, datatype, more = windows.judge(
            ctx, what, address, room, count, types, place, disp, target_count
        )
        counter = windows.NOWHERE
        if wrong == 0:
            wrong, counter, more = _target_counter(ctx, place, index)
            if wrong == w.WRONG_NOTIFICATION:
                disp = index
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, disp, elements, datatype, more)
        if at != windows.NOWHERE:
            put_stretch(at, address, nbytes, rank(), size())
        sync()  # all have stored
        if rank() == 0 and counter != windows.NOWHERE:
            fence_sys()  # theirs, too: before what says so
            atomics.update(atomics.kind_of(SUM, INT64_T, 0), counter, 1)
        return SUCCESS

    @device
    def judge_counter(ctx, what, place, index):
        """ERR_ARG where the target has no such counter, and so on, before a call. What else is
        wrong, the call itself finds."""
        win = place >> 32
        row = windows.row_of(ctx, win)
        wrong = 0
        more = 0
        epoch, handle, ranks = windows.look(row)
        if windows.wrong_use(epoch, handle, ranks, win, sign32(place)) == 0:
            wrong, counter, more = _target_counter(ctx, place, index)
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, index, 0, 0, more)
        return SUCCESS

    @device
    def count(ctx, place, index):
        """Tells the target of a call that all threads have returned from."""
        sync()  # all have stored, or loaded
        wrong, counter, more = _target_counter(ctx, place, index)
        if rank() == 0 and counter != windows.NOWHERE:
            fence_sys()  # theirs, too: before what says so
            atomics.update(atomics.kind_of(SUM, INT64_T, 0), counter, 1)
        return SUCCESS

    @device
    def read_counter(ctx, what, place, index):
        """(the value of a counter of this rank's, the error class); for RESET_NOTIFY_VALUE, which
        leaves 0 there."""
        row = windows.row_of(ctx, place >> 32)
        wrong = w.WRONG_WINDOW
        number = 0
        counter = windows.NOWHERE
        if windows.is_window(row, place >> 32):
            counters, number = load_16(row + w.OWN_COUNTERS)
            counter = _counter_at(counters, number, index)
            wrong = w.WRONG_NOTIFICATION if counter == windows.NOWHERE else 0
        value = 0
        if wrong == 0 and rank() == 0:
            wrong = aborted(ctx)
            if what == w.RESET_NOTIFY_VALUE:
                value = atomics.fetch(atomics.kind_of(REPLACE, INT64_T, 1), counter, 0)
            else:
                value = load_sys(counter)
        value, wrong, number = broadcast_3(value, wrong, number)
        sync()
        if wrong != 0:
            return 0, tell(ctx, what, wrong, place, index, 0, 0, number)
        if value != 0:
            fence()  # what was stored before it was counted is loaded from now on
        spin()
        return value, SUCCESS

    return SimpleNamespace(
        put_notify=part("put_notify", 12, 1, put_notify),
        judge_counter=part("judge_counter", 6, 1, judge_counter),
        count=part("count", 5, 1, count),
        read_counter=part("read_counter", 6, 2, read_counter),
    )
