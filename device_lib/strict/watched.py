"""Arrays of a kernel that tell of every access to an element.

Kernels of the simulator use NumPy arrays. Strict mode puts this wrapper around them, around
arguments, shared memory, and all views that a kernel makes of them. What
``GMPI_*`` calls do inside is not looked at: a call's own buffers are known from its arguments.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import numpy as np

from device_lib.simulator.atomics import OPERATIONS

READ, WRITE, ATOMIC, SAME = range(4)
_SHAPED = ("reshape", "ravel", "view", "transpose", "T")  # what gives a view


class Watcher(Protocol):
    """Who is told."""

    def access(self, how: int, address: int, size: int, frame: Any) -> None:
        """The running lane has read an element (READ), is about to store another value (WRITE) or
        the one that is there (SAME), or has updated it (ATOMIC)."""

    def step(self) -> None:
        """Behind an access, or several: another lane may run."""


class Watched:
    """A view of an array, or one record of it.

    Args:
        item: the NumPy array or record.
        watcher: is told of accesses.
    """

    __slots__ = ("_at", "_item", "_watcher")

    def __init__(self, item: Any, watcher: Watcher) -> None:
        object.__setattr__(self, "_item", item)
        object.__setattr__(self, "_watcher", watcher)
        object.__setattr__(self, "_at", item.__array_interface__["data"][0])

    # What kernels ask most.
    shape = property(lambda self: self._item.shape)
    strides = property(lambda self: self._item.strides)
    dtype = property(lambda self: self._item.dtype)
    size = property(lambda self: self._item.size)
    ndim = property(lambda self: self._item.ndim)

    def __len__(self) -> int:
        return len(self._item)

    def _view(self, found: Any) -> Any:
        if isinstance(found, np.ndarray | np.void):
            return type(self)(found, self._watcher)
        return found

    def __getattr__(self, name: str) -> Any:
        if name in _SHAPED:
            found = getattr(self._item, name)
            if name == "T":
                return self._view(found)
            return lambda *args, **named: self._view(found(*args, **named))
        fields = self._item.dtype.fields
        if fields is not None and name in fields:
            return self[name]
        return getattr(self._item, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value  # of a record

    def _place(self, index: Any) -> tuple[int, int] | None:
        """Address and size of one element; None: the index is not that of one."""
        item = self._item
        if isinstance(index, str):
            kind, at = item.dtype.fields[index][:2]
            return self._at + at, kind.itemsize
        indices = index if type(index) is tuple else (index,)
        if len(indices) != item.ndim:
            return None
        at = self._at
        for k, extent, stride in zip(indices, item.shape, item.strides):
            if isinstance(k, slice) or k is None or k is Ellipsis:
                return None
            k = int(k)
            at += (k if k >= 0 else k + extent) * stride
        return at, item.itemsize

    def __getitem__(self, index: Any) -> Any:
        item = self._item
        found = item[index]
        if isinstance(found, np.ndarray | np.void):
            return type(self)(found, self._watcher)
        at = self._place(index)
        if at is not None:
            self._watcher.access(READ, *at, sys._getframe(1))
            self._watcher.step()
        return found

    def __setitem__(self, index: Any, value: Any) -> None:
        frame = sys._getframe(1)
        if isinstance(value, Watched):
            value._whole(READ, frame)
            value = value._item
        item = self._item
        before = item[index]
        if isinstance(before, np.ndarray):
            Watched(before, self._watcher)._whole(WRITE, frame)
            item[index] = value
            return
        at = self._place(index)
        if at is None:
            item[index] = value
            return
        # No lane runs between the look at what is there and the store.
        self._watcher.access(WRITE if _differ(before, value) else SAME, *at, frame)
        item[index] = value
        self._watcher.step()

    def _whole(self, how: int, frame: Any) -> None:
        """Every element is read or written at once."""
        item = self._item
        places = np.zeros(1, np.int64)
        for extent, stride in zip(item.shape, item.strides):
            places = (places[:, None] + np.arange(extent) * stride).ravel()
        for at in places.tolist():
            self._watcher.access(how, self._at + at, item.itemsize, frame)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        for arg in args:
            if isinstance(arg, Watched):
                arg._whole(READ, frame)
        out = named.get("out")
        if out:
            for arg in out:
                if isinstance(arg, Watched):
                    arg._whole(WRITE, frame)
            named["out"] = tuple(getattr(arg, "_item", arg) for arg in out)
        plain = (arg._item if isinstance(arg, Watched) else arg for arg in args)
        return getattr(ufunc, method)(*plain, **named)


class WatchedShared(Watched):
    """One in shared memory, which some calls refuse."""

    __slots__ = ()


def _differ(before: Any, value: Any) -> bool:
    """Whether a store changes an element."""
    try:
        return not (before == value and type(before)(value) == before)
    except (TypeError, ValueError, OverflowError):
        return True


def told(watcher: Watcher) -> dict[str, Any]:
    """The operations of ``cuda.atomic``, of watched arrays, too."""
    return {
        name: _told(original, watcher, name == "compare_and_swap")
        for name, original in OPERATIONS.items()
    }


def _told(original: Any, watcher: Watcher, whole: bool) -> Any:
    """One operation; ``whole``: of an array of one element, without an index."""

    def atomic(array: Any, *rest: Any) -> Any:
        if not isinstance(array, Watched):
            return original(array, *rest)
        found = original(array._item, *rest)
        at = array._place((0,) * array.ndim if whole else rest[0])
        if at is not None:
            watcher.access(ATOMIC, *at, sys._getframe(1))
            watcher.step()
        return found

    return atomic
