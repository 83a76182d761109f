"""Rows of a batch, and those of them that all threads of a block move.

Functions that can move any row save 80 registers of each thread, which of 1024 threads is more than
L1 holds. So what is long and lies well is moved by functions that save few. Rows of one length are
moved side by side, each by its share of the warps: most of a row's time is what it waits for
memory.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct.block_words import TOGETHER
from device_lib.direct.packets import mark_of, wide_mail
from device_lib.move.copy import copy_words
from device_lib.move.mailbox import put_mail, take_mail
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import ALL_LANES
from gmpi.contract import channels

# What is to be done with a row.
COPY = 0
PUT_PACKETS = 1
PUT_WIDE = 2
TAKE_PACKETS = 3
TAKE_WIDE = 4
_KIND_SHIFT = 20  # above the bytes
_NUMBER_SHIFT = 24
_KINDS = (1 << _NUMBER_SHIFT - _KIND_SHIFT) - 1
_BYTES_MASK = (1 << _KIND_SHIFT) - 1
OF_A_WARP = channels.ROOM  # bytes of a row that the leading warp moves without the others

_MAIL_BITS = 56  # of the third word of a row in shared memory; above them, what is to be done
_ALIGNED = 15


@device
def row_word(kind, nbytes, number):
    """The third word of a row, beside where the bytes go and where they are.

    Args:
        number: of the message, in the slot or in the wide slot.
    """
    return nbytes | kind << _KIND_SHIFT | number << _NUMBER_SHIFT


@device
def parts_of(word):
    """(bytes, what is to be done, number) of a row."""
    return word & _BYTES_MASK, word >> _KIND_SHIFT & _KINDS, word >> _NUMBER_SHIFT


@device
def lies_well(to, source, word):
    """Whether a row is one that all threads move."""
    nbytes, kind, _ = parts_of(word)
    wide = (kind == PUT_WIDE) | (kind == TAKE_WIDE)
    plain = (kind == COPY) & ((to | source | nbytes) & _ALIGNED == 0)
    return (nbytes > OF_A_WARP) & (wide | plain)


@device
def put_rows(rows, to, source, word):
    """Gives rows of one length to all threads; the leading warp, before a barrier.

    Args:
        rows: bits of lanes, not 0; of these, as many as there are warps for, a power of two.
        to, source, word: of the lane's row.

    Returns:
        (log2 of how many, their bytes, bits of the others).
    """
    number = gpu.count_bits(rows)
    warps = int64(gpu.block_threads()) >> 5
    log = int64(0)
    while 2 << log <= number and 2 << log <= warps:
        log += gpu.opaque(1)
    lane = int64(gpu.lane_id())
    place = gpu.count_bits(rows & (1 << lane) - 1)
    nbytes, kind, message = parts_of(word)
    mine = rows >> lane & 1 != 0 and place < 1 << log
    if mine:
        mail = wide_mail(nbytes, mark_of(message))
        gpu.put_block_row(place, to, source, mail | kind << _MAIL_BITS)
    nbytes = gpu.shuffle(ALL_LANES, nbytes, gpu.first_bit(rows))
    gpu.put_block_4(TOGETHER, log, nbytes, 0)
    return log, nbytes, rows & ~gpu.ballot(ALL_LANES, mine)


@device
def move_rows(ctx, log, nbytes):
    """The calling thread's share of rows that have been given: 1 where waits were aborted before it
    was done, else 0.

    Args:
        log, nbytes: what ``put_rows`` has returned.
    """
    thread, threads = int64(gpu.thread_rank()), int64(gpu.block_threads())
    last = (threads - 1) >> 5  # warp, which may have fewer threads than others
    row = thread >> 5 & (1 << log) - 1
    to, source, mail = gpu.get_block_row(row, 0, 0, 0)
    rank = thread >> 5 + log << 5 | thread & 31
    size = (last - row >> log) + 1 << 5
    if last & (1 << log) - 1 == row:
        size -= (last + 1 << 5) - threads
    kind = mail >> _MAIL_BITS
    mail &= (1 << _MAIL_BITS) - 1
    if kind == TAKE_WIDE:
        return take_mail(ctx, source, to, nbytes, mail, rank, size)
    if kind == PUT_WIDE:
        put_mail(to, source, nbytes, mail, rank, size)
    else:
        copy_words(to, source, nbytes, rank, size)
    return 0
