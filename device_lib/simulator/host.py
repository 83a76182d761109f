"""Streams, events, devices and contexts, as far as one device has them on which nothing is
asynchronous: a launch returns when its kernel has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

_MEMORY = 16 << 30  # bytes of the device, free ones too: what it takes is the host's


class Stream:
    """One of no meaning: all that is put into it has been done when the call returns.

    Args:
        handle: what a program has called it.
    """

    def __init__(self, handle: int = 0) -> None:
        self.handle = handle

    def __int__(self) -> int:
        return self.handle

    def synchronize(self) -> None:
        """Returns at once."""

    @contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        yield self

    def add_callback(self, callback: Callable[[Stream, int, Any], None], arg: Any = None) -> None:
        """Calls it at once: nothing is before it."""
        callback(self, 0, arg)


def stream() -> Stream:
    return Stream()


default_stream = legacy_default_stream = per_thread_default_stream = stream


def external_stream(ptr: int) -> Stream:
    return Stream(ptr)


class Event:
    """A moment: when ``record`` was called."""

    def __init__(self, timing: bool = True) -> None:
        self._timing = timing
        self._at = 0.0

    def record(self, stream: Any = 0) -> None:
        self._at = time.perf_counter()

    def query(self) -> bool:
        """Whether all before it has been done: it has."""
        return True

    def synchronize(self) -> None:
        """Returns at once."""

    def wait(self, stream: Any = 0) -> None:
        """Returns at once."""

    def elapsed_time(self, evtend: Event) -> float:
        """Milliseconds until another event, on the host, which say nothing of a GPU."""
        if not (self._timing and evtend._timing):
            raise ValueError("elapsed_time: one of the events was made with timing=False")
        return (evtend._at - self._at) * 1e3


def event(timing: bool = True) -> Event:
    return Event(timing)


def event_elapsed_time(evtstart: Event, evtend: Event) -> float:
    return evtstart.elapsed_time(evtend)


def synchronize() -> None:
    """Returns at once: launches have ended."""


class MemoryInfo(NamedTuple):
    free: int
    total: int


class Device:
    """The one there is; its attributes are of no GPU in particular."""

    id = 0
    name = "SIMULATOR"
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    compute_capability = (9, 0)
    MULTIPROCESSOR_COUNT = 1
    WARP_SIZE = 32
    MAX_THREADS_PER_BLOCK = 1024
    MAX_BLOCK_DIM_X = MAX_BLOCK_DIM_Y = 1024
    MAX_BLOCK_DIM_Z = 64
    MAX_GRID_DIM_X = (1 << 31) - 1
    MAX_GRID_DIM_Y = MAX_GRID_DIM_Z = 65535
    MAX_SHARED_MEMORY_PER_BLOCK = 48 << 10

    @property
    def primary_context(self) -> Context:
        return _context

    def reset(self) -> None:
        """Nothing is kept."""

    def __repr__(self) -> str:
        return "<simulated CUDA device 0>"


class Context:
    """Of the device, current in all threads."""

    #: Memory is freed as Python does it.
    deallocations = SimpleNamespace(clear=lambda: None)

    @property
    def device(self) -> Device:
        return _device

    id = 0
    compute_capability = Device.compute_capability

    def get_memory_info(self) -> MemoryInfo:
        return MemoryInfo(_MEMORY, _MEMORY)

    def synchronize(self) -> None:
        """Returns at once."""

    def reset(self) -> None:
        """Nothing is kept."""

    def push(self) -> None:
        """It is current."""

    def pop(self) -> None:
        """It stays current."""

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *args: object) -> None:
        """It stays current."""


class _Devices(list):  # type: ignore[type-arg]
    @property
    def current(self) -> Device:
        return _device


_device = Device()
_context = Context()
gpus = _Devices([_device])


def list_devices() -> _Devices:
    return gpus


def get_current_device() -> Device:
    return _device


def select_device(device_id: int) -> Context:
    """The device's context.

    Raises:
        ValueError: there is only device 0.
    """
    if device_id != 0:
        raise ValueError(f"device_id is {device_id}, allowed is 0: the simulator has one device")
    return _context


def current_context(devnum: int | None = None) -> Context:
    return _context if devnum is None else select_device(devnum)


def require_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function: there is always a context."""
    return function


def close() -> None:
    """There is nothing to close."""


def detect() -> bool:
    """Prints which devices there are."""
    print("Found 1 CUDA device\nid 0: SIMULATOR")
    return True


def is_available() -> bool:
    return True


def cuda_error() -> None:
    """No error."""


def is_supported_version() -> bool:
    return True


def is_float16_supported() -> bool:
    return True


def is_bfloat16_supported() -> bool:
    return False


is_fp8_supported = is_bfloat16_supported


@contextmanager
def defer_cleanup() -> Iterator[None]:
    yield


profiling = defer_cleanup


def profile_start() -> None:
    """There is nothing to profile."""


profile_stop = profile_start
runtime = SimpleNamespace(get_version=lambda: (-1, -1), is_supported_version=is_supported_version)

__all__ = [
    "Event", "MemoryInfo", "Stream", "close", "cuda_error", "current_context", "default_stream",
    "defer_cleanup", "detect", "event", "event_elapsed_time", "external_stream",
    "get_current_device", "gpus", "is_available", "is_bfloat16_supported", "is_float16_supported",
    "is_fp8_supported", "is_supported_version", "legacy_default_stream", "list_devices",
    "per_thread_default_stream", "profile_start", "profile_stop", "profiling", "require_context",
    "runtime", "select_device", "stream", "synchronize",
]  # fmt: skip
