"""The simulator twin: the values that a call is given are what is looked at."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent

from device_lib.arguments import check, kind_of_value


def checked(function: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
    """The function, whose arguments are looked at: once for all that are of the same types."""
    known: set[tuple[type, ...]] = set()

    def call(*given: Any, **named: Any) -> Any:
        caller = sys._getframe(1)
        getcurrent().call = call.__name__, caller.f_code, caller.f_lineno  # for BarrierError
        if named:
            check(call.__name__, signature, given, named, kind_of_value)
            return function(*given, **named)
        types = tuple(map(type, given))
        if types not in known:
            check(call.__name__, signature, given, named, kind_of_value)
            known.add(types)
        return function(*given)

    return call
