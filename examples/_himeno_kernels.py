"""The sweep as kernels without communication: one launch per sweep, and persistent.

What the two ways of computing cost is measured with these (``tests/gpu/himeno_sweeps.py``); the
conventional program launches ``launched`` ones, ``himeno.py`` has the persistent one with messages.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from _himeno_grid import Box, Part
from _himeno_sweep import Plan, make_sweep
from _himeno_vector import barrier_init, device
from numba import cuda, float32, float64, int64

from gmpi import SIMULATOR

ACCUMULATORS = 64  # of gosa: blocks add to different addresses


@device
def block_sum(value, scratch):
    """Sum over the block, in thread 0; ``scratch`` is float64[32] in shared memory."""
    lane = cuda.laneid
    for shift in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, shift)
    if lane == 0:
        scratch[cuda.threadIdx.x // 32] = value
    cuda.syncthreads()
    total = 0.0
    if cuda.threadIdx.x == 0:
        for warp in range(cuda.blockDim.x // 32):
            total += scratch[warp]
    cuda.syncthreads()
    return total


def jit(plan: Plan, persistent: bool) -> Any:
    """``cuda.jit`` with the plan's limits."""
    if SIMULATOR:
        return cuda.jit
    if plan.registers:
        return cuda.jit(max_registers=plan.registers)
    if persistent:
        return cuda.jit(launch_bounds=(plan.threads, plan.blocks))
    return cuda.jit(launch_bounds=(plan.threads, 1))


def make_launched(part: Part, plan: Plan, box: Box) -> Any:
    """Kernel ``(old, new, coef, gosa)`` with one block of ``plan.threads`` per tile of the box.

    Its attribute ``tiles`` is the number of blocks. ``gosa``: float64[ACCUMULATORS], added to.
    """
    sweep = make_sweep(part, plan, box)
    update = sweep.update

    @jit(plan, persistent=False)
    def launched(old, new, coef, gosa):
        scratch = cuda.shared.array(32, float64)
        total = block_sum(update(old, new, coef, np.int64(cuda.blockIdx.x)), scratch)
        if cuda.threadIdx.x == 0:
            cuda.atomic.add(gosa, cuda.blockIdx.x % ACCUMULATORS, total)

    return SimpleNamespace(kernel=launched, tiles=sweep.tiles, layout=sweep.layout)


def make_persistent(part: Part, plan: Plan) -> SimpleNamespace:
    """Cooperative kernel ``(p, q, coef, gosa, counter, iterations)`` that sweeps over all points
    again and again; ``gosa`` float64[iterations], ``counter`` int64[1], both zero before."""
    sweep = make_sweep(part, plan, part.box)
    sweep_once, sweep_bulk = sweep.sweep, sweep.sweep_bulk
    fill_first, drain = sweep.fill_first, sweep.drain
    tiles, stages = sweep.tiles, plan.stages

    @jit(plan, persistent=True)
    def direct(p, q, coef, gosa, counter, iterations):
        scratch = cuda.shared.array(32, float64)
        slot = cuda.shared.array(2, int64)
        grid = cuda.cg.this_grid()
        for n in range(iterations):
            share = sweep_once(p, q, coef, counter, slot, np.int64(n) * tiles)
            total = block_sum(share, scratch)
            if cuda.threadIdx.x == 0:
                cuda.atomic.add(gosa, n, total)
            p, q = q, p
            grid.sync()

    @jit(plan, persistent=True)
    def bulk(p, q, coef, gosa, counter, iterations):
        held = cuda.shared.array(0, float32, alignment=128)
        scratch = cuda.shared.array(32, float64)
        queue = cuda.shared.array(stages, int64)
        bars = cuda.shared.array(stages, int64)
        if cuda.threadIdx.x == 0:
            for s in range(stages):
                barrier_init(bars, s)
        cuda.syncthreads()
        grid = cuda.cg.this_grid()
        fill_first(coef, held, bars, queue)
        stage = np.int64(0)
        parity = np.int64(0)
        for n in range(iterations):
            share, stage, parity = sweep_bulk(
                p, q, coef, held, bars, queue, counter, np.int64(n), stage, parity
            )
            total = block_sum(share, scratch)
            if cuda.threadIdx.x == 0:
                cuda.atomic.add(gosa, n, total)
            p, q = q, p
            grid.sync()
        drain(bars, stage, parity)

    return SimpleNamespace(
        kernel=bulk if plan.staging == "bulk" else direct,
        tiles=tiles,
        layout=sweep.layout,
        shared_bytes=sweep.shared_bytes,
    )


def allow_shared(kernel: Any, nbytes: int) -> None:
    """Lets a compiled kernel have more than 48 KiB of dynamic shared memory; Numba has no way."""
    if SIMULATOR or not nbytes:
        return
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    device_id = cuda.get_current_device().id
    for compiled in kernel.overloads.values():
        handle = compiled.library.get_cufunc().handle
        (error,) = driver.cuKernelSetAttribute(attribute, nbytes, handle, device_id)
        if error != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{nbytes} bytes of shared memory were refused: {error.name}")


def resident_blocks(kernel: Any, threads: int, shared_bytes: int) -> int:
    """Blocks that the GPU holds at once, for a compiled kernel."""
    if SIMULATOR:
        return 4
    (compiled,) = kernel.overloads.values()
    return int(compiled.max_cooperative_grid_blocks(threads, shared_bytes))
