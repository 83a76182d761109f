"""Numba frees device memory one array at a time, and none while kernels run.

Numba asks once whether it may free what programs have dropped, then frees all of it. A kernel that
another thread launched meanwhile stopped both: freeing waits for kernels, and the kernel may wait
for that thread. Here it is asked before each array, and a launch waits for the one at hand.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import threading

from numba import cuda
from numba.cuda.cudadrv.driver import _PendingDeallocs

#: Held while one array is freed. Its thread may collect garbage then, and free others.
_freeing = threading.RLock()


def _clear(self):
    while True:
        with _freeing:
            if self.is_disabled:
                return
            if not self._cons:
                self._size = 0
                return
            free, handle, size = self._cons.popleft()
            self._size -= int(size)
            free(handle)


_PendingDeallocs.clear = _clear


def wait() -> None:
    """After ``cuda.defer_cleanup()`` has begun: for the array that a thread is freeing, if any."""
    with _freeing:
        pass


def free_dropped():
    """Frees what programs have dropped, unless kernels run. Memory has a queue of its own."""
    context = cuda.current_context()
    context.deallocations.clear()
    memory = getattr(context.memory_manager, "deallocations", None)  # a plugin's may have none
    if memory is not None:
        memory.clear()
