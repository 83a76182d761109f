"""What contexts do to their process, and what it does to them: memory, files, children."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, pattern, raises, run
from numba import cuda
from script import Script

import gmpi

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
CHILD_S = 20.0  # a child that takes longer hangs


def exchange(g: gmpi.Context, nbytes: int = 200, seed: int = 0) -> None:
    """A message to the next rank and one from the previous one."""
    s = Script()
    room = s.room(nbytes)
    r = s.irecv(room, nbytes, gmpi.BYTE, PREVIOUS, 1)
    q = s.isend(s.data(pattern(nbytes, RANK + seed)), nbytes, gmpi.BYTE, NEXT, 1)
    s.wait(q)
    s.wait(r)
    s.run(g)
    s.expect(room, pattern(nbytes, PREVIOUS + seed))


# --- memory and files -----------------------------------------------------------------------------


def _files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _resident_kib() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 10


def many_contexts() -> None:
    """Each closes its files at once, without the garbage collector, and gives its memory back."""
    gc.disable()
    try:
        for k in range(60):
            with gmpi.Context(WORLD) as g:
                exchange(g, seed=k)
                exchange(g, 20_000, seed=k)  # touches GPU staging, and that of the others
            if k == 9:  # MPI and Python have what they keep
                files, resident = _files(), _resident_kib()
        left = _files()
    finally:
        gc.enable()
    assert left <= files, f"{left - files} files more after 50 contexts"
    grown = _resident_kib() - resident
    # What the scripts themselves leave in pieces is up to 300 KiB each; a context has 1.6 MB.
    assert grown < 50 * 500, f"{grown} KiB more after 50 contexts"


def a_request_of_the_host_after_close() -> None:
    """What it would go on with is gone."""
    g = gmpi.Context(WORLD)
    request = g.host.Irecv(np.zeros(8, np.uint8), PREVIOUS, 9)
    g.abort()  # nothing collective: the receive still uses the communicator
    with contextlib.suppress(gmpi.AbortedError):
        g.close()
    g.abort()  # of nothing
    for call in (request.Test, request.Wait):
        try:
            call()
            raise AssertionError("a request went on after its context")
        except gmpi.ContextError as exc:
            assert "the context is closed; open a new one" in str(exc), exc
    barrier()


@cuda.jit
def _some_threads(ctx):  # type: ignore[no-untyped-def]
    if cuda.threadIdx.x == 0:
        gmpi.GMPI_Barrier(ctx, gmpi.COMM_WORLD)


def a_kernel_that_raises() -> None:
    """It has ended, so the memory of its context is not kept."""
    if not gmpi.SIMULATOR:
        return
    from device_lib.simulator.meetings import BarrierError

    with gmpi.Context(WORLD) as g:
        try:
            _some_threads[1, 64](g.device)
            raise AssertionError("the simulator did not see it")
        except BarrierError:
            assert not g._kernels.unfinished
        exchange(g)


# --- children -------------------------------------------------------------------------------------


def _fork(child: Callable[[], None]) -> None:
    """Runs it in a child, which must end well and in time."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _ends(pid, 0)


def _ends(pid: int, status: int) -> None:
    """Waits for a child: its exit status, negative for a signal."""
    deadline = time.monotonic() + CHILD_S
    while True:
        found, raw = os.waitpid(pid, os.WNOHANG)
        if found:
            break
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"the child did not end within {CHILD_S} s")
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(raw) == status, raw


@cuda.jit
def _barrier(ctx):  # type: ignore[no-untyped-def]
    gmpi.GMPI_Barrier(ctx, gmpi.COMM_WORLD)


def children_are_kept_out() -> None:
    """Everything that would touch MPI, the GPU or the proxy says so; looking is allowed."""
    with gmpi.Context(WORLD) as g:
        exchange(g)
        device = g.device
        request = g.host.Irecv(np.zeros(8, np.uint8), PREVIOUS, 9)

        def child() -> None:
            for call in (
                lambda: g.device, g.synchronize, g.report, lambda: g.comm(WORLD), g.host.Barrier,
                lambda: g.host.Send(np.zeros(8, np.uint8), NEXT, 9), request.Test, request.Wait,
                lambda: gmpi.Context(WORLD), lambda: gmpi.Context(gpu=False),
            ):  # fmt: skip
                raises(gmpi.ContextError, "forked", call)
            if gmpi.SIMULATOR:
                raises(gmpi.ContextError, "forked", lambda: _barrier[1, 32](device))
            assert repr(g) == "<gmpi.Context, closed>"
            assert g.pending == [] and g.errors == [] and not g.kernels_running
            g.abort()
            g.close()

        _fork(child)
        exchange(g, seed=1)  # nobody has aborted this one
        g.host.Send(pattern(8, 3), NEXT, 9)
        assert request.Wait().count == 8
    with gmpi.Context(WORLD) as g:
        exchange(g)


def children_during_a_message() -> None:
    """The proxy goes on while its process forks, and while the child exists."""
    with gmpi.Context(WORLD) as g:
        s = Script()
        room = s.room(20_000)
        r = s.irecv(room, 20_000, gmpi.BYTE, PREVIOUS, 1)
        s.pause(300_000_000)
        s.send(s.data(pattern(20_000, RANK)), 20_000, gmpi.BYTE, NEXT, 1)
        s.wait(r)

        def later(*_: object) -> None:
            _fork(lambda: time.sleep(0.1))

        before = signal.signal(signal.SIGALRM, later)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        s.run(g)
        signal.signal(signal.SIGALRM, before)
        s.expect(room, pattern(20_000, PREVIOUS))


def an_exception_in_a_child() -> None:
    """It leaves the with block of a copy: nothing is aborted or freed."""
    with gmpi.Context(WORLD) as g:
        pid = os.fork()
        if pid == 0:
            try:
                with g:
                    raise LookupError("of the child")
            except LookupError:
                os._exit(7)
        _ends(pid, 7)
        exchange(g)


def _square(x: int) -> int:
    return x * x


def _sleep() -> None:
    time.sleep(600)


def multiprocessing_with_fork() -> None:
    """A pool of workers beside an open context; one that is terminated ends alone."""
    fork = multiprocessing.get_context("fork")
    with gmpi.Context(WORLD) as g:
        exchange(g)
        with fork.Pool(2) as pool:
            assert pool.map(_square, range(20), 1) == [x * x for x in range(20)]
            exchange(g, seed=1)
        sleeper = fork.Process(target=_sleep)
        sleeper.start()
        sleeper.terminate()  # SIGTERM
        sleeper.join(CHILD_S)
        assert sleeper.exitcode == -signal.SIGTERM, sleeper.exitcode
        time.sleep(0.5)
        exchange(g, seed=2)


SCENARIOS = [
    many_contexts, a_request_of_the_host_after_close, a_kernel_that_raises,
    children_are_kept_out, children_during_a_message, an_exception_in_a_child,
    multiprocessing_with_fork,
]  # fmt: skip

run(SCENARIOS)
end()
