"""Rows of a batch, and those of them that all threads of a block move one after the other.

Functions that can move any row save 80 registers of each thread, which of 1024 threads is more than
L1 holds. So what is long and lies well is a job of its own, for a function that saves few.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct.packets import mark_of, wide_mail
from device_lib.move.copy import copy_to_staging
from device_lib.move.mailbox import put_mail, take_mail
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64

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
OF_A_WARP = 1024  # bytes of a row that a warp moves
FOR_ITSELF = 256  # of one that the leading warp moves without the others

# The first word of the job of one row: this + what is to be done | bytes << _BYTES_SHIFT.
_ONE = 32
_BYTES_SHIFT = 8
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
def may_be_one(to, source, word):
    """Whether a row is for a job of its own."""
    nbytes, kind, _ = parts_of(word)
    wide = (kind == PUT_WIDE) | (kind == TAKE_WIDE)
    plain = (kind == COPY) & ((to | source | nbytes) & _ALIGNED == 0)
    return (nbytes > OF_A_WARP) & (wide | plain)


@device
def job_of(word):
    """The first and the last word of the job of a row; between them stand where the bytes go, and
    where they are."""
    nbytes, kind, number = parts_of(word)
    return _ONE + kind | nbytes << _BYTES_SHIFT, wide_mail(nbytes, mark_of(number))


@device
def is_one(what):
    """Whether that is what the first word of a job says."""
    return what & (1 << _BYTES_SHIFT) - 1 >= _ONE


@device
def move_one(ctx, what, to, source, mail):
    """The calling thread's share of it: 1 where waits were aborted before it was done, else 0."""
    rank, size = int64(gpu.thread_rank()), int64(gpu.block_threads())
    nbytes = what >> _BYTES_SHIFT
    kind = (what & (1 << _BYTES_SHIFT) - 1) - _ONE
    if kind == TAKE_WIDE:
        return take_mail(ctx, source, to, nbytes, mail, rank, size)
    if kind == PUT_WIDE:
        put_mail(to, source, nbytes, mail, rank, size)
    else:
        copy_to_staging(to, source, nbytes, rank, size)
    return 0
