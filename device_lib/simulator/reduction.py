"""``cuda.reduce``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from device_lib.simulator.arrays import memory_of


class Reduce:
    """Reduces arrays by a function of two elements: ``@cuda.reduce``."""

    def __init__(self, functor: Callable[[Any, Any], Any]) -> None:
        self._functor = functor

    def __call__(
        self, arr: Any, size: int | None = None, res: Any = None, init: Any = 0, stream: Any = 0
    ) -> Any:
        """Of ``init`` and the elements of an array of one dimension.

        Args:
            size: of how many elements; None: of all.
            res: an array of the device whose first element gets the result, which is not returned.
        """
        found = memory_of(arr)
        elements = (arr if found is None else found)[:size]
        result = functools.reduce(self._functor, elements, init)
        if res is None:
            return elements.dtype.type(result)
        res[0] = result
        return None


reduce = Reduce

__all__ = ["Reduce", "reduce"]
