"""Buffers of the host's calls: an array, or what mpi4py calls a buffer specification.

The protocol moves packed bytes. Elements that lie in one piece are sent from, and received into,
the user's memory; others are packed when a send starts and unpacked when a receive is complete.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

from gmpi.contract import constants
from gmpi.datatypes import interpret
from gmpi.datatypes.overlap import distinct_elements
from gmpi.datatypes.plans import Plan
from gmpi.errors import DatatypeError
from gmpi.fault_words import view_words
from gmpi.host.arguments import Argument
from gmpi.packing.calls import plan_of

Plans = Callable[[], Mapping[int, Plan]]
_FORMS = "buf, [buf, datatype], [buf, count], or [buf, count or None, datatype]"


class HostBuffer:
    """One argument of a host's call.

    Args:
        spec: NumPy array or another object with a contiguous buffer in host memory; or a list or
            tuple of it, a count (or a pair of count and displacement, in elements; None: as many
            as it has), and a datatype. The datatype is mpi4py's, committed or not, a type code, a
            handle (a constant of ``gmpi`` or from ``Context.commit``), or ``gmpi.AUTO``, which is
            as if there were none. ``MPI.BOTTOM`` goes with datatypes of absolute addresses.
        name: which argument it is.
        writable: bytes are to come in.
        plans: gives the derived datatypes that the context has committed, by handle.
        blocks: of a collective: a count is that of one of so many blocks, as in mpi4py.

    Attributes:
        data: uint8[nbytes], the packed bytes that travel.
        nbytes: how many these are.
        itemsize: bytes of one element of the datatype.
        datatype: the datatype; None: that of the array.
        element: what one element is: a datatype, a NumPy dtype, or None for a committed datatype.
        count: number of elements.
    """

    # long: all forms that mpi4py takes
    def __init__(
        self, spec: Any, name: Argument, writable: bool, plans: Plans, blocks: int = 1
    ) -> None:
        buf, count, displacement, datatype = _parts(spec, name)
        if count is not None:
            count *= blocks
        self.datatype, plan = datatype_of_host(datatype, name, plans)
        if isinstance(buf, MPI.BottomType):
            if plan is None or count is None:
                needs = "[MPI.BOTTOM, count, datatype]"
                raise name.refused(f"{name} is BOTTOM, which needs {needs}", spec, needs)
            memory, itemsize = np.empty(0, np.uint8), 0
            self.element: Any = self.datatype
        else:
            array = contiguous_array(buf, name, writable)
            memory, itemsize = array.view(np.uint8), array.itemsize
            self.element = self.datatype if plan is not None else array.dtype
        origin = 0  # index in the memory of the address that displacements count from
        self._plan: Plan | None = None
        if plan is None:
            self.itemsize = itemsize
            origin += displacement * itemsize
            whole = memory.nbytes // max(itemsize, 1) - displacement
            self.count = whole if count is None else count
            low, high = 0, self.count * itemsize
            outside = f"bytes {displacement * itemsize}..{origin + high}"
        else:
            self.itemsize = plan.size
            origin += displacement * plan.extent
            if count is None:
                count = _count_of(plan, memory.nbytes, name) - displacement
            self.count = count
            low, high = plan.reach(self.count)
            outside = ""
        if isinstance(buf, MPI.BottomType):
            memory, origin = absolute(low + origin, high + origin), -low
        if origin + low < 0 or origin + high > memory.nbytes:
            if plan is not None:
                outside = plan.first_outside(self.count, -origin, memory.nbytes - origin)
            elif self.count in constants.DATATYPE_NAMES:
                raise name.refused(
                    f"{name} is [buf, {self.count}], where the second is a count; to pass the "
                    f"handle gmpi.{constants.DATATYPE_NAMES[self.count]}, "
                    "write [buf, None, handle]",
                    self.count,
                    _FORMS,
                    MPI.ERR_COUNT,
                )
            raise DatatypeError(
                f"{self.count} elements of the datatype leave {name}: {outside}, of the buffer, "
                f"which has bytes {-origin}..{memory.nbytes - origin}; pass a larger array, a "
                "lower count or a smaller datatype"
            )
        if plan is None or plan.is_contiguous:
            self.data = memory[origin + low : origin + high]
        else:
            if writable:
                _require_distinct(plan, self.count, name)
            self._plan, self._memory, self._origin = plan, memory, origin
            if writable:
                self.data = np.empty(plan.size * self.count, np.uint8)
            else:
                self.pack()
        self.nbytes = self.data.nbytes

    def pack(self) -> None:
        """Fills ``data`` from the user's memory, where they are not the same."""
        if self._plan is not None:
            self.data = interpret.pack(self._plan, self._memory, self.count, self._origin)

    def unpack(self, nbytes: int) -> None:
        """The reverse, of the first ``nbytes`` of ``data``."""
        if self._plan is not None:
            packed = self.data[:nbytes]
            interpret.unpack(self._plan, packed, self._memory, self.count, self._origin)


