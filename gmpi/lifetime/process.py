"""The one context that is open in this process: launches with it, and children that are forked.

A child has a copy of the context without its threads, beside memory that it shares with the parent:
whatever it did to one would happen to the other, and neither MPI nor CUDA can be used in it. So its
copy is closed, at once and without a trace, and its process opens no other.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from device_lib.platform.context import AnyContext, TracedContext
from gmpi.contract.sizes import SHAPE_DIRECT_SHIFT
from gmpi.contract.wire import DEVICE_ABORT
from gmpi.errors import ContextError
from gmpi.launch.kernels import LaunchedKernels
from gmpi.launch.launch import Launch
from host_proxy.reference.debug import DebugEngine

if TYPE_CHECKING:
    from gmpi.context import Context

FORKED = (
    "this process was forked from one that uses MPI, and can use neither MPI nor the GPU; let the "
    "parent do it, or start processes afresh (multiprocessing: spawn)"
)

open_context: Context | None = None
forked = False  # from a process in which MPI was initialised
_kept: list[Any] = []  # in a child: what it refers to is not the child's to free


_masks = threading.local()


def _before_fork() -> None:
    """SIGTERM waits until the child has handlers of its own: Python drops what comes before."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _in_child() -> None:
    """After a fork, before anything else runs in the child."""
    try:
        _close_copy()
    finally:
        _after_fork()


def _close_copy() -> None:
    global open_context, forked
    forked = forked or MPI.Is_initialized()
    context, open_context = open_context, None
    if context is None:
        return
    _kept.extend((context, context._kernels))
    context._kernels = LaunchedKernels(allowed=False, check_grid=False)  # asks CUDA for none
    context._waits.fork(FORKED)
    context._termination.fork()
    context._door.fork()
    context._watchdog.release_signal()
    atexit.unregister(context._at_exit)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def require_none() -> None:
    """Raises ContextError while a context is open."""
    if open_context is not None:
        raise ContextError(
            "a context is already open in this process; close it first, or pass it around"
        )


def opened(context: Context) -> None:
    """From now on kernels may be launched with it."""
    global open_context
    open_context = context


def closed(context: Context) -> None:
    """From now on they may not."""
    global open_context
    if open_context is context:
        open_context = None


def before_launch(ctx: AnyContext, what: Launch) -> AnyContext:
    """A kernel that takes a context is about to be launched: what it gets.

    Raises:
        ContextError: the context is not the one that is open.
        GridError: not all of its blocks can be resident at once.
    """
    context = open_context
    if context is None or context._closed or not _is_of(ctx, context):
        text = f"kernel {what.name} was launched with a context that is closed"
        raise ContextError(f"{text}: {FORKED}" if forked else text)
    idle = context._kernels.have_ended()
    context._kernels.begin(what)
    context._ranges.launching(what.name)
    _tell_of_abort(context)
    engine = context._proxy.python
    if isinstance(engine, DebugEngine):
        engine.blocks = max(engine.blocks, what.blocks)
    if what.makes_requests:
        context._has_partitioned()  # also for its waits
    given = context._device
    if type(given) is TracedContext and context._recorder is not None:
        return context._recorder.before_launch(given, what, idle)
    return given


def _tell_of_abort(context: Context) -> None:
    """Before a launch: waits of the kernel go on with nothing that earlier ones have left open.

    Those have ended with an error, and the buffers may have been freed. A wait of the direct road
    looks at host memory now and then only, and goes on with others' requests before.
    """
    if error := context._proxy.aborted:
        context._memory.write_device(DEVICE_ABORT, np.array([error], np.int64))


def _is_of(ctx: AnyContext, context: Context) -> bool:
    """Whether it is what the context gave to kernels, now or before it had partitioned requests."""
    bit = 1 << SHAPE_DIRECT_SHIFT
    return ctx._replace(shape=ctx.shape | bit) == context._device._replace(
        shape=context._device.shape | bit
    )


def after_launch(ctx: AnyContext, stream: Any) -> None:
    """It has been launched, on ``stream``."""
    if open_context is not None:
        open_context._kernels.follow(stream)
        open_context._ranges.launched()
