"""What a context keeps of the kernels that were launched with it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import launcher
import pytest
from numba import cuda

import gmpi
from device_lib import platform as device_platform
from device_lib.platform.context import DeviceContext
from gmpi.launch import kernels, launch, preparing
from gmpi.launch.kernels import LaunchedKernels


class Driver:
    """Stands in for CUDA: events that end when they are told, arrays that wait to be freed."""

    def __init__(self) -> None:
        self.events: list[Driver.Event] = []
        self.dropped = 0
        self.kept = 0

    class Event:
        ended = False

        def record(self, stream: Any) -> None: ...

        def query(self) -> bool:
            return self.ended

    def event(self, timing: bool) -> Driver.Event:
        self.events.append(Driver.Event())
        return self.events[-1]

    @contextlib.contextmanager
    def defer_cleanup(self) -> Iterator[None]:
        self.kept += 1
        yield
        self.kept -= 1

    def clear(self) -> None:
        if not self.kept:
            self.dropped = 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(kernels, "SIMULATOR", False)
    monkeypatch.setattr(cuda, "event", made.event, raising=False)
    monkeypatch.setattr(cuda, "defer_cleanup", made.defer_cleanup, raising=False)
    freeing = ModuleType("device_lib.platform.freeing_cuda")
    freeing.wait = lambda: None  # type: ignore[attr-defined]
    freeing.free_dropped = made.clear  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, freeing.__name__, freeing)
    monkeypatch.setattr(device_platform, "freeing_cuda", freeing, raising=False)
    return made


def test_launches_that_nobody_waits_for_leave_nothing_behind(driver: Driver) -> None:
    """A loop of short kernels whose program waits by ``stream.synchronize()``."""
    launched = LaunchedKernels(allowed=True, check_grid=False)
    for _ in range(100):
        launched.begin(None)  # type: ignore[arg-type]
        launched.follow(None)
        driver.dropped += 1  # an array, while the kernel runs
        driver.events[-1].ended = True
        assert len(launched._events) <= 1 and driver.dropped <= 1
    assert launched.wait(0) and driver.dropped == 0 and not driver.kept


def test_nothing_is_freed_while_a_kernel_runs(driver: Driver) -> None:
    launched = LaunchedKernels(allowed=True, check_grid=False)
    for _ in range(3):
        launched.begin(None)  # type: ignore[arg-type]
        launched.follow(None)
        driver.dropped += 1
        driver.clear()
    driver.events[0].ended = True
    launched.begin(None)  # type: ignore[arg-type]
    assert len(launched._events) == 2 and driver.dropped == 3 and driver.kept
    assert not launched.wait(0)


FREEING = """
import logging, threading
from numba.cuda.cudadrv import driver
from numba.cuda.cudadrv.driver import _PendingDeallocs
driver._logger = logging.getLogger()  # made with the first context on a GPU
if {ours}:
    from device_lib.platform import freeing_cuda

pending, freed = _PendingDeallocs(1000), []
begun, launched = threading.Event(), threading.Event()

def free(array):
    if array == 1:
        begun.set()
        launched.wait(0.5)  # cuMemFree takes a while
    freed.append((array, launched.is_set()))

for array in range(5):
    pending.add_item(free, array, 10)
thread = threading.Thread(target=pending.clear)
thread.start()
begun.wait()
with pending.disable():
    if {ours}:
        freeing_cuda.wait()
    launched.set()
    thread.join()
    pending.clear()
    during = list(freed)
    pending.add_item(free, 5, 30)
pending.clear()
print(during, len(freed), pending._size)
"""


DROPPED = """
import logging
from types import SimpleNamespace
from numba import cuda
from numba.cuda.cudadrv import driver
from numba.cuda.cudadrv.driver import _PendingDeallocs
driver._logger = logging.getLogger()  # made with the first context on a GPU
from device_lib.platform import freeing_cuda

queues, freed = [_PendingDeallocs(1000), _PendingDeallocs(1000)], []
for number, queue in enumerate(queues):
    queue.add_item(freed.append, number, 10)
managers = SimpleNamespace(deallocations=queues[1]), SimpleNamespace()
for manager in managers:
    context = SimpleNamespace(deallocations=queues[0], memory_manager=manager)
    cuda.current_context = lambda: context
    freeing_cuda.free_dropped()
print(freed)
"""


def test_dropped_arrays_are_freed_with_what_else_waits() -> None:
    """Numba has a queue for memory, and one for modules, streams and events."""
    status, text = launcher.python("-c", DROPPED, NUMBA_ENABLE_CUDASIM="0")
    assert status == 0 and text.strip() == "[0, 1]", text


def test_what_is_being_freed_when_a_kernel_is_launched() -> None:
    """By another thread: that array is waited for, and no further one is freed. Numba goes on."""
    run = {
        ours: launcher.python("-c", FREEING.format(ours=ours), NUMBA_ENABLE_CUDASIM="0")[1].strip()
        for ours in (True, False)
    }
    assert run[True] == "[(0, False), (1, False)] 6 0"
    assert run[False].startswith("[(0, False), (1, True), (2, True)"), "Numba asks itself now"


def test_a_kernel_that_is_being_prepared_is_none_that_was_left(driver: Driver) -> None:
    """Before the first launch, and between one and the next."""
    launched = LaunchedKernels(allowed=True, check_grid=False)
    assert launched.state == "none launched"
    for _ in range(2):
        preparing.begin()
        assert launched.state == "being prepared"
        launched.begin(None)  # type: ignore[arg-type]
        assert launched.state == "being prepared"
        launched.follow(None)
        assert launched.state == "running"
        preparing.end()
        assert launched.state == "running"
        driver.events[-1].ended = True
        assert launched.wait(0) and launched.state == "none running"


@pytest.mark.parametrize("fails", [False, True])
def test_a_call_with_a_context_prepares_a_kernel(fails: bool) -> None:
    """Until it has been launched, or could not be compiled."""
    seen: list[bool] = []

    class Configuration:
        def __init__(self) -> None: ...

        def __call__(self, *args: Any) -> None:
            seen.append(preparing.is_under_way())
            if fails:
                raise TypeError("no such kernel")

    launch._wrap_calls(SimpleNamespace(_LaunchConfiguration=Configuration, warn=None))
    for args in ((DeviceContext(1, 2, 3, 4), 5), (5,)):
        with pytest.raises(TypeError) if fails else contextlib.nullcontext():
            Configuration()(*args)
    assert seen == [True, False] and not preparing.is_under_way()


def test_a_launch_on_another_gpu_than_the_contexts_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that a program starts has GPU 0, whatever its other threads have."""
    monkeypatch.setattr(kernels, "_current_gpu", lambda: 1)
    launched = LaunchedKernels(allowed=True, check_grid=False)
    what = launch.Launch("mine", 1, 32, 1024)
    launched.begin(what)
    monkeypatch.setattr(kernels, "_current_gpu", lambda: 0)
    with pytest.raises(
        gmpi.ContextError, match=r"launch mine: this thread's GPU is 0.*opened on 1"
    ):
        launched.begin(what)
    LaunchedKernels(allowed=False, check_grid=False).begin(what)
