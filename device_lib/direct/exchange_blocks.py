"""The blocks of an exchange (``gmpi/contract/exchanges.py``): whom they go to and come from, and
how one of them is entered.

Called by all lanes of the leading warp, except where it says otherwise.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import rows, table
from device_lib.direct.exchange_answers import (
    STAGED_ONLY,
    answer,
    expect,
    place_for_answer,
)
from device_lib.direct.packets import mark_of
from device_lib.move.layouts import (
    BUFFER_ADDRESS,
    BUFFER_DIMS,
    finish_view,
    layout_of,
    write_view,
)
from device_lib.platform import primitives as gpu
from device_lib.platform.context import blocks_address
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import warp_lanes, warp_mask
from device_lib.proxied.counted_blocks import block, offset_of
from device_lib.proxied.counted_sides import MAY_OUT, OF_NEIGHBOURS, SHIFTED
from device_lib.proxied.opening_blocks import block_bytes, derived_row
from gmpi.contract import channels, collectives, counts, exchanges, wire
from gmpi.contract.layouts import LAYOUT_OWN, LAYOUT_RECV, LAYOUT_SEND, LAYOUT_TYPE, LAYOUT_USER
from gmpi.contract.moves import BACK, OUT

exchange_key = device(exchanges.exchange_key)
_exchange_bytes = device(exchanges.exchange_bytes)
_inbox_at = device(exchanges.inbox_at)
_cells_at = device(exchanges.cells_at)

# The word of a channel: rank | communicator << _COMM_SHIFT | opcode << _OP_SHIFT | what follows
_COMM_SHIFT = 32
_OP_SHIFT = 40
SENDS = 1 << 48
ANSWERS = 1 << 49  # a receive, which may answer (``exchange_answers``)
_STAGED = 1 << 50  # one that a block must never come straight to (SWAPS)
NOT_DRAWN = -1  # in place of a message's number
STRAIGHT = 1 << 32  # beside it
SWAPS = 1 << 16  # beside a call's shape: blocks take the place of those that go out (IN_PLACE)
LINK = rows.STAMP_TOO  # of a request's row; in its place which request is looked at next, or 0


@device
def row_of(ctx, word0):
    """The row of a call's communicator."""
    comm = word0 >> 16 & (wire.COMMUNICATORS - 1)
    return ctx.device + wire.DEVICE_COLLECTIVES + comm * wire.COLLECTIVE_ROW_BYTES


# --- who ------------------------------------------------------------------------------------------


@device
def _modulo(number, ranks):
    """Of a number from -ranks on, below 2 * ranks."""
    number += ranks if number < 0 else 0
    return number - ranks if number >= ranks else number


@device
def area_of(ctx, word0):
    """(where the communicator's area is, our rank there | ranks << RANKS_SHIFT); any thread."""
    return gpu.load_16(row_of(ctx, word0) + collectives.AREA)


@device
def with_swaps(shape, in_place):
    """The shape of a call, with SWAPS where that is what it does."""
    swaps = in_place != 0 and shape & MAY_OUT != 0 and shape & SHIFTED == 0
    return shape | SWAPS if swaps else shape


@device
def may_exchange(ctx, word0, root, shape):
    """Whether a call may go this way, which all ranks find alike."""
    comm = word0 >> 16 & wire.COMMUNICATOR_MASK
    if comm >= wire.COMMUNICATORS:
        return False
    road = gpu.load_8(ctx.device + wire.DEVICE_P2P + comm * wire.P2P_BYTES + wire.P2P_DIRECT)
    wanted = wire.NEIGHBOURS_DIRECT if shape & OF_NEIGHBOURS != 0 else wire.COLLECTIVES_DIRECT
    if road & wanted == 0:
        return False
    ranks = area_of(ctx, word0)[1] >> collectives.RANKS_SHIFT
    if gpu.load_gpu(row_of(ctx, word0) + collectives.ENTERED) < 0:
        return False  # a collective has failed there
    return root >= 0 and root < ranks


