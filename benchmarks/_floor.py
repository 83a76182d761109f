"""The floor of any proxied call: 8 bytes from the GPU to a CPU thread and back, nothing else."""

from __future__ import annotations

import threading

import numpy as np
from numba import cuda

import gmpi
from device_lib.platform.primitives import load_sys, store_sys
from gmpi.bench.clock import cycles_per_us as cycles_per_us
from host_proxy.platform.native import entry, load_acquire, pause, store_release


@cuda.jit
def _echo(out, back, iterations, cycles):
    if cuda.threadIdx.x == 0:
        for i in range(1, iterations + 1):
            begin = gmpi.clock()
            store_sys(out, i)
            while load_sys(back) != i:
                if gmpi.SIMULATOR:
                    cuda.nanosleep(0)
            cycles[i - 1] = gmpi.clock() - begin
    cuda.syncthreads()


@entry
def _answer(out, back, iterations):
    for i in range(1, iterations + 1):
        while load_acquire(out) != i:
            pause()
        store_release(back, i)


def echo_cycles(iterations: int) -> np.ndarray:
    """Round trips in GPU clock cycles."""
    words = cuda.mapped_array(32, dtype=np.int64)
    words[:] = 0
    cycles = cuda.to_device(np.zeros(iterations, np.int64))
    host = np.asarray(words).ctypes.data
    mapped = host if gmpi.SIMULATOR else words.__cuda_array_interface__["data"][0]
    _answer(host, host + 128, 0)
    for count in (min(10, iterations), iterations):
        words[:] = 0
        thread = threading.Thread(target=_answer, args=(host, host + 128, count), daemon=True)
        thread.start()
        _echo[1, 32](mapped, mapped + 128, count, cycles)
        cuda.synchronize()
        thread.join()
    return cycles.copy_to_host()
