"""Where all blocks of a grid that stays meet, and what they ask about failures meanwhile."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from _himeno_fetch import spin
from _himeno_sweep import FAILED, MET
from _himeno_vector import acquire, arrive, device, peek
from numba import int32

from device_lib.platform.primitives import grid_blocks, sync_block, thread_rank


@device
def meet(board, n):
    """Returns when all blocks have come after iteration ``n``: a barrier of the grid, as
    ``grid.sync()``, for blocks that are all resident. What they stored before is there."""
    sync_block()
    if thread_rank() == 0:
        wanted = (n + 1) * grid_blocks()
        come = arrive(board, MET)  # who looks before this has come holds up others
        while come < wanted:
            spin()
            come = acquire(board, MET)
    sync_block()


@device
def failed_in(board):
    """0, or 1 + the number of the iteration in which a message failed. Who asks at the beginning
    of an iteration and looks at the answer at its end does not wait for it."""
    return int32(peek(board, FAILED))
