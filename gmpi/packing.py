"""``gmpi.pack`` and ``gmpi.unpack``: MPI's datatypes for device arrays, outside of kernels.

One launch a call, whatever the nesting of the datatype. Everything that depends on the datatype
and the count alone is prepared once and kept with the datatype (as an MPI attribute, so that it
goes when the datatype is freed); a call then fills in two addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from device_lib.primitives import SIMULATOR
from gmpi.datatypes.plans import Plan, plan
from gmpi.errors import DatatypeError
from gmpi.pack_launch import Prepared

_UNLIMITED = 1 << 62
_keyval = MPI.KEYVAL_INVALID


def plan_of(datatype: MPI.Datatype) -> Plan:
    """``plan(datatype)``, made once for each datatype."""
    global _keyval
    if _keyval == MPI.KEYVAL_INVALID:
        _keyval = MPI.Datatype.Create_keyval()
    known: Any = datatype.Get_attr(_keyval) if datatype != MPI.DATATYPE_NULL else None
    if known is None:
        known = plan(datatype)
        datatype.Set_attr(_keyval, known)
    found: Plan = known
    return found


class Memory:
    """The memory behind an argument.

    Attributes:
        address: of its first element.
        low, high: the bytes around that address that belong to it.
        owner: the object itself, ``None`` for BOTTOM.
    """

    def __init__(self, thing: Any, name: str) -> None:
        self.owner = thing
        self.low, self.high = 0, 0
        if thing is None or thing is MPI.BOTTOM:
            self.owner = None
            self.address, self.low, self.high = 0, -_UNLIMITED, _UNLIMITED
            return
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
        if 0 in shape:
            return
        if strides is None:
            self.high = itemsize * int(np.prod(shape, dtype=np.int64))
            return
        for n, stride in zip(shape, strides):
            self.low += min(0, (n - 1) * stride)
            self.high += max(0, (n - 1) * stride)
        self.high += itemsize


def _check_reach(found: Plan, count: int, memory: Memory, name: str) -> None:
    """Refuses a datatype that leaves the array, naming the first segment that does."""
    low, high = found.reach(count)
    if low >= memory.low and high <= memory.high:
        return
    where = found.first_outside(count, memory.low, memory.high)
    raise DatatypeError(
        f"{count} elements of the datatype leave {name}: {where}, of the buffer, which has bytes "
        f"{memory.low}..{memory.high}; pass a larger array, a lower count or a smaller datatype"
    )


def _check_packed(memory: Memory, nbytes: int, name: str) -> None:
    if memory.high < nbytes:
        raise DatatypeError(
            f"{name} has {memory.high} bytes, the packed data has {nbytes}: pass an array of at "
            f"least {nbytes} bytes"
        )


def _check_count(count: int) -> None:
    if count < 0:
        raise ValueError(f"count is {count}, allowed is 0 and up")


def _new_bytes(nbytes: int, like: Any, stream: Any) -> Any:
    """An uninitialised uint8 array of the kind that the caller uses."""
    if SIMULATOR and isinstance(like, np.ndarray):
        return np.empty(nbytes, np.uint8)
    if type(like).__module__.partition(".")[0] == "cupy":
        import cupy

        return cupy.empty(nbytes, cupy.uint8)
    from numba import cuda

    return cuda.device_array(nbytes, np.uint8)


def pack(
    src: Any, datatype: MPI.Datatype, count: int = 1, out: Any = None, stream: Any = None
) -> Any:
    """Packs ``count`` elements of a datatype into contiguous bytes (MPI 4.1 section 5.2).

    Host only; asynchronous, in order on the stream.

    Args:
        src: device array whose first element is the buffer's address, or MPI.BOTTOM for datatypes
            of absolute addresses. NumPy arrays in the simulator.
        datatype: any mpi4py datatype over C types; it need not be committed.
        count: number of elements.
        out: contiguous device array of at least ``datatype.Get_size() * count`` bytes; by default
            a new one.
        stream: CuPy or Numba stream, or its integer handle; the default stream by default.

    Returns:
        ``out``, or a new uint8 array of the kind of ``src`` (CuPy or Numba).

    Raises:
        DatatypeError: the datatype is not supported or leaves ``src``, or ``out`` is too small.
    """
    _check_count(count)
    found = plan_of(datatype)
    memory = Memory(src, "src")
    _check_reach(found, count, memory, "src")
    nbytes = found.size * count
    if out is None:
        out = _new_bytes(nbytes, src, stream)
    packed = Memory(out, "out")
    _check_packed(packed, nbytes, "out")
    if nbytes:
        Prepared.of(found, count).launch(memory.address, packed.address, False, stream)
    return out


def unpack(
    packed: Any, datatype: MPI.Datatype, dst: Any, count: int = 1, stream: Any = None
) -> Any:
    """Unpacks contiguous bytes to where ``count`` elements of a datatype lie (MPI 4.1 section 5.2).

    Bytes of ``dst`` outside the type map are not written. Where elements of the datatype overlap,
    MPI leaves the result undefined, and so does this. Arguments as for ``pack``.

    Returns:
        ``dst``.
    """
    _check_count(count)
    found = plan_of(datatype)
    memory = Memory(dst, "dst")
    _check_reach(found, count, memory, "dst")
    source = Memory(packed, "packed")
    nbytes = found.size * count
    _check_packed(source, nbytes, "packed")
    if nbytes:
        Prepared.of(found, count).launch(memory.address, source.address, True, stream)
    return dst
