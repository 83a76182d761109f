"""The CUDA twin of atomic operations on memory that other GPUs map: of system scope, carried out by
the GPU that owns the memory, wherever the thread runs.

Each takes an address and the bits of a value, and those with ``atom`` return the bits that were
there. Where nobody asks for these, ``red`` does not wait for the answer to come back.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from numba.cuda import types

from device_lib.platform.ptx import ptx

_LOW = "cvt.u32.u64 v, $%d; "
_AT = ".relaxed.sys.global"


def _fetch_8(what):
    return ptx(f"atom{_AT}.{what} $0, [$1], $2;", "=l,l,l", types.int64, 2)


def _fetch_4(what):
    code = "{ .reg .b32 v; " + _LOW % 2 + f"atom{_AT}.{what} v, [$1], v; cvt.u64.u32 $0, v; }}"
    return ptx(code, "=l,l,l", types.int64, 2)


def _update_8(what):
    return ptx(f"red{_AT}.{what} [$0], $1;", "l,l", types.void, 2)


def _update_4(what):
    code = "{ .reg .b32 v; " + _LOW % 1 + f"red{_AT}.{what} [$0], v; }}"
    return ptx(code, "l,l", types.void, 2)


def _both(what):
    """(returns what was there, does not) of 8 bytes and of 4; ``{}`` becomes 64 or 32."""
    wide, narrow = what.format(64), what.format(32)
    return (_fetch_8(wide), _update_8(wide)), (_fetch_4(narrow), _update_4(narrow))


ADD = _both("add.u{}")
MIN_SIGNED = _both("min.s{}")
MAX_SIGNED = _both("max.s{}")
MIN_UNSIGNED = _both("min.u{}")
MAX_UNSIGNED = _both("max.u{}")
AND = _both("and.b{}")
OR = _both("or.b{}")
XOR = _both("xor.b{}")
_FLOAT = "{ .reg .b32 v; .reg .f32 a; " + _LOW
ADD_REAL = (
    (
        ptx(
            f"{{ .reg .f64 a; mov.b64 a, $2; atom{_AT}.add.f64 a, [$1], a; mov.b64 $0, a; }}",
            "=l,l,l",
            types.int64,
            2,
        ),
        ptx(
            f"{{ .reg .f64 a; mov.b64 a, $1; red{_AT}.add.f64 [$0], a; }}",
            "l,l",
            types.void,
            2,
        ),
    ),
    (
        ptx(
            _FLOAT % 2 + f"mov.b32 a, v; atom{_AT}.add.f32 a, [$1], a; mov.b32 v, a; "
            "cvt.u64.u32 $0, v; }",
            "=l,l,l",
            types.int64,
            2,
        ),
        ptx(_FLOAT % 1 + f"mov.b32 a, v; red{_AT}.add.f32 [$0], a; }}", "l,l", types.void, 2),
    ),
)
exchange_8 = _fetch_8("exch.b64")
exchange_4 = _fetch_4("exch.b32")
store_8_sys = ptx(f"st{_AT}.u64 [$0], $1;", "l,l", types.void, 2)
store_4_sys = ptx("{ .reg .b32 v; " + _LOW % 1 + f"st{_AT}.u32 [$0], v; }}", "l,l", types.void, 2)
load_8_sys = ptx(f"ld{_AT}.u64 $0, [$1];", "=l,l", types.int64, 1)
load_4_sys = ptx(f"ld{_AT}.u32 $0, [$1];", "=r,l", types.uint32, 1)
cas_8_sys = ptx(f"atom{_AT}.cas.b64 $0, [$1], $2, $3;", "=l,l,l,l", types.int64, 3)
cas_4_sys = ptx(
    "{ .reg .b32 v, w; cvt.u32.u64 v, $2; cvt.u32.u64 w, $3; "
    f"atom{_AT}.cas.b32 v, [$1], v, w; cvt.u64.u32 $0, v; }}",
    "=l,l,l,l",
    types.int64,
    3,
)