def is_in_place(buf: Any) -> bool:
    """Whether an argument is ``gmpi.IN_PLACE``, or mpi4py's."""
    return isinstance(buf, int) and buf in (constants.IN_PLACE, int(MPI.IN_PLACE))


def _require_distinct(plan: Plan, count: int, name: Argument) -> None:
    if count > distinct_elements(plan):
        raise DatatypeError(
            f"{count} elements of the datatype of {name} overlap, and MPI forbids to receive into "
            "overlapping elements; receive fewer, or another datatype"
        )


def _parts(spec: Any, name: Argument) -> tuple[Any, int | None, int, Any]:
    """(buffer, count or None, displacement, datatype or None)."""
    if not isinstance(spec, (list, tuple)):
        return spec, None, 0, None
    if not 1 <= len(spec) <= 3:
        raise name.refused(
            f"{name} is a sequence of {len(spec)}, allowed is {_FORMS}", spec, _FORMS
        )
    buf, rest = spec[0], list(spec[1:])
    datatype = None
    if len(rest) == 2 or (rest and isinstance(rest[0], (MPI.Datatype, str, constants.Auto))):
        datatype = rest.pop()
        if datatype is constants.AUTO:
            datatype = None
    amount = rest.pop() if rest else None
    displacement = 0
    if isinstance(amount, (list, tuple)):
        if len(amount) != 2:
            allowed = "(count, displacement)"
            text = f"the count of {name} is {amount!r}, allowed is {allowed}"
            raise name.refused(text, amount, allowed, MPI.ERR_COUNT)
        amount, displacement = amount[0], _whole(amount[1], "displacement", name)
    count = None if amount is None else _whole(amount, "count", name)
    return buf, count, displacement, datatype


def _whole(value: Any, what: str, name: Argument) -> int:
    if not isinstance(value, (int, np.integer)):
        text = f"the {what} of {name} is {type(value).__name__}"
        allowed = f"a whole number: {_FORMS}"
        raise name.has_wrong_type(f"{text}, allowed is {allowed}", value, allowed, MPI.ERR_COUNT)
    if value < 0:
        text = f"the {what} of {name} is {value}, allowed is 0 and up"
        raise name.refused(text, value, "0 and up", MPI.ERR_COUNT)
    return int(value)


def datatype_of_host(
    datatype: Any, name: Argument, plans: Plans
) -> tuple[MPI.Datatype | None, Plan | None]:
    """(mpi4py's datatype if it is known, its plan); the array's own when None is given."""
    if datatype is None:
        return None, None
    if isinstance(datatype, str):
        datatype = _of_code(datatype, name)
    if isinstance(datatype, MPI.Datatype):
        return datatype, plan_of(datatype)
    if isinstance(datatype, (int, np.integer)):
        handle = int(datatype)
        if handle in constants.DATATYPE_NAMES and handle & ~0xFFFF == constants.DATATYPE_MARK:
            known = constants.DATATYPES[handle & 0xFF][1]
            return known, plan_of(known)
        committed = plans()
        if handle in committed:
            return None, committed[handle]
        raise DatatypeError(
            f"the datatype of {name} is {handle:#x}, allowed is a constant such as gmpi.FLOAT or a "
            "handle of Context.commit(); this one was freed, or never committed in this context"
        )
    allowed = "an mpi4py datatype, a type code, or a handle such as gmpi.FLOAT"
    text = f"the datatype of {name} is {type(datatype).__name__}, allowed is {allowed}"
    raise name.has_wrong_type(text, datatype, allowed, MPI.ERR_TYPE)


