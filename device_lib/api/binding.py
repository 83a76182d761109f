"""How the names that users import are bound to their code (``calls``): see ``exports``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any, TypeAlias, TypeVar, cast

from device_lib.api import texts
from device_lib.api.calls import make_calls
from device_lib.api.local import LOCAL
from device_lib.api.traced import with_twin
from device_lib.platform.primitives import SIMULATOR
from device_lib.platform.scope import BLOCK, WARP

if SIMULATOR:
    from device_lib.api.arguments_sim import checked
else:
    from device_lib.api.arguments_cuda import checked  # type: ignore[no-redef]

block_calls = make_calls(BLOCK)
warp_calls = make_calls(WARP)

#: An array or a slice of one (Numba, CuPy) in memory that the GPU can address and the whole scope
#: shares: device memory, or shared memory for messages up to ``eager_bytes``. Its elements have the
#: size of the datatype, or one of the two is bytes. With a predefined datatype a slice may be
#: strided, in up to 8 dimensions: its elements are packed in the order of its indices, the last one
#: fastest, by the calling threads. Or an address as an integer, whose length is not checked;
#: ``gmpi.BOTTOM`` for a datatype of absolute addresses.
Buffer: TypeAlias = Any

Twin = TypeVar("Twin", bound=Callable[..., Any])
#: MPI may or may not buffer a send: strict mode makes those that are not (docs/strict.md).
_LATE = {"send": "ssend", "isend": "issend"}
_declarations: dict[int, Callable[..., Any]] = {}  # by id() of the bound call


def _bind(
    declared: Callable[..., Any], calls: SimpleNamespace, scope: str, suffix: str = ""
) -> Callable[..., Any]:
    """The function of ``calls`` that ``declared`` describes, with its name, signature and text."""
    name = declared.__name__
    signature = inspect.signature(declared, eval_str=True)
    call = name.removeprefix("GMPI_").lower()
    function: Any = getattr(calls, call)
    late: Any = getattr(calls, _LATE.get(call, ""), None)
    if scope:
        function = with_twin(function, call, signature, scope)
        late = late and with_twin(late, call, signature, scope)
    function = checked(function, signature, scope, late)
    text = texts.completed(inspect.cleandoc(declared.__doc__ or ""), signature, scope)
    function.__name__ = function.__qualname__ = name + suffix
    function.__module__ = "gmpi"
    function.__signature__ = signature
    who = "any thread, alone or with others."
    if scope:
        who = f"all threads of the {scope} call it together, with equal arguments."
    function.__doc__ = f"{text}\n\nScope: {who}\n"
    _declarations[id(function)] = declared
    return cast(Callable[..., Any], function)


def block_scope(declared: Twin) -> Twin:
    return cast(Twin, _bind(declared, block_calls, "block"))


def make_twin(call: Twin, calls: SimpleNamespace, scope: str) -> Twin:
    """The twin for another scope, of its ``calls``, of a call that ``block_scope`` has bound."""
    return cast(Twin, _bind(_declarations[id(call)], calls, scope, f"_{scope}"))


def warp_scope(call: Twin) -> Twin:
    return make_twin(call, warp_calls, "warp")


def not_blocking(call: Twin, also: str = "") -> Twin:
    """The call that starts what a collective ``call``, which ``block_scope`` has bound, does as a
    whole (MPI 4.1 section 6.12).

    Args:
        also: a sentence more about its arguments.
    """
    blocking = _declarations[id(call)]
    name = f"GMPI_I{blocking.__name__.removeprefix('GMPI_').lower()}"
    declared = FunctionType(blocking.__code__, blocking.__globals__, name)
    declared.__annotations__ = blocking.__annotations__
    declared.__doc__ = f"""Starts a {blocking.__name__} and returns at once (MPI 4.1 section 6.12).

    Args: as {blocking.__name__}; no buffer may be touched until the request is complete.
    {also}

    Returns:
        The request (int64), as GMPI_Isend.
    """.replace("    \n", "")
    return cast(Twin, _bind(declared, block_calls, "block"))


def any_thread(declared: Twin) -> Twin:
    return cast(Twin, _bind(declared, LOCAL, ""))
