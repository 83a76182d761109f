"""Launching a kernel with little more than the driver's own cost.

Numba's launch takes 10 to 50 us with as many arguments as packing has, most of it for looking at
their types. Here arguments are int64 in one array that is prepared once, and a launch is one call
of the driver by compiled code (``compiled_calls``).
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from device_lib.platform import front_end
from device_lib.platform.primitives import SIMULATOR
from gmpi.packing.compiled_calls import call_of, job
from gmpi.packing.kernels import THREADS


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
def driver_call(name: str) -> int:
    """Address of a function of CUDA's driver."""
    return ctypes.cast(getattr(ctypes.CDLL("libcuda.so.1"), name), ctypes.c_void_p).value or 0


def _cupy_driver() -> Any:
    """CuPy's module of the driver's calls; ``None``: the program does not use CuPy."""
    cupy = sys.modules.get("cupy")
    return cupy and cupy.cuda.driver


@cache
def _current_device() -> Callable[[], int]:
    """What asks the driver for the current device."""
    cupy = _cupy_driver()
    if cupy:
        ask: Callable[[], int] = cupy.ctxGetDevice
        return ask
    number = ctypes.c_int(0)
    reference = ctypes.byref(number)
    # By ``PyDLL``, which keeps the interpreter's lock during the call: that takes a fifth of the
    # time, and threads may share the variable.
    call = ctypes.PyDLL("libcuda.so.1").cuCtxGetDevice

    def ask_driver() -> int:
        if call(reference) != 0:
            raise RuntimeError("no context is current")
        return number.value

    return ask_driver


def device_number() -> int:
    """The current device."""
    if SIMULATOR:
        return 0
    try:
        return _current_device()()
    except RuntimeError:
        from numba import cuda

        return int(cuda.get_current_device().id)  # makes a context


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
        self._words = (ctypes.c_int64 * len(arguments))(*arguments)
        self.blocks = blocks
        self._threads = threads
        self._offset = offset
        if SIMULATOR:
            return
        base = ctypes.addressof(self._words)
        self._pointers = (ctypes.c_void_p * len(arguments))(
            *(base + 8 * i for i in range(len(arguments)))
        )
        self._job = job(
            call=driver_call("cuLaunchKernel"),
            function=int(kernel.function),
            blocks=blocks,
            threads=threads,
            pointers=ctypes.addressof(self._pointers),
            user_at=base,
            packed_at=base + 8,
            offset=offset,
        )
        self._launch = call_of("launch")
        self._lock = threading.Lock()
        self._at = self._job.ctypes.data

    def __call__(self, user: int, packed: int, stream: Any) -> None:
        if SIMULATOR:
            rest = self._words[2:]
            self._kernel[self.blocks, self._threads](user + self._offset, packed, *rest)
            return
        handle = stream_handle(stream)
        with self._lock:  # the driver copies the arguments before it returns
            error = self._launch(self._at, user, packed, handle)
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
