"""Whether a kernel that takes a context is compiled, linked or launched just now; any thread asks.

It takes seconds the first time, or minutes where the device library is compiled, too. Else a
report would say that the rank has left its kernels, or has none.
"""

from __future__ import annotations

import threading

_lock = threading.Lock()
_under_way = 0


def begin() -> None:
    global _under_way
    with _lock:
        _under_way += 1


def end() -> None:
    global _under_way
    with _lock:
        _under_way -= 1


def is_under_way() -> bool:
    return _under_way > 0
