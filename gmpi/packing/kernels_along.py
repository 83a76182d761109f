"""Unpacking short blocks at a regular pitch along the user's memory, for calls from the host.

Memory keeps sectors of 32 bytes whole: one that is written in part is read first, and one that two
instructions write is read and written twice (``benchmarks/pack_bench.py``, measured). Where threads
follow the packed bytes, as in ``kernels_strided``, the blocks of one warp end anywhere in a sector,
and the next warp writes the rest of it. Here they follow the user's memory, from a line of 128
bytes on, and those that stand before a gap do nothing: each sector is written by one instruction.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import NamedTuple

from numba import cuda

from device_lib.platform.divide import LIMIT, divide, magic_of
from device_lib.platform.primitives import device
from device_lib.platform.unroll import unrolled
from gmpi.packing.kernels_strided import Shape, make_first_word, make_move_words

REGISTERS = 32  # at most: as many threads on each multiprocessor as there can be
SHAPES = {16: Shape(128, 2), 8: Shape(256, 2), 4: Shape(256, 4)}  # by the width of a word
SECTOR = 32
LINE = 128  # bytes to which the first thread's word is aligned
LONGEST_BLOCK = 128  # bytes; of longer ones, few sectors are written in parts
_SPARSEST = 2  # most bytes of the user's memory for one that is packed: others have no thread
_SHORTEST_ROW = 1024  # packed bytes of a row where there are several
MAX_OUTER = 2  # dimensions besides the innermost one
ARGUMENTS = 12


class Along(NamedTuple):
    """Blocks at a regular pitch, dealt out along the user's memory.

    Attributes:
        outer: see ``along_body``.
        arguments: of the kernel, two addresses first.
        blocks: of threads.
    """

    outer: int
    arguments: list[int]
    blocks: int


def splits_sectors(width: int, atom: int, pitch: int) -> bool:
    """Whether a warp that follows the packed bytes leaves sectors half written."""
    if atom % SECTOR == 0 and pitch % SECTOR == 0:
        return False
    warp = 32 * width
    return warp % atom != 0 or warp // atom * pitch % SECTOR != 0


def along(
    width: int, atom: int, dims: list[tuple[int, int]], shape: Shape | None = None
) -> Along | None:
    """For blocks of ``atom`` bytes in words of ``width``; ``None``: not for this kernel.

    Args:
        width: divides atom and strides.
        dims: (count, stride in bytes), innermost first. The innermost one is a row.
        shape: by default the one in ``SHAPES``.
    """
    if not 1 <= len(dims) <= 1 + MAX_OUTER:
        return None
    (count, pitch), *others = dims
    if not (atom <= LONGEST_BLOCK and atom < pitch <= _SPARSEST * atom):
        return None
    if not splits_sectors(width, atom, pitch) or (others and count * atom < _SHORTEST_ROW):
        return None
    shape = shape or SHAPES[width]
    # With as many words before the first as may be missing to a whole line.
    words = ((count - 1) * pitch + atom + LINE) // width - 1
    dealt = deal(words, shape.threads * shape.words, others)
    if dealt is None:
        return None
    pitch_words = pitch // width
    arguments = [0, 0, count, atom // width, pitch_words, magic_of(pitch_words), *dealt.rows]
    return Along(len(others), arguments, dealt.blocks)


class Dealt(NamedTuple):
    """Tiles of rows.

    Attributes:
        rows: arguments of the kernel, see ``make_to_row``.
        blocks: of threads.
    """

    rows: list[int]
    blocks: int


def deal(words: int, each: int, others: list[tuple[int, int]]) -> Dealt | None:
    """Rows of so many words, in tiles of ``each``; ``None``: too many.

    Args:
        others: (count, stride in bytes) of the dimensions besides the row.
    """
    tiles = -(-words // each)
    blocks = tiles * prod(n for n, stride in others)
    if words + each >= LIMIT or blocks >= LIMIT:
        return None
    (n1, stride1), (n2, stride2) = [*others, (1, 0), (1, 0)][:2]
    return Dealt([tiles, magic_of(tiles), n1, magic_of(n1), stride1, stride2], blocks)


def make_to_row(outer: int) -> Callable:
    """(tile, user, rows) -> its row, its number there, the address of the row.

    ``rows``: tiles of a row and their ``magic_of``; number of rows and its magic, bytes from one
    row to the next, bytes to the next set of rows.
    """

    @device
    def to_row(tile, user, rows):
        tiles, magic_tiles, n_rows, magic_rows, one_on, set_on = rows
        row = 0
        if outer > 0:
            row, tile = divide(tile, tiles, magic_tiles)
            i, r = 0, row
            if outer > 1:
                i, r = divide(row, n_rows, magic_rows)
            user += i * set_on + r * one_on
        return row, tile, user

    return to_row


def _make_find(width: int, ahead: int) -> Callable:
    """(word, user, packed, count, atom, pitch, magic) -> what ``make_move_words`` must know of the
    word ``ahead`` of a word of the user's memory."""
    shift = width.bit_length() - 1

    @device
    def find(word, user, packed, count, atom, pitch, magic):
        word += ahead
        block, r = divide(max(word, 0), pitch, magic)
        ok = (word >= 0) & (r < atom) & (block < count)
        return packed + (block * atom + r << shift), user + (word << shift), 0, ok

    return find


@cache
def along_body(width: int, outer: int, shape: Shape | None = None) -> Callable:
    """The Python function of a kernel; a block of threads moves one tile of a row.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory; blocks of data in a row; words of one, and from one to the next, and the latter's
    ``magic_of``; then those of ``make_to_row``.

    Args:
        outer: 0: one row, 1: several rows, 2: several sets of them.
    """
    shape = shape or SHAPES[width]
    shift = width.bit_length() - 1
    first, step = make_first_word(shape)
    find_all = unrolled(lambda k: _make_find(width, k * step), shape.words)
    move_words = make_move_words(width, shape.words, shape)
    to_row = make_to_row(outer)

    def kernel(user, packed, count, atom, pitch, magic, *rows):
        row, tile, user = to_row(cuda.blockIdx.x, user, rows)
        packed += row * count * width * atom
        word = first(tile, cuda.threadIdx.x) - ((user & (LINE - 1)) >> shift)
        move_words(find_all(word, user, packed, count, atom, pitch, magic))

    return kernel
