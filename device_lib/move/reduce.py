"""Reducing words of 8 bytes: the elements of a packet, all at once where that can be (any thread).

Of floating point there are the two formats that GPU and CPU compute alike; minimum and maximum take
the second operand where it is truly less or greater.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from device_lib.platform.primitives import (
    SIMULATOR,
    device,
    opaque,
    wrapping_add,
    wrapping_multiply,
)
from gmpi.contract.collectives import CLASS_SHIFT, OP_MASK, REAL, SIGNED, SIZE_SHIFT
from gmpi.contract.constants import BAND, BOR, LAND, LOR, LXOR, MAX, MIN, PROD, SUM

_LOWEST = -1 << 63
_REAL_4 = REAL << CLASS_SHIFT | 2 << SIZE_SHIFT
_REAL_8 = REAL << CLASS_SHIFT | 3 << SIZE_SHIFT
_FORMAT = 0xF << SIZE_SHIFT  # size and class

if SIMULATOR:
    import numpy as np

    def _elements(word, dtype):
        return np.frombuffer((word & ((1 << 64) - 1)).to_bytes(8, "little"), dtype)

    def _with(dtype, function):
        @np.errstate(all="ignore")
        def call(a, b):
            found = function(_elements(a, dtype), _elements(b, dtype))
            return int(found.astype(dtype, copy=False).view(np.int64)[0])

        return call

    def _of_both(function):
        return _with(np.float64, function), _with(np.float32, function)

    _add_8, _add_4 = _of_both(np.add)
    _multiply_8, _multiply_4 = _of_both(np.multiply)
    _least_8, _least_4 = _of_both(lambda a, b: np.where(b < a, b, a))
    _greatest_8, _greatest_4 = _of_both(lambda a, b: np.where(b > a, b, a))
else:
    from numba.cuda import types

    from device_lib.platform.ptx import ptx

    def _of_both(code):
        """(of one of 8 bytes, of two of 4 bytes); ``code``: ``{0}`` becomes that of it and
        ``{1}``."""
        whole = code.format("a", "b", "64")
        halves = code.format("a", "b", "32") + code.format("c", "d", "32")
        return (
            ptx(
                "{ .reg .f64 a, b; .reg .pred p; mov.b64 a, $1; mov.b64 b, $2; "
                + whole
                + "mov.b64 $0, a; }",
                "=l,l,l",
                types.int64,
                2,
            ),
            ptx(
                "{ .reg .f32 a, b, c, d; .reg .pred p; mov.b64 {a, c}, $1; mov.b64 {b, d}, $2; "
                + halves
                + "mov.b64 $0, {a, c}; }",
                "=l,l,l",
                types.int64,
                2,
            ),
        )

    _add_8, _add_4 = _of_both("add.rn.f{2} {0}, {0}, {1}; ")
    _multiply_8, _multiply_4 = _of_both("mul.rn.f{2} {0}, {0}, {1}; ")
    _least_8, _least_4 = _of_both("setp.lt.f{2} p, {1}, {0}; selp.f{2} {0}, {1}, {0}, p; ")
    _greatest_8, _greatest_4 = _of_both("setp.gt.f{2} p, {1}, {0}; selp.f{2} {0}, {1}, {0}, p; ")


@device
def _reduce_8(op, a, b):
    if op == SUM:
        return _add_8(a, b)
    if op == PROD:
        return _multiply_8(a, b)
    if op == MIN:
        return _least_8(a, b)
    return _greatest_8(a, b)


@device
def _reduce_4(op, a, b):
    if op == SUM:
        return _add_4(a, b)
    if op == PROD:
        return _multiply_4(a, b)
    if op == MIN:
        return _least_4(a, b)
    return _greatest_4(a, b)


@device
def _lowest_bits(shift):
    """The lowest bit of each element of ``1 << shift`` bytes."""
    if shift == 0:
        return 0x0101010101010101
    if shift == 1:
        return 0x0001000100010001
    if shift == 2:
        return 0x0000000100000001
    return 1


@device
def _one_by_one(what, a, b, shift):
    """PROD, MIN and MAX of integers."""
    op = what & OP_MASK
    bits = 8 << shift
    mask = -1
    flip = _LOWEST  # unsigned numbers in the order of signed ones
    if shift < 3:
        mask = (1 << bits) - 1
        flip = 1 << bits - 1
    # Shorter ones are not negative here: there it is the signed ones whose order is to be mended.
    if (what >> CLASS_SHIFT & 3 == SIGNED) == (shift == 3):
        flip = 0
    result = 0
    at = 0
    while at < 64:
        mine = a >> at & mask
        other = b >> at & mask
        if op == PROD:
            found = wrapping_multiply(mine, other) & mask
        else:
            found = mine
            less = (other ^ flip) < (mine ^ flip)
            if less == (op == MIN):
                found = other
        result |= found << at
        at += opaque(bits)
    return result


@device
def combine(what, a, b):
    """The reduction of two words, of the ranks before and of the next one.

    Args:
        what: the call (``contract/collectives.py``).
    """
    op = what & OP_MASK
    if what & _FORMAT == _REAL_8:
        return _reduce_8(op, a, b)
    if what & _FORMAT == _REAL_4:
        return _reduce_4(op, a, b)
    shift = what >> SIZE_SHIFT & 3
    if op == PROD or op == MIN or op == MAX:
        return _one_by_one(what, a, b, shift)
    low = _lowest_bits(shift)
    last = (8 << shift) - 1
    high = low << last
    if op == SUM:  # no carry from one element into the next
        return wrapping_add(a & ~high, b & ~high) ^ (a ^ b) & high
    if op == LAND or op == LOR or op == LXOR:  # 1 where an element is not 0
        a = (wrapping_add(a & ~high, ~high) | a) & high
        b = (wrapping_add(b & ~high, ~high) | b) & high
        a = a >> last & low
        b = b >> last & low
    if op == LAND or op == BAND:
        return a & b
    if op == LOR or op == BOR:
        return a | b
    return a ^ b
