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
from device_lib.platform.unroll import unrolled
from gmpi.packing.byte_words import (
    load_1,
    load_any_4,
    load_any_8,
    places_of,
    store_ends,
    store_places,
)
from gmpi.packing.kernels_along import LINE, Along, deal, make_to_row
from gmpi.packing.kernels_strided import Shape, make_first_word
from gmpi.packing.kernels_tiles import is_short

REGISTERS = 32  # at most: as many threads on each multiprocessor as there can be
SHAPES = {8: Shape(128, 2), 4: Shape(128, 2)}  # by the width of a word
#: Blocks this long: a word of 8 bytes has bytes of two at most, of one its first, of one its last.
ENDS = 8
#: Bytes of the user's memory in a row: their places are divided in 32 bits.
LONGEST_ROW = LIMIT
ARGUMENTS = 13


def width_of(atom: int) -> int:
    """Bytes of the words in which blocks of ``atom`` bytes are put together."""
    return 8 if atom >= ENDS else 4


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
    arguments = [0, 0, count, atom, pitch, magic_of(pitch), total, *dealt.rows]
    return Along(len(others), arguments, dealt.blocks)


def _make_find_8(ahead: int) -> Callable:
    """(byte, packed, count, atom, pitch, magic) -> of the word at so many bytes of the row, plus
    ``ahead``: where its packed bytes are, and how many of them are its first and its last ones."""

    @device
    def find(at, packed, count, atom, pitch, magic):
        at += ahead
        i, r = divide(max(at, 0), pitch, magic)
        place = packed + i * atom + min(r, atom)
        to_next = pitch - r
        tail = 0
        if at < 0:
            to_next = -at
            i = -1
        elif i < count:
            tail = max(min(atom - r, 8), 0)
        head = 0
        if to_next < 8 and i + 1 < count:
            head = 8 - to_next
        return place, tail, head

    return find


def _make_find_4(ahead: int) -> Callable:
    """As ``_make_find_8``, of any number of blocks: where they are, and ``places_of``."""

    @device
    def find(at, packed, count, atom, pitch, magic):
        at += ahead
        start = max(at, 0)
        i, r = divide(start, pitch, magic)
        mask, sources = places_of(r, atom, pitch)
        # Bytes before the row, and behind it.
        before = min(start - at, 4)
        left = min(max((count - 1) * pitch + atom - at, 0), 4)
        mask = (mask << before) & ((1 << left) - 1)
        return packed + i * atom + min(r, atom), mask, sources << 4 * before

    return find


def _make_load_inside(load_any: Callable, k: int) -> Callable:
    @device
    def load_inside(found, end):
        place, a, b = found[k]
        return load_any(place, a | b)

    return load_inside


def _make_load_bytes(width: int, k: int) -> Callable:
    @device
    def load_bytes(found, end):
        """Reads nothing but what is wanted, and what is behind it up to the row's end."""
        place, a, b = found[k]
        word = 0
        if a | b != 0:
            for byte in range(width):
                if place + byte < end:
                    word |= load_1(place + byte) << 8 * byte
        return word

    return load_bytes


def _make_store(store: Callable, ahead: int, k: int) -> Callable:
    @device
    def store_word(to, found, words):
        place, a, b = found[k]
        store(to + ahead, words[k], a, b)

    return store_word


def _make_move(width: int, shape: Shape) -> Callable:
    """(byte, user, packed, count, atom, pitch, magic) -> unpacks a thread's words, the first one at
    so many bytes of the row."""
    step = make_first_word(shape)[1] * width
    last = shape.words - 1
    make_find, load_any, store = (_make_find_8, load_any_8, store_ends)
    if width == 4:
        make_find, load_any, store = (_make_find_4, load_any_4, store_places)
    find_all = unrolled(lambda k: make_find(k * step), shape.words)
    load_all = unrolled(lambda k: _make_load_inside(load_any, k), shape.words)
    load_all_bytes = unrolled(lambda k: _make_load_bytes(width, k), shape.words)
    store_all = unrolled(lambda k: _make_store(store, k * step, k), shape.words)

    @device
    def move(at, user, packed, count, atom, pitch, magic):
        found = find_all(at, packed, count, atom, pitch, magic)
        end = packed + count * atom
        # One branch for all words of a thread: then their loads follow one another.
        if found[0][0] - (width - 1) >= packed and found[last][0] + 2 * width <= end:
            words = load_all(found, end)
        else:
            words = load_all_bytes(found, end)
        store_all(user + at, found, words)

    return move


@cache
def bytes_body(width: int, outer: int, shape: Shape | None = None) -> Callable:
    """The Python function of a kernel; a block of threads moves one tile of a row.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory, of any alignment; blocks of data in a row; bytes of one, and from one to the next, and
    the latter's ``magic_of``; blocks of data in all rows; then those of ``make_to_row``.

    Args:
        width: ``width_of`` a block of data.
        outer: 0: one row, 1: several rows, 2: several sets of them.
    """
    shape = shape or SHAPES[width]
    first, step = make_first_word(shape)
    to_row = make_to_row(outer)
    move = _make_move(width, shape)

    def kernel(user, packed, count, atom, pitch, magic, total, *rows):
        row, tile, user = to_row(cuda.blockIdx.x, user, rows)
        at = first(tile, cuda.threadIdx.x) * width - (user & (LINE - 1))
        here = min(count, total - row * count)
        move(at, user, packed + row * count * atom, here, atom, pitch, magic)

    return kernel
