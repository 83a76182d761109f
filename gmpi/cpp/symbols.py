"""The calls compiled for programs in C: their PTX, their LTO-IR, and what they call in turn.

Each is a few instructions around functions of the device library, which stay as they are: object
code of one of its builds (``device_lib/platform/library.py``). With LTO-IR a linker puts the call
itself into the kernel, as Numba does.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from numba import cuda
from numba.cuda import types

from device_lib.platform import library
from device_lib.platform.buffer_cuda import int32_array_at, int64_array_at
from device_lib.platform.context import DeviceContext, Status
from gmpi.cache.files import cache_directory, read_or_make
from gmpi.cpp.table import FIELDS, PREFIX, Call, calls

Capability = tuple[int, int]
_EXTERN = re.compile(rf"^\.extern \.func .*?({PREFIX}\w+)", re.M)
_SPACE = {
    "context": DeviceContext,
    "status": Status,
    "int32": int32_array_at,
    "int64": int64_array_at,
}
_SOURCE = """
def {symbol}({words}):
    result = function({arguments})
    return {results}
"""


def called(ptx: str) -> list[str]:
    """The symbols of calls that some PTX expects elsewhere."""
    return sorted(set(_EXTERN.findall(ptx)))


def body(call: Call) -> Callable[..., Any]:
    """The call as a device function of plain integers."""
    arguments = []
    at = 0
    for parameter in call.parameters:
        words = ", ".join(f"w{i}" for i in range(at, at + parameter.words))
        at += parameter.words
        known = parameter.kind in _SPACE
        arguments.append(f"{parameter.kind}({words})" if known else words)
    results = []
    for i, result in enumerate(call.results):
        whole = "result" if len(call.results) == 1 else f"result[{i}]"
        fields = FIELDS.get(result)
        results += [f"{whole}.{name}" for name in fields] if fields else [whole]
    text = _SOURCE.format(
        symbol=call.symbol,
        words=", ".join(f"w{i}" for i in range(at)),
        arguments=", ".join(arguments),
        results=", ".join(results),
    )
    space = {**_SPACE, "function": call.function}
    exec(compile(text, f"<{call.symbol}>", "exec"), space)
    made: Callable[..., Any] = space[call.symbol]
    return made


def signature(call: Call) -> Any:
    """Its type, for Numba."""
    word = types.float64 if call.results == ("double",) else types.int64
    returns = word if call.result_words == 1 else types.UniTuple(word, call.result_words)
    return returns(*[types.int64] * call.words)


def _compiled(symbol: str, cc: Capability, output: str) -> bytes:
    call = calls()[symbol]

    def make() -> bytes:
        options = {"abi": "c", "abi_info": {"abi_name": symbol}, "output": output}
        with library.deeper():
            code = cuda.compile(body(call), signature(call), device=True, cc=cc, **options)[0]
        return code.encode() if isinstance(code, str) else bytes(code)

    tag = library.fingerprint_of(symbol, f"{cc[0]}.{cc[1]}", f"{call.parameters}{call.results}")
    path = cache_directory() / f"{symbol}-sm{cc[0]}{cc[1]}-{tag}.{output}"
    return read_or_make(path, make)


def ptx(symbol: str, cc: Capability) -> str:
    """Of one call; from the cache, if it is there."""
    return _compiled(symbol, cc, "ptx").decode()


def ltoir(symbol: str, cc: Capability) -> bytes:
    """The same as LTO-IR."""
    return _compiled(symbol, cc, "ltoir")


def parts(wanted: Iterable[str], cc: Capability) -> list[str]:
    """The functions of the device library that some calls need."""
    first = {name for symbol in wanted for name in library.called(ptx(symbol, cc))}
    return library.closure(first, cc)
