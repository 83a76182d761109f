"""Packing by the copy engine: one call of the driver's memcpy, where a layout is as simple as that.

A copy has less to start than a kernel; each of its rows costs it time, whatever its length. So it
is quicker for few rows and not too many bytes, and ``gmpi tune`` measures where.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from device_lib.platform.primitives import SIMULATOR
from gmpi.datatypes.parts import Part, RunList
from gmpi.packing.compiled_calls import call_of, job
from gmpi.packing.driver import driver_call, stream_handle
from gmpi.tuning.choices import takes_copy

#: Rows and bytes up to which a copy is taken where nothing has been tuned. On an H200
#: (docs/measurements/packing-1gpu.json) a launch takes 7.5 to 8.3 us. CUDA's copy takes 3.8,
#: and up to 0.6 ns a row: 4.9 us with 4096 rows, 12 with 16384.
MOST_ROWS, MOST_BYTES = 4096, 8 << 20
MOST_PITCH = (1 << 31) - 1  # of CUDA's copies
_UNIFIED = 4  # CU_MEMORYTYPE_UNIFIED: the address says what memory it is


class Shape(NamedTuple):
    """Rows of ``width`` bytes at ``pitch``, ``height`` of them in a slice, slices at ``stride``."""

    offset: int  # of the first byte, from the user's address
    width: int
    pitch: int
    height: int
    stride: int
    depth: int

    @property
    def rows(self) -> int:
        return self.height * self.depth

    @property
    def nbytes(self) -> int:
        return self.width * self.rows


def shape_of(parts: tuple[Part, ...] | list[Part]) -> Shape | None:
    """How a copy would describe a plan; ``None``: it cannot.

    It can where the plan is one block, repeated along up to two dimensions, each in steps of the
    one inside it, forwards and without overlap.
    """
    if len(parts) != 1:
        return None
    part = parts[0]
    if isinstance(part, RunList) or part.table is not None or part.begin or not part.size:
        return None
    dims = [(dim.count, dim.stride) for dim in part.dims if dim.count != 1]
    if len(dims) > 2:
        return None
    height, pitch = dims[0] if dims else (1, part.atom)
    depth, stride = dims[1] if len(dims) == 2 else (1, pitch * height)
    if not part.atom <= pitch <= MOST_PITCH or stride % pitch or stride < pitch * height:
        return None
    return Shape(part.offset, part.atom, pitch, height, stride, depth)


class _Copy3D(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = [
        *[(f"{side}_{name}", kind) for side in ("source", "target") for name, kind in (
            ("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t),
            ("lod", ctypes.c_size_t), ("kind", ctypes.c_int), ("host", ctypes.c_void_p),
            ("device", ctypes.c_uint64), ("array", ctypes.c_void_p), ("none", ctypes.c_void_p),
            ("pitch", ctypes.c_size_t), ("height", ctypes.c_size_t),
        )],
        ("width", ctypes.c_size_t), ("rows", ctypes.c_size_t), ("depth", ctypes.c_size_t),
    ]  # fmt: skip


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [
        *[(f"{side}_{name}", kind) for side in ("source", "target") for name, kind in (
            ("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("kind", ctypes.c_int),
            ("host", ctypes.c_void_p), ("device", ctypes.c_uint64), ("array", ctypes.c_void_p),
            ("pitch", ctypes.c_size_t),
        )],
        ("width", ctypes.c_size_t), ("rows", ctypes.c_size_t),
    ]  # fmt: skip


assert ctypes.sizeof(_Copy3D) == 200 and ctypes.sizeof(_Copy2D) == 128


class Copy:
    """One copy, ready but for its two addresses; called as ``driver.Launch`` is.

    Args:
        unpack: from the packed bytes to the user's.
    """

    def __init__(self, shape: Shape, unpack: bool) -> None:
        self.shape = shape
        self._unpack = unpack
        if SIMULATOR:
            return
        if shape.rows == 1:
            self._job = job(
                call=driver_call("cuMemcpyAsync"),
                bytes=shape.width,
                user_at=0 if unpack else 1,
                offset=shape.offset,
            )
            self._copy = call_of("line")
        else:
            self._job = self._rows_job(shape, unpack)
            self._copy = call_of("rows")
            self._lock = threading.Lock()
        self._at = self._job.ctypes.data

    def _rows_job(self, shape: Shape, unpack: bool) -> Any:
        self._words: Any = _Copy2D() if shape.depth == 1 else _Copy3D()
        words, user = self._words, "target" if unpack else "source"
        packed = "source" if unpack else "target"
        words.source_kind = words.target_kind = _UNIFIED
        words.width, words.rows = shape.width, shape.height
        setattr(words, f"{user}_pitch", shape.pitch)
        setattr(words, f"{packed}_pitch", shape.width)
        if shape.depth > 1:
            words.depth = shape.depth
            setattr(words, f"{user}_height", shape.stride // shape.pitch)
            setattr(words, f"{packed}_height", shape.height)
        name = "cuMemcpy2DAsync_v2" if shape.depth == 1 else "cuMemcpy3DAsync_v2"
        base = ctypes.addressof(words)
        return job(
            call=driver_call(name),
            pointers=base,
            user_at=base + getattr(type(words), f"{user}_device").offset,
            packed_at=base + getattr(type(words), f"{packed}_device").offset,
            offset=shape.offset,
        )

    def __call__(self, user: int, packed: int, stream: Any) -> None:
        if SIMULATOR:
            self._by_rows(user + self.shape.offset, packed)
            return
        handle = stream_handle(stream)
        if self.shape.rows == 1:
            error = self._copy(self._at, user, packed, handle)
        else:
            with self._lock:  # the driver reads the words before it returns
                error = self._copy(self._at, user, packed, handle)
        if error != 0:
            raise RuntimeError(f"the copy of a packing call failed: CUDA error {error}")

    def _by_rows(self, user: int, packed: int) -> None:
        shape = self.shape
        for k in range(shape.rows):
            z, y = divmod(k, shape.height)
            there = user + z * shape.stride + y * shape.pitch
            here = packed + k * shape.width
            source, target = (here, there) if self._unpack else (there, here)
            ctypes.memmove(target, source, shape.width)


def is_quicker(shape: Shape, limits: Sequence[int] = ()) -> bool:
    """Whether a copy is quicker than a kernel.

    Args:
        limits: what ``gmpi tune`` has found here (``choices.copy_rows``); empty: nothing.
    """
    if limits:
        return takes_copy(limits, shape.nbytes, shape.rows)
    return shape.rows <= MOST_ROWS and shape.nbytes <= MOST_BYTES
