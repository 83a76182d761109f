"""What a call is given, looked at before it is compiled or run: what is wrong, and the cure.

Numba words a wrong argument in thirty lines, of which none names the call, and in the simulator it
fails somewhere below it. So the names that users call look first, on a GPU at the types while the
kernel is compiled, in the simulator at the values. What only a value can tell, such as a rank that
does not exist, is the proxy's to refuse.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from device_lib.platform.context import CONTEXTS
from gmpi.contract import constants
from gmpi.errors import UsageError

CONTEXT, ARRAY, INTEGER, TUPLE, NOTHING, OTHER = range(6)


class Kind(NamedTuple):
    """What one argument is: in which way it can be used, in words, and what it stands for."""

    use: int
    text: str
    value: Any = None  # of what was meant for the host: the object itself


_ALLOWED = {
    "ctx": ((CONTEXT,), "Context.device"),
    "requests": ((ARRAY, TUPLE), "an int64 array, or a tuple of requests"),
    "status": ((TUPLE,), "the Status that a wait has returned"),
    "coords": ((ARRAY, TUPLE), "an array of integers"),
    "dims": ((ARRAY,), "an array of integers"),
    "periods": ((ARRAY,), "an array of integers"),
    "indices": ((ARRAY,), "an int64 array"),
    "statuses": ((ARRAY, INTEGER, NOTHING), "an array of gmpi.STATUS_DTYPE, or nothing"),
}
_BUFFER = ((ARRAY, INTEGER), "an array in device memory, or an address")
_NUMBER = ((INTEGER,), "an integer")
_DATATYPE = "a constant of gmpi such as gmpi.FLOAT, or a handle of Context.commit()"


def is_buffer(parameter: str) -> bool:
    """Whether a parameter of a call is a buffer, by its name."""
    return parameter.endswith(("buf", "_addr"))


def _allowed(parameter: str) -> tuple[tuple[int, ...], str]:
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
    if isinstance(value, MPI.Comm | MPI.Request | MPI.Status):
        return Kind(OTHER, f"mpi4py's {type(value).__name__}", value)
    if isinstance(value, type | np.dtype):
        return Kind(OTHER, f"NumPy's {_dtype_name(value)}", value)
    if hasattr(value, "strides"):
        return Kind(ARRAY, "an array")
    return Kind(OTHER, f"a {type(value).__name__}", value)


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
    if isinstance(value, MPI.Datatype):
        name = _name(value).removeprefix("MPI.")
        if hasattr(constants, name):
            return f"pass gmpi.{name}"
        return "make a handle outside of the kernel, h = g.commit(datatype), and pass h"
    if isinstance(value, MPI.Op):
        name = _name(value).removeprefix("MPI.")
        return f"pass gmpi.{name}" if hasattr(constants, name) else "pass one of gmpi"
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
    uses, allowed = _allowed(parameter)
    if kind.use in uses:
        return ""
    if parameter.endswith("type"):
        allowed = _DATATYPE
    cure = _cure(parameter, kind)
    return f"{call}: {parameter} is {kind.text}, allowed is {allowed}{cure and '; '}{cure}"


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
    pairs: Iterable[tuple[str, Any]] = [*zip(names, given), *named.items()]
    for parameter, argument in pairs:
        # The first that is wrong: where ctx is missing, all others are in the wrong place, too.
        if parameter in signature.parameters:
            text = complaint(call, parameter, kind_of(argument))
            if text:
                raise UsageError(text)
    try:
        signature.bind(*given, **named)
    except TypeError as exc:
        raise UsageError(f"{call}: {exc}; it is {call}({', '.join(names)})") from None
