"""Who waits for whom when two iterations are swept together: what warps tell each other.

There is no barrier, not even of a block. A warp writes on the board how many stages it has ended,
and begins one when those warps of the other half whose points touch its own, in its block and those
beside, have ended what the stage follows from; at the first and the last plane also when the halo
has come.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from _himeno_fetch import spin
from _himeno_grid import GridError, Part
from _himeno_stages import WORDS, Stage, words
from _himeno_strips import Strips, sides
from _himeno_sweep import BOARD, FAILED
from _himeno_vector import device, peek, poke
from numba import cuda, int32

from device_lib.platform.primitives import fence_gpu, thread_rank, timer_ns

# Words of a board, behind those that all kernels have; then, for the leading halves and for the
# trailing ones, the stages that each warp has ended; what is known of the stages of a round; and
# for each round how many warps have added up their residuals.
ARRIVED = BOARD  # messages of the left neighbour that have come while all before have gone
ARRIVED_RIGHT = BOARD + 16  # the same of the right one
UPDATED = BOARD + 32  # how often warps have updated their points of the first plane
UPDATED_RIGHT = BOARD + 48  # the same of the last one
STALLED = BOARD + 64  # ns that leading warps have waited, all together; then the trailing ones
ENDED = BOARD + 80

ALL = 0xFFFFFFFF  # lanes of a warp
_MOST = 1 << 28  # stages, so that 32 bits are enough for all that is counted
_NEVER = 1 << 30  # stages
_PATIENCE = 8  # looks at the board, before what nobody knows yet is told
_LOOKS = 64  # at the board, between two at whether another block has failed


def make_signals(part: Part, strips: Strips, order: list[Stage], pieces: int) -> SimpleNamespace:
    """Device functions, for a warp where nothing else is said.

    Args:
        pieces: messages of a halo.
    """
    planes = part.box.planes
    left, right = sides(part)
    count, warps, across = strips.count, strips.warps, strips.across
    half = strips.threads
    stages_at = ENDED + 2 * (count + 2) * warps
    swept_at = stages_at + WORDS * len(order)

    def fresh(iterations: int) -> np.ndarray:
        """int64[words]: a board for so many iterations.

        Raises:
            GridError: there are too many for one run; on all ranks.
        """
        most = 2 * (_MOST // (part.shape[0] + 2)) - 2
        if iterations > most:
            raise GridError(
                f"{iterations} iterations are too many for one run that sweeps two together: "
                f"at most {most} of this size; --together 1 takes any number"
            )
        board = np.zeros(swept_at + iterations // 2 + 1, np.int64)
        for ended in board[ENDED:stages_at].reshape(2, count + 2, warps):
            ended[[0, -1]] = _NEVER  # nobody waits for who is not there
        board[stages_at:swept_at] = words(order).reshape(-1)
        return board

    @device
    def summed_at(n):
        """Which word is ``in_round`` when all residuals of iteration ``n`` are in the sum."""
        return swept_at + (n + 1) // 2

    @device
    def own_word(worker, trailing):
        """Where the calling warp tells how many stages it has ended."""
        warp = (thread_rank() - half * trailing) // 32
        return int32(ENDED + (trailing * (count + 2) + worker + 1) * warps + warp)

    @device
    def touches():
        """Whether this lane looks at a warp whose points touch those of the calling one. They are
        numbered from the first of the block before."""
        other = cuda.laneid
        if other >= 3 * warps:
            return False
        if across == 0:
            return True
        mine = warps + thread_rank() % half // 32
        down = other // across - mine // across
        aside = other % across - mine % across
        return -1 <= down <= 1 and -1 <= aside <= 1

    @device
    def look(board, touched, worker, trailing):
        """How many stages the other half has ended, one of the warps for each lane."""
        if not touched:
            return int32(_NEVER)
        first = ENDED + ((1 - trailing) * (count + 2) + worker) * warps
        return int32(peek(board, first + cuda.laneid))

    @device
    def halo_came(board, n, plane):
        came = True
        if left and plane == 0:
            came = peek(board, ARRIVED) >= n * pieces
        if right and plane == planes - 1:
            came = came and peek(board, ARRIVED_RIGHT) >= n * pieces
        return came

    @device
    def at_edge(plane):
        """Whether a plane needs a halo, and neighbours need it."""
        return (left and plane == 0) or (right and plane == planes - 1)

    @device
    def event_of(changes, plane):
        """Which word counts the updates of a plane that a neighbour needs, or 0."""
        if changes and left and plane == 0:
            return int32(UPDATED)
        if changes and right and plane == planes - 1:
            return int32(UPDATED_RIGHT)
        return int32(0)

    @device
    def tell(board, mine, ended, event):
        """How many stages this warp has ended; behind a fence."""
        if cuda.laneid == 0:
            poke(board, mine, ended)
            if event != 0:
                cuda.atomic.add(board, event, 1)

    @device
    def tell_all(board, mine, ended, event, round_ends, turn, going):
        """``tell``, behind a fence that this is, and at the end of the round before ``turn`` that
        its residuals are added; nothing after a failure."""
        fence_gpu()
        if going:
            tell(board, mine, ended, event)
            if round_ends and cuda.laneid == 0:
                cuda.atomic.add(board, swept_at + turn - 1, 1)

    # wide: words in registers of a loop that looks at memory
    @device
    def await_others(board, touched, worker, trailing, needed, n, plane, mine, untold):
        """Returns when a stage may begin, behind a fence that also comes before ``untold`` stages
        are told; a warp. Whether it ever may.

        Where it takes long, ``untold`` is told before: perhaps somebody waits for it.
        """
        began = timer_ns()
        looks = 0
        going = True
        while going and not (
            cuda.all_sync(ALL, look(board, touched, worker, trailing) >= needed)
            and cuda.all_sync(ALL, halo_came(board, n, plane))
        ):
            looks += 1
            if looks == _PATIENCE:
                fence_gpu()
                tell(board, mine, untold, 0)
            if looks % _LOOKS == 0:
                going = cuda.all_sync(ALL, peek(board, FAILED) == 0)
            spin()
        fence_gpu()
        if cuda.laneid == 0:
            cuda.atomic.add(board, STALLED + trailing, timer_ns() - began)
        return going

    @device
    def least(value):
        """The least of a warp's lanes."""
        for shift in (16, 8, 4, 2, 1):
            value = min(value, cuda.shfl_xor_sync(ALL, value, shift))
        return int32(value)

    return SimpleNamespace(
        fresh=fresh,
        stages_at=stages_at,
        summed_at=summed_at,
        own_word=own_word,
        touches=touches,
        look=look,
        at_edge=at_edge,
        event_of=event_of,
        tell=tell,
        tell_all=tell_all,
        await_others=await_others,
        least=least,
    )
