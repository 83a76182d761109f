"""The words of a job of a block, in its shared memory (``block_jobs``)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device

# Kinds of jobs that more files than one know.
OVER = 0  # none: the call is over
PUSH = 1  # of a long message (``long_moves``)
TAKE = 2
GRID = 3  # by all blocks of a grid (``grid_jobs``)
TOGETHER = 4  # rows of one length (``block_rows``)


@device
def put_words(kind, a, b, c, d, e, f):
    """Says what the other warps are to do; the leading warp, before a barrier.

    ``get_block_4`` gives the first four, ``get_block_row`` of row 0 the rest.
    """
    gpu.put_block_4(kind, a, b, c)
    if gpu.lane_id() == 0:
        gpu.put_block_row(0, d, e, f)