def _of_code(code: str, name: Argument) -> MPI.Datatype:
    try:
        return MPI.Datatype.fromcode(code)
    except (KeyError, ValueError):
        allowed = "a type code such as 'd'"
        text = f"the datatype of {name} is {code!r}, allowed is {allowed}, or a datatype"
        raise name.refused(text, code, allowed, MPI.ERR_TYPE) from None


def absolute(low: int, high: int) -> np.ndarray:
    """Host memory from address ``low`` to ``high``."""
    if low == high:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))


def _count_of(plan: Plan, room: int, name: Argument) -> int:
    """How many elements a buffer of ``room`` bytes has; as mpi4py, only if it is a whole number."""
    if plan.extent <= 0 or room % plan.extent:
        raise name.refused(
            f"{name} has {room} bytes, no multiple of the datatype's extent of {plan.extent}: "
            "say how many elements, [buf, count, datatype]",
            room,
            f"a multiple of {plan.extent}",
            MPI.ERR_COUNT,
        )
    return room // plan.extent


def contiguous_array(buf: Any, name: Argument, writable: bool, derived: bool = True) -> np.ndarray:
    """The buffer as an array of one dimension, without a copy.

    Args:
        derived: whether the call takes derived datatypes.
    """
    if isinstance(buf, np.ndarray):
        array = buf
    else:
        try:
            array = np.frombuffer(buf, np.uint8)
        except (TypeError, BufferError, ValueError):
            allowed = "a NumPy array or another object with a buffer in host memory"
            raise name.has_wrong_type(
                f"{name} is {type(buf).__name__}, allowed is {allowed}, or a sequence of it, a "
                "count and a datatype; GPU arrays must be copied to the host first",
                buf,
                allowed,
            ) from None
    if array.dtype.hasobject:
        raise name.has_wrong_type(
            f"{name} is an array of Python objects, allowed are numbers: objects mean nothing in "
            "another process",
            buf,
            "an array of numbers",
            MPI.ERR_TYPE,
        )
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        view = view_words(array.shape, array.strides, array.itemsize)
        allowed = "a contiguous array"
        raise name.refused(
            f"{name} is {view}, allowed is {allowed}; {_cure(name, writable, derived)}",
            buf,
            allowed,
        )
    if writable and not array.flags.writeable:
        raise name.refused(f"{name} is read-only: pass a writable array", buf, "a writable array")
    return array.reshape(-1, order="A")


def _cure(name: Argument, writable: bool, derived: bool) -> str:
    """What to do with a view whose elements do not lie in one piece."""
    cure = f"pass numpy.ascontiguousarray({name})"
    if writable:  # what comes must not go to a copy that nobody has
        cure = "receive into an array of its own and copy that to the view"
    if derived:
        cure += ", or pass [the whole array, count, a derived datatype]"
    return cure


def reduced_array(buf: Any, name: Argument, writable: bool) -> np.ndarray:
    """The array of a reduction: one whose dtype is a predefined datatype."""
    if isinstance(buf, (list, tuple)):
        raise DatatypeError(
            f"{name} is a {type(buf).__name__}, allowed is a NumPy array, whose dtype is the "
            "datatype of the reduction"
        )
    array = contiguous_array(buf, name, writable, derived=False)
    try:
        constants.datatype_of(array.dtype)
    except TypeError:
        allowed = "an array whose dtype is a predefined datatype"
        text = f"{name} has dtype {array.dtype}, allowed is {allowed}"
        raise name.has_wrong_type(text, buf, allowed, MPI.ERR_TYPE) from None
    return array


def require_alike(name: Argument, source: np.ndarray, result: np.ndarray) -> None:
    """Both arrays of a reduction have as many elements of the same datatype."""
    if source.nbytes != result.nbytes:
        text = f"{name} has {source.nbytes} bytes, recvbuf {result.nbytes}: make them equal"
        raise name.refused(text, source.nbytes, f"{result.nbytes} bytes", MPI.ERR_COUNT)
    if source.dtype != result.dtype:
        text = f"{name} has dtype {source.dtype}, recvbuf {result.dtype}: make them equal"
        raise name.refused(text, source.dtype, str(result.dtype), MPI.ERR_TYPE)
