"""Launches that are not Numba's: how GMPI learns of them, and what such a kernel gets."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from device_lib.platform.context import CONTEXTS, AnyContext, DeviceContext
from gmpi.errors import UsageError
from gmpi.launch import launch
from gmpi.launch.launch import Launch

_WORDS = DeviceContext._fields
#: ``gmpi_context`` of gmpi.cuh, for NumPy and CuPy, and for ctypes.
CONTEXT_DTYPE = np.dtype([(word, np.int64) for word in _WORDS])


class CContext(ctypes.Structure):
    """``gmpi_context`` of gmpi.cuh: the one argument by which a kernel gets its context."""

    _fields_ = [(word, ctypes.c_int64) for word in _WORDS]


def require_context(ctx: Any, who: str) -> AnyContext:
    """Raises UsageError if it is not ``Context.device``."""
    if not isinstance(ctx, CONTEXTS):
        raise UsageError(f"{who}: ctx is a {type(ctx).__name__}, allowed is Context.device")
    return ctx


def as_structure(ctx: AnyContext) -> np.ndarray:
    """A context as CuPy passes it to a kernel by value; kernels in C++ are not traced."""
    return np.array([tuple(ctx[: len(_WORDS)])], CONTEXT_DTYPE)


def stream_of(pointer: int) -> Any:
    """A CUDA stream as Numba knows it; 0 is the default one."""
    from numba import cuda

    return cuda.external_stream(pointer) if pointer else cuda.default_stream()


@contextmanager
def cpp_launch(
    ctx: AnyContext,
    blocks: int | tuple[int, ...],
    threads: int | tuple[int, ...],
    *,
    name: str = "a C++ kernel",
    stream: int = 0,
    resident: int | None = None,
    makes_requests: bool = False,
) -> Iterator[CContext]:
    """Around a launch of a kernel that nvcc has compiled and another library launches.

        with gmpi.cpp_launch(g.device, blocks, threads, name="solve") as ctx:
            lib.solve(ctx, blocks, threads, ctypes.c_void_p(array.data.ptr))

    ``Context.synchronize`` then waits for it, reports name it, and arrays are not freed under it.

    Args:
        ctx: ``Context.device``.
        blocks, threads: of the launch.
        name: of the kernel, for reports.
        stream: CUDA's handle of the stream on which it is launched, an integer; 0: the default one.
        resident: how many such blocks the GPU holds at once, as
            ``cudaOccupancyMaxActiveBlocksPerMultiprocessor`` knows; None: the grid is not checked.
        makes_requests: True where it calls GMPI_Psend_init, GMPI_Send_init or the like.

    Yields:
        What the kernel takes as its ``gmpi_context``, a ctypes structure to pass by value.

    Raises:
        UsageError: ``ctx`` is not Context.device.
        ContextError: it is not that of the open context.
        GridError: the grid cannot be resident as a whole.
    """
    require_context(ctx, "cpp_launch")
    count = prod(blocks) if isinstance(blocks, tuple) else blocks
    width = prod(threads) if isinstance(threads, tuple) else threads
    most = count if resident is None else resident
    what = Launch(name, count, width, most, makes_requests=makes_requests)
    given = launch.begin(ctx, what)
    try:
        yield CContext(*given[: len(_WORDS)])
    finally:
        launch.follow(ctx, stream_of(stream))
