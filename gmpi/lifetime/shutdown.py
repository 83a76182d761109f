"""Closing a context: when all is well, after an exception, and when the interpreter goes."""

from __future__ import annotations

import atexit
import warnings
from typing import TYPE_CHECKING

from mpi4py import MPI

from gmpi.errors import LeakWarning, PendingError
from gmpi.launch import checking
from gmpi.lifetime import ending, process, unfinished
from gmpi.lifetime.interrupts import Held
from host_proxy.platform.control import quieten

if TYPE_CHECKING:
    from gmpi.context import Context

CLOSED = "the context is closed; open a new one"
ABORT_S = 10.0  # how long an aborted kernel may take to end

_stranded: list[Context] = []  # whose memory a kernel or a thread may still be using


def close(context: Context) -> None:
    """``Context.close``: raises and warns as it says."""
    waits = context._waits
    try:
        waits.wait_for_kernels(None)
    except BaseException:
        release(context)
        raise
    waits.settle()
    if context._recorder is not None:
        context._recorder.closing()
    if waits.aborted:
        untold = waits.untold_abort()
        shut_down(context, clean=False)
        if untold is not None:
            raise untold
        return
    if context._proxy.failure is not None:
        shut_down(context, clean=False)
        waits.raise_faults()
    pending = [*map(str, context.pending), *context._buffered.left]
    leaked = ending.leaks(context)
    untaken = waits.untaken()
    shut_down(context, clean=not pending)
    if leaked:
        # Shown, as Python's ResourceWarning is not: nothing else tells of a missing wait.
        warnings.warn(f"rank {context.rank}: {leaked}", LeakWarning, stacklevel=3)
    if pending:
        listing = "; ".join(pending)
        raise PendingError(
            f"kernels ended without completing {len(pending)} requests: {listing}; "
            "wait for every request before the kernel returns"
        )
    waits.raise_faults()
    if untaken is not None:
        raise untaken


def release(context: Context, why: str = CLOSED) -> bool:
    """Closes it while kernels may wait for what will not come; whether they have ended.

    Args:
        why: what ``ContextError`` says from now on.
    """
    context.abort()
    ended = False
    try:
        ended = context._waits.wait_for_kernels(ABORT_S)
    finally:
        shut_down(context, clean=False, why=why)
    return ended


def shut_down(context: Context, clean: bool, why: str = CLOSED) -> None:
    """Ends the threads and gives back what can be; Ctrl-C comes when it is done.

    Args:
        clean: all ranks do this, and nothing is under way: what is collective can be freed.
    """
    with Held():
        _shut_down(context, clean, why)


def _shut_down(context: Context, clean: bool, why: str) -> None:
    context._waits.close(why)
    # At once: who has sent what this rank has not counted listens for it, and for a moment only.
    context._watchdog.farewells.say("has closed its context", failed=False)
    process.closed(context)
    checking.stop()
    atexit.unregister(context._at_exit)
    context._termination.stop()
    context._door.stop()
    quiet = context._watchdog.stop()
    stopped = context._proxy.stop(ABORT_S)
    if not stopped:
        warnings.warn(
            "the proxy thread is still inside an MPI call; MPI_Finalize may hang or fail",
            RuntimeWarning,
            stacklevel=5,
        )
    if context._recorder is not None and stopped and context._kernels.have_ended():
        context._recorder.finish()
    left: list[unfinished.Unfinished] = []
    if stopped and not MPI.Is_finalized():
        if clean:  # what is still said here is of no use, and would be called unfinished
            quieten([*context._communicators.controls, context._partitioned.control])
        left = unfinished.requests_of(context)
    if not stopped or not quiet or context._kernels.unfinished:
        _stranded.append(context)
    else:
        context._peers.give_back()
        memory = context._memory.give_back()
        if left:
            unfinished.keep(left, (memory, context._state.keep), context.layout.mapped_bytes)
    if stopped and not MPI.Is_finalized():
        if clean and quiet:
            context._watchdog.free()
        if clean:
            context._communicators.free_all()
        if quiet and not context._kernels.unfinished:
            context._partitioned.close(clean)
    unfinished.settle()
