"""The proxy thread: which engine runs, on which cores, and how it ends.

A daemon thread, so that an unhandled exception in the main thread ends the program; stopped and
joined before MPI_Finalize and before the interpreter goes (``Context`` sees to it), because a loop
that still calls MPI then is a crash.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

from gmpi.contract.constants import GMPI_ERR_PROXY
from gmpi.contract.wire import CONTROL_ABORT
from host_proxy.compiled.loop import RECORD, STOPPED, run
from host_proxy.compiled.progress import release_synchronizes
from host_proxy.platform import state as st
from host_proxy.platform.native import compile_entries
from host_proxy.records.completion import find_overdue
from host_proxy.records.ring import decode, return_slots, take
from host_proxy.reference.debug import DebugEngine, Reader
from host_proxy.reference.mpi4py_engine import Mpi4pyEngine

_PR_SET_TIMERSLACK = 29
_PYTHON_SPIN_S = 0.002  # idle time after which the Python loops nap
_SHORTEST_NAP_S = 50e-6
_NAP_SHARE = 1 / 40  # of the idle time, until naps are as long as ``sleep_us`` says


class Proxy:
    """Serves the records of one context.

    Attributes:
        failure: what ended the thread, if an exception did.
    """

    def __init__(
        self, state: st.State, engine: str, cores: frozenset[int], read: Reader | None = None
    ) -> None:
        """``read``: debug mode, where the engine is mpi4py's; how it reads buffers of kernels."""
        self.state = state
        self.engine = engine if read is None else "mpi4py"
        self.cores = cores
        self.failure: BaseException | None = None
        self.python = Mpi4pyEngine(state) if read is None else DebugEngine(state, read)
        self._thread = threading.Thread(target=self._main, name="gmpi-proxy", daemon=True)

    def start(self) -> None:
        """Compiles what the thread needs, then starts it: a record never waits for a compiler."""
        compile_entries()
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Asks the thread to leave its loop; whether it did within ``timeout`` seconds."""
        self.state.globals[st.G_STOP] = 1
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def wait_for_turn(self) -> None:
        """Returns when all that it does is done in sight of what the caller has stored before."""
        before = int(self.state.globals[st.G_TURNS])
        while self.alive and int(self.state.globals[st.G_TURNS]) - before < 2:
            time.sleep(50e-6)

    @property
    def cpu_seconds(self) -> float:
        """Processor time that the thread has used."""
        text = Path(f"/proc/self/task/{self._thread.native_id}/schedstat").read_text()
        return int(text.split()[0]) / 1e9

    def abort(self, error_class: int) -> None:
        """Ends every wait of every kernel with ``error_class`` (any thread)."""
        word = self._abort_word
        if word.value == 0:
            word.value = error_class

    @property
    def aborted(self) -> int:
        """The error class with which all waits of kernels end; 0: they do not (any thread)."""
        return int(self._abort_word.value)

    @property
    def _abort_word(self) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(int(self.state.globals[st.G_CONTROL]) + CONTROL_ABORT)

    def _main(self) -> None:
        try:
            if self.cores:
                os.sched_setaffinity(0, self.cores)  # of this thread
            # Naps as short as asked for: the default slack of 50 us would double them.
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000, 0, 0, 0)
            if self.engine == "compiled":
                self._run_compiled()
            else:
                self._run_python()
        except BaseException as exc:
            self.failure = exc
            self.abort(GMPI_ERR_PROXY)

    def _run_compiled(self) -> None:
        g = self.state.address
        idle_since = time.monotonic()
        while True:
            reason = run(g)
            self.state.globals[st.G_NOW] = time.monotonic_ns()
            if reason == STOPPED:
                return
            worked = reason == RECORD
            if worked:
                self.python.serve()
                take(g)
                return_slots(g)
            worked |= self.python.step()
            if worked:
                self.state.globals[st.G_IDLE_SINCE] = 0
            if worked or self.state.globals[st.G_PYTHON]:
                idle_since = self._rest(worked, idle_since)

    def _run_python(self) -> None:
        state = self.state
        g = state.address
        idle_since = time.monotonic()
        while not state.globals[st.G_STOP]:
            state.globals[st.G_TURNS] += 1
            state.globals[st.G_NOW] = time.monotonic_ns()
            find_overdue(g)
            worked = False
            while decode(g):
                self.python.serve()
                take(g)
                self.python.has_served()
                return_slots(g)
                worked = True
            if state.globals[[st.G_PYTHON, st.G_CHANNELS, st.G_OPENING, st.G_BUFFERED]].any():
                worked |= self.python.step()
            if state.globals[st.G_SYNCS]:
                state.globals[st.G_SYNC_SEEN] = -1
                release_synchronizes(g)
            idle_since = self._rest(worked, idle_since)

    def _rest(self, worked: bool, idle_since: float) -> float:
        """Idling of the Python loops; returns since when there has been no work."""
        now = time.monotonic()
        if worked:
            return now
        idle = now - idle_since
        if idle > _PYTHON_SPIN_S:
            longest = int(self.state.globals[st.G_SLEEP_NS]) * 1e-9
            time.sleep(max(_SHORTEST_NAP_S, min(idle * _NAP_SHARE, longest)))
        else:
            os.sched_yield()
        return idle_since
