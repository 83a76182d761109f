"""Loading much at a time, none of which will be garbage."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_ROOM = 100_000  # words of 8 bytes


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


def with_room(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function that calls others, some hundred deep, such as an import.

    CPython keeps frames in pieces of 16 KiB. For a frame that does not fit any more it maps another
    piece, which it unmaps when the frame ends. Where a loop happens to make its calls just there,
    each takes 50 us in place of 0.1: so it was in Numba's import, which took a fifth of a second
    more. The frame of this function is large. So it gets a piece that has room for all others.
    """
    return function(*arguments)


with_room.__code__ = with_room.__code__.replace(co_stacksize=_ROOM)
