"""Loops of a number of turns that is known when a kernel is compiled, written out turn by turn.

Numba writes no loop out, and where LLVM does is its own affair: what a turn leaves for later ones
would go to local memory. Here each turn is a device function of its own, made with its number, and
what they return is one tuple, in registers.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.platform.primitives import device


def unrolled(make: Callable[[int], Callable], turns: int) -> Callable:
    """A device function that calls ``make(0)``, ``make(1)``, ... one after the other, each with its
    own arguments; the tuple of what they return.

    Args:
        make: a device function for the turn of a number.
        turns: at least one.
    """
    return _from(make, 0, turns)


def _from(make: Callable[[int], Callable], turn: int, turns: int) -> Callable:
    this = make(turn)
    if turn + 1 == turns:

        @device
        def last(*args):
            return (this(*args),)

        return last
    rest = _from(make, turn + 1, turns)

    @device
    def more(*args):
        found = this(*args)
        return (found, *rest(*args))

    return more
