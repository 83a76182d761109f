"""``gmpi.pack`` and ``gmpi.unpack``: MPI's datatypes for device arrays, outside of kernels.

One launch a call, whatever the nesting of the datatype, or one copy, where that is quicker
(``copies``). Everything that depends on the datatype and the count alone is prepared once and kept
with the datatype (as an MPI attribute, so that it goes when the datatype is freed); a call then
fills in two addresses.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from mpi4py import MPI

from device_lib.platform.primitives import SIMULATOR
from gmpi.datatypes.plans import Plan, plan
from gmpi.errors import DatatypeError
from gmpi.packing.driver import device_number
from gmpi.packing.memory import span_of
from gmpi.packing.prepare import Prepared

_keyval = MPI.KEYVAL_INVALID
# By handle of the datatype. Who frees a datatype takes its plan away before its handle can be
# another one's: the end of an MPI attribute says so.
_plans: dict[int, Plan] = {}


def plan_of(datatype: MPI.Datatype) -> Plan:
    """``plan(datatype)``, made once for each datatype."""
    global _keyval
    found = _plans.get(datatype.handle)
    if found is None:
        if _keyval == MPI.KEYVAL_INVALID:
            _keyval = MPI.Datatype.Create_keyval(delete_fn=_forget)
        found = plan(datatype)
        datatype.Set_attr(_keyval, datatype.handle)
        _plans[datatype.handle] = found
    return found


def _forget(datatype: MPI.Datatype, keyval: int, handle: int) -> None:
    _plans.pop(handle, None)


def prepared_of(datatype: MPI.Datatype, count: int) -> Prepared:
    """What launches need, prepared once for each datatype, count and device."""
    known = plan_of(datatype)
    device = device_number()
    prepared: Prepared | None = known.prepared.get((device, count))
    if prepared is None:
        if count < 0:
            raise ValueError(f"count is {count}, allowed is 0 and up")
        prepared = known.prepared[device, count] = Prepared.of(known, count, device)
    return prepared


def _refuse_reach(datatype: MPI.Datatype, count: int, low: int, high: int, name: str) -> NoReturn:
    """The datatype leaves the array: says which segment does first."""
    where = plan_of(datatype).first_outside(count, low, high)
    raise DatatypeError(
        f"{count} elements of the datatype leave {name}: {where}, of the buffer, which has bytes "
        f"{low}..{high}; pass a larger array, a lower count or a smaller datatype"
    )


def _refuse_packed(room: int, nbytes: int, name: str) -> NoReturn:
    raise DatatypeError(
        f"{name} has {room} bytes, the packed data has {nbytes}: pass an array of at "
        f"least {nbytes} bytes"
    )


def _new_bytes(nbytes: int, like: Any) -> Any:
    """An uninitialised uint8 array of the kind that the caller uses."""
    if SIMULATOR and isinstance(like, np.ndarray):
        return np.empty(nbytes, np.uint8)
    if type(like).__module__.partition(".")[0] == "cupy":
        import cupy

        return cupy.empty(nbytes, cupy.uint8)
    from numba import cuda

    return cuda.device_array(nbytes, np.uint8)


def pack(
    src: Any,
    datatype: MPI.Datatype,
    count: int = 1,
    out: Any = None,
    stream: Any = None,
    engine: str = "auto",
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
        engine: what moves the bytes: ``"kernel"``, ``"copy"`` (the copy engine, for blocks at one
            or two regular strides), or ``"auto"``, whichever is quicker for this layout.

    Returns:
        ``out``, or a new uint8 array of the kind of ``src`` (CuPy or Numba).

    Raises:
        DatatypeError: the datatype is not supported or leaves ``src``, or ``out`` is too small.
        ValueError: there is no such engine, or the copy engine cannot do it.
    """
    prepared = prepared_of(datatype, count)
    user, low, high = span_of(src, "src")
    if prepared.low < low or prepared.high > high:
        _refuse_reach(datatype, count, low, high, "src")
    nbytes = prepared.nbytes
    if out is None:
        out = _new_bytes(nbytes, src)
    packed, _, room = span_of(out, "out")
    if room < nbytes:
        _refuse_packed(room, nbytes, "out")
    if nbytes:
        prepared.launch(user, packed, False, stream, engine)
    return out


def unpack(
    packed: Any,
    datatype: MPI.Datatype,
    dst: Any,
    count: int = 1,
    stream: Any = None,
    engine: str = "auto",
) -> Any:
    """Unpacks contiguous bytes to where ``count`` elements of a datatype lie (MPI 4.1 section 5.2).

    Bytes of ``dst`` outside the type map are not written. Where elements of the datatype overlap,
    MPI leaves the result undefined, and so does this. Arguments as for ``pack``.

    Returns:
        ``dst``.
    """
    prepared = prepared_of(datatype, count)
    user, low, high = span_of(dst, "dst")
    if prepared.low < low or prepared.high > high:
        _refuse_reach(datatype, count, low, high, "dst")
    source, _, room = span_of(packed, "packed")
    if room < prepared.nbytes:
        _refuse_packed(room, prepared.nbytes, "packed")
    if prepared.nbytes:
        prepared.launch(user, source, True, stream, engine)
    return dst
