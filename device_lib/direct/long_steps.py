"""What a thread does in one step of a long collective: its part of the bytes of a chunk.

A chunk is cut into a segment for each rank. In an Allreduce each rank stores its part of each
segment to the segment's owner, who reduces it, in the order of ranks, and stores the result to all.
Between two steps all ranks meet (``long_collectives``). Scopes and the blocks of a grid call this.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct.rounds import kind_of, row_of
from device_lib.move.copy import copy_from_staging, copy_to_staging
from device_lib.move.layouts import layout_of, pack_layout, unpack_layout
from device_lib.move.reduce import combine
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device
from gmpi.contract import collectives, pipelines
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND
from gmpi.contract.wire import LOW_32, SCATTERED

# Steps.
SEND = 0  # an Allreduce: our part of each segment, to its owner
REDUCE = 1  # our segment, and the result to all ranks
SEND_ALL = 2  # a Bcast: the root's bytes to all other ranks
TAKE = 3  # what has come to us, to the user's buffer

_area_bytes = device(collectives.area_bytes)
_box_bytes = device(collectives.box_bytes)
_flags_bytes = device(pipelines.flags_bytes)


@device
def area_of(row, me, peer):
    """Where the area of a rank begins, mapped here."""
    return gpu.load_8(row + collectives.PEERS + peer * 8) - me * collectives.INBOX_BYTES


@device
def flags_of(row, ranks, me, peer):
    """Where the flags of pipelines begin in it."""
    return area_of(row, me, peer) + _area_bytes(ranks)


@device
def boxes_of(row, ranks, me, peer):
    """Where the long inbox of a rank begins, and the slots of pipelines do."""
    return flags_of(row, ranks, me, peer) + _flags_bytes(ranks)


@device
def _outbox(row, ranks, me, peer):
    return boxes_of(row, ranks, me, peer) + _box_bytes(gpu.load_gpu(row + collectives.CHUNK))


@device
def segment_bytes(nbytes, ranks):
    return ((nbytes + ranks - 1) // ranks + collectives.SEGMENT_STEP - 1) & ~(
        collectives.SEGMENT_STEP - 1
    )


@device
def _out(ctx, slot, place, address, begin, end, rank, size):
    """Moves bytes of the user's buffer to memory of a rank."""
    if begin < end:
        if address == SCATTERED:
            pack_layout(layout_of(ctx, slot, LAYOUT_SEND), place, begin, end, rank, size)
        else:
            copy_to_staging(place, address + begin, end - begin, rank, size)


@device
def _reduce(row, place, what, each, nbytes, rank, size):
    """Reduces our segment of a chunk of ``nbytes``, 16 bytes of a thread at once."""
    ranks = place >> collectives.RANKS_SHIFT
    me = place & LOW_32
    inbox = boxes_of(row, ranks, me, me)
    end = min(each, nbytes - me * each)
    at = rank * collectives.SEGMENT_STEP
    while at < end:
        low, high = gpu.read_packet(inbox + at)
        source = 1
        while source < ranks:
            a, b = gpu.read_packet(inbox + source * each + at)
            low = combine(what, low, a)
            high = combine(what, high, b)
            source += gpu.opaque(1)
        peer = 0
        while peer < ranks:
            gpu.write_packet(_outbox(row, ranks, me, peer) + me * each + at, low, high)
            peer += gpu.opaque(1)
        at += size * collectives.SEGMENT_STEP
    return 0


_reduce_linked = linked("gmpi_direct_long_reduce", 7, 1, _reduce)


@device
def _step(ctx, what, step_slot, address, begin, nbytes, rank, size):
    step = step_slot & 3
    slot = step_slot >> 2
    row = row_of(ctx, what)
    place = gpu.load_16(row + collectives.AREA)[1]
    ranks = place >> collectives.RANKS_SHIFT
    me = place & LOW_32
    each = segment_bytes(nbytes, ranks)
    if step == REDUCE:
        _reduce_linked(row, place, what, each, nbytes, rank, size)
    elif step == TAKE:
        outbox = _outbox(row, ranks, me, me)
        if address == SCATTERED:
            layout = layout_of(ctx, slot, LAYOUT_RECV)
            unpack_layout(layout, outbox, begin, begin + nbytes, rank, size)
        else:
            copy_from_staging(address + begin, outbox, nbytes, rank, size)
    else:
        reduces = kind_of(what) == collectives.ALLREDUCE
        turn = 0
        while turn < ranks:  # each rank begins with another one: no link is everybody's at once
            peer = me + turn
            if peer >= ranks:
                peer -= ranks
            if reduces:
                first = min(peer * each, nbytes)
                last = min(first + each, nbytes)
                to = boxes_of(row, ranks, me, peer) + me * each
                _out(ctx, slot, to, address, begin + first, begin + last, rank, size)
            elif turn > 0:
                to = _outbox(row, ranks, me, peer)
                _out(ctx, slot, to, address, begin, begin + nbytes, rank, size)
            turn += gpu.opaque(1)
    return 0


_step_linked = linked("gmpi_direct_long_step", 10, 1, _step)


@device
def take_step(ctx, what, step_slot, address, begin, nbytes, rank, size):
    """The calling thread's part of a step.

    Args:
        what: word of the call.
        step_slot: the step | slot << 2 whose layouts say where the bytes lie, if address is
            SCATTERED.
        address: of the user's buffer.
        begin, nbytes: the chunk, in bytes of the packed message.
    """
    _step_linked(ctx, what, step_slot, address, begin, nbytes, rank, size)
