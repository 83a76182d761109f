"""The kernels that were launched with a context: which still run, and how to wait for them.

Behind each launch an event is recorded on its stream. It is asked, not waited for: a wait inside
the driver would keep Ctrl-C from arriving. In the simulator a launch is over when it returns.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from device_lib.platform.primitives import SIMULATOR
from gmpi.diagnose.tables import Kernels
from gmpi.errors import ContextError, GridError, KernelError
from gmpi.launch import preparing
from gmpi.launch.launch import Launch

MAX_THREADS = 1024  # of a block
_SLICE_S = 0.05  # host waits return to Python at least this often


class _KeptMemory:
    """Keeps Numba from freeing device memory while kernels run.

    Freeing waits for all kernels. Arrays are freed by whatever thread drops the last reference or
    happens to collect garbage: the proxy thread would wait for a kernel that waits for it. So what
    is dropped stays allocated until the kernels have ended (CUDA memory that CuPy's pool holds is
    not freed at such times anyway).
    """

    def __init__(self) -> None:
        self._kept = ExitStack()
        self._keeps = False

    def keep(self) -> None:
        """A kernel is about to be launched."""
        if not self._keeps and not SIMULATOR:
            from numba import cuda

            from device_lib.platform import freeing_cuda

            self._kept.enter_context(cuda.defer_cleanup())
            self._keeps = True
            freeing_cuda.wait()

    def let_go(self, free: bool = True) -> None:
        """No kernel runs: what was dropped is freed now, unless CUDA is gone."""
        if self._keeps:
            self._keeps = False
            self._kept.close()
            if free:
                from device_lib.platform import freeing_cuda

                freeing_cuda.free_dropped()


class LaunchedKernels:
    """What one context knows of its kernels.

    Args:
        allowed: whether the context has kernels at all.
        check_grid: whether a grid that cannot be resident as a whole is refused.
    """

    def __init__(self, allowed: bool, check_grid: bool) -> None:
        self._allowed = allowed
        self._check_grid = check_grid
        self._events: list[Any] = []  # behind the launched kernels
        self._memory = _KeptMemory()
        self._begun = 0
        self._ended = 0  # only counted: in the simulator, a launch is over when it returns
        self._gpu = _current_gpu() if allowed else 0

    def begin(self, launch: Launch) -> None:
        """Before a launch.

        Raises:
            ContextError: the calling thread's GPU is not the context's.
            GridError: not all of its blocks can be resident at once.
        """
        gpu = _current_gpu() if self._allowed else 0
        if gpu != self._gpu:
            raise ContextError(
                f"cannot launch {launch.name}: this thread's GPU is {gpu}, the context was opened "
                f"on {self._gpu}. Each thread has a GPU of its own, which is 0 at first: call "
                f"numba.cuda.select_device({self._gpu}) in this one before"
            )
        if self._check_grid:
            _require_resident(launch)
        self._forget_ended()
        self._memory.keep()
        self._begun += 1

    def follow(self, stream: Any) -> None:
        """After a launch on ``stream``."""
        self._ended += 1
        if SIMULATOR:
            return
        from numba import cuda

        event = cuda.event(timing=False)
        event.record(stream)
        self._events.append(event)

    def _forget_ended(self) -> None:
        """Lets go of what launches before have left, as far as they have ended.

        A program may wait for its kernels in its own way, and never ask us.
        """
        try:
            while self._events and self._events[0].query():
                self._events.pop(0)
        except Exception:  # one died: whoever waits is told
            return
        if not self._events:
            self._memory.let_go()

    @property
    def unfinished(self) -> bool:
        """Whether kernels may still run, as far as it is known without asking the driver."""
        return self._begun > self._ended if SIMULATOR else bool(self._events)

    def have_ended(self) -> bool:
        """Whether all kernels have; any thread, whatever others are doing."""
        if SIMULATOR:
            return not self.unfinished
        try:
            return all(event.query() for event in list(self._events))
        except Exception:  # one died
            return True

    @property
    def state(self) -> Kernels:
        """The same in words, for reports (any thread)."""
        if not self._allowed:
            return "host only"
        if self.unfinished:
            return "running"
        if preparing.is_under_way():
            return "being prepared"
        return "none running" if self._begun else "none launched"

    def wait(self, timeout: float | None) -> bool:
        """Whether all kernels have ended within ``timeout`` seconds (None: however long it takes).

        Raises:
            KernelError: one died. The CUDA context is gone, and with it every kernel in it: there
                is nothing left to wait for.
        """
        started = time.monotonic()
        while self._events:
            try:
                ended = self._events[0].query()
            except Exception as exc:
                self._events.clear()
                self._memory.let_go(free=False)
                raise KernelError(f"a kernel died: {exc}") from exc
            if ended:
                self._events.pop(0)
                continue
            waited = time.monotonic() - started
            if timeout is not None and waited > timeout:
                return False
            time.sleep(0 if waited < 0.001 else min(_SLICE_S, waited / 20))
        self._memory.let_go()
        return True


def _current_gpu() -> int:
    """Number of the calling thread's GPU, as Numba counts; 0 in the simulator."""
    if SIMULATOR:
        return 0
    from numba import cuda

    return int(cuda.get_current_device().id)


def _require_resident(launch: Launch) -> None:
    if launch.threads > MAX_THREADS:  # the simulator has no limit
        raise GridError(
            f"a block of {launch.name} has {launch.threads} threads, allowed is at most "
            f"{MAX_THREADS} on any GPU; use more blocks, or a loop over the work"
        )
    most = launch.resident
    if most < 1:
        raise GridError(
            f"not one block of {launch.threads} threads of {launch.name} fits a multiprocessor"
            f"{_what_it_takes(launch)}; use smaller blocks or fewer registers, by max_registers of "
            "Numba, or --registers of gmpi cpp and -maxrregcount of nvcc: 128 for 512 threads, "
            "64 for 1024"
        )
    if launch.blocks < 1:
        raise GridError(
            f"the grid of {launch.name} has {launch.blocks} blocks, allowed is 1 or more"
        )
    if launch.blocks > most:
        raise GridError(
            f"the grid of {launch.name} has {launch.blocks} blocks of {launch.threads} threads, "
            f"but only {most} can be resident at once{_what_it_takes(launch)}, and a block that "
            "waits for one that is not would wait for ever; use Context.max_blocks(kernel, "
            "threads) and a loop over the work, or open the context with check_grid=False if no "
            "block waits for another"
        )


def _what_it_takes(launch: Launch) -> str:
    if not launch.registers:  # the simulator
        return ""
    return (
        f" (it takes {launch.registers} registers a thread and {launch.shared_bytes} bytes of "
        "shared memory a block)"
    )
