"""The memory behind an argument of ``gmpi.pack``: where it is and how far it reaches."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI

from device_lib.primitives import SIMULATOR

_UNLIMITED = 1 << 62
# __cuda_array_interface__ takes 2 to 5 us: the usual classes are asked directly.
_readers: dict[type, Callable[[Any], tuple[int, int]] | None] = {}


class Memory:
    """The memory behind an argument.

    Attributes:
        address: of its first element.
        low, high: the bytes around that address that belong to it.
    """

    __slots__ = ("address", "high", "low")

    def __init__(self, thing: Any, name: str) -> None:
        self.low = self.high = 0
        kind = type(thing)
        reader = _readers[kind] if kind in _readers else _reader_of(kind)
        if reader is not None:
            self.address, self.high = reader(thing)
            if self.high >= 0:
                return
        if thing is None or thing is MPI.BOTTOM:
            self.address, self.low, self.high = 0, -_UNLIMITED, _UNLIMITED
            return
        self._read_interface(thing, name)

    def _read_interface(self, thing: Any, name: str) -> None:
        array = getattr(thing, "_ary", thing) if SIMULATOR else thing
        interface = getattr(array, "__cuda_array_interface__", None)
        if SIMULATOR and interface is None:
            interface = getattr(array, "__array_interface__", None)
        if interface is None:
            kind = "NumPy array in host memory" if isinstance(thing, np.ndarray) else type(thing)
            raise TypeError(
                f"{name} is a {kind}; pass a device array (CuPy, Numba or any object with "
                "__cuda_array_interface__), or MPI.BOTTOM for absolute addresses"
            )
        self.address = interface["data"][0] or 0
        itemsize = np.dtype(interface["typestr"]).itemsize
        shape, strides = interface["shape"], interface.get("strides")
        self.low = self.high = 0
        if 0 in shape:
            return
        if strides is None:
            self.high = itemsize * prod(shape)
            return
        for n, stride in zip(shape, strides):
            self.low += min(0, (n - 1) * stride)
            self.high += max(0, (n - 1) * stride)
        self.high += itemsize


def _reader_of(kind: type) -> Callable[[Any], tuple[int, int]] | None:
    """(object) -> (address, bytes), -1 bytes where it is not contiguous; for known classes."""
    found = None
    if not SIMULATOR and kind.__name__ == "ndarray" and kind.__module__.startswith("cupy"):
        found = _read_cupy
    elif not SIMULATOR and kind.__name__ == "DeviceNDArray" and "numba" in kind.__module__:
        found = _read_numba
    _readers[kind] = found
    return found


def _read_cupy(array: Any) -> tuple[int, int]:
    flags = array.flags
    if flags.c_contiguous or flags.f_contiguous:
        return array.data.ptr, array.nbytes
    return 0, -1


def _read_numba(array: Any) -> tuple[int, int]:
    flags = array.flags
    if flags["C_CONTIGUOUS"] or flags["F_CONTIGUOUS"]:
        return array.device_ctypes_pointer.value or 0, array.nbytes
    return 0, -1
