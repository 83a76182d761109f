"""The memory behind an argument of ``gmpi.pack``: where it is and how far it reaches."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from mpi4py import MPI

from device_lib.platform.primitives import SIMULATOR

_UNLIMITED = 1 << 62
_Span = tuple[int, int, int]
# __cuda_array_interface__ takes 2 to 5 us: the usual classes are asked directly.
_readers: dict[type, Callable[[Any], _Span | None]] = {}


def span_of(thing: Any, name: str) -> _Span:
    """(address, low, high) of the memory behind an argument.

    The address of its first element, and the bytes ``low..high`` around that address that belong
    to it.
    """
    reader = _readers.get(type(thing))
    if reader is None:
        reader = _readers[type(thing)] = _reader_of(type(thing))
    return reader(thing) or _read_interface(thing, name)


def _read_interface(thing: Any, name: str) -> _Span:
    interface = getattr(thing, "__cuda_array_interface__", None)
    if SIMULATOR and interface is None:
        interface = getattr(thing, "__array_interface__", None)
    if interface is None:
        what = "NumPy array in host memory" if isinstance(thing, np.ndarray) else type(thing)
        raise TypeError(
            f"{name} is a {what}; pass a device array (CuPy, Numba or any object with "
            "__cuda_array_interface__), or MPI.BOTTOM for absolute addresses"
        )
    address = interface["data"][0] or 0
    itemsize = np.dtype(interface["typestr"]).itemsize
    shape, strides = interface["shape"], interface.get("strides")
    if 0 in shape:
        return address, 0, 0
    if strides is None:
        return address, 0, itemsize * prod(shape)
    steps = [(n - 1) * stride for n, stride in zip(shape, strides)]
    low = sum(step for step in steps if step < 0)
    return address, low, sum(step for step in steps if step > 0) + itemsize


def _reader_of(kind: type) -> Callable[[Any], _Span | None]:
    """What reads spans of a class; ``None`` comes back where it cannot."""
    if kind is type(None) or kind is type(MPI.BOTTOM):
        return _read_nothing
    if not SIMULATOR and kind.__name__ == "ndarray" and kind.__module__.startswith("cupy"):
        return _read_cupy
    if not SIMULATOR and kind.__name__ == "DeviceNDArray" and "numba" in kind.__module__:
        return _read_numba
    return _read_other


def _read_nothing(nothing: Any) -> _Span:
    """Absolute addresses."""
    return 0, -_UNLIMITED, _UNLIMITED


def _read_cupy(array: Any) -> _Span | None:
    # Not ``flags``, which makes an object for each array that is asked: 0.2 us.
    if array._c_contiguous or array._f_contiguous:
        return array.data.ptr, 0, array.nbytes
    return None


def _read_numba(array: Any) -> _Span | None:
    flags = array.flags
    if flags["C_CONTIGUOUS"] or flags["F_CONTIGUOUS"]:
        return array.device_ctypes_pointer.value or 0, 0, array.nbytes
    return None


def _read_other(thing: Any) -> None:
    """Anything with ``__cuda_array_interface__``."""
