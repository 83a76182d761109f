"""What the calls of kernels look like in C, made of their signatures: there is no other list.

Each call is a function of 64-bit integers with the C ABI, ``gmpi_c_isend`` for ``GMPI_Isend``. A
context is its four words, a pointer its address, a status its five fields. Several results are a
structure, which is returned by value.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, get_args

import gmpi
from device_lib.api.arguments import COUNTS, is_buffer
from device_lib.platform.context import DeviceContext, Status
from gmpi.contract import constants

PREFIX = "gmpi_c_"
#: Fields of the structures that are passed by value.
FIELDS = {"context": DeviceContext._fields, "status": Status._fields}
#: Arrays that are no buffers: the type of their elements.
ARRAYS = {
    "requests": "int64",
    "indices": "int64",
    **dict.fromkeys((*COUNTS, "array_of_partitions", "coords", "dims", "periods"), "int32"),
}
_C_TYPES = {"int64": "long long", "int32": "int"}
#: The names of ``gmpi``, and the modules that they come from.
_HOME: dict[str, str] = vars(gmpi)["_HOME"]
_FILLED_IN = ("coords", "dims", "periods", "indices", "requests")


class Parameter(NamedTuple):
    """One argument.

    Attributes:
        kind: ``context``, ``buffer``, ``statuses``, ``status``, ``integer``, or the type of an
            array's elements.
        written: whether the call may store through the pointer.
    """

    name: str
    kind: str
    written: bool = True

    @property
    def words(self) -> int:
        """How many 64-bit words it is."""
        return len(FIELDS.get(self.kind, "1"))

    @property
    def declaration(self) -> str:
        """In a C++ program."""
        if self.kind in FIELDS:
            return f"gmpi_{self.kind} {self.name}"
        if self.kind == "integer":
            return f"long long {self.name}"
        pointed = {"buffer": "void", "statuses": "gmpi_status"}.get(self.kind)
        pointed = pointed or _C_TYPES[self.kind]
        default = " = nullptr" if self.kind == "statuses" else ""
        return f"{'' if self.written else 'const '}{pointed} *{self.name}{default}"


class Call(NamedTuple):
    """One call of one scope.

    Attributes:
        name: as users know it, such as ``GMPI_Isend_warp``.
        symbol: of the compiled function, such as ``gmpi_c_isend_warp``.
        results: what it returns: ``status``, ``integer``, ``flag`` or ``double``, one or several.
        text: the first sentence of what it does.
        scope: who calls it.
        function: the device function itself.
    """

    name: str
    symbol: str
    parameters: tuple[Parameter, ...]
    results: tuple[str, ...]
    text: str
    scope: str
    function: Callable[..., Any]

    @property
    def words(self) -> int:
        """How many 64-bit integers the compiled function takes."""
        return sum(p.words for p in self.parameters)

    @property
    def result_words(self) -> int:
        """How many it returns."""
        return sum(len(FIELDS.get(result, "1")) for result in self.results)


_RESULTS = {bool: "flag", int: "integer", float: "double", Status: "status"}


def _written(call: str, parameter: str) -> bool:
    """Whether a call stores to what a parameter points to."""
    name = call.removeprefix("GMPI_").lower()
    if is_buffer(parameter):
        if parameter == "buf":
            return "send" not in name or "replace" in name
        if parameter == "origin_addr":
            return name.startswith(("get", "rget")) and "accumulate" not in name
        return parameter not in ("sendbuf", "compare_addr")
    return parameter in _FILLED_IN and not name.startswith("cart_rank")


def _parameter(call: str, parameter: inspect.Parameter) -> Parameter:
    name = parameter.name
    if name == "ctx":
        return Parameter(name, "context")
    if is_buffer(name):
        return Parameter(name, "buffer", _written(call, name))
    if name in ("status", "statuses"):
        return Parameter(name, name)
    if name in ARRAYS:
        return Parameter(name, ARRAYS[name], _written(call, name))
    return Parameter(name, "integer")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()))[0]


def _scope(name: str) -> str:
    if name.endswith("_warp"):
        return "all threads of the warp"
    if name.endswith("_grid"):
        return "all threads of all blocks"
    return "any thread" if f"{name}_warp" not in _HOME else "all threads of the block"


def _call(name: str) -> Call:
    function = getattr(gmpi, name)
    signature = function.__signature__
    returns = signature.return_annotation
    kinds = get_args(returns) if returns not in _RESULTS else (returns,)
    return Call(
        name,
        PREFIX + name.removeprefix("GMPI_").lower(),
        tuple(_parameter(name, p) for p in signature.parameters.values()),
        tuple(_RESULTS[kind] for kind in kinds),
        _first_sentence(function.__doc__),
        _scope(name),
        function,
    )


@cache
def calls() -> dict[str, Call]:
    """Every call of every scope, by its symbol."""
    homes = {n: home for n, home in _HOME.items() if home.startswith("device_lib.api.exports")}
    return {made.symbol: made for made in map(_call, sorted(homes))}


def numbers() -> dict[str, int]:
    """The constants of ``gmpi`` by their names in C: ``GMPI_FLOAT``."""
    home = constants.__name__
    found = {name: getattr(gmpi, name) for name, where in _HOME.items() if where == home}
    return {
        name if name.startswith("GMPI_") else f"GMPI_{name}": value
        for name, value in sorted(found.items())
        if isinstance(value, int)
    }
