"""What Numba does again and again while the library is compiled, and need not.

The type of a call of one of its own functions is asked once. For each ``+`` and each ``min`` Numba
goes through all templates that it has for them, which is a quarter of the time in which the library
compiles. The answer depends on the function and on the types of its arguments, so it is kept.

When all types are known, Numba looks for expressions of whole arrays: the library has none.
"""

# mypy: disable-error-code="no-untyped-def,method-assign"
from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.types.functions import BaseFunction
from numba.cuda.core.typed_passes import NopythonRewrites

_thread = threading.local()
# The function is kept with its answer: its id stays its own.
_known: dict[tuple[Any, ...], tuple[BaseFunction, Any]] = {}
_resolve = BaseFunction.get_call_type
_rewrite = NopythonRewrites.run_pass


def _get_call_type(self, context, args, kws):
    if not getattr(_thread, "depth", 0):
        return _resolve(self, context, args, kws)
    key = id(self), id(context), args, tuple(kws.items())
    found = _known.get(key)
    if found is None:
        signature = _resolve(self, context, args, kws)
        # One that Numba compiles for its caller, an overload, depends on the caller's options.
        if self.get_impl_key(signature) is self.typing_key:
            _known[key] = self, signature
        return signature
    return found[1]


def _run_pass(self, state):
    return False if getattr(_thread, "depth", 0) else _rewrite(self, state)


BaseFunction.get_call_type = _get_call_type
NopythonRewrites.run_pass = _run_pass


@contextmanager
def remembered() -> Iterator[None]:
    """While this thread compiles functions of the library; may be nested."""
    _thread.depth = getattr(_thread, "depth", 0) + 1
    try:
        yield
    finally:
        _thread.depth -= 1
