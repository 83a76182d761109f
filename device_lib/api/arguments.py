"""What a call is given, looked at before it is compiled or run: what is wrong, and the cure.

Numba words a wrong argument in thirty lines, of which none names the call, and in the simulator it
fails somewhere below it. So the names that users call look first, on a GPU at the types while the
kernel is compiled, in the simulator at the values. What only a value can tell, such as a rank that
does not exist, is the proxy's to refuse.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from device_lib.platform.context import CONTEXTS
from gmpi.contract import constants
from gmpi.errors import UsageError

CONTEXT, ARRAY, INTEGER, TUPLE, NOTHING, OTHER, INTEGERS = range(7)  # the last: int32 or int64


class Kind(NamedTuple):
    """What one argument is: in which way it can be used, in words, and what it stands for."""

    use: int
    text: str
    value: Any = None  # of what is no number of kernels: the object itself
    dtype: Any = None  # of an array: NumPy's dtype of its elements
    strided: bool = False  # likewise: whether its elements do not lie in one piece


#: What collectives with counts for each rank take for each of them.
COUNTS = (
    "sendcounts", "sdispls", "sendtypes", "recvcounts", "rdispls", "recvtypes", "displs",
)  # fmt: skip
_ALLOWED = {
    "ctx": ((CONTEXT,), "Context.device"),
    "requests": ((ARRAY, TUPLE), "an int64 array, or a tuple of requests"),
    "status": ((TUPLE,), "the Status that a wait has returned"),
    "coords": ((ARRAY, TUPLE), "an array of integers"),
    "dims": ((ARRAY,), "an array of integers"),
    "periods": ((ARRAY,), "an array of integers"),
    "indices": ((ARRAY,), "an int64 array"),
    "array_of_partitions": ((INTEGERS,), "an array of int32 or int64"),
    **dict.fromkeys(COUNTS, ((INTEGERS,), "an array of int32 or int64, an element a block")),
    "statuses": ((ARRAY, INTEGER, NOTHING), "an array of gmpi.STATUS_DTYPE, or nothing"),
}
#: Calls that take only arrays in one piece for these.
_IN_ONE_PIECE = ("requests", "indices", "statuses")
_CALLS_IN_ONE_PIECE = ("GMPI_Startall", "GMPI_Testall", "GMPI_Testsome", "GMPI_Waitsome")
_BUFFER = ((ARRAY, INTEGER), "an array in device memory, or an address")
_NUMBER = ((INTEGER,), "an integer")
_DATATYPE = "a constant of gmpi such as gmpi.FLOAT, or a handle of Context.commit()"
_OPERATION = "a constant of gmpi such as gmpi.SUM, or a number of Context.op()"


def is_buffer(parameter: str) -> bool:
    """Whether a parameter of a call is a buffer, by its name."""
    return parameter.endswith(("buf", "_addr"))


def wants_one_piece(call: str) -> bool:
    """Whether a call takes its arrays of requests, indices and statuses in one piece only."""
    return call.removesuffix("_warp") in _CALLS_IN_ONE_PIECE


def allowed(parameter: str) -> tuple[tuple[int, ...], str]:
    """Ways in which a parameter of a call can be used, and what is allowed in words."""
    if is_buffer(parameter):
        return _BUFFER
    return _ALLOWED.get(parameter, _NUMBER)


def kind_of_value(value: Any) -> Kind:
    """Of what a kernel of the simulator passes, or of what a name in a kernel stands for."""
    if isinstance(value, CONTEXTS):
        return Kind(CONTEXT, "Context.device")
    if isinstance(value, int | np.integer | np.bool_):
        return Kind(INTEGER, str(value))
    if value is None:
        return Kind(NOTHING, "None")
    if isinstance(value, tuple):
        return Kind(TUPLE, "a tuple")
    if isinstance(value, float | np.floating):
        return Kind(OTHER, f"{value}, a float", value)
    if isinstance(value, ModuleType):
        return Kind(OTHER, f"the module {value.__name__}", value)
    if isinstance(value, MPI.Datatype | MPI.Op):
        return Kind(OTHER, f"mpi4py's {_name(value)}", value)
    if value is constants.AUTO:
        return Kind(OTHER, "gmpi.AUTO", value)
    if isinstance(value, MPI.Comm | MPI.Request | MPI.Status):
        return Kind(OTHER, f"mpi4py's {type(value).__name__}", value)
    if isinstance(value, type | np.dtype):
        return Kind(OTHER, f"NumPy's {_dtype_name(value)}", value)
    if hasattr(value, "strides"):
        return array_of(getattr(value, "dtype", None), _is_strided(value))
    return Kind(OTHER, f"a {type(value).__name__}", value)


def array_of(dtype: Any, strided: bool) -> Kind:
    """Of an array of this NumPy dtype."""
    text = "an array" if dtype is None else f"an array of {dtype}"
    if dtype is not None and np.dtype(dtype).kind in "iu" and np.dtype(dtype).itemsize in (4, 8):
        return Kind(INTEGERS, text, dtype=dtype, strided=strided)
    return Kind(ARRAY, text, dtype=dtype, strided=strided)


def _is_strided(array: Any) -> bool:
    """Whether elements of an array do not lie one right behind the other."""
    expected = getattr(getattr(array, "dtype", None), "itemsize", None)
    for extent, stride in zip(reversed(array.shape), reversed(array.strides)):
        if expected is None or (extent > 1 and stride != expected):
            return expected is not None
        expected *= extent
    return False


def _name(value: MPI.Datatype | MPI.Op) -> str:
    """``MPI.FLOAT``, as far as mpi4py has a name for it."""
    for name in dir(MPI):
        if name.isupper() and getattr(MPI, name) is value:
            return f"MPI.{name}"
    for name in dir(MPI):
        if name.isupper() and isinstance(found := getattr(MPI, name), type(value)):
            if found == value:
                return f"MPI.{name}"
    return f"{type(value).__name__}"


#: Where the array is whose elements ``AUTO`` is about, by parameter: the first that is an array.
_AUTO = {
    "datatype": ("buf", "sendbuf", "recvbuf", "origin_addr", "result_addr"),
    "sendtype": ("sendbuf", "recvbuf"),
    "recvtype": ("recvbuf", "sendbuf"),
    "origin_datatype": ("origin_addr", "result_addr"),
    "target_datatype": ("origin_addr", "result_addr"),
    "result_datatype": ("result_addr", "origin_addr"),
}


def _meant(parameter: str, kinds: dict[str, Kind]) -> int | None:
    """The number that stands for an object of mpi4py's, or for ``AUTO``; None: there is none."""
    value = kinds[parameter].value
    if isinstance(value, MPI.Datatype) and parameter.endswith("type"):
        return constants.number_of(value)
    if isinstance(value, MPI.Op) and parameter == "op":
        return constants.number_of(value)
    if value is constants.AUTO:
        found = (kinds[name].dtype for name in _AUTO.get(parameter, ()) if name in kinds)
        dtype = next((d for d in found if d is not None), None)
        try:
            return None if dtype is None else constants.datatype_of(dtype)
        except TypeError:
            return None
    return None


