"""What each lane of the leading warp finds out of its block before the first message of an exchange
(``exchange_quick``). All lanes call these, of a full warp.

One half of them has the blocks that go out, the other half those that come back: what is to be
found out of both takes the time of one. Calls of more than LANES blocks each way have two *turns*.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import packets, table
from device_lib.direct.exchange_blocks import exchange_key, whom
from device_lib.move.layouts import BUFFER_ADDRESS, BUFFER_BYTES, BUFFER_DIMS
from device_lib.platform import primitives as gpu
from device_lib.platform.context import sign32
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import ALL_LANES, FULL_WARP
from device_lib.proxied import slots
from device_lib.proxied.counted_blocks import (
    ARRAYS_COUNTS,
    ARRAYS_DISPLS,
    ARRAYS_LENGTH,
    ARRAYS_TYPES,
)
from gmpi.contract import channels
from gmpi.contract.constants import DATATYPE_MARK, FIRST_WITH_GAPS
from gmpi.contract.moves import OUT
from gmpi.contract.wire import COMMUNICATORS, POSITION_MASK

LANES = FULL_WARP // 2  # of each way, so many blocks in a turn
MOST = 2 * LANES  # of a call
_CELLS = channels.DEPTH  # that lanes look at together; of four channels
_CHANNELS = FULL_WARP // _CELLS


@device
def take_two(ctx, lane):
    """(a slot, whether it is ours) in the first two lanes."""
    slot = slots.guess(ctx) & ~1 | lane & 1
    taken = False
    if lane < 2:
        taken = slots.take_if_free(ctx, slot)
    return slot, taken


@device
def _element(at, size, i):
    """Element ``i`` of an array of integers."""
    if size == 4:
        return sign32(int64(gpu.load_4_if(at + i * 4, 1)))
    return gpu.load_8(at + i * 8)


@device
def block_of(side, which, wanted):
    """(bytes, address, whether the block is one for the quick way) of a block, if it is wanted.

    What ``counted_blocks.block`` and ``survey`` say of all blocks, as far as it is needed here.
    """
    count = int64(side.count)
    datatype = int64(side.datatype)
    begin = which * count
    quick = True
    typed = False
    if side.arrays != 0:
        counts = gpu.load_8(side.arrays + ARRAYS_COUNTS)
        size = gpu.load_8(side.arrays + ARRAYS_COUNTS + 8)
        displs = gpu.load_8(side.arrays + ARRAYS_DISPLS)
        displs_size = gpu.load_8(side.arrays + ARRAYS_DISPLS + 8)
        types = gpu.load_8(side.arrays + ARRAYS_TYPES)
        types_size = gpu.load_8(side.arrays + ARRAYS_TYPES + 8)
        length = gpu.load_8(side.arrays + ARRAYS_LENGTH)
        typed = types != 0
        quick = quick and size != 0 and displs_size != 0 and (types_size != 0 or not typed)
        quick = quick and length >= side.first + side.number and side.joined == 0
        if quick and wanted:
            count = _element(counts, size, side.first + which)
            begin = _element(displs, displs_size, side.first + which)
            if typed:
                datatype = _element(types, types_size, side.first + which)
    nbytes = int64(0)
    address = gpu.load_8(side.buffer + BUFFER_ADDRESS)
    if quick and wanted:
        if side.missing >> which & 1 != 0:
            count = min(count, int64(0))
        size = datatype >> 8 & 0xFF
        quick = datatype & ~0xFFFF == DATATYPE_MARK and datatype & 0xFF < FIRST_WITH_GAPS
        quick = quick and size > 0 and count >= 0 and count <= channels.WIDE_ROOM
        quick = quick and -POSITION_MASK <= begin and begin <= POSITION_MASK
        if quick:
            nbytes = count * size
            begin = begin if typed else begin * size
            room = gpu.load_8(side.buffer + BUFFER_BYTES)
            inside = begin >= 0 and begin + nbytes <= room and address > 0
            plain = gpu.load_8(side.buffer + BUFFER_DIMS) == 0
            plain = plain and gpu.memory_space(address) == 0
            quick = nbytes <= channels.WIDE_ROOM and (nbytes == 0 or (inside and plain))
    return nbytes, address + begin, quick or not wanted


@device
def step_of(area, place, shape, way, side, step, last):
    """(the other rank, bytes, address, whether the block is one for the quick way) of a step.

    Args:
        way, side, last: of the lane's half.
    """
    peer = int64(0)
    which = int64(0)
    # Where only one block comes back, that is in the last step.
    wanted = step < last and (way == OUT or side.number > 1 or step == last - 1)
    if wanted:
        peer, which = whom(area, place, shape, way, side.number, step)
    nbytes, address, quick = block_of(side, which, wanted)
    return peer, nbytes, address, quick


@device
def end_of(ctx, word0, peer, receives, wanted):
    """(whether all channels are there, where the lane's other end is, ours, counters)."""
    remote = int64(0)
    local = int64(0)
    counters = int64(0)
    found = True
    if wanted:
        key = exchange_key(word0 >> 16 & (COMMUNICATORS - 1), peer, receives)
        found, at, remote, local, counters = table.glance(ctx, key)
    return gpu.ballot(ALL_LANES, not found) == 0, remote, local, counters


@device
def order_of(lane, peer, wanted, last, several):
    """(messages of the same channel before the lane's in this turn, how many of it there are, whose
    is first).

    Args:
        last: of the lane's half, what is left of it in this turn.
        several: whether a channel may have more than one.
    """
    if not several:
        return int64(0), int64(1), lane
    half = lane & LANES
    bits = gpu.ballot(ALL_LANES, wanted)
    most = max(gpu.shuffle(ALL_LANES, last, 0), gpu.shuffle(ALL_LANES, last, LANES))
    before = int64(0)
    number = int64(0)
    first = int64(FULL_WARP)
    most = min(most, int64(LANES))
    step = int64(0)
    while step < most:
        other = half | step
        same = gpu.shuffle(ALL_LANES, peer, other) == peer and bits >> other & 1 != 0
        if same:
            number += 1
            before += 1 if other < lane else 0
            first = min(first, other)
        step += gpu.opaque(1)
    return before, number, min(first, int64(FULL_WARP - 1))


@device
def look_for_credits(needed, local, number, counters, ahead):
    """How many slots are free from the lane's message on: ``ahead``, but where a look is needed.

    Each lane looks at one cell.

    Args:
        needed: bits of lanes.
    """
    lane = int64(gpu.lane_id())
    base = int64(0)
    while needed >> base != 0:
        channel = base + lane // _CELLS
        cells = gpu.shuffle(ALL_LANES, local, channel)
        first = gpu.shuffle(ALL_LANES, number, channel)
        credit = False
        if needed >> channel & 1 != 0:
            credit = packets.has_credit(cells, first + (lane & _CELLS - 1) & channels.NUMBERS)
        bits = gpu.ballot(ALL_LANES, credit)
        mine = lane - base
        if mine >= 0 and mine < _CHANNELS and needed >> lane & 1 != 0:
            missing = ~(bits >> mine * _CELLS) & (1 << _CELLS) - 1 | 1 << _CELLS
            ahead = gpu.first_bit(missing)
            if ahead > 0:
                table.set_known_free(counters, number + ahead & channels.NUMBERS)
        base += gpu.opaque(_CHANNELS)
    return ahead
