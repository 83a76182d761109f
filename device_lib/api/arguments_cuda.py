"""How Numba's types tell what a call is given (``arguments``), and where in a kernel it is."""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from mpi4py import MPI
from numba.cuda import dispatcher, types
from numba.cuda.core.imputils import lower_cast, lower_constant
from numba.cuda.datamodel.models import OpaqueModel
from numba.cuda.extending import register_model
from numba.cuda.np.numpy_support import as_dtype
from numba.cuda.typing.typeof import Purpose, typeof_impl

from device_lib.api.arguments import (
    CONTEXT,
    INTEGER,
    NOTHING,
    OTHER,
    TUPLE,
    Kind,
    array_of,
    check,
    numbered,
)
from device_lib.api.arguments import kind_of_value as _kind_of_value
from device_lib.platform.context import CONTEXTS
from gmpi.contract.constants import Auto
from gmpi.errors import UsageError


class _OfTheHost(types.Type):
    """The type of an object of mpi4py's, or of ``AUTO``: kernels may name it, and pass it to a call
    that knows a number for it."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(name=f"mpi4py({_kind_of_value(value).text}, {id(value)})")


@typeof_impl.register(MPI.Datatype)
@typeof_impl.register(MPI.Op)
@typeof_impl.register(MPI.Comm)
@typeof_impl.register(Auto)
def _typeof(value: Any, c: Any) -> _OfTheHost:
    if c.purpose == Purpose.argument:
        what = _kind_of_value(value).text
        raise UsageError(
            f"a kernel cannot take {what}; pass integers: gmpi.FLOAT or Context.commit() for a "
            "datatype, gmpi.SUM for an operation, Context.comm() for a communicator"
        )
    return _OfTheHost(value)


register_model(_OfTheHost)(OpaqueModel)


@lower_constant(_OfTheHost)
def _constant(context: Any, builder: Any, given: Any, value: Any) -> Any:
    return context.get_dummy_value()


@lower_cast(_OfTheHost, types.IntegerLiteral)
@lower_cast(_OfTheHost, types.Integer)
def _number(context: Any, builder: Any, given: Any, wanted: Any, value: Any) -> Any:
    """In place of the object, the number that ``numbered`` has put into the call's type."""
    return context.get_constant(types.unliteral(wanted), wanted.literal_value)


def _dtype_of(array: types.Array) -> Any:
    """NumPy's dtype of the elements; None: it has none."""
    try:
        return as_dtype(array.dtype)
    except NotImplementedError:
        return None


def kind_of_type(given: types.Type) -> Kind:
    """Of a Numba type."""
    if isinstance(given, types.Optional):
        given = given.type
    if isinstance(given, types.BaseNamedTuple) and given.instance_class in CONTEXTS:
        return Kind(CONTEXT, "Context.device")
    if isinstance(given, types.Integer | types.Boolean | types.IntegerLiteral):
        return Kind(INTEGER, str(given))
    if isinstance(given, types.Array):
        return array_of(_dtype_of(given), given.layout != "C")
    if isinstance(given, types.NoneType):
        return Kind(NOTHING, "None")
    if isinstance(given, types.BaseTuple):
        return Kind(TUPLE, "a tuple")
    if isinstance(given, _OfTheHost):
        return _kind_of_value(given.value)
    if isinstance(given, types.Module):
        return _kind_of_value(given.pymod)
    if isinstance(given, types.Float):
        return Kind(OTHER, f"a {given}", 0.0)
    if isinstance(given, types.NumberClass | types.DType):
        number = given.instance_type if isinstance(given, types.NumberClass) else given.dtype
        return _kind_of_value(as_dtype(number))
    return Kind(OTHER, f"of Numba's type {given}")


def _where() -> str:
    """The line that is being typed, as Numba's own frames know it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        loc = getattr(frame.f_locals.get("self"), "loc", None)
        if loc is not None and hasattr(loc, "line"):
            return f" ({loc.filename}:{loc.line})"
        frame = frame.f_back
    return ""


def checked(function: Any, signature: inspect.Signature, scope: str = "", late: Any = None) -> Any:
    """The device function, whose calls in kernels are looked at."""
    template = function.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        try:
            check(function.__name__, signature, tuple(args), dict(kws), kind_of_type)
        except UsageError as exc:
            raise UsageError(f"{exc}{_where()}") from None
        given, named = numbered(signature, tuple(args), dict(kws), kind_of_type, types.literal)
        return template(given, named)

    function.get_call_template = get_call_template
    return function


def _in_one_line(compile_kernel: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compile_kernel)
    def compiled(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return compile_kernel(self, *args, **options)
        except UsageError as exc:  # without the forty frames of the compiler
            raise exc.with_traceback(None) from None

    return compiled


dispatcher.CUDADispatcher.compile = _in_one_line(dispatcher.CUDADispatcher.compile)
