"""How contexts close and are aborted: scenarios of ``lifecycle.py``."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
from common import RANK, SIZE, TIME_FACTOR, WORLD, barrier, pattern, raises
from numba import cuda
from script import Script

import gmpi
from host_proxy.platform.state import G_CHANNELS
from host_proxy.reference.mpi4py_engine import Mpi4pyEngine

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def exchange(g: gmpi.Context, seed: int = 0) -> Script:
    """Proves that a context works: a message to the next rank."""
    s = Script()
    room = s.room(200)
    r = s.irecv(room, 200, gmpi.BYTE, PREVIOUS, 1)
    q = s.isend(s.data(pattern(200, RANK + seed)), 200, gmpi.BYTE, NEXT, 1)
    s.wait(q)
    s.wait(r)
    s.run(g)
    s.expect(room, pattern(200, PREVIOUS + seed))
    return s


def waits_for_nobody() -> Script:
    """A kernel with a receive that nobody sends to."""
    s = Script()
    s.recv(s.room(8), 8, gmpi.BYTE, PREVIOUS, 99)
    return s


# --- closing --------------------------------------------------------------------------------------


def open_requests_at_the_end() -> None:
    """What a kernel leaves open is listed; the process can go on."""
    g = gmpi.Context(WORLD)
    s = Script()
    s.irecv(s.room(8), 2, gmpi.FLOAT, PREVIOUS, 7)
    s.irecv(s.room(9000), 9000, gmpi.BYTE, gmpi.ANY_SOURCE, gmpi.ANY_TAG)
    s.launch(g)
    while len(g.pending) < 2:  # the proxy takes what the kernel has left
        time.sleep(0.001)
    words = [
        f"GMPI_Irecv peer {PREVIOUS} tag 7 communicator 0 of 8 bytes from block 0",
        "GMPI_Irecv peer ANY_SOURCE tag ANY_TAG communicator 0 of 9000 bytes from block 0",
    ]
    text = "all kernels have ended but requests are still open: "
    exc = raises(gmpi.PendingError, text, lambda: g.synchronize(timeout=0.1))
    assert all(w in str(exc) for w in words), exc
    assert sorted(map(str, g.pending)) == sorted(words)
    exc = raises(gmpi.PendingError, "kernels ended without completing 2 requests: ", g.close)
    assert all(w in str(exc) for w in words), exc
    assert "wait for every request before the kernel returns" in str(exc)
    barrier()
    with gmpi.Context(WORLD) as g:
        exchange(g)


def what_nobody_has_heard() -> None:
    """What proxies have said of channels when a context closes is not met by the next one, whose
    communicators may have the same numbers."""
    for _ in range(3):
        with gmpi.Context(WORLD, wildcards=False) as g:
            channels = g._proxy.python.channels
            time.sleep(0.05)
            assert not channels._told, channels._told
            g._state.globals[G_CHANNELS] = 0  # nobody listens any more
            g._proxy.wait_for_turn()
            barrier()
            channels.receive_end(0, NEXT, 77)  # the sender is told
    with gmpi.Context(WORLD, wildcards=False) as g:
        exchange(g)
        assert (0, NEXT, 77) not in g._proxy.python.channels._told


def requests_never_waited_for() -> None:
    g = gmpi.Context(WORLD)
    s = Script()
    s.irecv(s.room(8), 8, gmpi.BYTE, PREVIOUS, 7)
    s.isend(s.data(pattern(8, 1)), 8, gmpi.BYTE, NEXT, 7)
    s.launch(g)
    text = "kernels ended without waiting for 1 requests whose data have come, and are in no buffer"
    raises(gmpi.PendingError, f"{text}: GMPI_Irecv peer {PREVIOUS} tag 7 ", g.synchronize)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        g.close()
    texts = [str(w.message) for w in caught if w.category is gmpi.LeakWarning]
    assert any(
        t.startswith(f"rank {RANK}: 2 requests completed but were never waited for: GMPI_I")
        for t in texts
    ), texts


def errors_at_close() -> None:
    g = gmpi.Context(WORLD)
    s = Script()
    s.recv(s.room(8), 8, gmpi.BYTE, SIZE + 5, 7)
    s.launch(g)
    raises(gmpi.ArgumentError, f"source is {SIZE + 5}, allowed is 0..{SIZE - 1}", g.close)
    g.close()


# --- aborting -------------------------------------------------------------------------------------


def _abort_when_requests_are_open(g: gmpi.Context) -> None:
    """A kernel may take a while to begin."""
    while not g.pending:
        time.sleep(0.01)
    time.sleep(0.2)
    g.abort()


def abort_releases_kernels() -> None:
    """All waits end with GMPI_ERR_ABORTED: of small, of large, of many, in a full block."""
    with gmpi.Context(WORLD, on_error="return") as g:
        s = Script(threads=40, callers=6)
        long = g.layout.eager_bytes + 1
        waits = []
        for caller, n in zip(s.callers, (8, 145, long, long)):
            requests = [caller.irecv(s.room(n), n, gmpi.BYTE, PREVIOUS, 50) for _ in range(2)]
            waits.append(caller.wait(requests[0]))
            waits.append(caller.waitall(requests[1:]))
            after = caller.recv(s.room(8), 8, gmpi.BYTE, PREVIOUS, 51)
            waits.append(after)
        for caller, n in zip(s.callers[4:], (8, long)):  # one that waits by testing
            waits.append(caller.test_until(caller.irecv(s.room(n), n, gmpi.BYTE, PREVIOUS, 52)))
        threading.Thread(target=_abort_when_requests_are_open, args=(g,)).start()
        began = time.monotonic()
        s.launch(g)
        exc = raises(gmpi.AbortedError, "the context was aborted: ", g.synchronize)
        assert re.search(r" requests were open: GMPI_I?[Rr]ecv peer ", str(exc))
        assert time.monotonic() - began < 8 * TIME_FACTOR
        s.read_back()
        assert {w.error for w in waits} == {gmpi.GMPI_ERR_ABORTED}, [w.error for w in waits]
    barrier()


def _release(kind: type[BaseException], fail: Callable[[], None]) -> None:
    """Something is raised while a kernel waits: it gets out, the kernel ends, all goes on."""
    began = time.monotonic()
    try:
        with gmpi.Context(WORLD) as g:
            exchange(g)
            fail()
            s = waits_for_nobody()
            s.launch(g)
            g.synchronize()
            raise AssertionError("the kernel was not released by an exception")
    except kind:
        pass
    assert time.monotonic() - began < 10 * TIME_FACTOR
    barrier()
    with gmpi.Context(WORLD) as g:
        exchange(g)


def ctrl_c() -> None:
    def interrupt() -> None:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    _release(KeyboardInterrupt, interrupt)


def an_exception() -> None:
    class MyError(Exception):
        pass

    def handler(*_: object) -> None:
        raise MyError

    def later() -> None:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)

    _release(MyError, later)


def the_proxy_dies() -> None:
    """Kernels are released with GMPI_ERR_PROXY and the host says what happened."""

    def broken(self: Mpi4pyEngine) -> None:
        raise ZeroDivisionError("for the test")

    original = Mpi4pyEngine.serve
    g = gmpi.Context(WORLD, engine="mpi4py")
    exchange(g)
    Mpi4pyEngine.serve = broken  # type: ignore[method-assign]
    try:
        s = waits_for_nobody()
        s.launch(g)
        exc = raises(gmpi.ProxyError, "the proxy thread ended with ZeroDivision", g.synchronize)
        assert isinstance(exc.__cause__, ZeroDivisionError)
        s.read_back()
        assert s.calls[0].error == gmpi.GMPI_ERR_PROXY
        raises(gmpi.ProxyError, "kernels were released with GMPI_ERR_PROXY", g.close)
    finally:
        Mpi4pyEngine.serve = original  # type: ignore[method-assign]
    barrier()
    with gmpi.Context(WORLD) as g:
        exchange(g)


def dropped_arrays() -> None:
    """Memory is freed after the kernel: the free would wait for it, and it waits for the free."""
    with gmpi.Context(WORLD) as g:
        dropped = [cuda.to_device(np.zeros(8)) for _ in range(50)]  # Numba frees ten at a time
        s = Script()
        room = s.room(8)
        s.recv(room, 8, gmpi.BYTE, PREVIOUS, 3)

        def later() -> None:
            time.sleep(0.2)
            dropped.clear()
            g.host.Send(pattern(8, RANK), NEXT, 3)

        thread = threading.Thread(target=later)
        thread.start()
        s.run(g)
        thread.join()
        s.expect(room, pattern(8, PREVIOUS))


SCENARIOS = [
    open_requests_at_the_end, what_nobody_has_heard, requests_never_waited_for, errors_at_close,
    abort_releases_kernels,
    ctrl_c, an_exception, the_proxy_dies, dropped_arrays,
]  # fmt: skip
