"""The header ``gmpi.cuh``: the calls of kernels and their constants, for CUDA C++."""

from __future__ import annotations

from collections.abc import Iterator

from mpi4py import MPI

import gmpi
from gmpi.cpp.table import FIELDS, Call, Parameter, calls, numbers

#: Results of calls: in C++.
_TYPES = {"integer": "long long", "flag": "bool", "double": "double", "status": "gmpi_status"}
_POINTERS = ("GMPI_BOTTOM", "GMPI_IN_PLACE")  # stand for a buffer
_HEAD = """\
// GMPI {version}: MPI called from inside a running CUDA kernel.
//
// Written by GMPI from its own calls ("gmpi cpp"): do not edit it. The numbers are those of
// {mpi}; another MPI library may have others.
//
// A kernel takes one gmpi_context, by value, and passes it to each call. All threads of a call's
// scope (the block; with _warp the warp, with _grid all blocks) make the call together, with equal
// arguments. Buffers lie in device memory, counts are in elements of the datatype, and errors are
// values. Everything that docs/api.md says of a call holds here, too.
#pragma once
"""


def text() -> str:
    """The header as a whole, for the MPI library that is loaded."""
    library = MPI.Get_library_version().strip("\0").splitlines()[0].split(",")[0].strip()
    parts = [_HEAD.format(version=gmpi.__version__, mpi=library)]
    for name, fields in FIELDS.items():
        parts.append(_structure(name, fields))
    parts.append(_MORE)
    parts.append("\n".join(_constant(*item) for item in numbers().items()))
    parts.append("// --- what is linked: 64-bit words, see the functions below\n")
    found = list(calls().values())
    sizes = sorted({made.result_words for made in found if made.result_words > 1})
    parts += [f"struct gmpi_words_{n} {{ long long word[{n}]; }};" for n in sizes]
    parts.append('extern "C" {\n' + "\n".join(map(_declaration, found)) + "\n}")
    parts.append("// --- the calls\n")
    parts += map(_function, found)
    return "\n".join(parts) + "\n"


_STRUCTURES = {
    "context": "What a kernel takes, by value; from Context.device.",
    "status": "What a wait says of a message (MPI 4.1 section 3.2.5).",
}


def _structure(name: str, fields: tuple[str, ...]) -> str:
    members = "\n".join(f"    long long {field};" for field in fields)
    return f"/// {_STRUCTURES[name]}\nstruct gmpi_{name} {{\n{members}\n}};\n"


_MORE = """\
/// Of one operation that was started; for exactly one wait.
typedef long long gmpi_request;

/// Several results of a call: auto [flag, status] = GMPI_Test(ctx, request);
template <class A, class B> struct gmpi_pair { A first; B second; };
template <class A, class B, class C> struct gmpi_triple { A first; B second; C third; };
"""


def _constant(name: str, value: int) -> str:
    number = f"(-{abs(value)}LL)" if value < 0 else f"{value}LL"
    if name in _POINTERS:
        return f"#define {name} ((void *){number})"
    return f"static constexpr long long {name} = {number};"


def _declaration(call: Call) -> str:
    words = ", ".join(["long long"] * call.words)
    returns = _TYPES[call.results[0]]
    if call.result_words > 1:
        returns = f"gmpi_words_{call.result_words}"
    elif returns == "bool":
        returns = "long long"
    return f"__device__ {returns} {call.symbol}({words});"


def _returns(call: Call) -> str:
    types = [_TYPES[result] for result in call.results]
    return types[0] if len(types) == 1 else f"gmpi_{_SEVERAL[len(types)]}<{', '.join(types)}>"


_SEVERAL = {2: "pair", 3: "triple"}


def _words(parameter: Parameter) -> Iterator[str]:
    if parameter.kind in FIELDS:
        yield from (f"{parameter.name}.{field}" for field in FIELDS[parameter.kind])
    elif parameter.kind == "integer":
        yield parameter.name
    else:
        yield f"(long long){parameter.name}"


def _values(call: Call) -> Iterator[str]:
    """The results of ``call``, of the words in ``r``."""
    at = 0
    for result in call.results:
        size = len(FIELDS.get(result, "1"))
        words = [f"r.word[{i}]" for i in range(at, at + size)]
        at += size
        if result == "flag":
            yield f"{words[0]} != 0"
        else:
            yield words[0] if size == 1 else f"{{{', '.join(words)}}}"


def _function(call: Call) -> str:
    """The call as users write it."""
    arguments = ",\n        ".join(p.declaration for p in call.parameters)
    words = ", ".join(word for p in call.parameters for word in _words(p))
    made = f"{call.symbol}({words})"
    if call.result_words > 1:
        values = ", ".join(_values(call))
        if len(call.results) == 1:  # a status
            values = values[1:-1]
        body = f"const auto r = {made};\n    return {{{values}}};"
    else:
        body = f"return {made}{' != 0' if call.results == ('flag',) else ''};"
    return (
        f"/// {call.text} Called by {call.scope}.\n"
        f"static __device__ __forceinline__ {_returns(call)} {call.name}(\n"
        f"        {arguments}) {{\n    {body}\n}}\n"
    )
