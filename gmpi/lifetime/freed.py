"""Requests that kernels have freed and left open: who closes them when the kernels have ended.

What has come for them is moved by threads of a GPU, and only a kernel can give back their places
(``device_lib/api/freeing.py``). So the host launches one of its own, of one warp.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from gmpi.contract.wire import CONTROL_FREED, DEVICE_FREED

if TYPE_CHECKING:
    from gmpi.context import Context


@functools.cache
def _kernel() -> Any:
    from numba import cuda

    from device_lib.api.binding import block_calls

    close_freed = block_calls.close_freed

    @cuda.jit
    def close(ctx: Any, patience: Any) -> None:
        close_freed(ctx, patience)

    return close


def close(context: Context, timeout: float) -> None:
    """Closes those that there are, each when it is complete; no kernel of the user runs.

    Args:
        timeout: seconds to wait for what is not complete.
    """
    flag = ctypes.c_int64.from_address(context._memory.host + CONTROL_FREED)
    if not flag.value:
        return
    _kernel()[1, 32](context.device, np.int64(max(1, int(timeout * 1e9))))
    context._waits.wait_for_kernels(None)
    if not context._memory.read_device(DEVICE_FREED, 8).view(np.int64)[0]:
        flag.value = 0
