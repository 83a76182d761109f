"""Waiting for pieces of a pipeline that do not come.

As in every wait: it ends where waits are aborted, and the proxy is told after 50 ms, with whose
piece is missing, and which. Of the blocks of a grid one tells at a time.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct.late_waits import make_late_waits
from device_lib.direct.long_steps import flags_of, segment_bytes
from device_lib.direct.rounds import kind_of, later_word, row_of
from device_lib.platform import primitives as gpu
from device_lib.platform.context import leads_grid
from device_lib.platform.library import declared, linked
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from device_lib.proxied import pacing
from gmpi.contract import pipelines
from gmpi.contract.collectives import ALLREDUCE, AREA, CHUNK, RANKS_SHIFT
from gmpi.contract.grid import TELLER
from gmpi.contract.wire import (
    DEVICE_GRID,
    LOW_32,
    OP_WAITED,
    OP_WAITS,
    PACKET_BYTES,
)

LOOKS = 64 if gpu.SIMULATOR else 4096  # at a flag, before all threads of the scope meet

_flag_at = device(pipelines.flag_at)
_pieces_of = device(pipelines.pieces_of)
_slot_bytes = device(pipelines.slot_bytes)
_missing_word = device(pipelines.missing_word)


# wide: what all threads have read already
@device
def missing_piece(row, place, pipeline, which, number, count, rank, size, looks):
    """Rank + 1 of one of those that the caller looks at that has not stored so many pieces; 0: all
    have."""
    ranks = place >> RANKS_SHIFT
    me = place & LOW_32
    word = later_word(number)
    missing = 0
    peer = rank
    while peer < ranks and missing == 0:
        if peer != me:
            at = flags_of(row, ranks, me, me) + _flag_at(ranks, pipeline, peer)
            at += which * PACKET_BYTES
            looked = 1
            there, found = gpu.read_packet(at)
            while (found != word or there < count) and looked < looks:
                looked += 1
                gpu.spin()
                there, found = gpu.read_packet(at)
            if found != word or there < count:
                missing = peer + 1
        peer += gpu.opaque(size)
    return missing


@device
def pack_place(pipeline, which, count):
    """One word of what ``late_piece`` is told."""
    return pipeline | which << 16 | count << 32


def late_piece_of(scope_name: str) -> Callable:
    """(ctx, word of the call, bytes, number of the opening, ``pack_place``, which piece) -> 1 where
    waits were aborted before it came, else 0. ``make_pipeline_waits`` makes it."""
    return declared(f"gmpi_direct_late_piece_{scope_name}", 8, 1)  # type: ignore[no-any-return]


def make_pipeline_waits(scope: Scope, help_others: Callable) -> None:
    """For one scope; ``make_round_waits`` comes with it, whose reports this makes.

    Args:
        help_others: executes commands of the proxied road.
    """
    rank, size, leads = scope.rank, scope.size, scope.leads
    sync, sync_or, broadcast_3 = scope.sync, scope.sync_or, scope.broadcast_3
    is_block = scope.name == "block"
    late_waits = make_late_waits(scope, help_others)
    begin_late, end_late = late_waits.begin, late_waits.end
    tell = declared(f"gmpi_direct_tell_collective_{scope.name}", 8, 1)

    @device
    def about(ctx, what, nbytes, number, where, turn):
        """What is missing, in a word of a report; any thread."""
        row = row_of(ctx, what)
        place = gpu.load_16(row + AREA)[1]
        ranks = place >> RANKS_SHIFT
        count = where >> 32
        which = where >> 16 & 1
        other = missing_piece(row, place, where & 0xFFFF, which, number, turn, 0, 1, 1)
        each = nbytes
        if kind_of(what) == ALLREDUCE:
            each = segment_bytes(nbytes, ranks)
        slot = _slot_bytes(gpu.load_gpu(row + CHUNK), count, ranks)
        return _missing_word(max(other - 1, 0), which, turn, _pieces_of(each, count, slot))

    @device
    def of_grid(ctx, where):
        """Whether other blocks of a grid work at the same call."""
        return is_block and (where & 0xFFFF != 0 or leads_grid(ctx) != 0)

    @device
    def judge(ctx, where, handle, began):
        """(abort's error class or 0, when the wait began, whether to tell the proxy now); one
        thread."""
        found, error, began = pacing.long_wait(ctx, began, False)
        error &= 0xFF
        late = 0
        if handle == 0 and error == 0 and found & pacing.LATE != 0:
            late = 1
            if of_grid(ctx, where) and gpu.cas_gpu(ctx.device + DEVICE_GRID + TELLER, 0, 1) != 0:
                late = 0  # another block tells
        return error, began, late

    @device
    def late_piece(ctx, what, nbytes, number, where, turn):
        row = row_of(ctx, what)
        place = gpu.load_16(row + AREA)[1]
        began = 0
        handle = 0
        error = 0
        missing = True
        while missing and error == 0:
            late = 0
            if leads() and gpu.lane_id() == 0:
                error, began, late = judge(ctx, where, handle, began)
            error, late, unused = broadcast_3(error, late, 0)
            sync()
            if late != 0:
                handle = begin_late(ctx)
                if handle > 0 and leads():
                    words = about(ctx, what, nbytes, number, where, turn)
                    tell(ctx, OP_WAITS, what, words, nbytes, handle)
            lacks = missing_piece(
                row, place, where & 0xFFFF, where >> 16 & 1, number, turn, rank(), size(), LOOKS
            )
            if rank() < place >> RANKS_SHIFT:
                gpu.fence_sys()
            missing = sync_or(lacks)
        if handle > 0:
            if leads():
                tell(ctx, OP_WAITED, what, 0, 0, handle)
            end_late(ctx, handle)
        if handle != 0 and of_grid(ctx, where) and leads() and gpu.lane_id() == 0:
            gpu.store_gpu(ctx.device + DEVICE_GRID + TELLER, 0)
        return 1 if missing else 0

    linked(f"gmpi_direct_late_piece_{scope.name}", 8, 1, late_piece)