@device
def steps_of(area, place, word0, root, shape, way, in_place):
    """(first, last + 1) of the steps in which blocks go OUT, or come BACK; any thread.

    Args:
        area, place: what ``area_of`` has returned.
        shape: what ``with_swaps`` has returned.
    """
    ranks = place >> collectives.RANKS_SHIFT
    me = place & wire.LOW_32
    op = word0 & 0xFF
    if shape & OF_NEIGHBOURS != 0:
        numbers = gpu.load_gpu(area - exchanges.EDGES_BYTES + exchanges.EDGES_NUMBERS)
        return 0, numbers >> 32 if way == BACK else numbers & wire.LOW_32
    if op != wire.OP_GATHERV and op != wire.OP_SCATTERV:
        return 0 if shape & SWAPS != 0 else in_place, ranks
    of_all = (op == wire.OP_GATHERV) == (way == BACK)  # the root's blocks
    if me == root:
        return in_place, ranks if of_all else 1
    if of_all:
        return 0, 0
    step = _modulo(root - me if way == OUT else me - root, ranks)
    return step, step + 1


@device
def whom(area, place, shape, way, number, step):
    """(the other rank, which block) of a step; any thread.

    Args:
        area, place: what ``area_of`` has returned.
        shape: what ``with_swaps`` has returned. Two ranks swap their blocks in the same step.
        number: of blocks of that way.
    """
    ranks = place >> collectives.RANKS_SHIFT
    me = place & wire.LOW_32
    if shape & OF_NEIGHBOURS != 0:
        edges = area - exchanges.EDGES_BYTES
        edges += exchanges.EDGES_BACK if way == BACK else exchanges.EDGES_OUT
        edge = gpu.load_gpu(edges + step * 8)
        peer = edge & wire.LOW_32
        which = edge >> exchanges.EDGE_BLOCK_SHIFT
    elif shape & SWAPS != 0:
        peer = _modulo(step - me, ranks)
        which = peer
    else:
        peer = _modulo(me + step if way == OUT else me - step, ranks)
        which = peer
    return peer, which if number > 1 else 0


# --- what -----------------------------------------------------------------------------------------


@device
def place_of_block(ctx, side, which):
    """(bytes, where it begins in the buffer, row of a derived datatype or 0) of a block."""
    number, displ, datatype = block(side, which, 0)
    row = derived_row(ctx, datatype)
    nbytes = block_bytes(datatype, row, number, 1)
    begin = 0
    if nbytes > 0:
        sound, begin = offset_of(side, row, number, displ, nbytes)
    return nbytes, begin, row


# --- entering -------------------------------------------------------------------------------------


@device
def may_answer(word0, step):
    """Whether a receive may answer: among neighbours, several messages of a call may be those of
    one channel."""
    return word0 & 0xFF < wire.OP_NEIGHBOR_ALLGATHER or step < channels.DEPTH


@device
def channel_word(word0, shape, peer, way, step):
    word = peer | (word0 >> 16 & (wire.COMMUNICATORS - 1)) << _COMM_SHIFT
    op = word0 & 0xFF
    word |= op << _OP_SHIFT
    if way == OUT:
        return word | SENDS
    if shape & SWAPS != 0:
        return word | _STAGED
    return word | ANSWERS if may_answer(word0, step) else word


@device
def _draw(ctx, channel, drawn):
    """(row of a channel, number of its next message, where the other end is, and ours); one
    lane.

    Args:
        drawn: as ``enter``'s.
    """
    comm = channel >> _COMM_SHIFT & 0xFF
    peer = channel & wire.LOW_32
    sends = channel & SENDS != 0
    key = exchange_key(comm, peer, 0 if sends else 1)
    row, remote, local, counters = table.find(ctx, key)
    if row == table.NOBODY:
        entry = ctx.device + wire.DEVICE_COLLECTIVES + comm * wire.COLLECTIVE_ROW_BYTES
        area, place = gpu.load_16(entry + collectives.AREA)
        ranks = place >> collectives.RANKS_SHIFT
        me = place & wire.LOW_32
        there = gpu.load_8(entry + collectives.PEERS + peer * 8) - me * collectives.INBOX_BYTES
        if sends:
            remote = there + _inbox_at(ranks, me)
            local = area + _cells_at(ranks, peer)
        else:
            remote = there + _cells_at(ranks, me)
            local = area + _inbox_at(ranks, peer)
        row, remote, local, counters = table.enter(ctx, key, remote, local)
    number = drawn & channels.NUMBERS
    if drawn == NOT_DRAWN:
        number = table.next_count(counters) & channels.NUMBERS
    return row, number, remote, local


