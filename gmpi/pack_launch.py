"""Launching the kernels of ``gmpi.pack`` with little more than the driver's own cost.

Numba's launch takes 10 to 50 us with this many arguments, most of it for looking at their types.
Here arguments are int64 in one array, prepared once for each plan, and the launch is one call of
the driver.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from device_lib import pack_kernels as kernels
from device_lib import pack_words, transpose
from device_lib.divide import LIMIT, magic_of
from device_lib.primitives import SIMULATOR
from gmpi.datatypes.descriptor import (
    DESCRIPTOR_WORDS,
    RUN_LIST,
    STRIDED,
    Tables,
    describe,
    table_arrays,
)
from gmpi.datatypes.parts import Part, RunList
from gmpi.datatypes.plans import Plan

BLOCKS_PER_SM = 8
_MAX_REGISTERS = {16: 64, 8: 80, 4: 80, 1: 96}


def upload(arrays: dict[str, np.ndarray], keep: list[Any]) -> dict[str, int]:
    """Copies arrays to the device; their addresses. ``keep`` keeps them alive."""
    from numba import cuda

    found = {}
    for name, array in arrays.items():
        there: Any = cuda.to_device(np.ascontiguousarray(array))
        keep.append(there)
        if SIMULATOR:
            found[name] = int(there._ary.ctypes.data)
        else:
            found[name] = int(there.__cuda_array_interface__["data"][0])
    return found


def stream_handle(stream: Any) -> int:
    """The driver's handle of a stream of CuPy, Numba, or of anybody else."""
    if stream is None:
        return 0
    for attribute in ("ptr", "handle"):  # CuPy, Numba
        handle = getattr(stream, attribute, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    return int(stream)


class _Arguments:
    """int64 arguments of a kernel, and the array of pointers to them that the driver wants."""

    def __init__(self, count: int) -> None:
        self.values = np.zeros(count, np.int64)
        self._pointers = np.arange(count, dtype=np.int64) * 8 + self.values.ctypes.data
        self.address = int(self._pointers.ctypes.data)


class _Simulated:
    def __init__(self, body: Callable) -> None:
        from numba import cuda

        self._kernel = cuda.jit(body)

    def launch(self, blocks: int, arguments: _Arguments, stream: Any) -> None:
        self._kernel[blocks, kernels.THREADS](*map(int, arguments.values))


class _Compiled:
    """A kernel of int64 arguments on the current device, and how to launch it."""

    def __init__(self, body: Callable, arguments: int, registers: int) -> None:
        from cuda.bindings import driver
        from numba import cuda, types

        int64: Any = types.int64
        signature = types.void(*[int64] * arguments)
        jit: Any = cuda.jit
        dispatcher = jit(signature, max_registers=registers)(body)
        (compiled,) = dispatcher.overloads.values()
        self._keep = compiled
        self._driver = driver
        self._function = driver.CUfunction(int(compiled._codelibrary.get_cufunc().handle))

    def launch(self, blocks: int, arguments: _Arguments, stream: Any) -> None:
        # The driver copies the arguments before it returns.
        (error,) = self._driver.cuLaunchKernel(
            self._function, blocks, 1, 1, kernels.THREADS, 1, 1, 0, stream_handle(stream),
            arguments.address, 0,
        )  # fmt: skip
        if error != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"the launch of a packing kernel failed: {error.name}")


def _device_number() -> int:
    if SIMULATOR:
        return 0
    from numba import cuda

    return int(cuda.get_current_device().id)


@cache
def _kernel(device: int, body: Callable, arguments: int, registers: int) -> Any:
    return _Simulated(body) if SIMULATOR else _Compiled(body, arguments, registers)


