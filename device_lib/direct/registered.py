"""Where the sender of a long message can store it: straight to a registered buffer.

One lane, which looks once for each long message, except where it says otherwise.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform.primitives import (
    ballot,
    device,
    first_bit,
    int64,
    lane_id,
    load_8,
    load_16,
    load_gpu,
    opaque,
    shuffle,
)
from device_lib.platform.scope import ALL_LANES, FULL_WARP, warp_lanes, warp_mask
from gmpi.contract import registered
from gmpi.contract.channels import COUNTER_BYTES, ROW_BYTES
from gmpi.contract.wire import DEVICE_CHANNELS

_header_bytes = device(registered.header_bytes)
_row_bytes = device(registered.row_bytes)


@device
def place_of(ctx, target, nbytes, sender):
    """What the other end of a channel takes for the address of a buffer of ours, had it mapped it
    beside our direct memory; 0: it cannot store there.

    Args:
        target: address of the buffer, in one piece.
        sender: address of something in the other end's direct memory, as mapped here.
    """
    if (target | nbytes) & (registered.ALIGNMENT - 1) != 0:
        return 0
    return place_anywhere(ctx, target, nbytes, sender)


@device
def place_anywhere(ctx, target, nbytes, sender):
    """The same of any address and length."""
    channels, mask = load_16(ctx.device + DEVICE_CHANNELS)
    table = channels + (mask + 1) * (ROW_BYTES + COUNTER_BYTES)
    rows = load_gpu(table + registered.IN_USE)
    ranks = load_8(table + registered.RANKS)
    row = table + _header_bytes(ranks)
    while rows > 0:
        begin = load_gpu(row + registered.BEGIN)
        if begin <= target and target + nbytes <= begin + load_gpu(row + registered.BYTES):
            shift = load_gpu(row + registered.SHIFTS + 8 * _rank_of(table, ranks, sender))
            return target + (shift & ~registered.MAPPED) if shift & registered.MAPPED != 0 else 0
        row += _row_bytes(ranks)
        rows -= opaque(1)
    return 0


@device
def place_by_warp(ctx, target, nbytes, sender):
    """``place_of``, looked for by all lanes of a warp together."""
    mask = warp_mask()
    place = int64(0)
    if (target | nbytes) & (registered.ALIGNMENT - 1) == 0:
        channels, last = load_16(ctx.device + DEVICE_CHANNELS)
        table = channels + (last + 1) * (ROW_BYTES + COUNTER_BYTES)
        rows = load_gpu(table + registered.IN_USE)
        ranks = load_8(table + registered.RANKS)
        direct_bytes = load_8(table + registered.DIRECT_BYTES)
        which = int64(lane_id())
        row = table + _header_bytes(ranks) + which * _row_bytes(ranks)
        begin = load_gpu(row + registered.BEGIN)  # under way together, whether it is in use or not
        length = load_gpu(row + registered.BYTES)
        rank = _rank_by_warp(table, ranks, direct_bytes, sender)
        while which < rows:
            if begin <= target and target + nbytes <= begin + length:
                shift = load_gpu(row + registered.SHIFTS + 8 * rank)
                if shift & registered.MAPPED != 0:
                    place = target + (shift & ~registered.MAPPED)
            which += opaque(warp_lanes())
            if which < rows:
                row = table + _header_bytes(ranks) + which * _row_bytes(ranks)
                begin = load_gpu(row + registered.BEGIN)
                length = load_gpu(row + registered.BYTES)
    found = ballot(mask, place != 0)
    return shuffle(mask, place, first_bit(found)) if found != 0 else int64(0)


@device
def places_by_warp(ctx, target, nbytes, sender, wanted):
    """``place_of`` of a part of one array for each lane, by all lanes of a full warp; 0 also where
    the lane's is in another registered array than the first one's.

    Args:
        wanted: bits of the lanes that want one, not 0.
    """
    channels, last = load_16(ctx.device + DEVICE_CHANNELS)
    table = channels + (last + 1) * (ROW_BYTES + COUNTER_BYTES)
    rows = load_gpu(table + registered.IN_USE)
    ranks = load_8(table + registered.RANKS)
    at = shuffle(ALL_LANES, target, first_bit(wanted))
    begin = int64(0)
    end = int64(0)
    row = int64(0)
    which = int64(lane_id())
    while which < rows and row == 0:
        there = table + _header_bytes(ranks) + which * _row_bytes(ranks)
        begin = load_gpu(there + registered.BEGIN)
        end = begin + load_gpu(there + registered.BYTES)
        if begin <= at and at < end:
            row = there
        which += opaque(FULL_WARP)
    found = ballot(ALL_LANES, row != 0)
    place = int64(0)
    if found != 0:
        who = first_bit(found)
        row = shuffle(ALL_LANES, row, who)
        begin = shuffle(ALL_LANES, begin, who)
        end = shuffle(ALL_LANES, end, who)
        inside = begin <= target and target + nbytes <= end
        aligned = (target | nbytes) & (registered.ALIGNMENT - 1) == 0
        if inside and aligned and wanted >> int64(lane_id()) & 1 != 0:
            shift = load_gpu(row + registered.SHIFTS + 8 * _rank_of(table, ranks, sender))
            if shift & registered.MAPPED != 0:
                place = target + (shift & ~registered.MAPPED)
    return place


@device
def _rank_of(table, ranks, sender):
    """Which rank of the node's direct memory an address is in; there is one."""
    nbytes = load_8(table + registered.DIRECT_BYTES)
    rank = ranks - 1
    while rank > 0:
        begin = load_8(table + registered.DIRECT + 8 * rank)
        if begin <= sender and sender < begin + nbytes:
            break
        rank -= opaque(1)
    return rank


@device
def _rank_by_warp(table, ranks, nbytes, sender):
    """The same, looked for by all lanes of a warp together.

    Args:
        nbytes: of a rank's direct memory.
    """
    rank = int64(0)
    first = int64(0)
    while first < ranks:
        which = first + int64(lane_id())
        begin = load_8(table + registered.DIRECT + 8 * min(which, ranks - 1))
        found = ballot(warp_mask(), which < ranks and begin <= sender and sender < begin + nbytes)
        if found != 0:
            rank = first + first_bit(found)
        first += opaque(warp_lanes())
    return rank
