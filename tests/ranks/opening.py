"""Opening fails on one rank, at any step, or is interrupted at any line: nothing is left half open.

    python tests/ranks/opening.py [SCENARIO...] [--part=0/4]

Closing is interrupted, too. On one rank only. ``--part`` takes every line in as many parts, instead
of some: an interrupted context cannot free its communicators, of which MPI has two thousand.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, pattern, raises, run
from mpi4py import MPI

import gmpi
from gmpi import affinity
from gmpi.committed import Datatypes
from gmpi.communicators import Communicators
from gmpi.launch import launch
from gmpi.lifetime import interrupts, opening_steps, process
from gmpi.lifetime.termination import Termination
from gmpi.lifetime.watchdog import Watchdog
from gmpi.memory.gpu_staging import GpuStaging
from gmpi.memory.peers import Peers
from host_proxy.platform.control import Control
from host_proxy.proxy import Proxy

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
FAILS = SIZE - 1  # the rank on which it does
SMALL: dict[str, Any] = {
    "ring_slots": 64, "request_slots": 64, "large_slots": 1, "eager_bytes": 256,
    "chunk_bytes": 512, "watchdog_s": 3000,
}  # fmt: skip


def works(**settings: Any) -> None:
    """A context opens, carries a message, and closes."""
    with gmpi.Context(WORLD, gpu=False, **settings) as g:
        room = np.zeros(40, np.uint8)
        request = g.host.Irecv(room, PREVIOUS, 1)
        g.host.Send(pattern(40, RANK), NEXT, 1)
        request.Wait()
        assert (room == pattern(40, PREVIOUS)).all()


def nothing_is_left() -> None:
    """No thread, no handler of a signal, no context."""
    names = [t.name for t in threading.enumerate() if t.name.startswith("gmpi")]
    assert not names, names
    assert process.open_context is None
    handler = signal.getsignal(signal.SIGINT)
    assert handler is signal.default_int_handler, handler
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.set_wakeup_fd(-1) == -1


# --- on one rank only -----------------------------------------------------------------------------

#: What is called while a context opens, in this order.
CALLS: list[tuple[Any, str]] = [
    (process, "require_none"), (opening_steps, "allocate"), (opening_steps, "agree_on_tags"),
    (GpuStaging, "clear"), (Peers, "_map"), (opening_steps, "make_state"), (Datatypes, "__init__"),
    (affinity, "cores"), (Proxy, "__init__"), (opening_steps, "compile_entries"),
    (Communicators, "_write"), (Proxy, "start"), (launch, "install"), (process, "opened"),
    (Watchdog, "start"), (Termination, "start"),
]  # fmt: skip


@contextmanager
def failing(owner: Any, name: str, exception: BaseException) -> Iterator[list[str]]:
    """A call raises; afterwards the list says that it has."""
    original = getattr(owner, name)
    raised: list[str] = []

    def fail(*arguments: Any, **options: Any) -> Any:
        if name in ("agree_on_tags", "_write"):  # what is collective comes first
            original(*arguments, **options)
        raised.append(name)
        raise exception

    if RANK == FAILS:
        setattr(owner, name, fail)
    try:
        yield raised
    finally:
        setattr(owner, name, original)


def fails_on_one_rank() -> None:
    """All ranks get an error, at whatever step; the next context opens."""
    nothing_is_left()
    kinds = itertools.cycle((MemoryError("no memory"), KeyboardInterrupt(), RuntimeError("why")))
    for (owner, name), exception in zip(CALLS, kinds):
        with failing(owner, name, exception) as raised:
            text = f"rank {FAILS} could not open the context: {type(exception).__name__}: "
            kind = type(exception) if RANK == FAILS else gmpi.ContextError
            words = str(exception) if RANK == FAILS else f"{text}{exception}"
            raises(kind, words, lambda: gmpi.Context(WORLD, **SMALL))
        assert (raised == [name]) == (RANK == FAILS), name
        nothing_is_left()
    works(**SMALL)


def communicators_of_a_failure() -> None:
    """What was duplicated for the direct road is freed, too."""
    made: list[Control] = []
    original = Control.__init__

    def note(control: Control, comm: MPI.Comm) -> None:
        made.append(control)
        original(control, comm)

    Control.__init__ = note  # type: ignore[method-assign]
    try:
        with failing(Watchdog, "start", RuntimeError("why")):
            kind = RuntimeError if RANK == FAILS else gmpi.ContextError
            raises(kind, "why", lambda: gmpi.Context(WORLD, wildcards=False, **SMALL))
    finally:
        Control.__init__ = original  # type: ignore[method-assign]
    assert len(made) == 2 and all(control == MPI.COMM_NULL for control in made), made
    nothing_is_left()


def settings_of_one_rank() -> None:
    """What was found wrong only after the ranks had agreed, or took for ever."""
    for name, value in (
        ("GMPI_TRACE", "99999999999"), ("GMPI_SPIN_MS", "1e300"), ("GMPI_CORES", "0-99999999"),
    ):  # fmt: skip
        if RANK == FAILS:
            os.environ[name] = value
        kind = gmpi.ConfigError if RANK == FAILS else gmpi.ContextError
        raises(kind, name.removeprefix("GMPI_").lower(), lambda: gmpi.Context(WORLD, **SMALL))
        os.environ.pop(name, None)
        nothing_is_left()
    works(**SMALL)


def a_rank_is_interrupted() -> None:
    """Ctrl-C while it opens: an error on all ranks."""
    original = opening_steps.make_state

    def slowly(*arguments: Any) -> Any:
        if RANK == FAILS:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    opening_steps.make_state = slowly
    try:
        if RANK == FAILS:
            raises(KeyboardInterrupt, "", lambda: gmpi.Context(WORLD, **SMALL))
        else:
            text = f"rank {FAILS} could not open the context: KeyboardInterrupt"
            raises(gmpi.ContextError, text, lambda: gmpi.Context(WORLD, **SMALL))
    finally:
        opening_steps.make_state = original
    nothing_is_left()
    works(**SMALL)


# --- at every line --------------------------------------------------------------------------------

_set_interrupt = ctypes.pythonapi.PyErr_SetInterrupt
_set_interrupt.argtypes, _set_interrupt.restype = [ctypes.py_object], None


class _CtrlC:
    """``now``: as a signal at this moment. Python acts on it at its next chance, which is not in
    the code that reads an attribute, nor in a return: in the code that is traced."""

    now = property(_set_interrupt)


_ctrl_c = _CtrlC()
_OURS = tuple(f"{Path(gmpi.__file__).parent.parent / name}/" for name in ("gmpi", "host_proxy"))


class Tracer:
    """Counts the lines of ours that run in this thread, and interrupts before one of them."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.lines = 0
        self.where = ""

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._at:
                self.where = f"{code.co_filename}:{frame.f_lineno}"
                _ctrl_c.now  # noqa: B018
        return self.trace


