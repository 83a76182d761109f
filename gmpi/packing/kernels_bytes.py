"""Unpacking short blocks of any length along the user's memory, for calls from the host.

As in ``kernels_along``, threads follow the user's memory, so that each sector is written by few
instructions. Where lengths, displacements or pointers are odd, a thread takes an aligned word of
the user's memory, loads the packed bytes that belong there, and stores them between the gaps
(``byte_words``). Nothing goes through shared memory, and no thread waits for another one.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod

from numba import cuda

from device_lib.platform.divide import LIMIT, divide, magic_of
from device_lib.platform.primitives import device
from gmpi.packing.byte_words import (
    load_1,
    make_spread,
    pattern_of,
    places_of,
    store_places,
)
from gmpi.packing.kernels_along import LINE, Along, deal, make_to_row
from gmpi.packing.kernels_strided import Shape, make_first_word
from gmpi.packing.kernels_tiles import is_short

REGISTERS = 32  # at most: as many threads on each multiprocessor as there can be
SHAPES = {8: Shape(256, 1), 4: Shape(128, 2, True)}  # by the width of a word
#: Blocks this long are put together in words of 8 bytes, which have bytes of two at most.
LONG = 8
#: By the width of a word, how many blocks from either end of a row ``make_spread`` reads nothing
#: but the row: up to 3 bytes before those that are wanted, and 7 or 11 behind.
FROM_ENDS = {8: (1, 2), 4: (3, 8)}
#: Bytes of the user's memory in a row: their places are divided in 32 bits.
LONGEST_ROW = LIMIT
ARGUMENTS = 16


def width_of(atom: int) -> int:
    """Bytes of the words in which blocks of ``atom`` bytes are put together."""
    return 8 if atom >= LONG else 4


def bytes_along(atom: int, dims: list[tuple[int, int]], shape: Shape | None = None) -> Along | None:
    """For blocks of ``atom`` bytes; ``None``: not for this kernel. Arguments as ``along``."""
    if not is_short(atom, dims):
        return None
    (count, pitch), *others = dims
    width = width_of(atom)
    shape = shape or SHAPES[width]
    each = shape.threads * shape.words
    total = count * prod(n for n, stride in others)
    fit = (LONGEST_ROW - 2 * LINE - each * width) // (pitch * LINE) * LINE
    if count > fit:
        if others:
            return None
        # Several rows, the last one shorter. All begin at the same place of a line.
        count, others = fit, [(-(-total // fit), fit * pitch)]
    # With as many words before the first as may be missing to a whole line.
    words = ((count - 1) * pitch + atom + LINE + width - 2) // width
    dealt = deal(words, each, others)
    if dealt is None:
        return None
    ahead, onward = divmod(make_first_word(shape)[1] * width, pitch)
    steps = onward | ahead * atom << 32
    arguments = [
        0, 0, count, atom, pitch, magic_of(pitch),
        atom | pitch << 32, pattern_of(atom, pitch), steps, total, *dealt.rows,
    ]  # fmt: skip
    return Along(len(others), arguments, dealt.blocks)


@device
def _find(at, packed, count, atom, pitch, magic):
    """Of the word of four bytes at so many bytes of a row: where its packed bytes are, and
    ``places_of`` them."""
    start = max(at, 0)
    i, r = divide(start, pitch, magic)
    mask, sources = places_of(r, atom, pitch)
    # Bytes before the row, and behind it.
    before = min(start - at, 4)
    left = min(max((count - 1) * pitch + atom - at, 0), 4)
    mask = (mask << before) & ((1 << left) - 1)
    return packed + i * atom + min(r, atom), mask, sources << 4 * before


@device
def _move_4(at, user, packed, count, atom, pitch, magic):
    """Unpacks the word of four bytes at so many bytes of a row, and reads nothing but the row."""
    place, mask, sources = _find(at, packed, count, atom, pitch, magic)
    end = packed + count * atom
    word = 0
    if mask != 0:
        for byte in range(4):
            if place + byte < end:
                word |= load_1(place + byte) << 8 * byte
    store_places(user + at, word, mask, sources)


def _make_move(width: int, shape: Shape) -> Callable:
    """(byte, user, packed, count, atom, pitch, magic, numbers of ``make_spread``) -> unpacks a
    thread's words, the first one at so many bytes of the row.

    Threads at the ends of a row find the bytes of each word one by one: three times the work.
    """
    step = make_first_word(shape)[1] * width
    spread = make_spread(width, shape.words, step)
    reach = (shape.words - 1) * step
    first, last = FROM_ENDS[width]

    @device
    def move(at, user, packed, count, atom, pitch, magic, numbers):
        if at >= first * pitch and at + reach + last * pitch <= count * pitch:
            i, r = divide(at, pitch, magic)
            blocks, pattern, steps = numbers
            spread(user + at, packed + i * atom, r, blocks, pattern, steps)
        else:
            for k in range(shape.words):
                for half in range(0, width, 4):
                    _move_4(at + k * step + half, user, packed, count, atom, pitch, magic)

    return move


@cache
def bytes_body(width: int, outer: int, shape: Shape | None = None) -> Callable:
    """The Python function of a kernel; a block of threads moves one tile of a row.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory, of any alignment; blocks of data in a row; bytes of one, and from one to the next, and
    the latter's ``magic_of``; ``make_spread``'s blocks, pattern and steps; blocks of data in all
    rows; then those of ``make_to_row``.

    Args:
        width: ``width_of`` a block of data.
        outer: 0: one row, 1: several rows, 2: several sets of them.
    """
    shape = shape or SHAPES[width]
    first, step = make_first_word(shape)
    to_row = make_to_row(outer)
    move = _make_move(width, shape)

    # wide: a kernel, whose arguments are constants of its launch
    def kernel(user, packed, count, atom, pitch, magic, blocks, pattern, steps, total, *rows):
        row, tile, user = to_row(cuda.blockIdx.x, user, rows)
        at = first(tile, cuda.threadIdx.x) * width - (user & (LINE - 1))
        here = min(count, total - row * count)
        numbers = blocks, pattern, steps
        move(at, user, packed + row * count * atom, here, atom, pitch, magic, numbers)

    return kernel
