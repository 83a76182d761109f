"""What the fault matrix is made of: the call that a fault hits, messages beside it, and a run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import RANK, TIME_FACTOR, WORLD, barrier, pattern
from script import Buffer, Call, Caller, Script

import gmpi
from gmpi.lifetime import watchdog
from host_proxy.platform.state import G_CLOSED, OPEN, S_STATE, S_TAG

PEER = 1 - RANK
TAG = 7  # of the call that the fault hits
NEVER = 8  # of a message that never comes
LONG = 200_000  # bytes: several chunks of CHUNK
CHUNK = 65536
TIMEOUT_S = 1.0 * TIME_FACTOR
watchdog.ANSWER_S = 3.0 * TIME_FACTOR  # who is late has no core
STALL_S = float(os.environ.get("FAULT_SECONDS", "1.0"))  # a full ring, a slow peer
RELEASE_S = 1.0  # within which waits end when the proxy dies
OPERATIONS = ("send", "recv", "wait", "allreduce")
BYTE, DOUBLE = gmpi.BYTE, gmpi.DOUBLE

Check = Callable[[], None]


# --- the call that the fault hits -----------------------------------------------------------------


def make_call(s: Script, caller: Caller, op: str, nbytes: int) -> tuple[Call, Check]:
    """This rank's part of an operation: what returns its status, and a check of what came."""

    def receives() -> tuple[Buffer, Check]:
        room = s.room(nbytes)
        return room, lambda: s.expect(room, pattern(nbytes, 10 * PEER + 3), op)

    def nothing() -> None:
        pass

    data = s.data(pattern(nbytes, 10 * RANK + 3))
    if op == "allreduce":
        n = nbytes // 8
        values = np.arange(n, dtype=np.float64)
        out, room = s.data(values + RANK), s.room(8 * n)
        called = caller.allreduce(out, room, n, DOUBLE, gmpi.SUM)
        return called, lambda: s.expect(room, 2 * values + 1, op)
    if op == "wait":
        room, check = receives()
        incoming = caller.irecv(room, nbytes, BYTE, PEER, TAG)
        outgoing = caller.isend(data, nbytes, BYTE, PEER, TAG)
        status = caller.wait(incoming)
        caller.wait(outgoing)
        return status, check
    if (op == "send") == (RANK == 0):
        return caller.send(data, nbytes, BYTE, PEER, TAG), nothing
    room, check = receives()
    return caller.recv(room, nbytes, BYTE, PEER, TAG), check


def exchange(s: Script, caller: Caller, sizes: tuple[int, ...], tag: int) -> Check:
    """Messages that must arrive whatever happens beside them."""
    rooms = []
    calls = []
    for n in sizes:
        room = s.room(n)
        incoming = caller.irecv(room, n, BYTE, PEER, tag)
        outgoing = caller.isend(s.data(pattern(n, PEER + n)), n, BYTE, PEER, tag)
        calls += [caller.wait(incoming), caller.wait(outgoing)]
        rooms.append((room, n))

    def check() -> None:
        assert {c.error for c in calls} == {gmpi.SUCCESS}, [c.error for c in calls]
        for room, n in rooms:
            s.expect(room, pattern(n, RANK + n), f"beside, {n} bytes")

    return check


# --- one run --------------------------------------------------------------------------------------


class Play:
    """A context and a kernel of each rank, and what came of them."""

    def __init__(self, op: str, **settings: Any) -> None:
        barrier()
        self.op = op
        settings = {"timeout_s": TIMEOUT_S, "chunk_bytes": CHUNK, **settings}
        self.g = gmpi.Context(WORLD, watchdog_s=60, **settings)
        self.s = Script(callers=2)
        self.check_beside: Check = lambda: None
        self.error: BaseException | None = None
        self.began = self.took = 0.0  # s

    def beside(self, sizes: tuple[int, ...] = (8, 3000, LONG), tag: int = 50) -> None:
        self.check_beside = exchange(self.s, self.s.callers[1], sizes, tag)

    def call(self, nbytes: int = LONG) -> tuple[Call, Check]:
        return make_call(self.s, self.s, self.op, nbytes)

    def waits_in_vain(self) -> Call:
        """What the peer of a rank with a fault does: it waits for that rank."""
        return self.s.recv(self.s.room(8), 8, BYTE, PEER, NEVER)

    def stuck(self) -> bool:
        """Whether all that is left open is the call that the fault is to hit."""
        rows = self.g._state.slots
        tags = rows[rows[:, S_STATE] == OPEN][:, S_TAG]
        mine = 2 if self.op == "wait" and RANK == 0 else 1
        done = 6  # requests of ``beside``
        return len(tags) == mine and int(self.g._state.globals[G_CLOSED]) >= done

    def when_stuck(self, strike: Callable[[], None]) -> threading.Thread:
        """Calls ``strike`` in a thread once the kernel is stuck."""

        def watch() -> None:
            deadline = time.monotonic() + 20 * TIME_FACTOR
            while not self.stuck() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.struck = time.monotonic()
            strike()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        return thread

    def run(self) -> BaseException | None:
        """The kernel; what was raised."""
        barrier()  # one rank may have compiled a fault while the other would time out
        self.began = time.monotonic()
        try:
            self.s.launch(self.g)
            self.g.synchronize(timeout=0.3 * TIME_FACTOR)
        except gmpi.GMPIError as exc:
            self.error = exc
        self.took = time.monotonic() - self.began
        self.s.read_back()
        return self.error

    def end(self, bound_s: float, expected: type[BaseException] | None = None) -> None:
        """Checks what was raised and what arrived, and that a new context works."""
        # No rank's watchdog may go before the others have asked it.
        barrier()
        found = type(self.error) if self.error else None
        assert found is expected, f"{self.error!r} instead of {expected}"
        self.check_beside()
        assert self.took < bound_s, f"took {self.took:.1f} s, bound is {bound_s} s"
        try:
            self.g.close()
        except gmpi.PendingError:
            assert expected is gmpi.PendingError
        barrier()
        after()


def after() -> None:
    """A new context works."""
    with gmpi.Context(WORLD, watchdog_s=0, timeout_s=10) as g:
        s = Script()
        check = exchange(s, s, (8, 20_000), 60)
        s.run(g)
        check()


def compile_kernels() -> None:
    """Before the first play: who has its kernel would time out while the other one compiles."""
    with gmpi.Context(WORLD, watchdog_s=0) as g:
        s = Script(callers=2)
        s.comm_rank()
        s.run(g)


def timed_out(play: Play, words: str) -> None:
    """Rank 1 was told why nothing came from rank 0."""
    assert isinstance(play.error, gmpi.RequestTimeoutError), repr(play.error)
    text = play.error.report.text
    assert words in text, f"{words!r} is not in\n{text[: text.find('Python stacks')]}"
