"""Numba's CUDA simulator, made able to run kernels that wait for each other.

The stock simulator gives every CUDA thread an OS thread, runs the blocks of a grid one after
another and has no warp operations, so a kernel that waits for another block, or for the proxy,
takes milliseconds a step or never ends. ``install()`` replaces its block manager, so that threads
are the lanes of ``lanes.py``.

It reaches into ``numba.cuda.simulator`` internals (0.30); this file is the only one that does.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numba.cuda.simulator import kernel as _kernel
from numba.cuda.simulator import kernelapi as _api
from numba.cuda.simulator.cudadrv.devicearray import FakeShape as FakeShape

from device_lib.platform.lanes import Block, Grid, ballot, lane, meet, pause, shuffle, vote_all

#: What ``max_cooperative_grid_blocks`` answers. All blocks are alive whatever their number; a
#: real GPU has a limit, and programs want to test what they do beyond it.
RESIDENT_BLOCKS = 1024


#: Strict mode (``device_lib/strict``); None: it is off.
checker: Any = None

_called: WeakKeyDictionary[Any, dict[frozenset[str], bool]] = WeakKeyDictionary()


class _Shared(_api.FakeCUDAShared):  # type: ignore[misc]
    """Shared memory of one block; allocations are told apart by their line, as in the original,
    but without walking the whole stack for each."""

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        if shape == 0:
            dynamic = super().array(shape, dtype)  # any alignment will do here
            return dynamic if checker is None else checker.watch_shared(dynamic)
        frame = sys._getframe(1)
        line = (frame.f_code, frame.f_lineno)
        found = self._allocations.get(line)
        if found is None:
            found = self._allocations[line] = _api.FakeCUDALocal().array(shape, dtype)
        return found if checker is None else checker.watch_shared(found)

    def holds(self, address: int) -> bool:
        """Whether an array that lies here has an address."""
        for own in self._allocations.values():
            first = own.__array_interface__["data"][0]
            if first <= address < first + own.nbytes:
                return True
        return False


class ThreadMemory(np.ndarray):
    """What ``cuda.local.array`` makes, and all views of it."""


class _Local(_api.FakeCUDALocal):  # type: ignore[misc]
    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        return super().array(shape, dtype, alignment).view(ThreadMemory)


_LOCAL = _Local()


class _BlockManager:
    """What the simulator's launch loop drives: collects the blocks, runs them with the last."""

    pending: Grid | None = None
    given: tuple[Any, ...] = ()

    def __init__(self, fn: Callable[..., None], grid_dim: Any, block_dim: Any, debug: bool) -> None:
        self.fn = fn
        self.grid_dim = grid_dim
        self.block_dim = block_dim

    def run(self, index: tuple[int, ...], *args: Any) -> None:
        cls = _BlockManager
        if cls.pending is None:
            cls.pending = Grid()
            cls.given = args if checker is None else checker.arguments(self.fn, args)
        grid, given = cls.pending, cls.given
        module = _kernel._get_kernel_context()
        x, y, z = (*self.grid_dim, 1, 1)[:3]
        i, j, k = (*index, 0, 0)[:3]
        threads = int(np.prod(self.block_dim))
        shared = _Shared(module._shared._dynshared_size)
        block = Block(i + x * (j + y * k), _dim3(index), threads, shared)
        u, v, _ = (*self.block_dim, 1, 1)[:3]
        indices = [_dim3((t % u, t // u % v, t // (u * v))) for t in range(threads)]
        grid.add(block, lambda: self.fn(*given), indices)
        if grid.blocks == x * y * z:
            cls.pending, cls.given = None, ()
            _run(grid, self.fn.__qualname__)


def _run(grid: Grid, kernel: str) -> None:
    """All threads of a launch, to their end."""
    if checker is None:
        grid.run()
        return
    checker.begin(grid, kernel)
    try:
        grid.run()
    except BaseException as why:
        checker.failed(why)
        raise
    checker.end()


def _dim3(values: tuple[int, ...]) -> Any:
    return _api.Dim3(*(*values, 0, 0)[:3])


def calls(function: Any, names: frozenset[str]) -> bool:
    """Whether a kernel calls one of these functions of ``gmpi``, by itself or by device functions.

    On a GPU the linked functions say it.
    """
    known = _called.setdefault(function, {})
    if names not in known:
        known[names] = _calls(function, names)
    return known[names]


def _calls(function: Any, names: frozenset[str]) -> bool:
    seen, waiting = set(), [function]
    while waiting:
        this = waiting.pop()
        code = getattr(this, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        closure = inspect.getclosurevars(this)
        found = [*closure.globals.values(), *closure.nonlocals.values()]
        named = set(code.co_names)
        for value in found:
            name = str(getattr(value, "__name__", ""))
            named.add(name)
            if not name.startswith("GMPI_"):  # whose own insides say nothing
                waiting.append(getattr(value, "fn", value))
        if names & named:
            return True
    return False


def install() -> None:
    """Puts the lanes under ``numba.cuda``'s simulator; harmless to call again."""
    _kernel.BlockManager = _BlockManager
    _kernel.FakeOverload.max_cooperative_grid_blocks = lambda self, blockdim, dynsmemsize=0: (
        RESIDENT_BLOCKS
    )
    _api.GridGroup.sync = lambda self: lane().grid.barrier.meet(lane(), 0)

    module = _api.FakeCUDAModule
    module.threadIdx = property(lambda self: lane().threadIdx)
    module.blockIdx = property(lambda self: lane().blockIdx)
    module.laneid = property(lambda self: lane().lane_id)
    module.shared = property(lambda self: lane().block.shared)
    module.local = property(lambda self: _LOCAL)
    module.syncthreads = lambda self: lane().sync_block() and None
    module.syncthreads_count = lambda self, v: sum(map(bool, lane().sync_block(v)))
    module.syncthreads_and = lambda self, v: int(all(lane().sync_block(v)))
    module.syncthreads_or = lambda self, v: int(any(lane().sync_block(v)))
    module.syncwarp = lambda self, mask=0xFFFFFFFF: meet(mask, None) and None
    module.shfl_sync = lambda self, mask, v, src: shuffle(mask, v, src)
    module.shfl_up_sync = lambda self, mask, v, d: shuffle(mask, v, lane().lane_id - d)
    module.shfl_down_sync = lambda self, mask, v, d: shuffle(mask, v, lane().lane_id + d)
    module.shfl_xor_sync = lambda self, mask, v, m: shuffle(mask, v, lane().lane_id ^ m)
    module.all_sync = lambda self, mask, p: vote_all(mask, p)
    module.any_sync = lambda self, mask, p: ballot(mask, p) != 0
    module.ballot_sync = lambda self, mask, p: ballot(mask, p)
    module.activemask = lambda self: lane().warp.alive
    module.lanemask_lt = lambda self: (1 << lane().lane_id) - 1
    module.nanosleep = lambda self, ns: pause()
    module.clock64 = lambda self: time.perf_counter_ns()


_CHECKED = ("atomic", "threadfence", "threadfence_block", "threadfence_system")
_originals = {name: vars(_api.FakeCUDAModule)[name] for name in _CHECKED}


def check_with(new: Any, atomics: Any = None) -> None:
    """From now on kernels tell ``new``, a ``strict.checker.Checker``, what they do; None: nobody.

    Args:
        atomics: what ``cuda.atomic`` is, made of Numba's own.
    """
    global checker
    checker = new
    install()
    module = _api.FakeCUDAModule
    for name, original in _originals.items():
        setattr(module, name, original)
    if new is None:
        return
    _api.GridGroup.sync = lambda self: new.sync_grid()
    module.syncthreads = lambda self: new.sync_block() and None
    module.syncthreads_count = lambda self, v: sum(map(bool, new.sync_block(v)))
    module.syncthreads_and = lambda self, v: int(all(new.sync_block(v)))
    module.syncthreads_or = lambda self, v: int(any(new.sync_block(v)))
    module.syncwarp = lambda self, mask=0xFFFFFFFF: new.sync_warp(mask)
    for name in _CHECKED[1:]:
        setattr(module, name, lambda self: new.fence())
    told = atomics(_api.FakeCUDAAtomic())
    module.atomic = property(lambda self: told)
