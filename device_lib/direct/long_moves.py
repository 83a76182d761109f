"""Moving the bytes of a long message, by a block, or by all blocks of a grid.

The leading warp says what is to be moved, and all warps move it, each its share. It is a call's
longest part, and most of it is to be the copy: a block of 1024 threads has so few registers that
each which a function saves takes all of them 0.1 us.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import packets
from device_lib.direct.block_words import GRID, PUSH, TAKE, put_words
from device_lib.direct.grid_commands import await_blocks, give_command
from device_lib.direct.grid_rounds import parts_for
from device_lib.direct.staged_parts import make_push, make_take
from device_lib.move.blocks import pack_any, unpack_any
from device_lib.platform import primitives as gpu
from device_lib.platform.context import leads_block, leads_grid
from device_lib.platform.library import declared, linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import warp_lanes, warp_mask
from gmpi.contract import grid
from gmpi.contract.channels import FILLED

_push_share, _take_share = make_push(pack_any), make_take(unpack_any)
_do_job = declared("gmpi_direct_do_job", 3, 1)


@device
def _share_with_grid(ctx, command, a, b, c, d, e):
    """Has a job done by all blocks of a grid: 1 where it was aborted, else 0; the leading warp of
    the leader."""
    give_command(ctx, command, a, b, c, d, e, 0)
    put_words(GRID, a, b, c, d, e, command)
    gpu.sync_block()
    failed = 1 if gpu.sync_block_or(_do_job(ctx)) else 0
    return failed | await_blocks(ctx)


@device
def tell_pushed(at, end, mark):
    """Tells the receiver that the first ``end`` bytes have been pushed; one thread, after a barrier
    of those that have stored them."""
    gpu.fence_sys()
    gpu.write_packet(at + FILLED, parts_for(end), mark << 32)


@device
def push_pieces(ctx, begin):
    """The calling thread's share of a round: one piece after the other, all threads of a block. The
    receiver is told of each while other warps go on with the next.

    What it needs is read anew for each piece: whatever a thread keeps while it copies it has saved
    before, and 1024 threads with it.
    """
    pushing = True
    while pushing:
        slot, to, address = gpu.get_block_row(0, 0, 0, 0)
        end, piece, at = gpu.get_block_row(1, 0, 0, 0)
        nbytes = min(end - begin, piece)
        rank, size = int64(gpu.thread_rank()), int64(gpu.block_threads())
        _push_share(ctx, slot, to + begin, address, begin, nbytes, rank, size)
        gpu.sync_block()
        end, piece, at = gpu.get_block_row(1, 0, 0, 0)
        begin += min(end - begin, piece)
        if gpu.thread_rank() == 0:
            kind, first, mark, unused = gpu.get_block_4(0, 0, 0, 0)
            tell_pushed(at, begin, mark)
        pushing = begin < end


@device
def take_pieces(ctx, begin, end):
    """The calling thread's share of what has come; all threads of a block."""
    slot, there, target = gpu.get_block_row(0, 0, 0, 0)
    rank, size = int64(gpu.thread_rank()), int64(gpu.block_threads())
    _take_share(ctx, slot, there, target, begin, end, rank, size)


# wide: what a round has
@device
def _push(ctx, slot, to, address, begin, end, piece, at, mark):
    if leads_block(ctx):
        if leads_grid(ctx) != 0:
            failed = _share_with_grid(ctx, grid.PUSH, slot, to + begin, address, begin, end - begin)
            if failed == 0 and gpu.lane_id() == 0:
                tell_pushed(at, end, mark)
        else:
            put_words(PUSH, begin, mark, 0, slot, to, address)
            if gpu.lane_id() == 0:
                gpu.put_block_row(1, end, piece, at)
            gpu.sync_block()
            push_pieces(ctx, begin)
            gpu.sync_block_or(0)
        return 0
    rank, size = int64(gpu.lane_id()), int64(warp_lanes())
    pushing = True
    while pushing:
        nbytes = min(end - begin, piece)
        _push_share(ctx, slot, to + begin, address, begin, nbytes, rank, size)
        gpu.sync_warp(warp_mask())
        begin += nbytes
        if rank == 0:
            tell_pushed(at, begin, mark)
        pushing = begin < end
    return 0


@device
def _take(ctx, slot, there, target, begin, end):
    if leads_block(ctx):
        if leads_grid(ctx) != 0:
            _share_with_grid(ctx, grid.TAKE, slot, there, target, begin, end)
        else:
            put_words(TAKE, begin, end, 0, slot, there, target)
            gpu.sync_block()
            take_pieces(ctx, begin, end)
            gpu.sync_block_or(0)
        return 0
    rank, size = int64(gpu.lane_id()), int64(warp_lanes())
    _take_share(ctx, slot, there, target, begin, end, rank, size)
    gpu.sync_warp(warp_mask())
    return 0


_push_linked = linked("gmpi_direct_push", 11, 1, _push)
_take_linked = linked("gmpi_direct_take", 8, 1, _take)


# wide: the same
@device
def push(ctx, slot, to, address, begin, end, piece, at, number):
    """Pushes bytes ``begin`` to ``end`` - 1 of a long message; the leading warp.

    Args:
        to: where byte 0 would go.
        piece: bytes of which the receiver is told at once. The blocks of a grid meet after all.
        at: slot of the inbox of message ``number``.
    """
    _push_linked(ctx, slot, to, address, begin, end, piece, at, packets.mark_of(number))


@device
def take(ctx, slot, there, target, begin, end):
    """Moves bytes ``begin`` to ``end`` - 1 of a receive from where they are staged."""
    _take_linked(ctx, slot, there, target, begin, end)
