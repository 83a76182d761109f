"""The sweep as kernels without messages, and what all Himeno kernels share.

The conventional program launches ``launched`` kernels; the computing of ``himeno.py`` alone, to be
compared with them (``tests/gpu/himeno_sweeps.py``), is the ``persistent`` one.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from _himeno_grid import Box, GridError, Part
from _himeno_sweep import BOARD, BUSY, HELPERS, WORKERS, Plan, Tiling, make_sweep, make_update
from _himeno_vector import device, multiprocessor
from numba import cuda, float32, float64, int64

from gmpi import SIMULATOR
from gmpi.launch import launch

ACCUMULATORS = 64  # of gosa: launched blocks add to different addresses
_SMALL = 1 << 20  # points of a part, below which occupancy is worth more than registers
_BRIEF = 1 << 20  # points of a part, below which a sweep is over before the messages are
_SWEPT = 175  # points that a GPU sweeps while one multiprocessor sends one
_VAST = 1 << 25  # points of all parts on a GPU, from which holding few coefficients does not pay
TASKS = 7  # multiprocessors that communicate: one for each task of two messages, and for the sum
DIRECT_TASKS = 13, 4  # on the direct road, where messages go from the GPU: of four messages
_PAIRS = 4  # the same where who sends a message also waits for it
_SIMULATED = 6  # blocks, each with a multiprocessor to itself
# Tiles of 256 threads. With less than 1 KiB of other shared memory for each of two blocks they take
# 196 of a multiprocessor's 256 KiB; a byte more takes 228 of them, and leaves 28 for L1.
_MOST_HELD = 2


def launched_plan(part: Part) -> Plan:
    """The fastest way to launch one sweep over a part (measured: README.md)."""
    if SIMULATOR:
        return Plan(threads=32)
    return Plan(registers=64 if np.prod(part.shape) < _SMALL else 0)


def multiprocessors() -> int:
    """Of the GPU."""
    return _SIMULATED if SIMULATOR else cuda.get_current_device().MULTIPROCESSOR_COUNT


def default_communicating(part: Part, sharers: int) -> int:
    """How many multiprocessors communicate, unless somebody chooses; all ranks of a job must agree,
    since as many messages as there are blocks for them make up a face."""
    if SIMULATOR:
        return 3
    points = np.prod(part.shape)
    sent = sum(neighbour.points for neighbour in part.neighbours)
    if points < _BRIEF:
        few = TASKS
    elif points * sharers < _SWEPT * sent:
        few = _PAIRS
    else:
        few = 1
    return max(1, min(few, multiprocessors() // sharers // 8))


def partitioned_tasks(few: int, faces: int) -> tuple[int, int]:
    """How many multiprocessors communicate where faces go as partitions, and partitions of a face
    (measured: README.md).

    Args:
        few: multiprocessors that would communicate with messages.
        faces: of the busiest rank.
    """
    if SIMULATOR:
        return few, 4
    few, pieces = (8, 8) if few >= TASKS else (min(few, 3), 2)
    # A block for each partition, and two that have none.
    return few, max(1, min(pieces, (few * Plan().blocks - 2) // max(1, faces)))


def check_communicating(few: int, sharers: int) -> None:
    """Raises GridError unless multiprocessors are left to sweep."""
    most = multiprocessors() // sharers - 1
    if not 1 <= few <= most:
        raise GridError(
            f"--communicating must be from 1 to {most}, got {few}: "
            "one multiprocessor or more must be left to sweep"
        )


def persistent_plan(part: Part, sharers: int = 1, **chosen: int) -> Plan:
    """The fastest way to sweep again and again in one kernel (measured: README.md).

    Coefficients are held, as many as there is place for, but not where they would be few of many:
    shared memory is taken from L1, which large parts need for the pressure.

    Args:
        chosen: ``communicating``, ``messages``, where they are to be others.

    Raises:
        GridError: no multiprocessor would be left to sweep.
    """
    few = chosen.get("communicating", default_communicating(part, sharers))
    check_communicating(few, sharers)
    chosen["communicating"] = few
    if SIMULATOR:
        return Plan(threads=32, blocks=1, held=1, dynamic=True)._replace(**chosen)
    plan = Plan(registers=128, dynamic=True)._replace(**chosen)
    boxes = [box for box in (*part.outer, part.inner) if not box.empty]
    tiles = sum(Tiling(box, plan.threads).tiles for box in boxes)
    workers = plan.blocks * (multiprocessors() // sharers - few)
    held = min(-(-tiles // workers), _MOST_HELD)
    return plan._replace(held=held) if sharers * np.prod(part.shape) < _VAST else plan


@device
def warp_sum(value):
    """Sum over the warp, in lane 0."""
    for shift in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, shift)
    return value


@device
def block_sum(value, scratch):
    """Sum over the block, in thread 0; ``scratch`` is float64[warps] in shared memory."""
    value = warp_sum(value)
    if cuda.laneid == 0:
        scratch[cuda.threadIdx.x // 32] = value
    cuda.syncthreads()
    total = 0.0
    if cuda.threadIdx.x == 0:
        for warp in range(cuda.blockDim.x // 32):
            total += scratch[warp]
    cuda.syncthreads()
    return total


@device
def take_role(board, slot, communicating):
    """What a block of a cooperative grid is for, found by all its blocks together.

    The first ``communicating`` blocks communicate, and all that share a multiprocessor with one of
    them: reads of host memory hold up all that come after them there. The others sweep. ``slot``
    is int64[2] in shared memory.

    Returns:
        (number among the blocks that sweep, or -1; how many they are;
        number among the blocks that communicate, or -1; how many they are).
    """
    grid = cuda.cg.this_grid()
    leader = cuda.threadIdx.x == 0
    first = cuda.blockIdx.x < communicating
    if leader and first:
        board[BUSY + multiprocessor()] = 1
    grid.sync()
    if leader:
        slot[0] = -1
        slot[1] = cuda.blockIdx.x if first else -1
        if not first and board[BUSY + multiprocessor()] == 0:
            slot[0] = cuda.atomic.add(board, WORKERS, 1)
        elif not first:
            slot[1] = communicating + cuda.atomic.add(board, HELPERS, 1)
    grid.sync()
    cuda.syncthreads()  # racecheck does not see the barrier of a block in that of the grid
    worker, communicator = slot[0], slot[1]
    cuda.syncthreads()  # before the slot is used for something else
    return worker, board[WORKERS], communicator, communicating + board[HELPERS]


def make_launched(part: Part, plan: Plan, boxes: list[Box]) -> SimpleNamespace:
    """Kernel ``(old, new, coef, gosa)`` with one block of ``plan.threads`` per tile of the boxes.

    Its ``tiles`` is the number of blocks. ``gosa``: float64[ACCUMULATORS], added to.
    """
    made = make_update(part, plan, boxes)
    update = made.update
    limit = {"max_registers": plan.registers} if plan.registers else {"launch_bounds": plan.threads}
    warps = plan.threads // 32

    @cuda.jit(**limit)
    def launched(old, new, coef, gosa):
        scratch = cuda.shared.array(warps, float64)
        total = block_sum(update(old, new, coef, np.int64(cuda.blockIdx.x)), scratch)
        if cuda.threadIdx.x == 0:
            cuda.atomic.add(gosa, cuda.blockIdx.x % ACCUMULATORS, total)

    return SimpleNamespace(kernel=launched, tiles=made.tiles)


def make_persistent(part: Part, plan: Plan) -> SimpleNamespace:
    """Cooperative kernel ``(p, q, coef, sums, board, iterations)`` that sweeps over all points
    again and again, without messages; ``sums`` float64[1, iterations], 0 before, ``board`` as
    ``fresh(iterations)`` makes it."""
    made = make_sweep(part, plan)
    begin, sweep, communicating = made.begin, made.sweep, plan.communicating
    warps = plan.threads // 32

    @cuda.jit(max_registers=plan.registers)
    def persistent(p, q, coef, sums, board, iterations):
        held = cuda.shared.array(0, float32, alignment=128)
        scratch = cuda.shared.array(warps, float64)
        slot = cuda.shared.array(2, int64)
        grid = cuda.cg.this_grid()
        worker, workers, _, _ = take_role(board, slot, communicating)
        direct, count = begin(coef, held, worker, workers)
        for n in range(iterations):
            if worker >= 0:
                share = sweep(p, q, coef, held, board, slot, n, worker, workers, direct, count)
                total = block_sum(share, scratch)
                if cuda.threadIdx.x == 0:
                    cuda.atomic.add(sums, (0, n), total)
            p, q = q, p
            grid.sync()

    def fresh(iterations: int) -> np.ndarray:
        return np.zeros(BOARD, np.int64)

    return SimpleNamespace(kernel=persistent, tiles=made.tiles, fresh=fresh)


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


def grid_blocks(kernel: Any, args: tuple[Any, ...], plan: Plan, sharers: int = 1) -> int:
    """Blocks of a cooperative grid of which the GPU holds ``sharers`` at once; compiles.

    Raises:
        GridError: as ``resident_blocks``.
    """
    if SIMULATOR:
        return resident_blocks(_SIMULATED, plan, sharers)
    kernel.compile(tuple(kernel.typeof_pyval(arg) for arg in args))
    allow_shared(kernel, plan.shared_bytes)
    most = launch.max_blocks(kernel, plan.threads, plan.shared_bytes)
    return resident_blocks(most, plan, sharers)


def resident_blocks(most: int, plan: Plan, sharers: int) -> int:
    """Blocks for each of the ranks that share a GPU which holds ``most`` at once.

    Raises:
        GridError: no block would be left to sweep.
    """
    blocks = min(most, plan.blocks * multiprocessors()) // sharers
    communicate = plan.communicating * plan.blocks
    if blocks <= communicate:
        raise GridError(
            f"the GPU holds {most} blocks of {plan.threads} threads at once, {blocks} for each of "
            f"{sharers} rank(s), of which {communicate} communicate: none would be left to sweep; "
            "take fewer ranks a GPU, or end what else runs there"
        )
    return blocks