def _dtype_name(value: Any) -> str:
    try:
        return str(np.dtype(value))
    except TypeError:
        return str(value)


def _cure(parameter: str, kind: Kind) -> str:
    """What to write instead; empty: what is allowed says it."""
    value = kind.value
    if parameter == "ctx":
        return "kernel[...](g.device, ...) and def kernel(ctx, ...): ctx comes first in each call"
    if kind.use == CONTEXT:
        return "ctx comes first, and once"
    if isinstance(value, MPI.Datatype) and parameter.endswith("type"):
        return "make a handle outside of the kernel, h = g.commit(datatype), and pass h"
    if value is constants.AUTO:
        return "AUTO needs a buffer that is an array, of elements that MPI has a datatype for"
    if isinstance(value, MPI.Op) and parameter == "op":
        return "make a number outside of the kernel, n = g.op(op), and pass n"
    if isinstance(value, MPI.Comm):
        return (
            "register it outside of the kernel, h = g.comm(comm), and pass h; gmpi.COMM_WORLD is "
            "the communicator of the context"
        )
    if parameter.endswith("type") and isinstance(value, type | np.dtype):
        try:
            handle = constants.datatype_of(value)
        except TypeError:
            return ""
        return f"pass gmpi.{constants.DATATYPE_NAMES[handle]}"
    if isinstance(value, float | np.floating):
        return "make an integer of it with int()"
    return ""


def complaint(call: str, parameter: str, kind: Kind) -> str:
    """What is wrong with one argument of a call, in one line; empty: nothing."""
    uses, words = allowed(parameter)
    if kind.use in uses or (kind.use == INTEGERS and ARRAY in uses):
        if kind.strided and parameter in _IN_ONE_PIECE and wants_one_piece(call):
            return (
                f"{call}: {parameter} is a strided view, allowed is an array in one piece; copy it "
                "into one"
            )
        return ""
    if parameter.endswith("type"):
        words = _DATATYPE
    if parameter == "op":
        words = _OPERATION
    cure = _cure(parameter, kind)
    return f"{call}: {parameter} is {kind.text}, allowed is {words}{cure and '; '}{cure}"


def check(
    call: str,
    signature: inspect.Signature,
    given: tuple[Any, ...],
    named: dict[str, Any],
    kind_of: Callable[[Any], Kind],
) -> None:
    """Looks at the arguments of one call.

    Args:
        given, named: types or values.
        kind_of: what one of these is.

    Raises:
        UsageError: one cannot be used, is missing, or is one too many.
    """
    names = list(signature.parameters)
    kinds = {name: kind_of(argument) for name, argument in [*zip(names, given), *named.items()]}
    for parameter in kinds:
        # The first that is wrong: where ctx is missing, all others are in the wrong place, too.
        if parameter in signature.parameters and _meant(parameter, kinds) is None:
            text = complaint(call, parameter, kinds[parameter])
            if text:
                raise UsageError(text)
    try:
        signature.bind(*given, **named)
    except TypeError as exc:
        raise UsageError(f"{call}: {exc}; it is {call}({', '.join(names)})") from None


def numbered(
    signature: inspect.Signature,
    given: tuple[Any, ...],
    named: dict[str, Any],
    kind_of: Callable[[Any], Kind],
    make: Callable[[int], Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that ``check`` has let through, with numbers for what is of mpi4py, and ``AUTO``.

    Args:
        given, named, kind_of: as for ``check``.
        make: what is put in place of such an argument, from its number.
    """
    names = list(signature.parameters)
    kinds = {name: kind_of(argument) for name, argument in [*zip(names, given), *named.items()]}
    found = {name: _meant(name, kinds) for name, kind in kinds.items() if kind.use == OTHER}
    numbers = {name: make(number) for name, number in found.items() if number is not None}
    return (
        tuple(numbers.get(name, argument) for name, argument in zip(names, given)),
        {name: numbers.get(name, argument) for name, argument in named.items()},
    )