def interrupted(at: int, opens: bool) -> Tracer:
    """Opens and closes a context; before a line of one of them, Ctrl-C comes."""
    tracer = Tracer(at)
    try:
        if opens:
            sys.settrace(tracer.trace)
        with gmpi.Context(WORLD, gpu=False, **SMALL):
            sys.settrace(None if opens else tracer.trace)
        for _ in range(3):  # Ctrl-C at the last line comes here
            threading.get_ident()
    except KeyboardInterrupt as exc:
        came = exc.__traceback__
        while came is not None and came.tb_next is not None:
            came = came.tb_next
        context = process.open_context
        if (
            context is not None
            and came is not None
            and came.tb_frame.f_code.co_filename == __file__
        ):
            # Between two calls of this function, and not in one of them: the context has opened.
            context.close()
    finally:
        sys.settrace(None)
    return tracer


def _interrupt_all(opens: bool) -> None:
    if SIZE > 1:
        return
    works(**SMALL)  # what is done once in a process has been done
    total = interrupted(-1, opens).lines
    assert total > 100, total
    nothing_is_left()
    parts = [word.removeprefix("--part=") for word in sys.argv if word.startswith("--part=")]
    if parts:
        part, of = map(int, parts[0].split("/"))
        chosen = list(range(1 + part, total + 1, of))
    else:
        # The last ones, where the context has opened, or closed, all but for the end.
        step = max(1, total // 25)
        chosen = sorted({*range(1, total + 1, step), *range(max(1, total - 20), total + 1)})
    for at in chosen:
        tracer = interrupted(at, opens)
        try:
            nothing_is_left()
            if at % 4 == 0:
                works(**SMALL)
        except BaseException:
            print(f"Ctrl-C at line {at} of {total}: {tracer.where}", file=sys.stderr)
            raise
    works(**SMALL)
    print(f"at {len(chosen)} of {total} lines", flush=True)


def interrupted_while_it_opens() -> None:
    _interrupt_all(opens=True)


def interrupted_while_it_closes() -> None:
    _interrupt_all(opens=False)


def held() -> None:
    """What ``interrupts.Held`` promises."""
    if SIZE > 1:
        return
    seen = []

    def ctrl_c() -> None:
        signal.raise_signal(signal.SIGINT)

    def at_the_end() -> None:
        with interrupts.Held():
            ctrl_c()
            seen.append("after")

    def where_it_is_asked_for() -> None:
        with interrupts.Held() as inner:
            ctrl_c()
            inner.deliver()
            seen.append("never")

    def where_it_is_let_through() -> None:
        with interrupts.Held() as inner:
            inner.let_through(ctrl_c)
            seen.append("never")

    def nested() -> None:
        with interrupts.Held():
            with interrupts.Held():
                ctrl_c()
            seen.append("inner")

    for do in (at_the_end, where_it_is_asked_for, where_it_is_let_through, nested):
        raises(KeyboardInterrupt, "", do)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, do
    assert seen == ["after", "inner"]


SCENARIOS: list[Callable[[], None]] = [
    held, settings_of_one_rank, communicators_of_a_failure, fails_on_one_rank,
    a_rank_is_interrupted, interrupted_while_it_opens, interrupted_while_it_closes,
]  # fmt: skip

run(SCENARIOS)
barrier()
end()
