"""Arrays that a kernel makes: in shared memory, of one thread, and constants."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

import numpy as np
from greenlet import getcurrent

_known: dict[Any, np.dtype] = {}


def dtype_of(kind: Any) -> np.dtype:
    """The NumPy data type for what a program may call one: a type of Numba or NumPy, or its name.

    Raises:
        TypeError: there is none.
    """
    found = _known.get(kind)
    if found is None:
        try:
            found = np.dtype(kind)
        except TypeError:
            try:
                found = np.dtype(str(kind))  # Numba's numbers are called as NumPy's
            except TypeError:
                raise TypeError(
                    f"dtype is {kind!r}, allowed is a number or record of Numba or NumPy, or its "
                    "name, such as float32"
                ) from None
        _known[kind] = found
    return found


def with_fields(array: np.ndarray) -> np.ndarray:
    """The array as kernels know it: the fields of records are attributes."""
    return array if array.dtype.names is None else array.view(np.recarray)


class SharedArray(np.ndarray):
    """What ``cuda.shared.array`` makes, and all views of it."""


class _SharedRecords(SharedArray, np.recarray):
    """The same of records."""


class ThreadMemory(np.ndarray):
    """What ``cuda.local.array`` makes, and all views of it."""


class _ThreadRecords(ThreadMemory, np.recarray):
    """The same of records."""


class BlockMemory:
    """Shared memory of one block.

    Args:
        dynamic_bytes: how much of it is the launch's, beside what the kernel declares.
    """

    def __init__(self, dynamic_bytes: int) -> None:
        self._arrays: dict[tuple[CodeType, int], np.ndarray] = {}
        self._dynamic = np.zeros(dynamic_bytes, np.uint8)

    def array(self, place: tuple[CodeType, int], shape: Any, dtype: Any) -> np.ndarray:
        """The array of a declaration, of which each is at a place of its own in the code."""
        found = self._arrays.get(place)
        if found is None:
            kind = dtype_of(dtype)
            if shape == 0:
                whole = self._dynamic.nbytes // kind.itemsize * kind.itemsize
                made = self._dynamic[:whole].view(kind)
            else:
                made = np.empty(shape, kind)
            kept = SharedArray if kind.names is None else _SharedRecords
            found = self._arrays[place] = made.view(kept)
        return found

    def holds(self, address: int) -> bool:
        """Whether an array that lies here has an address."""
        for own in (*self._arrays.values(), self._dynamic):
            first = own.__array_interface__["data"][0]
            if first <= address < first + own.nbytes:
                return True
        return False


class _Shared:
    """``cuda.shared``."""

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        """An array of the block: all its threads get the same one.

        Args:
            shape: 0: all dynamic shared memory of the launch.
        """
        me: Any = getcurrent()
        frame = sys._getframe(1)
        found = me.block.shared.array((frame.f_code, frame.f_lasti), shape, dtype)
        checker = me.grid.checker
        return found if checker is None else checker.watch_shared(found)


class _Local:
    """``cuda.local``."""

    def array(self, shape: Any, dtype: Any, alignment: int | None = None) -> Any:
        """An array of the calling thread."""
        made = np.empty(shape, dtype_of(dtype))
        return made.view(ThreadMemory if made.dtype.names is None else _ThreadRecords)


class _Const:
    """``cuda.const``."""

    def array_like(self, ary: Any) -> Any:
        """An array of the same elements, which no thread can store to."""
        found = with_fields(np.asarray(ary)).view()
        found.flags.writeable = False
        return found


shared = _Shared()
local = _Local()
const = _Const()

__all__ = ["const", "local", "shared"]
