"""What device memory can do on this machine: bandwidth of a copy, latency of a lone read."""

from __future__ import annotations

import cupy
from numba import cuda


def copy_bandwidth(nbytes: int = 1 << 30) -> float:
    """Bytes read and written a second by a device-to-device copy."""
    source, target = cupy.zeros(nbytes, cupy.uint8), cupy.zeros(nbytes, cupy.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    best = 0.0
    for _ in range(6):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        for _ in range(4):
            cupy.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, nbytes, 3, stream.ptr)
        end.record(stream)
        end.synchronize()
        best = max(best, 8 * nbytes / (cupy.cuda.get_elapsed_time(begin, end) * 1e-3))
    return best


@cuda.jit
def _chase(chain, hops, end):
    at = end[0]  # where the time before ended: what was read there may be in a cache
    for _ in range(hops):
        at = chain[at]
    end[0] = at


def memory_latency_ns(nbytes: int = 1 << 28, hops: int = 20_000) -> float:
    """Time of one read of device memory by a thread that has nothing else to do.

    A chain of reads, each on a line of its own, through more memory than the caches hold.
    """
    count = nbytes // 8
    step = (1 << 20) // 8 + 16 + 1  # odd, so that all elements are on the chain; pages change
    chain = (cupy.arange(count, dtype=cupy.int64) + step) % count
    end = cupy.zeros(1, cupy.int64)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    chase = _chase[1, 1, cuda.external_stream(stream.ptr)]
    best = 1e9
    for _ in range(3):
        first, last = cupy.cuda.Event(), cupy.cuda.Event()
        first.record(stream)
        chase(chain, hops, end)
        last.record(stream)
        last.synchronize()
        best = min(best, cupy.cuda.get_elapsed_time(first, last) * 1e6 / hops)
    return best
