"""Contexts that end while MPI still has their messages: nothing of that may harm the program.

    mpiexec -n 2 python3 tests/ranks/late.py

Rank 0 gives up waiting, by a time limit, an abort or Ctrl-C, and closes its context. Rank 1 does
its part only then, so that MPI reads and writes memory of the context that is closed. Both ranks go
on with plain MPI calls and with a new context.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import RANK, SIZE, TIME_FACTOR, WORLD, barrier, end, pattern, run, same
from script import Script

import gmpi
from gmpi.lifetime import unfinished

PEER = 1 - RANK
EAGER = 1 << 20  # far above what any MPI library sends without its receiver
SETTINGS: dict[str, Any] = {"eager_bytes": EAGER, "request_slots": 32, "watchdog_s": 0}
LIMIT_S = 0.4 * TIME_FACTOR


def plain_mpi() -> None:
    """The program's own MPI calls, which give MPI the chance to go on with what is left."""
    mine = np.full(1 << 18, RANK, np.int64)
    theirs = np.empty_like(mine)
    for _ in range(3):
        WORLD.Sendrecv(mine, PEER, 1, theirs, PEER, 1)
        assert (theirs == PEER).all()
        assert WORLD.allreduce(1) == SIZE


def new_context() -> None:
    with gmpi.Context(WORLD, watchdog_s=0) as g:
        s = Script()
        rooms = [(s.room(n), n) for n in (8, 3000, 20_000)]
        for room, n in rooms:
            r = s.irecv(room, n, gmpi.BYTE, PEER, 1)
            q = s.isend(s.data(pattern(n, RANK)), n, gmpi.BYTE, PEER, 1)
            s.wait(q)
            s.wait(r)
        s.run(g)
        for room, n in rooms:
            s.expect(room, pattern(n, PEER))


def late(
    first: Callable[[gmpi.Context], None],
    second: Callable[[gmpi.Context], None],
    how: str = "timeout",
    ends: bool = True,
) -> None:
    """Rank 0 does ``first`` and gives up; then rank 1 does ``second``, which ends by itself or
    not."""
    before = unfinished.kept()[0]
    settings = SETTINGS
    if RANK == 0 and how == "timeout":
        settings = {**SETTINGS, "timeout_s": LIMIT_S}
    g = gmpi.Context(WORLD, **settings)
    if RANK == 0:
        raised: type[BaseException] = gmpi.RequestTimeoutError
        if how == "abort":
            raised = gmpi.AbortedError
            threading.Timer(LIMIT_S, g.abort).start()
        if how == "interrupt":
            raised = KeyboardInterrupt
            threading.Timer(LIMIT_S, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with g:
                    first(g)
                raise AssertionError(f"{how}: nothing was raised")
            except raised:
                pass
        del g
        texts = [str(w.message) for w in caught if w.category is RuntimeWarning]
        assert any("MPI has not finished 1 " in text for text in texts), texts
        assert unfinished.kept()[0] == before + 1, unfinished.kept()
        barrier()
        plain_mpi()
        barrier()
    else:
        barrier()
        done = threading.Thread(target=second, args=(g,))
        done.start()  # beside the calls that rank 0 makes
        plain_mpi()
        if ends:
            done.join()
        barrier()
        g.abort()
        done.join()
        with contextlib.suppress(gmpi.AbortedError):
            g.close()
    new_context()
    # What rank 1 has given up may need rank 0, and the other way round.
    for _ in range(100):
        barrier()
        unfinished.settle()
    assert unfinished.kept()[0] == before or not ends, unfinished.kept()


# --- what MPI has of rank 0 -----------------------------------------------------------------------


def _allreduce(nbytes: int) -> Callable[[gmpi.Context], None]:
    n = nbytes // 8

    def call(g: gmpi.Context) -> None:
        s = Script()
        room = s.room(nbytes)
        called = s.allreduce(s.data(np.arange(n) + RANK), room, n, gmpi.INT64_T, gmpi.SUM)
        s.launch(g)
        g.synchronize()
        s.read_back()
        assert called.error == gmpi.SUCCESS
        s.expect(room, 2 * np.arange(n) + 1)

    return call


def allreduce() -> None:
    late(_allreduce(8), _allreduce(8))


def allreduce_aborted() -> None:
    late(_allreduce(8), _allreduce(8), "abort")


def long_allreduce() -> None:
    """In pieces, by the mpi4py engine: rank 1 gets the first one and waits for the others."""

    def second(g: gmpi.Context) -> None:
        s = Script()
        n = 3 * EAGER // 8
        s.allreduce(s.data(np.arange(n)), s.room(8 * n), n, gmpi.INT64_T, gmpi.SUM)
        s.launch(g)

    late(_allreduce(3 * EAGER), second, ends=False)


def _send(g: gmpi.Context) -> None:
    s = Script()
    s.send(s.data(pattern(EAGER, 3)), EAGER, gmpi.BYTE, PEER, 7)
    s.launch(g)
    g.synchronize()


def _receive(g: gmpi.Context) -> None:
    room = np.zeros(EAGER, np.uint8)
    status = g.host.Recv(room, PEER, 7)
    assert status.nbytes == EAGER
    same(room, pattern(EAGER, 3), "the late message")


def send() -> None:
    """A message that MPI has not sent yet: its bytes are right all the same."""
    late(_send, _receive)


def send_interrupted() -> None:
    late(_send, _receive, "interrupt")


def send_of_the_host() -> None:
    def first(g: gmpi.Context) -> None:
        g.host.Isend(pattern(EAGER, 3), PEER, 7)
        s = Script()
        s.recv(s.room(8), 8, gmpi.BYTE, PEER, 99)
        s.launch(g)
        g.synchronize()

    late(first, _receive)


SCENARIOS = [
    allreduce, allreduce_aborted, long_allreduce, send, send_interrupted, send_of_the_host,
]  # fmt: skip

if __name__ == "__main__":
    run(SCENARIOS)
    end()