@cache
def _multiprocessors(device: int) -> int:
    if SIMULATOR:
        return 1
    from numba import cuda

    return int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def _tiles(part: Part) -> tuple[_Arguments, int] | None:
    """(arguments of the transposing kernel, blocks), ``None`` when the part is not for it.

    It is when single words follow each other at a stride, and words beside them in memory, within
    the 32 bytes that memory moves at once, come much later.
    """
    dims = part.dims
    if isinstance(part, RunList) or part.table is not None or part.alignment < part.atom:
        return None
    if part.atom not in pack_words.WIDTHS or not 2 <= len(dims) <= 2 + transpose.MAX_OUTER:
        return None
    fast = min(range(len(dims)), key=lambda d: abs(dims[d].stride))
    if fast == 0 or abs(dims[fast].stride) >= 32 or abs(dims[0].stride) < 32:
        return None
    if min(dims[0].count, dims[fast].count) < transpose.TILE // 4:
        return None
    packed_strides = np.cumprod([part.atom, *(dim.count for dim in dims)])
    sides = [-(-dims[d].count // transpose.TILE) for d in (0, fast)]
    others = [d for d in range(1, len(dims)) if d != fast]
    blocks = sides[0] * sides[1] * prod(dims[d].count for d in others)
    if blocks >= LIMIT:
        return None
    arguments = _Arguments(transpose.ARGUMENTS)
    arguments.values[2:12] = (
        dims[0].count, dims[0].stride, dims[fast].count, dims[fast].stride, packed_strides[fast],
        sides[0], magic_of(sides[0]), sides[1], magic_of(sides[1]), len(others),
    )  # fmt: skip
    for k, d in enumerate(others):
        row = dims[d].count, magic_of(dims[d].count), dims[d].stride, packed_strides[d]
        arguments.values[12 + 4 * k : 16 + 4 * k] = row
    return arguments, blocks


class Prepared:
    """A plan for one count, on one device, ready to be launched."""

    def __init__(self, plan: Plan, device: int) -> None:
        self._device = device
        self._keep: list[Any] = []
        self._lock = threading.Lock()
        self._kernels: dict[tuple[int, bool], Any] = {}
        self.most_blocks = _multiprocessors(device) * BLOCKS_PER_SM
        self._parts = plan.parts
        self._tiles = _tiles(plan.parts[0]) if len(plan.parts) == 1 else None
        found = [
            describe(part, Tables(**upload(table_arrays(part), self._keep)), 0)
            for part in plan.parts
        ]
        if len(found) == 1:
            self._arguments = _Arguments(kernels.PART_ARGUMENTS)
            self._arguments.values[4:] = found[0]
            self._arguments.values[3] = len(plan.parts[0].dims)
        else:
            self._arguments = self._list_parts(np.concatenate(found))

    def _list_parts(self, descriptors: np.ndarray) -> _Arguments:
        tiles = [-(-part.size // kernels.TILE_BYTES) for part in self._parts]
        part_of = np.repeat(np.arange(len(tiles), dtype=np.int32), tiles)
        first_of = np.cumsum([0, *tiles[:-1]]).astype(np.int32)
        names = {"descriptors": descriptors, "part_of": part_of, "first_of": first_of}
        addresses = upload(names, self._keep)
        arguments = _Arguments(kernels.PARTS_ARGUMENTS)
        arguments.values[2:] = *addresses.values(), len(part_of)
        return arguments

    @classmethod
    def of(cls, plan: Plan, count: int) -> Prepared:
        """From the plan's cache, if it is there."""
        device = _device_number()
        found: Prepared | None = plan.prepared.get((device, count))
        if found is None:
            found = plan.prepared[device, count] = cls(plan.repeated(count), device)
        return found

    def launch(self, user: int, packed: int, unpack: bool, stream: Any) -> None:
        """Packs or unpacks: addresses of the user's and of the packed memory."""
        if self._tiles is not None and (user | packed) & (self._parts[0].atom - 1) == 0:
            self._launch_transpose(user, packed, unpack, stream)
            return
        if len(self._parts) > 1:
            blocks = int(self._arguments.values[5])
            kernel = self._kernels.get((0, unpack))
            if kernel is None:
                body = kernels.parts_body(unpack)
                kernel = _kernel(self._device, body, kernels.PARTS_ARGUMENTS, 128)
                self._kernels[0, unpack] = kernel
        else:
            part = self._parts[0]
            bits = user | packed | part.alignment
            width = min(bits & -bits, 16)
            if width < 4:
                width = 1
            words = part.size // width
            blocks = -(-words // kernels.tile_words(width))
            kernel = self._kernels.get((width, unpack))
            if kernel is None:
                kernel = self._kernels[width, unpack] = self._part_kernel(part, width, unpack)
        with self._lock:
            self._arguments.values[:2] = user, packed
            if len(self._parts) == 1:
                self._arguments.values[2] = words
            kernel.launch(min(blocks, self.most_blocks), self._arguments, stream)

    def _launch_transpose(self, user: int, packed: int, unpack: bool, stream: Any) -> None:
        assert self._tiles is not None
        kernel = self._kernels.get((-1, unpack))
        if kernel is None:
            body = transpose.transpose_body(self._parts[0].atom, unpack)
            kernel = _kernel(self._device, body, transpose.ARGUMENTS, 64)
            self._kernels[-1, unpack] = kernel
        arguments, blocks = self._tiles
        with self._lock:
            arguments.values[:2] = user + self._parts[0].offset, packed
            kernel.launch(blocks, arguments, stream)

    def _part_kernel(self, part: Part, width: int, unpack: bool) -> Any:
        kind = RUN_LIST if isinstance(part, RunList) else STRIDED
        wide = part.size // width >= LIMIT
        body = kernels.kernel_body(kind, width, unpack, wide)
        return _kernel(self._device, body, kernels.PART_ARGUMENTS, _MAX_REGISTERS[width])


assert kernels.PART_ARGUMENTS == 4 + DESCRIPTOR_WORDS
