"""How fast the GPU's clock runs, in whose cycles kernels time themselves."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import warnings

import numpy as np
from numba import cuda

import gmpi


@cuda.jit
def _clock_rate(out, ns):
    begin = gmpi.clock()
    start = gmpi.timer_ns()
    while gmpi.timer_ns() - start < ns:
        pass
    out[0] = gmpi.clock() - begin
    out[1] = gmpi.timer_ns() - start


def cycles_per_us() -> float:
    """Rate of the clock that kernels read, measured over 20 ms by one thread.

    In the simulator over 1 ms: its clocks are two of the host's, both in nanoseconds.
    """
    out = cuda.to_device(np.zeros(2, np.int64))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Grid size")  # one thread is what is wanted
        for _ in range(2):
            _clock_rate[1, 1](out, 1_000_000 if gmpi.SIMULATOR else 20_000_000)
            cuda.synchronize()
    cycles, ns = out.copy_to_host()
    return float(cycles / ns * 1000)
