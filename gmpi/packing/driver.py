"""Launching a kernel with little more than the driver's own cost.

Numba's launch takes 10 to 50 us with as many arguments as packing has, most of it for looking at
their types. Here arguments are int64 in one array that is prepared once, and a launch is one call
of the driver through ``ctypes`` whose arguments are prepared too.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from device_lib.platform import front_end
from device_lib.platform.primitives import SIMULATOR
from gmpi.packing.kernels import THREADS


class _LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


def stream_handle(stream: Any) -> int:
    """The driver's handle of a stream of CuPy, Numba, or of anybody else."""
    if stream is None:
        return 0
    try:
        return int(stream.ptr)  # CuPy
    except AttributeError:
        handle = getattr(stream, "handle", stream)  # Numba
        return int(getattr(handle, "value", handle) or 0)


@cache
def driver() -> ctypes.CDLL:
    """CUDA's driver."""
    library = ctypes.CDLL("libcuda.so.1")
    library.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
    return library


class _CurrentDevice:
    """Asks the driver for the current device.

    By ``PyDLL``, which keeps the interpreter's lock during the call: that takes a fifth of the
    time, and threads may share the variable.
    """

    def __init__(self) -> None:
        self._number = ctypes.c_int(0)
        self._reference = ctypes.byref(self._number)
        self._call = ctypes.PyDLL("libcuda.so.1").cuCtxGetDevice

    def __call__(self) -> int:
        if self._call(self._reference) == 0:
            return self._number.value
        from numba import cuda

        return int(cuda.get_current_device().id)  # makes a context


_current_device = cache(_CurrentDevice)


def device_number() -> int:
    """The current device."""
    return 0 if SIMULATOR else _current_device()()


class Launch:
    """One kernel with its arguments, ready but for the first two: addresses."""

    def __init__(
        self,
        kernel: Any,
        arguments: list[int],
        blocks: int,
        offset: int = 0,
        threads: int = THREADS,
    ) -> None:
        """``offset`` is added to the first address."""
        self._kernel = kernel
        self._offset = offset
        self._words = (ctypes.c_int64 * len(arguments))(*arguments)
        self._lock = threading.Lock()
        self.blocks = blocks
        self._threads = threads
        if SIMULATOR:
            return
        base = ctypes.addressof(self._words)
        self._pointers = (ctypes.c_void_p * len(arguments))(
            *(base + 8 * i for i in range(len(arguments)))
        )
        self._config = _LaunchConfig()
        self._config.grid[:] = blocks, 1, 1
        self._config.block[:] = threads, 1, 1
        self._call = driver().cuLaunchKernelEx
        self._prepared = (
            ctypes.c_void_p(ctypes.addressof(self._config)),
            ctypes.c_void_p(kernel.function),
            ctypes.c_void_p(ctypes.addressof(self._pointers)),
            ctypes.c_void_p(0),
        )

    def __call__(self, user: int, packed: int, stream: Any) -> None:
        words = self._words
        with self._lock:  # the driver copies the arguments before it returns
            words[0] = user + self._offset
            words[1] = packed
            if SIMULATOR:
                self._kernel[self.blocks, self._threads](*words)
                return
            self._config.stream = stream_handle(stream)
            error = self._call(*self._prepared)
        if error != 0:
            raise RuntimeError(f"the launch of a packing kernel failed: CUDA error {error}")


def signature(body: Callable, arguments: int) -> Any:
    """Numba's signature of a kernel of int64 arguments: those beyond its named ones are one tuple,
    which is passed as they are."""
    from numba.cuda import types

    int64: Any = types.int64
    named = body.__code__.co_argcount
    rest = [types.UniTuple(int64, arguments - named)] if named < arguments else []
    return types.void(*[int64] * min(named, arguments), *rest)


class _Compiled:
    """A kernel of int64 arguments, compiled for the current device and loaded there."""

    def __init__(self, body: Callable, arguments: int, registers: int) -> None:
        from numba import cuda

        from device_lib.platform.resolution_cuda import remembered

        jit: Any = cuda.jit
        with remembered():
            dispatcher = jit(signature(body, arguments), max_registers=registers)(body)
        (self._keep,) = dispatcher.overloads.values()
        self.function = int(front_end.function_of(self._keep))


@cache
def kernel(device: int, body: Callable, arguments: int, registers: int) -> Any:
    """The kernel with this body on a device; the current one."""
    if SIMULATOR:
        from numba import cuda

        return cuda.jit(body)
    return _Compiled(body, arguments, registers)


@cache
def multiprocessors(device: int) -> int:
    if SIMULATOR:
        return 1
    from numba import cuda

    return int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def upload(arrays: dict[str, np.ndarray], keep: list[Any]) -> dict[str, int]:
    """Copies arrays to the device; their addresses. ``keep`` keeps them alive."""
    from numba import cuda

    found = {}
    for name, array in arrays.items():
        there: Any = cuda.to_device(np.ascontiguousarray(array))
        keep.append(there)
        found[name] = int(there.__cuda_array_interface__["data"][0])
    return found
