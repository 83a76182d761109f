"""Two iterations of the Himeno benchmark in one pass over memory, by a kernel that stays.

The second iteration follows the first through the planes of a part, ``plan.distance`` planes
behind: what the first has read of the coefficients is still in L2 when the second needs it, and
memory is read once for both. Between the two each part needs the halo that its neighbours send
after the first: with launches that takes halos two planes deep, updated on both sides.

A *step* is one plane of one iteration, a *round* all steps of two. Blocks take tiles in the order
of the steps from one counter that never starts again, and there is no barrier: a tile waits until
the planes around it are done in the iteration before, and a plane beside a neighbour also for the
halo. All that a tile waits for comes before it in the order, so whoever has the least number never
waits for long.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from math import prod
from types import SimpleNamespace

import numpy as np
from _himeno_faces import PIECE
from _himeno_grid import GridError, Part
from _himeno_kernels import block_sum, check_communicating, multiprocessors, take_role
from _himeno_sweep import BOARD, FAILED, Plan, Tiling, make_update
from _himeno_vector import device, evict_first, evict_normal, load4_by, peek, take
from numba import cuda, float64, int32, int64

from device_lib.primitives import fence_gpu, sync_block, thread_rank, timer_ns
from gmpi import SIMULATOR

# Words of a board, behind those that all kernels have; then, for each plane that changes, the tiles
# that have been updated, over all iterations; the steps of a round; and for each round the tiles
# whose residuals have been added up.
ARRIVED = BOARD  # messages of the left neighbour that have come while all before have gone
ARRIVED_RIGHT = BOARD + 16  # the same of the right one
STALLED = BOARD + 32  # ns that blocks have waited before tiles, all together
DONE = BOARD + 48

# Words of a block's slot: two tickets and whether they may begin, of even and of odd tiles; then
GAVE_UP = 4  # whether another block has failed
SLOT = 5

_NAP_NS = 100  # between two looks at the board: all blocks look at few lines
_LEAD = 3  # planes that the second iteration leaves for later where there is a left neighbour


def sides(part: Part) -> tuple[bool, bool]:
    """Whether there are neighbours on the left and on the right along i."""
    return part.place[0] > 0, part.place[0] < part.ranks[0] - 1


def steps(planes: int, left: bool, distance: int) -> list[tuple[int, int]]:
    """A round: (iteration - 2 * round, plane) in order; iterations are -1, 0 or 1.

    The left neighbour's last plane of an iteration is done when its round ends, so what follows
    from it must not be at the begin of ours: the first planes wait for the middle, and plane 0
    of the second iteration for the middle of the round after.

    Raises:
        GridError: so few planes cannot be swept at such a distance.
    """
    if left and planes < distance + _LEAD + 2:
        raise GridError(
            f"{planes} planes cannot be swept in two iterations {distance} planes apart; "
            f"{distance + _LEAD + 2} could"
        )
    edge = min(planes // 2, planes - distance - 1) if left else planes + distance
    late = {
        edge: [(-1, 0)],
        edge + distance: [(0, 1), (0, 0)],
        edge + 2 * distance: [(1, 1), (1, 2)],
    }
    order = []
    for w in range(planes + distance):
        order += late.get(w, [])
        if w < planes and not (left and w < _LEAD - 1):
            order.append((0, w))
        if w >= distance and not (left and w - distance < _LEAD):
            order.append((1, w - distance))
    return order


def wave_plan(part: Part, sharers: int = 1, **chosen: int) -> Plan:
    """How two iterations are swept together, with as many messages for a face as there are blocks,
    none of less than 64 KiB.

    Args:
        sharers: ranks that use the GPU.
        chosen: ``communicating``, ``messages``, ``distance``, where they are to be others.

    Raises:
        GridError: this part cannot be swept so.
    """
    ranks = part.ranks
    if ranks[1:] != (1, 1):
        raise GridError(
            f"two iterations are swept together where the grid is cut along i only, not into "
            f"{ranks[0]}x{ranks[1]}x{ranks[2]} parts; --decompose {prod(ranks)},1,1 does that, and "
            "himeno.py takes any"
        )
    # A quarter of a multiprocessor has registers for 5 warps of 96, but for 4 of 112: not for 18.
    plan = Plan(threads=32, blocks=1) if SIMULATOR else Plan(registers=96)
    plan = plan._replace(**{"communicating": 3, **chosen})
    check_communicating(plan.communicating, sharers)
    # One block sums up; the others are for the messages to and from one or two neighbours.
    most = (plan.communicating * plan.blocks - 1) // max(1, min(2, ranks[0] - 1))
    if most < max(1, plan.messages):
        raise GridError(
            f"--communicating {plan.communicating} gives {plan.communicating * plan.blocks} blocks "
            "that communicate: not one for each message and one for the sum; take more"
        )
    pieces = max(1, min(most, part.plane // PIECE))
    tiles = Tiling(part.box, plan.threads).tiles // part.box.planes
    workers = plan.blocks * (multiprocessors() // sharers - plan.communicating)
    # Nearer, and blocks wait for each other; farther, and L2 does not hold what is between.
    distance = min(-(-3 * workers // (2 * tiles)), part.box.planes - _LEAD - 2)
    return plan._replace(
        messages=plan.messages or pieces, distance=plan.distance or max(1, distance)
    )


def make_wave(part: Part, plan: Plan) -> SimpleNamespace:
    """Device functions for the blocks that sweep: ``begin`` and ``sweep``, which does it all.

    Only for a part that is cut along i, or not at all.
    """
    box = part.box
    planes = box.planes
    left, right = sides(part)
    order = steps(planes, left, plan.distance)
    count = len(order)
    steps_at, swept_at = DONE + planes, DONE + planes + count
    tiles = Tiling(box, plan.threads).tiles // planes  # of a plane
    in_round = count * tiles
    made = make_update(part, plan, [box], load4_by)
    update = made.update
    threads, warps, pieces = plan.threads, plan.threads // 32, plan.messages

    @device
    def step_of(shared, ticket):
        """(iteration, plane, tile, iteration - 2 * round) of a ticket."""
        turn = ticket // in_round
        rest = ticket - turn * in_round
        step = rest // tiles
        entry = int64(shared[step])
        offset = entry // planes
        plane = entry - offset * planes
        return 2 * turn + offset - 1, plane, plane * tiles + rest - step * tiles, offset - 1

    @device
    def may_begin(board, n, plane):
        """Whether the planes around this one are done in the iteration before, and have sent and
        received their halo; one thread, which has a fence behind it before anything is read."""
        wanted = n * tiles
        least = peek(board, DONE + plane)
        if plane > 0:
            least = min(least, peek(board, DONE + plane - 1))
        if plane < planes - 1:
            least = min(least, peek(board, DONE + plane + 1))
        arrived = n * pieces
        if left and plane == 0:
            arrived = peek(board, ARRIVED)
        if right and plane == planes - 1:
            arrived = min(arrived, peek(board, ARRIVED_RIGHT))
        return least >= wanted and arrived >= n * pieces

    def fresh(iterations: int) -> np.ndarray:
        """int64[words]: a board for so many iterations."""
        board = np.zeros(swept_at + iterations // 2 + 1, np.int64)
        board[steps_at:swept_at] = [(offset + 1) * planes + plane for offset, plane in order]
        return board

    @device
    def begin(board, shared):
        """Copies the steps to shared memory, int32[steps]; all threads of a block."""
        step = thread_rank()
        while step < count:
            shared[step] = board[steps_at + step]
            step += cuda.blockDim.x
        sync_block()

    @device
    def summed_at(n):
        """Which word is ``in_round`` when all residuals of iteration ``n`` are in the sum."""
        return swept_at + (n + 1) // 2

    @device
    def stall(board, n, plane):
        """Waits until a tile may begin; one thread. Not 0 when it never will."""
        began = timer_ns()
        failed = int64(0)
        while failed == 0 and not may_begin(board, n, plane):
            cuda.nanosleep(_NAP_NS)
            failed = peek(board, FAILED)
        fence_gpu()
        cuda.atomic.add(board, STALLED, timer_ns() - began)
        return failed

    @device
    def report(sums, board, turn, mine, before, first, second, iterations, scratch):
        """Adds what a block has summed up in a round, and tells how many of its tiles it had."""
        n = 2 * turn
        before = block_sum(before, scratch)
        first = block_sum(first, scratch)
        second = block_sum(second, scratch)
        if thread_rank() == 0:
            if 0 < n <= iterations:
                cuda.atomic.add(sums, (0, n - 1), before)
            if n < iterations:
                cuda.atomic.add(sums, (0, n), first)
            if n + 1 < iterations:
                cuda.atomic.add(sums, (0, n + 1), second)
            fence_gpu()
            cuda.atomic.add(board, swept_at + turn, mine)

    @device
    def sweep(
        p, q, coef, sums, board, shared, slot, through, scratch, worker, workers, iterations
    ):  # fmt: skip
        """All iterations, from ``p`` to ``q`` and back; a block of ``plan.block`` threads.

        The first thread behind those that update takes tickets and keeps the board: every tile
        costs a fence, for which the warps that update should not wait.

        Args:
            sums: float64[1 or more, iterations]: residuals are added to its first row.
            slot: int64[SLOT], scratch: float64[32], in shared memory.
            through: int32[1] in shared memory: warps that are through with their tiles.
        """
        thread = thread_rank()
        keeper = thread == threads
        keep, once = evict_normal(), evict_first()
        ticket = worker
        following = worker + workers
        last = (iterations // 2 + 1) * in_round
        turn = 0
        mine = 0
        ready = False
        unsaid = -1  # plane of a tile that is updated, and nobody knows yet
        side = 0
        busy = 0
        if thread == 0:
            through[0] = 0
        sync_block()
        before = 0.0
        first = 0.0
        second = 0.0
        while ticket < last:
            n, plane, tile, offset = step_of(shared, ticket)
            changes = 0 <= n < iterations
            may = False
            if keeper:
                # One fence for both: what was updated comes before the word that says so, and this
                # look before all that is read of the next tile.
                slot[side] = take(board) + 2 * workers  # the one after next
                next_n, next_plane, _, _ = step_of(shared, following)
                may = may_begin(board, next_n, next_plane)
                fence_gpu()
                if unsaid >= 0:
                    cuda.atomic.add(board, DONE + unsaid, 1)
            unsaid = -1
            while ticket >= (turn + 1) * in_round:
                report(sums, board, turn, mine, before, first, second, iterations, scratch)
                turn += 1
                mine = 0
                before = 0.0
                first = 0.0
                second = 0.0
            if changes and not ready:
                if keeper:
                    slot[GAVE_UP] = stall(board, n, plane)
                sync_block()
                if slot[GAVE_UP] != 0:
                    break
            if changes:
                busy += warps
                unsaid = plane
            if keeper:
                # While the others update this tile, and no longer: perhaps the next waits for it.
                if not may:
                    while not may and cuda.atomic.add(through, 0, 0) < busy:
                        cuda.nanosleep(_NAP_NS)
                        may = may_begin(board, next_n, next_plane)
                    if may:
                        fence_gpu()
                slot[2 + side] = may
            elif changes and thread < threads:
                old, new = (p, q) if n & 1 == 0 else (q, p)
                share = update(old, new, (coef, keep if offset == 0 else once), tile)
                if offset == 0:
                    first += share
                elif offset == 1:
                    second += share
                else:
                    before += share
                cuda.syncwarp()
                if thread & 31 == 0:
                    cuda.atomic.add(through, 0, 1)
            mine += 1
            sync_block()
            ticket = following
            following = slot[side]
            ready = slot[2 + side] != 0
            side ^= 1
        if keeper and unsaid >= 0:
            fence_gpu()
            cuda.atomic.add(board, DONE + unsaid, 1)
        report(sums, board, turn, mine, before, first, second, iterations, scratch)

    return SimpleNamespace(
        steps=count,
        tiles=tiles,
        fresh=fresh,
        begin=begin,
        sweep=sweep,
        in_round=in_round,
        summed_at=summed_at,
    )


def make_persistent_wave(part: Part, plan: Plan) -> SimpleNamespace:
    """``make_persistent`` for two iterations at a time, in blocks of ``plan.block`` threads."""
    made = make_wave(part, plan)
    begin, sweep, communicating = made.begin, made.sweep, plan.communicating
    count = made.steps

    @cuda.jit(**({} if SIMULATOR else {"max_registers": plan.registers}))
    def persistent(p, q, coef, sums, board, iterations):
        shared = cuda.shared.array(count, int32)
        scratch = cuda.shared.array(32, float64)
        slot = cuda.shared.array(SLOT, int64)
        through = cuda.shared.array(1, int32)
        worker, workers, _, _ = take_role(board, slot, communicating)
        begin(board, shared)
        if worker >= 0:
            sweep(
                p, q, coef, sums, board, shared, slot, through, scratch, worker, workers, iterations
            )  # fmt: skip

    tiles = made.tiles * part.box.planes
    return SimpleNamespace(kernel=persistent, tiles=tiles, fresh=made.fresh)