@device
def _write_layout(ctx, slot, direction, buffer, type_row, begin):
    """Where the bytes of a block lie that are not in one piece.

    The fence: a store that is late must not fall on the layout of the slot's next owner, on another
    multiprocessor.
    """
    layout = layout_of(ctx, slot, direction)
    address = gpu.load_8(buffer + BUFFER_ADDRESS)
    if type_row != 0:
        if gpu.lane_id() == 0:
            gpu.store_gpu(layout + LAYOUT_USER, address + begin)
            gpu.store_gpu(layout + LAYOUT_TYPE, type_row)
            gpu.fence_gpu()
        return
    if gpu.lane_id() == 0:  # a table of one block, which says where in the view it begins
        write_view(layout, buffer, wire.POSITION_MASK)
        entry = blocks_address(ctx, slot)
        gpu.store_gpu(entry + LAYOUT_USER, address)
        gpu.store_gpu(entry + LAYOUT_TYPE, layout + LAYOUT_OWN)
        gpu.store_gpu(entry + counts.BLOCK_BYTES, wire.POSITION_MASK)
        gpu.store_gpu(entry + counts.BLOCK_FIRST, begin)
        gpu.store_gpu(layout + LAYOUT_USER, entry)
        gpu.store_gpu(layout + LAYOUT_TYPE, counts.IN_BLOCKS | 1)
    gpu.sync_warp(warp_mask())
    finish_view(layout, gpu.lane_id(), warp_lanes())
    gpu.fence_gpu()


@device
def _enter(ctx, channel, slot, nbytes, begin, buffer, type_row, drawn):
    """Enters the message of a block in the row of a slot that nobody else knows of.

    Args:
        nbytes, begin, type_row: what ``place_of_block`` has returned.
        buffer: what ``primitives.describe`` wrote.
        drawn: NOT_DRAWN; or the message's number, of which a receive has said, or not, where the
            block goes, | STRAIGHT where it goes straight there.
    """
    address = gpu.load_8(buffer + BUFFER_ADDRESS) + begin
    if nbytes == 0:
        address = 0
    elif type_row != 0 or gpu.load_8(buffer + BUFFER_DIMS) != 0:
        direction = LAYOUT_SEND if channel & SENDS != 0 else LAYOUT_RECV
        _write_layout(ctx, slot, direction, buffer, type_row, begin)
        address = wire.SCATTERED
    row = int64(0)
    number = int64(0)
    remote = int64(0)
    local = int64(0)
    place = int64(0)
    if gpu.lane_id() == 0:
        row, number, remote, local = _draw(ctx, channel, drawn)
    answers = drawn == NOT_DRAWN and channel & ANSWERS != 0
    if answers:
        there = gpu.shuffle(warp_mask(), remote, 0)
        place = int64(place_for_answer(ctx, nbytes, address, there))
    if gpu.lane_id() == 0:
        if answers:
            nbytes = answer(ctx, slot, number, nbytes, place, remote, local)
        elif drawn != NOT_DRAWN and drawn & STRAIGHT != 0:
            nbytes = expect(ctx, slot, nbytes)
        elif channel & _STAGED != 0:
            nbytes |= STAGED_ONLY
        stamp = mark_of(number) | row << 32 | (channel >> _OP_SHIFT & 0xFF) << rows.CALL_SHIFT
        rows.set_field(ctx, slot, rows.STAGE, rows.BEGINS | row << rows.INDEX_SHIFT)
        rows.set_field(ctx, slot, rows.ADDRESS, address)
        rows.set_field(ctx, slot, rows.STAMP, stamp)
        rows.set_field(ctx, slot, rows.LENGTH, nbytes)
        rows.set_field(ctx, slot, LINK, 0)
    return 0


enter = linked("gmpi_direct_exchange_enter", 10, 1, _enter)
