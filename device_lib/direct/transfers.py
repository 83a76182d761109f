"""Long collectives at once: the ranks agree on how, then all blocks of each move the bytes.

See ``gmpi/contract/pipelines.py``. All threads of a scope call these. Where the scope leads a grid,
all of its blocks take part.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import rounds
from device_lib.direct.grid_commands import share_transfer, shares_of
from device_lib.direct.long_collectives import call_of
from device_lib.direct.long_steps import area_of
from device_lib.direct.pipelines import OF_SCOPE
from device_lib.direct.places import address_in, is_scattered
from device_lib.direct.registered import place_anywhere
from device_lib.direct.round_waits import ENTERED_ONLY, LOOKS
from device_lib.direct.rounds import (
    NOBODY,
    kind_of,
    later_word,
    row_of,
    signature_of,
    turn_of,
)
from device_lib.direct.straight import move_straight
from device_lib.platform import primitives as gpu
from device_lib.platform.library import declared, parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope
from gmpi.contract import collectives, pipelines
from gmpi.contract.constants import ERR_OTHER, SUCCESS
from gmpi.contract.grid import TRANSFER
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND
from gmpi.contract.pipelines import (
    AT_ONCE,
    BLOCKS_MASK,
    NUMBER_SHIFT,
    OFFERED_SHIFT,
    PIPELINES,
    RECV_PACKET,
    SEND_PACKET,
    STRAIGHT,
)
from gmpi.contract.wire import CONTROL_ABORT, LOW_32, OP_FAULT, PACKET_BYTES

NOT_AT_ONCE = -5  # in place of an error class: a rank has a buffer that not all blocks can move

_pipelines_of = device(pipelines.pipelines_of)


@device
def _may_be_moved(ctx, what, place, direction):
    """Whether all blocks reach what is at a place: shared memory goes in rounds or chunks. So does
    what is reduced and not in one piece."""
    if is_scattered(place) and kind_of(what) == collectives.ALLREDUCE:
        return False
    return gpu.memory_space(address_in(ctx, place, direction)) == 0


@device
def _bytes_of(what, nbytes, ranks):
    """(of what goes out, of what comes back)."""
    if kind_of(what) == collectives.ALLREDUCE:
        return nbytes, nbytes
    return nbytes * ranks if kind_of(what) == collectives.ALLTOALL else nbytes, nbytes * ranks


@device
def _place_for(ctx, row, address, nbytes, me, peer):
    """Where a buffer is for a rank, relative to our area; 0: nowhere."""
    area = gpu.load_16(row + collectives.AREA)[0]
    if peer == me:
        return address - area
    found = place_anywhere(ctx, address, nbytes, gpu.load_8(row + collectives.PEERS + peer * 8))
    return found - area if found != 0 else 0


# wide: what all threads have read already
@device
def _put_places(ctx, row, place, what, number, send, recv, nbytes, rank, size):
    """Tells the other ranks where our buffers are for them; 1 where one of those that the caller
    tells cannot reach what it needs, else 0."""
    ranks = place >> collectives.RANKS_SHIFT
    me = place & LOW_32
    out, back = _bytes_of(what, nbytes, ranks)
    reduces = kind_of(what) == collectives.ALLREDUCE
    # What is reduced is moved by words. What comes of an Alltoall would fall on what goes out.
    lacks = (
        (send | recv) & 15 != 0
        if reduces
        else is_scattered(recv) or (send == recv and kind_of(what) == collectives.ALLTOALL)
    )
    later = later_word(number)
    missing = 0
    peer = rank
    while peer < ranks:
        to = from_here = 0
        if not lacks:
            to = _place_for(ctx, row, recv, back, me, peer)
            from_here = to
            if reduces:
                from_here = _place_for(ctx, row, send, out, me, peer)
        if to == 0 or from_here == 0:
            missing = 1
        box = gpu.load_8(row + collectives.PEERS + peer * 8) + turn_of(number, ranks)
        gpu.write_packet(box + SEND_PACKET * PACKET_BYTES, from_here, later)
        gpu.write_packet(box + RECV_PACKET * PACKET_BYTES, to, later)
        peer += gpu.opaque(size)
    return missing


@device
def _find_buffers(row, place, number, rank, size):
    """Makes addresses of what the others have said of their buffers."""
    ranks = place >> collectives.RANKS_SHIFT
    me = place & LOW_32
    peer = rank
    while peer < ranks:
        area = area_of(row, me, peer)
        at = area_of(row, me, me) + turn_of(number, ranks) + peer * collectives.INBOX_BYTES
        for packet in (SEND_PACKET, RECV_PACKET):
            place_there = at + packet * PACKET_BYTES
            gpu.store_8(place_there, gpu.read_packet(place_there)[0] + area)
        peer += gpu.opaque(size)


@device
def _offer_of_all(area, ranks, number, nbytes):
    """(what all ranks have, of what they have offered; NOBODY, or a rank with other bytes; how many
    it has); any thread, after the round."""
    offer = BLOCKS_MASK | AT_ONCE | STRAIGHT
    other = NOBODY
    theirs = 0
    source = 0
    while source < ranks:
        low, word = gpu.read_packet(
            area + turn_of(number, ranks) + source * collectives.INBOX_BYTES
        )
        blocks = min(offer & BLOCKS_MASK, low & BLOCKS_MASK)
        offer = offer & low & (AT_ONCE | STRAIGHT) | blocks
        if low >> OFFERED_SHIFT != nbytes:
            other = source
            theirs = low >> OFFERED_SHIFT
        source += gpu.opaque(1)
    return offer, other, theirs


def make_transfer(scope: Scope, make_wait: Callable) -> Callable:
    """For one scope: (ctx, word of the call, places of what goes out and of what comes back, bytes,
    number of the next round) -> (error class or NOT_AT_ONCE, number of the next round). All ranks
    have entered the round before.

    Args:
        make_wait: ``make_round_waits``.
    """
    rank, size, sync, sync_or = scope.rank, scope.size, scope.sync, scope.sync_or
    shares = shares_of(scope)
    part = parts_of(scope.name, "gmpi_direct")
    leads = scope.leads
    pipeline = OF_SCOPE[scope.name]
    tell = declared(f"gmpi_direct_tell_collective_{scope.name}", 8, 1)  # make_round_waits

    @device
    def look(ctx, what, number, signature, target, size_mode):
        area, place = gpu.load_16(row_of(ctx, what) + collectives.AREA)
        return rounds.missing_of_entered(
            area, place >> collectives.RANKS_SHIFT, number, signature, rank(), size(), LOOKS
        )

    wait = make_wait("wait_to_transfer", part("look_to_transfer", 8, 1, look))

    @device
    def meet(ctx, what, number, nbytes, offer):
        """All ranks see what all have stored before; an error class."""
        row = row_of(ctx, what)
        ranks = gpu.load_16(row + collectives.AREA)[1] >> collectives.RANKS_SHIFT
        if rank() < ranks:  # those that say so
            gpu.fence_sys()
        rounds.put_entered(row, ranks, number, what, rank(), size(), offer)
        error = wait(ctx, what, number, signature_of(what), 0, nbytes << 1 | ENTERED_ONLY)
        if rank() < ranks:  # those that have seen it
            gpu.fence_sys()
        sync()
        return error

    @device
    def transfer(ctx, what, send, recv, nbytes, number):
        row = row_of(ctx, what)
        area, place = gpu.load_16(row + collectives.AREA)
        ranks = place >> collectives.RANKS_SHIFT
        blocks = int64(gpu.grid_blocks()) if shares(ctx) else int64(1)
        offer = min(blocks, PIPELINES) | nbytes << OFFERED_SHIFT
        going = _may_be_moved(ctx, what, send, LAYOUT_SEND)
        if going and _may_be_moved(ctx, what, recv, LAYOUT_RECV):
            missing = _put_places(ctx, row, place, what, number, send, recv, nbytes, rank(), size())
            offer |= AT_ONCE if sync_or(missing) else AT_ONCE | STRAIGHT
        else:
            sync()  # what its own threads have stored
        error = meet(ctx, what, number, nbytes, offer)
        if error != SUCCESS:
            return error, number
        offer, other, theirs = _offer_of_all(area, ranks, number, nbytes)
        if other != NOBODY:
            if leads():
                ours = call_of(what, nbytes)
                tell(ctx, OP_FAULT, what, other, ours, call_of(what, theirs))
            sync()
            return ERR_OTHER, number + 1
        if offer & AT_ONCE == 0:
            sync()  # all have read the offers: what is stored next may have others write there
            return NOT_AT_ONCE, number + 1
        count = int64(0)
        if offer & STRAIGHT == 0:
            count = _pipelines_of(offer & BLOCKS_MASK, gpu.load_gpu(row + collectives.CHUNK), ranks)
        else:
            _find_buffers(row, place, number, rank(), size())
            sync()
        failed = 0
        if shares(ctx):
            how = number << NUMBER_SHIFT | count
            failed = share_transfer(ctx, TRANSFER, what, send, recv, nbytes, how)
        elif count == 0:
            move_straight(ctx, what, send, recv, nbytes, number, rank(), size())
        else:
            failed = pipeline(ctx, what, send, recv, nbytes, number, 0, count)
        number += 1
        sync()
        if failed != 0:
            error = gpu.load_sys(ctx.mapped + CONTROL_ABORT) & 0xFF
        elif count == 0:
            error = meet(ctx, what, number, nbytes, 0)
            number += 1
        return error, number

    linked: Callable = part("transfer", 8, 2, transfer)
    return linked
