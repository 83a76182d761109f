"""What all blocks of a grid do together: each moves its part of a long message.

The protocol between ranks is the leading block's: these only move bytes, as it has said.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct.long_steps import take_step
from device_lib.direct.pipelines import OF_SCOPE
from device_lib.direct.staged_parts import make_push, make_take
from device_lib.direct.straight import move_straight
from device_lib.move.copy import copy_to_staging
from device_lib.move.layouts import pack_layout, unpack_layout
from device_lib.platform.library import linked
from device_lib.platform.primitives import (
    SIMULATOR,
    block_id,
    block_threads,
    device,
    grid_blocks,
    int64,
    thread_rank,
)
from gmpi.contract.grid import COLLECT, PUSH, STRAIGHT, TRANSFER
from gmpi.contract.pipelines import NUMBER_SHIFT, PIPELINES_MASK

# Of a grid, so many move a message, however many threads it has. They are enough to fill a link,
# and a function that packs saves registers of each thread that calls it.
_BLOCKS = 2 if SIMULATOR else 128
_THREADS = 16 if SIMULATOR else 256  # of each block

_pipeline = OF_SCOPE["block"]
_push, _take = make_push(pack_layout), make_take(unpack_layout)


@device
def _rank_and_size(first):
    """The calling thread's, of those that move a message, in the blocks from one on."""
    threads = min(int64(block_threads()), _THREADS)
    size = threads * (min(int64(grid_blocks()), _BLOCKS) - first)
    return (int64(block_id()) - first) * threads + int64(thread_rank()), size


@device
def _move(ctx, kind, a, b, c, d, e):
    rank, size = _rank_and_size(0)
    if kind == PUSH:
        _push(ctx, a, b, c, d, e, rank, size)
    else:
        _take(ctx, a, b, c, d, e, rank, size)
    return 0


@device
def _collect(ctx, a, b, c, d, e):
    size = int64(block_threads()) * int64(grid_blocks())
    rank = int64(block_id()) * int64(block_threads()) + int64(thread_rank())
    take_step(ctx, a, b, c, d, e, rank, size)
    return 0


_move_linked = linked("gmpi_grid_move", 9, 1, _move)
_collect_linked = linked("gmpi_grid_collect", 8, 1, _collect)


@device
def _takes_part():
    return thread_rank() < _THREADS and block_id() < _BLOCKS


@device
def execute(ctx, kind, a, b, c, d, e):
    """The calling thread's part of a job that the leader takes part in; 0: none of these waits, so
    none can be aborted."""
    if kind == COLLECT:
        _collect_linked(ctx, a, b, c, d, e)
    elif _takes_part():
        _move_linked(ctx, kind, a, b, c, d, e)
    return 0


@device
def _move_alone(place, address, nbytes):
    rank, size = _rank_and_size(1)
    copy_to_staging(place, address, nbytes, rank, size)
    return 0


_move_alone_linked = linked("gmpi_grid_move_alone", 3, 1, _move_alone)


@device
def _transfer(ctx, kind, a, b, c, d, e):
    """The same of a TRANSFER; 1 where waits were aborted before it was done, else 0.

    Apart, since only collectives link it.
    """
    count = e & PIPELINES_MASK
    if count == 0:
        size = int64(block_threads()) * int64(grid_blocks())
        rank = int64(block_id()) * int64(block_threads()) + int64(thread_rank())
        move_straight(ctx, a, b, c, d, e >> NUMBER_SHIFT, rank, size)
    elif block_id() < count:
        return _pipeline(ctx, a, b, c, d, e >> NUMBER_SHIFT, block_id(), count)
    return 0


transfer = linked("gmpi_grid_transfer", 9, 1, _transfer)


@device
def execute_any(ctx, kind, a, b, c, d, e):
    """The same of any job, by a block that does not lead."""
    if kind == TRANSFER:
        return transfer(ctx, kind, a, b, c, d, e)
    if kind != STRAIGHT:
        return execute(ctx, kind, a, b, c, d, e)
    if _takes_part():
        _move_alone_linked(a, b, c)
    return 0
