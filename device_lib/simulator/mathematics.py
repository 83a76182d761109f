"""Operations on numbers that CUDA has and Python has not."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import operator
from types import SimpleNamespace

import numpy as np

_DEFAULT_BITS = 64  # of Python's integers, as Numba types them


def _bits_of(x):
    """How many bits a number has, and these as an integer that is not negative."""
    bits = 8 * x.itemsize if isinstance(x, np.integer) else _DEFAULT_BITS
    return bits, int(x) & ((1 << bits) - 1)


def popc(x):
    return _bits_of(x)[1].bit_count()


def clz(x):
    bits, word = _bits_of(x)
    return bits - word.bit_length()


def ffs(x):
    """The place of the lowest bit that is set, from 1; 0: there is none."""
    word = _bits_of(x)[1]
    return (word & -word).bit_length()


def brev(x):
    bits, word = _bits_of(x)
    found = int(f"{word:0{bits}b}"[::-1], 2)
    # A wide enough type first: NumPy refuses to make a negative number of what is too large.
    return np.uint64(found).astype(x.dtype) if isinstance(x, np.integer) else found


def selp(a, b, c):
    return b if a else c


def fma(a, b, c):
    """Rounded twice, by the product and the sum, unlike a GPU's."""
    return a * b + c


def cbrt(x):
    return np.cbrt(x)


def literal_unroll(container):
    return container


def _half(function):
    """Of half precision: the result, unless it is a truth value, is a float16."""

    def operation(*numbers):
        found = function(*(np.float16(x) for x in numbers))
        return bool(found) if isinstance(found, bool | np.bool_) else np.float16(found)

    return operation


_HALF = {
    "hadd": operator.add, "hsub": operator.sub, "hmul": operator.mul, "hdiv": operator.truediv,
    "hfma": fma, "hneg": operator.neg, "habs": abs, "hsin": np.sin, "hcos": np.cos,
    "hlog": np.log, "hlog2": np.log2, "hlog10": np.log10, "hexp": np.exp, "hexp2": np.exp2,
    "hexp10": lambda x: np.float32(10) ** x, "hsqrt": np.sqrt, "hrsqrt": lambda x: 1 / np.sqrt(x),
    "hceil": np.ceil, "hfloor": np.floor, "hrcp": np.reciprocal, "htrunc": np.trunc,
    "hrint": np.rint, "heq": operator.eq, "hne": operator.ne, "hge": operator.ge,
    "hgt": operator.gt, "hle": operator.le, "hlt": operator.lt, "hmax": np.maximum,
    "hmin": np.minimum,
}  # fmt: skip
fp16 = SimpleNamespace(**{name: _half(function) for name, function in _HALF.items()})

__all__ = ["brev", "cbrt", "clz", "ffs", "fma", "fp16", "literal_unroll", "popc", "selp"]
