"""What CUDA makes wait for a running kernel, shown: without and with GMPI's way. Needs a GPU.

    python3 tests/gpu/hazards.py [--json FILE]

A kernel that communicates may run for hours, and waits for its host. Whatever of the host waits
for the kernel in turn is a deadlock; here the kernel ends by itself after a second, so a wait shows
as a time. Each demonstration is a process of its own under a time limit. docs/troubleshooting.md,
"CUDA waits for the running kernel".
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from tabulate import tabulate

LIMIT_S = 90
BUSY_S = 1.0


def _start() -> tuple[Any, Any, Any, Any]:
    """(cuda, driver, gmpi, a compiled kernel that runs for so many ns)."""
    from cuda.bindings import driver
    from numba import cuda

    import gmpi

    @cuda.jit
    def occupy(ns):  # type: ignore[no-untyped-def]
        begin = gmpi.timer_ns()
        while gmpi.timer_ns() - begin < ns:
            cuda.nanosleep(1000)

    occupy[1, 32](1)
    cuda.synchronize()
    return cuda, driver, gmpi, occupy


def _call(answer: tuple[Any, ...]) -> Any:
    assert int(answer[0]) == 0, answer[0].name
    return answer[1] if len(answer) > 1 else None


def _non_blocking(driver: Any) -> Any:
    return _call(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))


def _while_busy(occupy: Any, cuda: Any, what: Callable[[], Any], stream: Any = 0) -> float:
    """Seconds that ``what`` takes beside a kernel of a second."""
    cuda.synchronize()
    occupy[1, 32, stream](int(BUSY_S * 1e9))
    time.sleep(0.05)
    began = time.monotonic()
    what()
    took = time.monotonic() - began
    cuda.synchronize()
    return took


# Each returns (seconds without, seconds with, what GMPI does).


def freeing_memory() -> tuple[float, float, str]:
    """cudaFree"""
    cuda, driver, gmpi, occupy = _start()
    address = _call(driver.cuMemAlloc(1 << 20))
    without = _while_busy(occupy, cuda, lambda: _call(driver.cuMemFree(address)))

    @cuda.jit
    def with_context(ctx, ns):  # type: ignore[no-untyped-def]
        gmpi.GMPI_Barrier(ctx, gmpi.COMM_WORLD)
        begin = gmpi.timer_ns()
        while gmpi.timer_ns() - begin < ns:
            cuda.nanosleep(1000)

    with gmpi.Context() as g:
        with_context[1, 32](g.device, 1)
        g.synchronize()
        arrays = [cuda.device_array(1 << 20, np.uint8) for _ in range(40)]
        with_context[1, 32](g.device, int(BUSY_S * 1e9))
        time.sleep(0.05)
        began = time.monotonic()
        arrays.clear()
        gc.collect()
        took = time.monotonic() - began
    return without, took, "arrays that are dropped while kernels run are freed after them"


def trimming_a_pool() -> tuple[float, float, str]:
    """cuMemPoolTrimTo (CuPy's pools, cudaMallocAsync)"""
    cuda, driver, _, occupy = _start()
    stream = _non_blocking(driver)
    pool = _call(driver.cuDeviceGetDefaultMemPool(_call(driver.cuCtxGetDevice())))
    address = _call(driver.cuMemAllocAsync(1 << 26, stream))
    _call(driver.cuMemFreeAsync(address, stream))
    _call(driver.cuStreamSynchronize(stream))
    without = _while_busy(occupy, cuda, lambda: _call(driver.cuMemPoolTrimTo(pool, 0)))
    return without, 0.0, "never does so: all memory of a context is allocated when it opens"


def copying_on_the_default_stream() -> tuple[float, float, str]:
    """a copy on the legacy default stream"""
    cuda, driver, _, occupy = _start()
    data = np.zeros(8, np.uint8)
    address = _call(driver.cuMemAlloc(4096))
    stream = _non_blocking(driver)

    def other_stream() -> None:
        _call(driver.cuMemcpyHtoDAsync(address, data.ctypes.data, 8, stream))
        _call(driver.cuStreamSynchronize(stream))

    on_default = lambda: _call(driver.cuMemcpyHtoD(address, data.ctypes.data, 8))  # noqa: E731
    without = _while_busy(occupy, cuda, on_default, cuda.stream())
    took = _while_busy(occupy, cuda, other_stream, cuda.stream())
    return without, took, "copies on a non-blocking stream of its own"


def capturing_a_graph() -> tuple[float, float, str]:
    """a graph: captured, instantiated and launched"""
    cuda, driver, _, occupy = _start()
    address = _call(driver.cuMemAlloc(4096))
    stream = _non_blocking(driver)

    def graph() -> None:
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        _call(driver.cuStreamBeginCapture(stream, mode))
        _call(driver.cuMemsetD8Async(address, 1, 8, stream))
        captured = _call(driver.cuStreamEndCapture(stream))
        ready = _call(driver.cuGraphInstantiate(captured, 0))
        _call(driver.cuGraphLaunch(ready, stream))
        _call(driver.cuStreamSynchronize(stream))

    return _while_busy(occupy, cuda, graph), 0.0, "uses no graphs; capture yours before the launch"


def _first_launch(loading: str) -> float:
    os.environ["CUDA_MODULE_LOADING"] = loading
    cuda, driver, _, occupy = _start()

    @cuda.jit("void(int64[:])")
    def second(out):  # type: ignore[no-untyped-def]
        out[0] = 1

    out = cuda.to_device(np.zeros(1, np.int64))
    stream = cuda.external_stream(int(_non_blocking(driver)))

    def launch() -> None:
        second[1, 1, stream](out)
        stream.synchronize()

    busy = cuda.external_stream(int(_non_blocking(driver)))
    return _while_busy(occupy, cuda, launch, busy)


def loading_a_module() -> tuple[float, float, str]:
    """the first launch of another kernel (lazy loading of modules)"""
    program = [sys.executable, __file__, "--first-launch"]
    lazy, eager = (
        float(subprocess.check_output([*program, how], timeout=LIMIT_S).split()[-1])
        for how in ("LAZY", "EAGER")
    )
    return lazy, eager, "importing gmpi sets CUDA_MODULE_LOADING=EAGER"


def a_grid_that_is_not_resident() -> tuple[float, float, str]:
    """a block that waits for one that is not on the GPU yet"""
    cuda, _, gmpi, _ = _start()

    @cuda.jit
    def last_block_first(ctx, flag, late, ns):  # type: ignore[no-untyped-def]
        if cuda.blockIdx.x == cuda.gridDim.x - 1:
            cuda.atomic.max(flag, 0, 1)
        begin = gmpi.timer_ns()
        while cuda.atomic.add(flag, 0, 0) == 0 and gmpi.timer_ns() - begin < ns:
            cuda.nanosleep(1000)
        if gmpi.timer_ns() - begin >= ns:
            cuda.atomic.add(late, 0, 1)

    flag, late = (cuda.to_device(np.zeros(1, np.int32)) for _ in range(2))
    ns = int(BUSY_S * 1e9)
    with gmpi.Context(check_grid=False) as g:
        last_block_first[1, 1024](g.device, flag, late, ns)
        g.synchronize()
        most = g.max_blocks(last_block_first, 1024)
        flag.copy_to_device(np.zeros(1, np.int32))
        began = time.monotonic()
        last_block_first[most + 1, 1024](g.device, flag, late, ns)
        g.synchronize()
        without = time.monotonic() - began
    with gmpi.Context() as g:
        began = time.monotonic()
        try:
            last_block_first[most + 1, 1024](g.device, flag, late, ns)
            raise AssertionError("the grid was not refused")
        except gmpi.GridError:
            took = time.monotonic() - began
    return without, took, "refuses the launch with a GridError that says what fits"


def polling_by_every_thread() -> tuple[float, float, str]:
    """a word of the host that every thread of the GPU polls, beside 100 copies of 8 bytes"""
    cuda, driver, gmpi, _ = _start()

    from device_lib.platform.primitives import load_sys

    @cuda.jit
    def poll(address, all_threads, ns):  # type: ignore[no-untyped-def]
        begin = gmpi.timer_ns()
        while gmpi.timer_ns() - begin < ns:
            if all_threads or cuda.grid(1) == 0:
                if load_sys(address) != 0:
                    break
            else:
                cuda.nanosleep(10000)

    memory = cuda.mapped_array(1, dtype=np.int64)
    memory[0] = 0
    word = int(memory.__cuda_array_interface__["data"][0])
    data = np.zeros(8, np.uint8)
    address = _call(driver.cuMemAlloc(4096))
    stream = _non_blocking(driver)
    poll[1, 32](word, True, 1)
    cuda.synchronize()
    times = []
    for everybody in (True, False):
        poll[264, 1024, cuda.stream()](word, everybody, int(BUSY_S * 1e9))
        time.sleep(0.05)
        began = time.monotonic()
        for _ in range(100):
            _call(driver.cuMemcpyHtoDAsync(address, data.ctypes.data, 8, stream))
            _call(driver.cuStreamSynchronize(stream))
        times.append(time.monotonic() - began)
        cuda.synchronize()
    return times[0], times[1], "one lane of a waiting scope polls"


def atomics_on_host_memory() -> tuple[float, float, str]:
    """atomics of the GPU on host memory (0: not atomic with the CPU's)"""
    _, driver, _, _ = _start()
    device = _call(driver.cuCtxGetDevice())
    which = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED
    native = int(_call(driver.cuDeviceGetAttribute(which, device)))
    return native, native, "every word of shared memory has one writer; none is updated in place"


HAZARDS: list[Callable[[], tuple[float, float, str]]] = [
    freeing_memory, trimming_a_pool, copying_on_the_default_stream, capturing_a_graph,
    loading_a_module, a_grid_that_is_not_resident, polling_by_every_thread, atomics_on_host_memory,
]  # fmt: skip


@click.command()
@click.option("--json", "path", type=click.Path(), help="where to write what was measured")
@click.option("--only", help="one demonstration, in this process")
@click.option("--first-launch", hidden=True)
def main(path: str | None, only: str | None, first_launch: str | None) -> None:
    if first_launch:
        print(_first_launch(first_launch))
        return
    if only:
        without, took, way = next(h for h in HAZARDS if h.__name__ == only)()
        print(json.dumps({"without_s": without, "with_s": took, "gmpi": way}))
        return
    results = {}
    rows = []
    for hazard in HAZARDS:
        name = hazard.__name__
        command = [sys.executable, __file__, "--only", name]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            failed = "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
        except subprocess.TimeoutExpired:
            failed = f"did not end within {LIMIT_S} s"
        result = {"failed": failed} if failed else json.loads(done.stdout.splitlines()[-1])
        results[name] = {"what": hazard.__doc__, **result}
        if failed:
            rows.append([hazard.__doc__, "-", "-", failed[:80]])
        else:
            rows.append([hazard.__doc__, result["without_s"], result["with_s"], result["gmpi"]])
    heads = [f"beside a kernel of {BUSY_S:.0f} s", "without, s", "with, s", "GMPI"]
    print(tabulate(rows, headers=heads, floatfmt=".4f"))
    if path:
        Path(path).write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(any("failed" in result for result in results.values()))


if __name__ == "__main__":
    main()
