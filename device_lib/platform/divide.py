"""Division by a number that is known beforehand: one multiplication and a shift.

A GPU has no instruction for integer division; a 64-bit one is about 100 instructions. A lookup
divides once for each dimension, so the host computes a multiplier for each divisor (``magic_of``,
exact for numerators below 2**31) and the device multiplies. Larger numbers, of messages of more
than 2**31 words, are divided the slow way.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from device_lib.platform.primitives import SIMULATOR, device

LIMIT = 1 << 31  # numerators and divisors of ``divide`` are below


def magic_of(divisor: int) -> int:
    """What ``divide`` needs besides the divisor: multiplier | shift << 32 (host only).

    Args:
        divisor: 1 .. 2**31 - 1.

    With l = ceil(log2 d) and m = ceil(2**(31+l) / d), floor(n / d) == n * m >> (31 + l) for every
    n below 2**31; m has at most 32 bits.
    """
    bits = (divisor - 1).bit_length()
    return -(-(1 << (31 + bits)) // divisor) | bits << 32


if SIMULATOR:

    def divide(number, divisor, magic):
        quotient = (2 * number * (magic & 0xFFFFFFFF) >> 32) >> (magic >> 32)
        return quotient, number - quotient * divisor

    def divide_wide(number, divisor):
        return divmod(number, divisor)

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    _I32 = ir.IntType(32)
    _I64 = ir.IntType(64)
    _PAIR = types.UniTuple(types.int64, 2)

    @intrinsic
    def divide(typingctx, number, divisor, magic):
        """(quotient, remainder) of numbers below 2**31, by ``magic_of(divisor)``.

        In 32 bits, which Numba's own integers never are.
        """

        def emit(context, builder, sig, args):
            word = builder.trunc(args[0], _I32)
            doubled = builder.zext(builder.shl(word, ir.Constant(_I32, 1)), _I64)
            multiplier = builder.zext(builder.trunc(args[2], _I32), _I64)
            product = builder.mul(doubled, multiplier)
            high = builder.trunc(builder.lshr(product, ir.Constant(_I64, 32)), _I32)
            bits = builder.trunc(builder.lshr(args[2], ir.Constant(_I64, 32)), _I32)
            # The shift is below 32, which the compiler is told so that it adds no check.
            bits = builder.and_(bits, ir.Constant(_I32, 31))
            quotient = builder.lshr(high, bits)
            whole = builder.mul(quotient, builder.trunc(args[1], _I32))
            values = [quotient, builder.sub(word, whole)]
            return context.make_tuple(builder, _PAIR, [builder.zext(v, _I64) for v in values])

        return _PAIR(types.int64, types.int64, types.int64), emit

    @intrinsic
    def divide_wide(typingctx, number, divisor):
        """(quotient, remainder) of non-negative 64-bit numbers, the slow way."""

        def emit(context, builder, sig, args):
            quotient = builder.udiv(args[0], args[1])
            rest = builder.sub(args[0], builder.mul(quotient, args[1]))
            return context.make_tuple(builder, _PAIR, [quotient, rest])

        return _PAIR(types.int64, types.int64), emit


@device
def product(a, b, most):
    """``a * b`` of numbers from 0 on, or -1 where that is more than ``most``: a number below 2**62.

    Of small ones without a division.
    """
    if a < LIMIT and b < LIMIT:
        found = a * b
        return found if found <= most else -1
    quotient, rest = divide_wide(most, max(b, 1))
    return a * b if b == 0 or a <= quotient else -1
