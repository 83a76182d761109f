"""Calls of CUDA's driver by compiled code: a launch or a copy whose arguments are ready but for two
addresses and the stream.

In Python, of arguments one by one, such a call takes 1.5 us more than in C. Here what does not
change is a *job*, an array of int64 in memory, and a call passes four integers: its address, those
of the user's and of the packed memory, and the stream. Python's other threads run meanwhile: the
driver may wait for a kernel, and that for a proxy in Python. So who shares a job has a lock for it,
unless it is of one piece, which stores nothing.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

# A launch: the driver's cuLaunchKernel, the kernel, blocks, threads, the pointers to its arguments.
# A copy of rows: cuMemcpy2DAsync or 3D, and what it takes; of one piece: cuMemcpyAsync, and bytes.
CALL, FUNCTION, BLOCKS, THREADS, POINTERS = range(5)
BYTES = FUNCTION
# Where the addresses are stored for the driver, and what is added to the user's. Of a copy of one
# piece, USER_AT says only which is the source: 1 the user's, 0 the packed memory.
USER_AT, PACKED_AT, OFFSET = range(5, 8)
JOB_WORDS = 8


def job(**words: int) -> np.ndarray:
    """A job, by the names above in lower case; keep it as long as it may be called."""
    found = np.zeros(JOB_WORDS, np.int64)
    for name, value in words.items():
        found[globals()[name.upper()]] = value
    return found


@cache
def call_of(kind: str) -> Callable[[int, int, int, int], int]:
    """What carries out a job of a kind, "launch", "rows" or "line", and returns the driver's error.

    Compiled at the first call, for a quarter of a second, and kept on disk as the proxy's engine.
    """
    from numba import types

    from gmpi.cache.loading import without_collector
    from host_proxy.platform.native import alone, call, load, store

    def launch(job, user, packed, stream):
        store(load(job + 8 * USER_AT), user + load(job + 8 * OFFSET))
        store(load(job + 8 * PACKED_AT), packed)
        function, pointers = load(job + 8 * FUNCTION), load(job + 8 * POINTERS)
        blocks, threads = load(job + 8 * BLOCKS), load(job + 8 * THREADS)
        arguments = function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, 0
        return call(load(job + 8 * CALL), arguments)

    def rows(job, user, packed, stream):
        store(load(job + 8 * USER_AT), user + load(job + 8 * OFFSET))
        store(load(job + 8 * PACKED_AT), packed)
        return call(load(job + 8 * CALL), (load(job + 8 * POINTERS), stream))

    def line(job, user, packed, stream):
        user += load(job + 8 * OFFSET)
        source, target = (user, packed) if load(job + 8 * USER_AT) else (packed, user)
        return call(load(job + 8 * CALL), (target, source, load(job + 8 * BYTES), stream))

    dispatcher: Any = alone({"launch": launch, "rows": rows, "line": line}[kind])
    with without_collector():  # what it drops may be device memory, which waits for kernels
        dispatcher.compile((types.int64,) * 4)
    dispatcher.disable_compile()
    called: Callable[[int, int, int, int], int] = dispatcher
    return called
