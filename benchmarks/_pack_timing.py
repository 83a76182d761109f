"""Times of packing on a GPU, and of what CUDA offers for the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from _pack_cases import MIB, Case

_FILLER = r"""
extern "C" __global__ void __launch_bounds__(256) busy(float* sink, long long ns) {
  long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  float a = threadIdx.x, b = 1.0001f;
  do {
    #pragma unroll 64
    for (int i = 0; i < 256; i++) a = fmaf(a, b, 0.5f);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < ns);
  if (a == 12345.0f) sink[0] = a;
}
"""


class Timer:
    """Times of device work, by events on one stream."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.sweep = cupy.zeros(128 * MIB, cupy.uint8)
        self.busy = cupy.RawKernel(_FILLER, "busy")
        self.sink = cupy.zeros(1, cupy.float32)

    def back_to_back(self, call: Any, seconds: float = 0.05) -> float:
        """us a call, of as many as fit the time; the best of three."""
        once = self._many(call, 1)
        n = int(np.clip(seconds * 1e6 / max(once, 1.0), 3, 200))
        return min(self._many(call, n) for _ in range(3))

    def _many(self, call: Any, n: int) -> float:
        begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        call()
        begin.record(self.stream)
        for _ in range(n):
            call()
        end.record(self.stream)
        end.synchronize()
        return self.cupy.cuda.get_elapsed_time(begin, end) * 1e3 / n

    def on_device(self, call: Any, n: int = 50) -> float:
        """us a call, of ``n`` that the GPU begins when all are in the stream; the best of three."""
        call()
        best = float("inf")
        for ms in (2, 4, 8):
            begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            with self.stream:
                self.busy((1,), (32,), (self.sink, np.int64(ms * 1_000_000)))
            begin.record(self.stream)
            for _ in range(n):
                call()
            end.record(self.stream)
            in_time = not begin.done
            end.synchronize()
            if in_time:
                best = min(best, self.cupy.cuda.get_elapsed_time(begin, end) * 1e3 / n)
        return best

    def cold(self, call: Any, n: int = 9) -> float:
        """us of one call when nothing is in the cache; the median."""
        took = []
        for _ in range(n):
            begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            with self.stream:
                self.sweep += 1
            begin.record(self.stream)
            call()
            end.record(self.stream)
            end.synchronize()
            took.append(self.cupy.cuda.get_elapsed_time(begin, end) * 1e3)
        return float(np.median(took))


class Copies:
    """What CUDA itself offers, on the same buffers."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self._seen: dict[int, float] = {}

    def plain(self, nbytes: int) -> float:
        """us of a device-to-device copy of ``nbytes``."""
        if nbytes not in self._seen:
            cupy = self.timer.cupy
            a, b = cupy.empty(nbytes, cupy.uint8), cupy.empty(nbytes, cupy.uint8)
            copy = cupy.cuda.runtime.memcpyAsync
            self._seen[nbytes] = self.timer.back_to_back(
                lambda: copy(b.data.ptr, a.data.ptr, nbytes, 3, self.timer.stream.ptr)
            )
        return self._seen[nbytes]

    def memcpy(self, case: Case, source: int, target: int) -> float | None:
        """us of cudaMemcpy2D or 3D for the same layout, where it can be said that way."""
        if case.pitch:
            block, pitch, n = case.pitch
            call = self.timer.cupy.cuda.runtime.memcpy2DAsync
            stream = self.timer.stream.ptr
            return self.timer.back_to_back(
                lambda: call(target, block, source, pitch, block, n, 3, stream)
            )
        if case.box:
            launch = self.memcpy_3d(case, source, target)
            return self.timer.back_to_back(launch)
        return None

    def memcpy_3d(self, case: Case, source: int, target: int) -> Any:
        from cuda.bindings import driver

        assert case.box
        sizes, part, start, element = case.box
        p = driver.CUDA_MEMCPY3D()
        p.srcMemoryType = p.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        p.srcDevice, p.dstDevice = driver.CUdeviceptr(source), driver.CUdeviceptr(target)
        p.srcXInBytes, p.srcY, p.srcZ = start[2] * element, start[1], start[0]
        p.srcPitch, p.srcHeight = sizes[2] * element, sizes[1]
        p.dstPitch, p.dstHeight = part[2] * element, part[1]
        p.WidthInBytes, p.Height, p.Depth = part[2] * element, part[1], part[0]
        stream = driver.CUstream(self.timer.stream.ptr)
        return lambda: driver.cuMemcpy3DAsync(p, stream)
