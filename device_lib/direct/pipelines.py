"""Long collectives through pipelines: block b of a rank works with block b of the others only.

See ``gmpi/contract/pipelines.py``. All threads of a scope call these together.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct.block_rounds import stride_out
from device_lib.direct.long_steps import boxes_of, flags_of, segment_bytes
from device_lib.direct.pipeline_waits import (
    LOOKS,
    late_piece_of,
    missing_piece,
    pack_place,
)
from device_lib.direct.places import is_scattered, put_anywhere, put_to_slot, take
from device_lib.direct.rounds import kind_of, later_word, row_of
from device_lib.direct.segments import reduce_segment
from device_lib.move.copy import copy_from_staging, copy_to_staging
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import (
    device,
    fence_sys,
    load_16,
    load_gpu,
    opaque,
    store_8,
    write_packet,
)
from device_lib.platform.scope import BLOCK, WARP, Scope
from gmpi.contract import pipelines
from gmpi.contract.collectives import ALLREDUCE, AREA, CHUNK, RANKS_SHIFT
from gmpi.contract.pipelines import FLAG_BYTES, PLACES, TARGET
from gmpi.contract.wire import LOW_32, PACKET_BYTES

_flag_at = device(pipelines.flag_at)
_piece_bytes = device(pipelines.piece_bytes)
_slot_at = device(pipelines.slot_at)
_slot_bytes = device(pipelines.slot_bytes)

# Slots, and flags.
IN = 0  # of an Allreduce: what others have of our segment
OUT = 1  # results of theirs


@device
def _next(peer, ranks):
    """Each rank begins with another one: no link is everybody's at once."""
    following = peer + opaque(1)
    return 0 if following == ranks else following


@device
def _slot_of(row, place, pipeline, slot, which, source, owner):
    """Where a slot of a source is in its owner's memory, mapped here."""
    ranks = place >> RANKS_SHIFT
    me = place & LOW_32
    return boxes_of(row, ranks, me, owner) + _slot_at(ranks, slot, pipeline, which, source, owner)


@device
def _any_slot(row, place, pipeline, slot, which):
    """A slot in our memory, whose source may be any; of a single rank, too."""
    ranks = place >> RANKS_SHIFT
    me = place & LOW_32
    return boxes_of(row, ranks, me, me) + _slot_at(max(ranks, 2), slot, pipeline, which, 0, 1)


