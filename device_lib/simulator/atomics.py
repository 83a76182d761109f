"""``cuda.atomic`` and the loads and stores that say what to cache.

Threads of a launch run one at a time, and only where they wait do others come in: any load and
store is atomic. Memory that other processes map is ``device_lib/platform/atomics_sim.py``'s.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


def _updates(new: Callable[[Any, Any], Any]) -> Any:
    """An operation that stores ``new(element, value)`` and returns what was there."""

    def atomic(array, index, value):
        old = array[index]
        array[index] = new(old, value)
        return old

    return atomic


def _increment(old, limit):
    return 0 if old >= limit else old + 1


def _decrement(old, limit):
    return limit if old == 0 or old > limit else old - 1


def _greater(old, value):
    return value if value > old else old


def _less(old, value):
    return value if value < old else old


def _greater_number(old, value):
    """NaN is nothing to compare with."""
    return value if value > old or old != old else old


def _less_number(old, value):
    return value if value < old or old != old else old


def _cas(array, index, old, value):
    """Stores the value where the element is ``old``; what was there."""
    found = array[index]
    if found == old:
        array[index] = value
    return found


def _compare_and_swap(array, old, value):
    """The same of an array's first element."""
    return _cas(array, (0,) * array.ndim, old, value)


#: Of a name, the operation.
OPERATIONS: dict[str, Any] = {
    "add": _updates(operator.add),
    "sub": _updates(operator.sub),
    "and_": _updates(operator.and_),
    "or_": _updates(operator.or_),
    "xor": _updates(operator.xor),
    "inc": _updates(_increment),
    "dec": _updates(_decrement),
    "exch": _updates(lambda old, value: value),
    "max": _updates(_greater),
    "min": _updates(_less),
    "nanmax": _updates(_greater_number),
    "nanmin": _updates(_less_number),
    "cas": _cas,
    "compare_and_swap": _compare_and_swap,
}


class _Atomic:
    """``cuda.atomic``: its attributes are the operations."""

    def __init__(self) -> None:
        vars(self).update(OPERATIONS)


atomic = _Atomic()


def _load(array, index):
    return array[index]


def _store(array, index, value):
    array[index] = value


ldca = ldcg = ldcs = ldlu = ldcv = _load
stcg = stcs = stwb = stwt = _store

__all__ = ["atomic", "ldca", "ldcg", "ldcs", "ldcv", "ldlu", "stcg", "stcs", "stwb", "stwt"]
