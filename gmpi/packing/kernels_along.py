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
from typing import NamedTuple, cast

from numba import cuda

from device_lib.move.words import LOAD_ONCE_IF, STORE_GLOBAL_IF
from device_lib.platform.divide import LIMIT, divide, magic_of
from gmpi.packing.kernels_strided import Shape, first_word

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
    tiles = -(-words // (shape.threads * shape.words))
    blocks = tiles * prod(n for n, stride in others)
    if words + shape.threads * shape.words >= LIMIT or blocks >= LIMIT:
        return None
    (n1, stride1), (n2, stride2) = [*others, (1, 0), (1, 0)][:2]
    pitch_words = pitch // width
    arguments = [
        0, 0, count, atom // width, pitch_words, magic_of(pitch_words),
        tiles, magic_of(tiles), n1, magic_of(n1), stride1, stride2,
    ]  # fmt: skip
    return Along(len(others), arguments, blocks)


def _row_lines(width: int, outer: int) -> list[str]:
    """Source lines by which ``user`` and ``packed`` become those of the block's row."""
    if outer == 0:
        return []
    lines = [
        "row, tile = divide(tile, tiles, magic_tiles)",
        f"packed += row * count * {width} * atom",
    ]
    if outer > 1:
        lines += ["i, row = divide(row, rows, magic_rows)", "user += i * to_set"]
    return [*lines, "user += row * to_row"]


@cache
def along_body(width: int, outer: int, shape: Shape | None = None) -> Callable:
    """The Python function of a kernel; a block of threads moves one tile of a row.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory; blocks of data in a row; words of one, and from one to the next, and the latter's
    ``magic_of``; tiles of a row and their magic; number of rows and its magic, bytes from one row
    to the next, bytes to the next set of rows.

    Args:
        outer: 0: one row, 1: several rows, 2: several sets of them.
    """
    shape = shape or SHAPES[width]
    shift = width.bit_length() - 1
    first, step = first_word(shape)
    lines = ["tile = cuda.blockIdx.x", *_row_lines(width, outer)]
    lines.append(f"w0 = {first} - ((user & {LINE - 1}) >> {shift})")
    for k in range(1, shape.words):
        lines.append(f"w{k} = w0 + {k * step}")
    for k in range(shape.words):
        lines += [
            f"i, r = divide(max(w{k}, 0), pitch, magic)",
            f"ok{k} = (w{k} >= 0) & (r < atom) & (i < count)",
            f"f{k} = packed + (i * atom + r << {shift})",
        ]
    lines += [f"x{k}, y{k} = load_if(f{k}, ok{k})" for k in range(shape.words)]
    for k in range(shape.words):
        lines.append(f"store_if(user + (w{k} << {shift}), x{k}, y{k}, ok{k})")
    names = "count, atom, pitch, magic, tiles, magic_tiles, rows, magic_rows, to_row, to_set"
    scope = {
        "cuda": cuda, "divide": divide, "load_if": shape.load_if or LOAD_ONCE_IF[width],
        "store_if": shape.store_if or STORE_GLOBAL_IF[width],
    }  # fmt: skip
    exec("\n ".join([f"def kernel(user, packed, {names}):", *lines]), scope)
    return cast(Callable, scope["kernel"])