def make_pipeline(scope: Scope) -> Callable:
    """(ctx, word of the call, places of what goes out and of what comes back, bytes, number of the
    opening, which pipeline, how many) -> 1 where waits were aborted before it was done, else 0."""
    rank, size, sync, sync_or = scope.rank, scope.size, scope.sync, scope.sync_or
    late_piece = late_piece_of(scope.name)

    @device
    def say(row, place, pipeline, which, number, count):
        """Tells all ranks how many pieces have been stored, with what all threads have stored."""
        ranks = place >> RANKS_SHIFT
        me = place & LOW_32
        sync()
        if rank() < ranks:
            fence_sys()
        peer = rank()
        while peer < ranks:
            if peer != me:
                at = flags_of(row, ranks, me, peer) + _flag_at(ranks, pipeline, me)
                write_packet(at + which * PACKET_BYTES, count, later_word(number))
            peer += opaque(size())

    # A function of its own: inlined, the call of what waits for long would cost the loops more
    # registers.
    @device
    def hear(ctx, what, nbytes, number, where, turn):
        """Waits until all ranks have stored so many pieces: 1 where that was aborted, else 0.

        Args:
            where: ``pack_place``.
        """
        row = row_of(ctx, what)
        place = load_16(row + AREA)[1]
        which = where >> 16 & 1
        lacks = missing_piece(
            row, place, where & 0xFFFF, which, number, turn, rank(), size(), LOOKS
        )
        if rank() < place >> RANKS_SHIFT:
            fence_sys()
        if sync_or(lacks):
            return late_piece(ctx, what, nbytes, number, where, turn)
        return 0

    hear_linked = parts_of(scope.name, "gmpi_direct")("hear_piece", 8, 1, hear)

    # wide: what all threads have read already
    @device
    def allreduce(ctx, row, place, what, send, recv, nbytes, number, pipeline, count):
        ranks = place >> RANKS_SHIFT
        me = place & LOW_32
        each = segment_bytes(nbytes, ranks)
        slot = _slot_bytes(load_gpu(row + CHUNK), count, ranks)
        piece = _piece_bytes(each, count, slot)
        table = flags_of(row, ranks, me, me) + _flag_at(ranks, pipeline, 0) + PLACES
        peer = rank()
        while peer < ranks:  # others' slots stay the same
            if peer != me:
                at = table + peer * FLAG_BYTES
                store_8(at, _slot_of(row, place, pipeline, slot, IN, peer, me))
                store_8(at + TARGET, _slot_of(row, place, pipeline, slot, OUT, me, peer))
            peer += opaque(size())
        begin = pipeline * piece
        aborted = 0
        turn = 0
        while begin < each and aborted == 0:
            turn += 1
            some = min(piece, each - begin)
            peer = _next(me, ranks)
            while peer != me:
                first = min(peer * each + begin, nbytes)
                to = _slot_of(row, place, pipeline, slot, IN, me, peer)
                copy_to_staging(to, send + first, min(some, nbytes - first), rank(), size())
                peer = _next(peer, ranks)
            first = min(me * each + begin, nbytes)
            own = min(some, nbytes - first)
            if rank() == 0:
                store_8(table + me * FLAG_BYTES, send + first)
                store_8(table + me * FLAG_BYTES + TARGET, recv + first)
            say(row, place, pipeline, IN, number, turn)
            where = pack_place(pipeline, IN, count)
            aborted = hear_linked(ctx, what, nbytes, number, where, turn)
            if aborted == 0:
                by_words = (send | recv) & 15 == 0
                reduce_segment(table, FLAG_BYTES, what, ranks, 0, own, by_words, rank(), size())
                say(row, place, pipeline, OUT, number, turn)
                where = pack_place(pipeline, OUT, count)
                aborted = hear_linked(ctx, what, nbytes, number, where, turn)
            if aborted == 0:
                peer = _next(me, ranks)
                while peer != me:
                    first = min(peer * each + begin, nbytes)
                    at = _slot_of(row, place, pipeline, slot, OUT, peer, me)
                    copy_from_staging(recv + first, at, min(some, nbytes - first), rank(), size())
                    peer = _next(peer, ranks)
            begin += count * piece
        return aborted

    # wide: the same
    @device
    def keep_own(ctx, row, place, target, source, nbytes, pipeline, slot, which):
        """Moves a piece of what a rank has for itself, both of whose places are scattered, through
        a slot that all have taken from."""
        staged = _any_slot(row, place, pipeline, slot, which)
        sync()
        put_to_slot(ctx, staged, source, nbytes, rank(), size())
        sync()
        take(ctx, target, staged, nbytes, rank(), size())

    # wide: what all threads have read already
    @device
    def move_blocks(ctx, row, place, what, send, recv, nbytes, number, pipeline, count):
        ranks = place >> RANKS_SHIFT
        me = place & LOW_32
        stride = stride_out(what, nbytes)
        slot = _slot_bytes(load_gpu(row + CHUNK), count, ranks)
        piece = _piece_bytes(nbytes, count, slot)
        begin = pipeline * piece
        aborted = 0
        turn = 0
        while begin < nbytes and aborted == 0:
            some = min(piece, nbytes - begin)
            which = turn & 1
            turn += 1
            peer = _next(me, ranks)
            while peer != me:
                to = _slot_of(row, place, pipeline, slot, which, me, peer)
                put_to_slot(ctx, to, send + peer * stride + begin, some, rank(), size())
                peer = _next(peer, ranks)
            say(row, place, pipeline, IN, number, turn)
            own = send + me * stride + begin
            target = recv + me * nbytes + begin
            through = is_scattered(own) and is_scattered(target)
            if not through and own != target:  # while the others' is on its way
                if is_scattered(target):
                    take(ctx, target, own, some, rank(), size())
                else:
                    put_anywhere(ctx, target, own, some, rank(), size())
            aborted = hear_linked(ctx, what, nbytes, number, pack_place(pipeline, IN, count), turn)
            if aborted == 0:
                peer = _next(me, ranks)
                while peer != me:
                    at = _slot_of(row, place, pipeline, slot, which, peer, me)
                    take(ctx, recv + peer * nbytes + begin, at, some, rank(), size())
                    peer = _next(peer, ranks)
                if through:
                    keep_own(ctx, row, place, target, own, some, pipeline, slot, which)
            begin += count * piece
        return aborted

    @device
    def work(ctx, what, send, recv, nbytes, number, pipeline, count):
        row = row_of(ctx, what)
        place = load_16(row + AREA)[1]
        if kind_of(what) == ALLREDUCE:
            aborted = allreduce(ctx, row, place, what, send, recv, nbytes, number, pipeline, count)
        else:
            aborted = move_blocks(
                ctx, row, place, what, send, recv, nbytes, number, pipeline, count
            )
        return aborted

    linked: Callable = parts_of(scope.name, "gmpi_direct")("pipeline", 10, 1, work)
    return linked


OF_SCOPE = {scope.name: make_pipeline(scope) for scope in (BLOCK, WARP)}
