"""What a kernel asks of its thread, block, warp and grid.

The functions have the names and arguments of ``numba.cuda``, whose documentation says what they do.
Strict mode, where it is on, is told of each barrier and fence.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from greenlet import getcurrent as _getcurrent

from device_lib.simulator import lanes, meetings

getcurrent: Any = _getcurrent  # a lane, in a kernel

warpsize = meetings.WARP
_ALL = 0xFFFFFFFF


class _OfThread:
    """Three numbers, other ones for each thread or launch."""

    _name = ""

    def __getattr__(self, name: str) -> Any:
        if name in ("x", "y", "z"):
            raise RuntimeError(f"cuda.{self._name}.{name} is known in a kernel only")
        raise AttributeError(f"cuda.{self._name} has no attribute {name!r}: only x, y, z")


class _ThreadIdx(_OfThread):
    _name = "threadIdx"
    x = property(lambda self: getcurrent().threadIdx[0])
    y = property(lambda self: getcurrent().threadIdx[1])
    z = property(lambda self: getcurrent().threadIdx[2])


class _BlockIdx(_OfThread):
    _name = "blockIdx"
    x = property(lambda self: getcurrent().blockIdx[0])
    y = property(lambda self: getcurrent().blockIdx[1])
    z = property(lambda self: getcurrent().blockIdx[2])


class _BlockDim(_OfThread):
    _name = "blockDim"
    x = property(lambda self: getcurrent().grid.block_dim[0])
    y = property(lambda self: getcurrent().grid.block_dim[1])
    z = property(lambda self: getcurrent().grid.block_dim[2])


class _GridDim(_OfThread):
    _name = "gridDim"
    x = property(lambda self: getcurrent().grid.grid_dim[0])
    y = property(lambda self: getcurrent().grid.grid_dim[1])
    z = property(lambda self: getcurrent().grid.grid_dim[2])


def grid(ndim):
    me = getcurrent()
    at, size, block = me.threadIdx, me.grid.block_dim, me.blockIdx
    if ndim == 1:
        return block[0] * size[0] + at[0]
    _require_dimensions("grid", ndim)
    return tuple(block[d] * size[d] + at[d] for d in range(ndim))


def gridsize(ndim):
    whole = getcurrent().grid
    if ndim == 1:
        return whole.grid_dim[0] * whole.block_dim[0]
    _require_dimensions("gridsize", ndim)
    return tuple(whole.grid_dim[d] * whole.block_dim[d] for d in range(ndim))


def _require_dimensions(function, ndim):
    if ndim not in (1, 2, 3):
        raise ValueError(f"cuda.{function}: ndim is {ndim!r}, allowed is 1, 2 or 3")


# --- the block ------------------------------------------------------------------------------------


def syncthreads():
    me = getcurrent()
    checker = me.grid.checker
    if checker is None:
        me.block.barrier.meet(me, me.thread_id)
    else:
        checker.sync_block()


def _predicates(value):
    """Those of all threads that have not left the kernel."""
    me = getcurrent()
    checker = me.grid.checker
    if checker is None:
        found = me.block.barrier.meet(me, me.thread_id, value)
    else:
        found = checker.sync_block(value)
    return [bool(each) for each in found if each is not None]


def syncthreads_count(predicate):
    return sum(_predicates(predicate))


def syncthreads_and(predicate):
    return int(all(_predicates(predicate)))


def syncthreads_or(predicate):
    return int(any(_predicates(predicate)))


def threadfence():
    checker = getcurrent().grid.checker
    if checker is not None:
        checker.fence()


threadfence_block = threadfence
threadfence_system = threadfence


# --- the warp -------------------------------------------------------------------------------------


def syncwarp(mask=_ALL):
    me = getcurrent()
    checker = me.grid.checker
    if checker is None:
        me.warp.meet(me, mask)
    else:
        checker.sync_warp(mask)


def shfl_sync(mask, value, src_lane):
    return lanes.shuffle(mask, value, src_lane & (warpsize - 1))


def shfl_up_sync(mask, value, delta):
    return lanes.shuffle(mask, value, getcurrent().lane_id - delta)


def shfl_down_sync(mask, value, delta):
    return lanes.shuffle(mask, value, getcurrent().lane_id + delta)


def shfl_xor_sync(mask, value, lane_mask):
    return lanes.shuffle(mask, value, getcurrent().lane_id ^ lane_mask)


def all_sync(mask, predicate):
    return lanes.vote_all(mask, predicate)


def any_sync(mask, predicate):
    return lanes.ballot(mask, predicate) != 0


def eq_sync(mask, predicate):
    return lanes.meet(mask, bool(predicate), _one_value)


def ballot_sync(mask, predicate):
    return lanes.ballot(mask, predicate)


def match_any_sync(mask, value):
    found = lanes.meet(mask, value)
    return sum(1 << i for i, other in enumerate(found) if other is not None and other == value)


def match_all_sync(mask, value):
    """The mask and True where all lanes have the same value, else 0 and False."""
    same = lanes.meet(mask, value, _one_value)
    return (mask & getcurrent().warp.alive, True) if same else (0, False)


def _one_value(values):
    return len({value for value in values if value is not None}) <= 1


def activemask():
    return getcurrent().warp.alive


def lanemask_lt():
    return (1 << getcurrent().lane_id) - 1


def nanosleep(ns):
    """Lets others run; for how long is of no matter."""
    getcurrent().pause()


# --- the grid -------------------------------------------------------------------------------------


class GridGroup:
    """All threads of a launch."""

    def sync(self):
        me = getcurrent()
        checker = me.grid.checker
        if checker is None:
            me.grid.barrier.meet(me, 0)
        else:
            checker.sync_grid()
        return 0


_group = GridGroup()
cg = SimpleNamespace(this_grid=lambda: _group, GridGroup=GridGroup)

threadIdx, blockIdx, blockDim, gridDim = _ThreadIdx(), _BlockIdx(), _BlockDim(), _GridDim()

__all__ = [
    "activemask", "all_sync", "any_sync", "ballot_sync", "blockDim", "blockIdx", "cg", "eq_sync",
    "grid", "gridDim", "gridsize", "lanemask_lt", "match_all_sync", "match_any_sync", "nanosleep",
    "shfl_down_sync", "shfl_sync", "shfl_up_sync", "shfl_xor_sync", "syncthreads",
    "syncthreads_and", "syncthreads_count", "syncthreads_or", "syncwarp", "threadIdx",
    "threadfence", "threadfence_block", "threadfence_system", "warpsize",
]  # fmt: skip
