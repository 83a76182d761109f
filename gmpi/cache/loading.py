"""Loading much at a time, none of which will be garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Keeps Python's garbage collector off: it looks at all that has come again and again.

    That takes a tenth of the time to import Numba, and to compile the engine.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
