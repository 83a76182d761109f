"""What may be wrong with the blocks of an exchange, which goes by the proxy then and is refused.

Called by all lanes of the leading warp.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct.exchange_blocks import place_of_block
from device_lib.move.layouts import BUFFER_ADDRESS
from device_lib.move.message import is_derived
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device
from device_lib.platform.scope import ALL_LANES, warp_lanes, warp_mask
from device_lib.proxied.counted_blocks import block, survey
from device_lib.proxied.counted_sides import OF_NEIGHBOURS, is_long
from device_lib.proxied.opening_blocks import SHARED
from gmpi.contract.constants import FIRST_WITH_GAPS
from gmpi.contract.moves import BACK, OUT


@device
def any_meet(mask, begin, end, first, number):
    """Whether two of the stretches of ``number`` lanes from ``first`` on have bytes in common; by
    the lanes of ``mask``."""
    return _meet(mask, begin, end, begin, end, first, number, False)


@device
def meet_others(begin, end, other_begin, other_end, first, number):
    """Whether a stretch of ``number`` lanes from ``first`` on has bytes in common with one of the
    others that they have; by a full warp."""
    return _meet(ALL_LANES, begin, end, other_begin, other_end, first, number, True)


@device
def _meet(mask, begin, end, other_begin, other_end, first, number, across):
    """Both of these; ``across``: the lanes' others are not the stretches themselves."""
    lane = gpu.lane_id()
    found = False
    other = first
    while other < first + number:
        there = gpu.shuffle(mask, other_begin, other)
        there_end = gpu.shuffle(mask, other_end, other)
        counts = lane >= first if across else other < lane
        meet = begin < there_end and there < end
        found = found or (meet and counts and begin < end and there < there_end)
        other += gpu.opaque(1)
    return gpu.ballot(mask, found) != 0


@device
def _overlap_of_some(ctx, side):
    """Whether any two blocks of a side have bytes in common, where each lane can take one. Of
    derived datatypes nobody looks."""
    lane = gpu.lane_id()
    begin = 0
    end = 0
    if lane < side.number:
        nbytes, begin, row = place_of_block(ctx, side, lane)
        end = begin + nbytes if row == 0 else begin
    return any_meet(warp_mask(), begin, end, 0, side.number)


@device
def _overlap_of_many(ctx, side):
    """The same of any number. Mostly each begins where the one before has ended, or later."""
    reached = 0
    ordered = True
    which = 0
    while which < side.number:
        nbytes, begin, row = place_of_block(ctx, side, which)
        if nbytes > 0 and row == 0:
            ordered = ordered and begin >= reached
            reached = max(reached, begin + nbytes)
        which += gpu.opaque(1)
    found = False
    which = gpu.lane_id() if not ordered else side.number
    while which < side.number:
        nbytes, begin, row = place_of_block(ctx, side, which)
        other = 0
        while other < which and nbytes > 0 and row == 0:
            others, other_begin, other_row = place_of_block(ctx, side, other)
            meet = begin < other_begin + others and other_begin < begin + nbytes
            found = found or (meet and others > 0 and other_row == 0)
            other += gpu.opaque(1)
        which += gpu.opaque(warp_lanes())
    return gpu.ballot(warp_mask(), found) != 0


@device
def _has_gaps(side):
    """Whether a datatype is one of the predefined ones that MPI does not send as they are."""
    which = 0
    while which < side.number:
        number, displ, datatype = block(side, which, 0)
        if not is_derived(datatype) and datatype & 0xFF >= FIRST_WITH_GAPS:
            return True
        which += gpu.opaque(1)
    return False


@device
def _differ(ctx, out, back, me):
    """Whether what this rank sends itself is not as long as what it receives from itself."""
    if out.number == 0 or back.number == 0:
        return False
    sent, begin, row = place_of_block(ctx, out, min(me, out.number - 1))
    received, at, row = place_of_block(ctx, back, min(me, back.number - 1))
    return sent != received


@device
def is_shared(side, nbytes):
    return nbytes > 0 and gpu.memory_space(gpu.load_8(side.buffer + BUFFER_ADDRESS)) == SHARED


@device
def are_wrong(ctx, out, back, shape, me, in_place):
    """Whether the proxy is going to refuse the arguments; the same in all lanes."""
    mask = warp_mask()
    lanes = warp_lanes()
    sent = 0
    received = 0
    send = 0
    recv = 0
    wrong = False
    way = gpu.lane_id()
    while way <= BACK:  # each way by a lane
        side = out
        if way == BACK:
            side = back
        nbytes, run, flaw = survey(ctx, side, False)
        wrong = wrong or flaw != 0 or _has_gaps(side)
        if way == OUT:
            sent = nbytes
            send = run
        else:
            received = nbytes
            recv = run
        way += lanes
    if gpu.ballot(mask, wrong) != 0:
        return True
    last = min(lanes - 1, BACK)
    sent = gpu.shuffle(mask, sent, 0)
    send = gpu.shuffle(mask, send, 0)
    received = gpu.shuffle(mask, received, last)
    recv = gpu.shuffle(mask, recv, last)
    if is_shared(out, sent) or is_shared(back, received):
        if is_long(ctx, out, back, sent, received, send, recv):
            return True
    if shape & OF_NEIGHBOURS == 0 and in_place == 0 and _differ(ctx, out, back, me):
        return True
    if back.number <= lanes:
        return _overlap_of_some(ctx, back)
    return _overlap_of_many(ctx, back)
