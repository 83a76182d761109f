"""Epochs of one-sided calls, what completes these, and how one that is refused is told.

There is nothing to agree on with other ranks but in GMPI_Win_fence, whose barrier is the one of
GMPI_Barrier, on a communicator of the window's own. So an epoch is a word of this rank's: whether
one is open. A fence of system scope makes what was stored visible.

All threads of a scope call these together.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache

from device_lib.direct import windows
from device_lib.platform import primitives as gpu
from device_lib.platform.context import sign32
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import ALL_LANES, Scope, warp_lanes, warp_mask
from device_lib.proxied import ring
from device_lib.proxied.pacing import may_look_at_host
from gmpi.contract import windows as w
from gmpi.contract.constants import ERR_RMA_SYNC, MODE_NOCHECK, MODE_NOSUCCEED, SUCCESS
from gmpi.contract.wire import CALL_MASK, CALL_SHIFT, CONTROL_ABORT, LOW_32, OP_FAULT, OP_WINDOW

_class_of = device(w.class_of)
_ABORTED = 256  # in place of what is wrong: | the error class
_SAYS = 32  # threads of a scope, from the first one on, that tell others what has been stored
_ONE = 1 << w.PASSIVE_SHIFT


@device
def aborted(ctx):
    """Now and then, whether waits are to end: _ABORTED | the error class, else 0; one thread."""
    if may_look_at_host():
        found = gpu.load_sys(ctx.mapped + CONTROL_ABORT) & 0xFF
        return _ABORTED | found if found != 0 else 0
    return 0


@device
def abort_word(ctx):
    """What ``aborted`` looks at, now and then, else 0; all lanes of a full warp. It comes from host
    memory: ask for it early, and look at it late."""
    found = 0
    if gpu.ballot(ALL_LANES, may_look_at_host()) != 0:
        found = gpu.load_sys(ctx.mapped + CONTROL_ABORT)
    return found


def make_tell(scope: Scope) -> Callable:
    """What a call ends with that is refused."""
    leads, sync, broadcast = scope.leads, scope.sync, scope.broadcast

    @device
    def tell(ctx, what, wrong, place, disp, count, datatype, more):
        """Tells the host; the error class.

        Args:
            wrong: what the calling thread has found; the first thread's counts.
        """
        wrong = broadcast(wrong)
        sync()
        if wrong & _ABORTED != 0:
            return wrong & 0xFF
        if wrong == 0:  # another block has ended the epoch just now
            return ERR_RMA_SYNC
        error = _class_of(wrong)
        if leads():
            word0 = OP_FAULT | OP_WINDOW << 8 | wrong << 16 | (what & CALL_MASK) << CALL_SHIFT
            word0 |= (datatype & LOW_32) << 32
            ring.post_about(
                ctx, gpu.lane_id(), warp_lanes(), warp_mask(), word0, place, count, disp,
                error | more << 8,
            )  # fmt: skip
        return error

    linked: Callable = parts_of(scope.name, "gmpi_window")("tell", 10, 1, tell)
    return linked


@cache
def make_fence(scope: Scope) -> Callable:
    """For one scope."""
    rank, sync = scope.rank, scope.sync

    @device
    def fence():
        """What the scope has stored comes before what it says next; what it loads from now on,
        after what it has seen."""
        if rank() < _SAYS:
            gpu.fence_sys()
        sync()

    return fence


def make_epochs(scope: Scope, tell: Callable) -> tuple[Callable, ...]:
    """``complete``, ``lock_all``, ``unlock_all``, ``begin_fence`` and ``end_fence`` of one scope;
    each returns the error class."""
    rank, sync, sync_or = scope.rank, scope.sync, scope.sync_or
    fence = make_fence(scope)
    part = parts_of(scope.name, "gmpi_window")

    @device
    def complete(ctx, what, place):
        """GMPI_Win_flush and its kin. Those that are local need no fence: what is stored was loaded
        before, and all threads have met."""
        epoch, handle, ranks = windows.look(windows.row_of(ctx, place >> 32))
        wrong = windows.wrong_use(epoch, handle, ranks, place >> 32, sign32(place))
        if wrong == 0 and rank() == 0:
            wrong = aborted(ctx)
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, 0, 0, 0, ranks)
        if what != w.FLUSH_LOCAL and what != w.FLUSH_LOCAL_ALL:
            fence()
        gpu.spin()
        return SUCCESS

    @device
    def judge(ctx, what, place, assertion, allowed):
        """What is wrong with a call that needs no open epoch."""
        if not windows.is_window(windows.row_of(ctx, place >> 32), place >> 32):
            return w.WRONG_WINDOW
        return w.WRONG_ASSERTION if assertion & ~allowed != 0 else 0

    @device
    def lock_all(ctx, what, place, assertion):
        wrong = judge(ctx, what, place, assertion, MODE_NOCHECK)
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, 0, 0, 0, assertion)
        if rank() == 0:
            gpu.add_gpu(windows.row_of(ctx, place >> 32) + w.EPOCH, _ONE)
        fence()
        return SUCCESS

    @device
    def unlock_all(ctx, what, place):
        row = windows.row_of(ctx, place >> 32)
        wrong = judge(ctx, what, place, 0, 0)
        sync()
        if rank() < _SAYS:
            gpu.fence_sys()
        if wrong == 0 and rank() == 0 and gpu.add_gpu(row + w.EPOCH, -_ONE) < _ONE:
            gpu.add_gpu(row + w.EPOCH, _ONE)
            wrong = w.WRONG_EPOCH
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, 0, 0, 0, 0)
        return SUCCESS

    @device
    def begin_fence(ctx, what, place, assertion):
        """Before the barrier of GMPI_Win_fence."""
        wrong = judge(ctx, what, place, assertion, w.FENCE_MODES)
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, 0, 0, 0, assertion)
        fence()
        return SUCCESS

    @device
    def end_fence(ctx, place, assertion):
        """After it."""
        row = windows.row_of(ctx, place >> 32)
        if rank() == 0:
            if assertion & MODE_NOSUCCEED != 0:
                gpu.clear_bits_gpu(row + w.EPOCH, w.FENCED)
            else:
                gpu.set_bits_32_gpu(row + w.EPOCH, w.FENCED)
        fence()
        return SUCCESS

    return (
        part("complete", 5, 1, complete),
        part("lock_all", 6, 1, lock_all),
        part("unlock_all", 5, 1, unlock_all),
        part("begin_fence", 6, 1, begin_fence),
        part("end_fence", 5, 1, end_fence),
    )
