"""Arrays of the device, whose memory is the host's.

A program gets at their elements as on a GPU only: by copies to the host, by elements and slices,
and in kernels. Kernels get the NumPy array that is inside (``memory_of``).
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from device_lib.simulator.memory import dtype_of

#: Classes of arrays that another simulator has made before this one came, in ``_ary``.
adopted: tuple[type, ...] = ()


def memory_of(thing: Any) -> np.ndarray | None:
    """The NumPy array in an array of the device; None: the thing is none."""
    if isinstance(thing, DeviceArray):
        return thing._memory
    if isinstance(thing, MappedArray):
        return thing
    if isinstance(thing, adopted):
        return thing._ary  # type: ignore[no-any-return,attr-defined]
    return None


class _OnDevice:
    """What arrays of the device have beside NumPy's attributes."""

    __cuda_memory__ = True
    __cuda_ndarray__ = True
    stream: Any = 0

    @property
    def _all(self) -> np.ndarray:
        raise NotImplementedError

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        host = self._all.__array_interface__
        names = "shape", "strides", "typestr", "data"
        found = {name: host[name] for name in names}
        if self._all.dtype.names is not None:
            found["descr"] = host["descr"]
        return {**found, "stream": getattr(self.stream, "handle", None) or None, "version": 3}

    @property
    def alloc_size(self) -> int:
        """Bytes from the first element to behind the last one."""
        array = self._all
        reach = sum((n - 1) * abs(step) for n, step in zip(array.shape, array.strides))
        return reach + array.itemsize if array.size else 0

    @property
    def device_ctypes_pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._all.ctypes.data)

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Copies elements of an array in host or device memory here.

        Raises:
            TypeError: they are of another type.
            ValueError: the array has another shape.
        """
        found = memory_of(ary)
        source = np.asarray(ary) if found is None else found
        if self._all.size == 0:
            return
        _require_like("ary", source, self._all)
        self._all[...] = source

    def copy_to_host(self, ary: Any = None, stream: Any = 0) -> np.ndarray:
        """The elements, in a fresh array, or in ``ary``, which is what is returned then."""
        if ary is None:
            return np.array(self._all, order="K", subok=False)
        _require_like("ary", ary, self._all)
        ary[...] = self._all
        return ary  # type: ignore[no-any-return]


def _require_like(name: str, array: Any, other: np.ndarray) -> None:
    if array.dtype != other.dtype:
        raise TypeError(f"{name} has elements of {array.dtype}, allowed is {other.dtype}")
    if array.shape != other.shape:
        raise ValueError(f"{name} has the shape {array.shape}, allowed is {other.shape}")


class DeviceArray(_OnDevice):
    """What ``numba.cuda`` calls a DeviceNDArray.

    Args:
        memory: the elements.
    """

    def __init__(self, memory: np.ndarray, stream: Any = 0) -> None:
        self._memory = memory
        self.stream = stream

    shape = property(lambda self: self._memory.shape)
    strides = property(lambda self: self._memory.strides)
    dtype = property(lambda self: self._memory.dtype)
    ndim = property(lambda self: self._memory.ndim)
    size = property(lambda self: self._memory.size)
    nbytes = property(lambda self: self._memory.nbytes)
    itemsize = property(lambda self: self._memory.itemsize)
    flags = property(lambda self: self._memory.flags)

    @property
    def _all(self) -> np.ndarray:
        return self._memory

    def _view(self, memory: np.ndarray) -> DeviceArray:
        return DeviceArray(memory, self.stream)

    def _must_view(self, what: str, memory: np.ndarray) -> DeviceArray:
        if memory.size and not np.may_share_memory(memory, self._memory):
            raise NotImplementedError(f"{what} would copy the array: make a contiguous one of it")
        return self._view(memory)

    def bind(self, stream: Any = 0) -> DeviceArray:
        """The same array, of another stream."""
        return DeviceArray(self._memory, stream)

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceArray:
        found: np.ndarray = self._memory.reshape(*newshape, order=order)  # type: ignore[call-overload]
        return self._must_view("reshape", found)

    def ravel(self, order: Any = "C", stream: Any = 0) -> DeviceArray:
        return self._must_view("ravel", self._memory.ravel(order))

    def view(self, dtype: Any) -> DeviceArray:
        return self._view(self._memory.view(dtype_of(dtype)))

    def squeeze(self, axis: Any = None, stream: Any = 0) -> DeviceArray:
        return self._view(self._memory.squeeze(axis))

    def transpose(self, axes: Any = None) -> DeviceArray:
        """Transposed: a copy, as of a GPU, for other axes than their own order."""
        if self.ndim < 2 or (axes is not None and tuple(axes) == tuple(range(self.ndim))):
            return self
        if self.ndim > 2:
            raise NotImplementedError("transpose of more than two dimensions")
        return self._view(np.array(self._memory.transpose(axes), order="C"))

    @property
    def T(self) -> DeviceArray:
        return self.transpose()

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceArray]:
        """Views of ``section`` elements each, of an array of one dimension."""
        if self.ndim != 1:
            raise ValueError("split: allowed is an array of one dimension")
        for begin in range(0, self.size, section):
            yield self._view(self._memory[begin : begin + section])

    def is_c_contiguous(self) -> bool:
        return self._memory.flags.c_contiguous

    def is_f_contiguous(self) -> bool:
        return self._memory.flags.f_contiguous

    def __getitem__(self, item: Any) -> Any:
        found = self._memory[item]
        if isinstance(found, np.void):  # a record, which stays where it is
            return self._view(self._memory[(*(item if type(item) is tuple else (item,)), ...)])
        if isinstance(found, np.ndarray):
            return self._view(found) if found.ndim else found[()]
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        found = memory_of(value)
        self._memory[key] = value if found is None else found

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        return self[item]

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        self[key] = value

    def __len__(self) -> int:
        return len(self._memory)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array of the device is copied to the host, copy=False forbids it")
        return self.copy_to_host() if dtype is None else self.copy_to_host().astype(dtype)

    def __repr__(self) -> str:
        return f"<simulated device array: shape {self.shape}, {self.dtype}>"


class MappedArray(_OnDevice, np.ndarray):
    """Host memory that kernels use in place: ``mapped_array`` and ``managed_array``."""

    @property
    def _all(self) -> np.ndarray:
        return self.view(np.ndarray)


def _order_of(array: Any) -> str:
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def _empty(shape: Any, dtype: Any, strides: Any, order: str) -> np.ndarray:
    kind = dtype_of(dtype)
    extents = (operator.index(shape),) if not isinstance(shape, tuple | list) else tuple(shape)
    if strides is None:
        return np.empty(extents, kind, order=order)  # type: ignore[call-overload,no-any-return]
    steps = (strides,) if isinstance(strides, int) else tuple(strides)
    most = sum((n - 1) * step for n, step in zip(extents, steps)) + kind.itemsize
    return np.ndarray(extents, kind, np.empty(most, np.uint8), strides=steps)


def _empty_like(ary: Any) -> np.ndarray:
    found = memory_of(ary)
    return np.empty_like(ary if found is None else found, order="K", subok=False)


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
    """An array of the device with the elements of one of the host, or of anything that makes one.

    Args:
        copy: False: only its shape and type.
        to: an array of the device that gets the elements.
    """
    if to is not None:
        to.copy_to_device(obj, stream)
        return to
    if memory_of(obj) is not None:
        return obj
    if is_cuda_array(obj):
        return as_cuda_array(obj)
    host = np.asarray(obj)
    if not (host.flags.c_contiguous or host.flags.f_contiguous or 0 in host.strides):
        raise ValueError(
            "obj is no contiguous array, and only one is copied at once; allowed is "
            "numpy.ascontiguousarray(obj)"
        )
    order = _order_of(host)
    if not copy:
        return DeviceArray(np.empty(host.shape, host.dtype, order=order), stream)  # type: ignore[call-overload]
    return DeviceArray(np.array(host, order=order, subok=False), stream)  # type: ignore[call-overload]


def device_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0
) -> DeviceArray:
    """An array of the device, not cleared."""
    return DeviceArray(_empty(shape, dtype, strides, order), stream)


def device_array_like(ary: Any, stream: Any = 0) -> DeviceArray:
    return DeviceArray(_empty_like(ary), stream)


def pinned_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C"
) -> np.ndarray:
    """An array of the host, which has no pages to pin here."""
    return _empty(shape, dtype, strides, order)


def pinned_array_like(ary: Any) -> np.ndarray:
    return _empty_like(ary)


def mapped_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    portable: bool = False,
    wc: bool = False,
) -> MappedArray:
    """An array of the host that kernels use in place."""
    return _empty(shape, dtype, strides, order).view(MappedArray)


def mapped_array_like(
    ary: Any, stream: Any = 0, portable: bool = False, wc: bool = False
) -> MappedArray:
    return _empty_like(ary).view(MappedArray)


def managed_array(
    shape: Any,
    dtype: Any = np.float64,
    strides: Any = None,
    order: str = "C",
    stream: Any = 0,
    attach_global: bool = True,
) -> MappedArray:
    """An array of host and device."""
    return mapped_array(shape, dtype, strides, order)


@contextmanager
def pinned(*arylist: Any) -> Iterator[None]:
    """Does nothing: there are no pages to pin."""
    yield


@contextmanager
def mapped(*arylist: Any, stream: Any = 0) -> Iterator[Any]:
    """Arrays of the device in the memory of arrays of the host: one, or a list."""
    found = [DeviceArray(np.asarray(ary), stream) for ary in arylist]
    yield found[0] if len(found) == 1 else found


def is_cuda_array(obj: Any) -> bool:
    return hasattr(obj, "__cuda_array_interface__")


def from_cuda_array_interface(desc: dict[str, Any], owner: Any = None, sync: bool = True) -> Any:
    """An array of the device in the memory that a description names."""

    class Described:
        __array_interface__ = {**desc, "version": 3}
        kept = owner

    return DeviceArray(np.asarray(Described()))


def as_cuda_array(obj: Any, sync: bool = True) -> Any:
    """The same, of anything with ``__cuda_array_interface__``."""
    if memory_of(obj) is not None:
        return obj
    if not is_cuda_array(obj):
        raise TypeError(f"obj is a {type(obj).__name__}, allowed is an array of the device")
    return from_cuda_array_interface(obj.__cuda_array_interface__, obj)


__all__ = [
    "as_cuda_array", "device_array", "device_array_like", "from_cuda_array_interface",
    "is_cuda_array", "managed_array", "mapped", "mapped_array", "mapped_array_like", "pinned",
    "pinned_array", "pinned_array_like", "to_device",
]  # fmt: skip
