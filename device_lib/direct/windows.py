"""What a one-sided call finds of its window and its arguments (any thread).

See ``gmpi/contract/windows.py``. All threads of a scope look, each by itself: what they read is the
same, and with one barrier they know whether any has found something wrong.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.message import message_bytes
from device_lib.platform.context import leads_grid, sign32
from device_lib.platform.primitives import device, int64, load_8, load_16, load_gpu, memory_space
from gmpi.contract import windows, wire
from gmpi.contract.constants import DATATYPE_MARK, DATATYPES, PROC_NULL

_DATATYPE_COUNT = len(DATATYPES)
NOWHERE = 0  # no address: there is nothing to move

# In the word that says which call it is:
STRIDED_SHIFT = 8  # the origin buffer is no array in one piece
OP_SHIFT = 16  # the operation
_OP_BITS = 0xFF


@device
def op_of(what):
    return what >> OP_SHIFT & _OP_BITS


@device
def which_call(what, strided, op):
    """The word that says which call it is; an operation that does not fit becomes invalid."""
    if op < 0 or op > _OP_BITS:
        op = _OP_BITS
    return what | int64(strided != 0) << STRIDED_SHIFT | int64(op) << OP_SHIFT


@device
def place_of(rank, win):
    """Target and window in one word."""
    return (int64(rank) & wire.LOW_32) | int64(win) << 32


@device
def _field(datatype):
    return int64(datatype) if datatype >= 0 and datatype <= wire.LOW_32 else int64(wire.LOW_32)


@device
def types_of(origin, target):
    """Two datatypes in one word; one that does not fit becomes invalid."""
    return _field(origin) | _field(target) << 32


@device
def row_of(ctx, win):
    """The row that a handle names, whoever's it is."""
    return (
        ctx.device
        + wire.DEVICE_WINDOWS
        + (int64(win) & wire.WINDOW_ROWS - 1) * wire.WINDOW_ROW_BYTES
    )


@device
def is_window(row, win):
    """Whether it is the handle of a window that is there."""
    return load_8(row + windows.HANDLE) == win and win != 0


@device
def target_of(row, rank):
    """The row of a target that a window has."""
    if rank < windows.NEAR_RANKS:
        return row + windows.NEAR + int64(rank) * windows.TARGET_BYTES
    return load_8(row + windows.TARGETS) + int64(rank) * windows.TARGET_BYTES


@device
def look(row):
    """(the epoch, the handle, how many ranks there are) of a row.

    What is read is under way together, here and in ``find``: a flush empties L1, and then each look
    goes to L2.
    """
    epoch = load_gpu(row + windows.EPOCH)
    handle, ranks = load_16(row + windows.HANDLE)
    return epoch, handle, ranks & wire.LOW_32


@device
def wrong_use(epoch, handle, ranks, win, rank):
    """WRONG_WINDOW, WRONG_EPOCH or WRONG_RANK where no call may now use a rank of a window, else
    0."""
    wrong = windows.WRONG_RANK if (rank < 0) | (rank >= ranks) else 0
    wrong = 0 if rank == PROC_NULL else wrong
    wrong = windows.WRONG_EPOCH if epoch == 0 else wrong
    return windows.WRONG_WINDOW if (handle != win) | (win == 0) else wrong


@device
def comm_of(ctx, win):
    """The communicator of a window that is there."""
    return load_8(row_of(ctx, win) + windows.RANKS) >> windows.COMM_SHIFT


@device
def find(ctx, place, disp, nbytes):
    """(what is wrong, or 0; address of the target's bytes; what the record says more).

    Args:
        place: what ``place_of`` has returned.
        nbytes: from the displacement on.
    """
    win = place >> 32
    rank = sign32(place)
    row = row_of(ctx, win)
    # Of any rank, so that all is under way together.
    target = target_of(row, rank & windows.NEAR_RANKS - 1)
    base, room = load_16(target)
    unit, most = load_16(target + windows.UNIT)
    epoch, handle, ranks = look(row)
    wrong = wrong_use(epoch, handle, ranks, win, rank)
    if wrong != 0 or rank == PROC_NULL:
        return wrong, NOWHERE, ranks if wrong == windows.WRONG_RANK else 0
    if rank >= windows.NEAR_RANKS:
        target = target_of(row, rank)
        base, room = load_16(target)
        unit, most = load_16(target + windows.UNIT)
    begin = disp * unit
    outside = (disp > most & ~windows.NO_ATOMICS) | (begin + nbytes > room)
    wrong = windows.WRONG_RANGE if outside else 0
    wrong = windows.WRONG_DISPLACEMENT if disp < 0 else wrong
    if wrong != 0:
        return wrong, NOWHERE, room
    return 0, base + begin, most & windows.NO_ATOMICS


@device
def _is_known(datatype):
    return datatype & ~0xFFFF == DATATYPE_MARK and datatype & 0xFF < _DATATYPE_COUNT


@device
def wrong_amount(count, datatype):
    """WRONG_DATATYPE or WRONG_COUNT where these are no bytes in one piece, else 0."""
    if not _is_known(datatype):
        return windows.WRONG_DATATYPE
    return windows.WRONG_COUNT if count < 0 or count > wire.POSITION_MASK // 32 else 0


@device
def flaw_of(ctx, address, room, nbytes, strided):
    """What is wrong with a buffer that ``nbytes`` are moved from or to, as a flag; else 0."""
    if nbytes <= 0:
        return 0
    if address == 0:
        return wire.FLAG_NULL_BUFFER
    if strided != 0:
        return wire.FLAG_STRIDED_BUFFER
    if room < nbytes:
        return wire.FLAG_SHORT_BUFFER
    space = memory_space(address)
    if space == 2 or (space == 1 and leads_grid(ctx) != 0):
        return wire.FLAG_PRIVATE_BUFFER
    return 0


# wide: as MPI's
@device
def judge(ctx, what, address, room, count, types, place, disp, target_count):
    """What a Put or a Get is about.

    Args:
        what: what ``which_call`` has returned.
        address, room: of the origin's buffer.
        count, target_count: elements at both sides.
        types: datatype of the origin | that of the target << 32.
        place: what ``place_of`` has returned.

    Returns:
        (what is wrong, or 0; address of the target's bytes; how many there are; the count and the
        datatype that the record names; what it says more).
    """
    origin_type = types & wire.LOW_32
    target_type = types >> 32 & wire.LOW_32
    nbytes = message_bytes(count, origin_type)
    target_bytes = message_bytes(target_count, target_type)
    wrong, at, more = find(ctx, place, disp, target_bytes)
    if wrong == 0 or wrong == windows.WRONG_RANGE or wrong == windows.WRONG_DISPLACEMENT:
        origin_wrong = wrong_amount(count, origin_type)
        target_wrong = wrong_amount(target_count, target_type)
        flaw = flaw_of(ctx, address, room, nbytes, what >> STRIDED_SHIFT & 1)
        if origin_wrong != 0:
            return origin_wrong, NOWHERE, 0, count, origin_type, 0
        if target_wrong != 0:
            return target_wrong, NOWHERE, 0, target_count, target_type, 0
        if nbytes != target_bytes:
            return windows.WRONG_LENGTH, NOWHERE, 0, count, origin_type, target_bytes
        if wrong == 0 and at != NOWHERE and flaw != 0:
            return windows.WRONG_BUFFER, NOWHERE, 0, count, origin_type, flaw
    return wrong, at, nbytes, count, origin_type, more
