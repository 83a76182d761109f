"""``gmpi.pack`` and ``gmpi.unpack``: MPI's datatypes for device arrays, outside of kernels.

One launch a call, whatever the nesting of the datatype. Everything that depends on the datatype
and the count alone is prepared once and kept with the datatype (as an MPI attribute, so that it
goes when the datatype is freed); a call then fills in two addresses.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from device_lib.primitives import SIMULATOR
from gmpi.datatypes.plans import Plan, plan
from gmpi.errors import DatatypeError
from gmpi.pack_launch import Prepared
from gmpi.pack_memory import Memory

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


def _refuse_reach(found: Plan, count: int, memory: Memory, name: str) -> NoReturn:
    """The datatype leaves the array: says which segment does first."""
    where = found.first_outside(count, memory.low, memory.high)
    raise DatatypeError(
        f"{count} elements of the datatype leave {name}: {where}, of the buffer, which has bytes "
        f"{memory.low}..{memory.high}; pass a larger array, a lower count or a smaller datatype"
    )


def _refuse_packed(memory: Memory, nbytes: int, name: str) -> NoReturn:
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
    prepared = Prepared.of(found, count)
    if prepared.low < memory.low or prepared.high > memory.high:
        _refuse_reach(found, count, memory, "src")
    if out is None:
        out = _new_bytes(prepared.nbytes, src, stream)
    packed = Memory(out, "out")
    if packed.high < prepared.nbytes:
        _refuse_packed(packed, prepared.nbytes, "out")
    if prepared.nbytes:
        prepared.launch(memory.address, packed.address, False, stream)
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
    prepared = Prepared.of(found, count)
    if prepared.low < memory.low or prepared.high > memory.high:
        _refuse_reach(found, count, memory, "dst")
    source = Memory(packed, "packed")
    if source.high < prepared.nbytes:
        _refuse_packed(source, prepared.nbytes, "packed")
    if prepared.nbytes:
        prepared.launch(memory.address, source.address, True, stream)
    return dst
