"""Packing short blocks of any length at a regular pitch: through shared memory.

Where lengths, displacements or pointers are odd, no word of the user's memory is a word of the
packed bytes, and putting words together from global memory costs several instructions a byte. Here
a block of threads takes a tile of consecutive blocks and reads the user's memory as it lies, with
its gaps, in whole words of 16 bytes into shared memory, where a byte may be asked for at any place.
The packed bytes are put together there. Unpacking is the affair of ``kernels_bytes``.

Gaps between blocks of data may be read, but nothing before the first and behind the last byte of
the layout.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import cuda

from device_lib.platform.divide import divide, magic_of
from device_lib.platform.primitives import block_id, buffer_of, device, sync_block, thread_rank
from gmpi.packing.kernels_along import MAX_OUTER, deal, make_to_row
from gmpi.packing.tile_words import (
    get_1,
    get_16_of_many,
    get_16_of_two,
    load_1,
    load_16_if,
    put_1,
    put_16_if,
    shared_address,
    store_1,
    store_16,
)

THREADS = 128
REGISTERS = 40  # at most: 12 blocks of threads on each multiprocessor
_STEP = 16 * THREADS  # bytes that the threads read, or write, at a time
TILE_BYTES = 4 * _STEP  # shared memory for one tile
# Up to 15 bytes to align it, and those behind the tile that are read with its last ones.
_ROOM = (TILE_BYTES + 16 + 32) // 8
LONGEST_BLOCK = 128  # bytes; longer ones are packed well enough word by word
LARGEST_PITCH = 512
_SPARSEST = 4  # most bytes of the user's memory for one that is packed
# Packed bytes of a row where there are several: for less, most threads of a tile have no work.
_SHORTEST_ROW = 1024
_TWO = 16  # blocks this long: 16 packed bytes are of two at most


class Tiling(NamedTuple):
    """Blocks at a regular pitch, cut into tiles.

    Attributes:
        long: see ``tiles_body``.
        outer: as well.
        arguments: of the kernel, two addresses first.
        blocks: number of tiles.
    """

    long: bool
    outer: int
    arguments: list[int]
    blocks: int


def is_short(atom: int, dims: list[tuple[int, int]]) -> bool:
    """Whether blocks of ``atom`` bytes are for these kernels, and for those of ``kernels_bytes``.

    Args:
        dims: (count, stride in bytes), innermost first. The innermost one is a row.
    """
    if not 1 <= len(dims) <= 1 + MAX_OUTER:
        return False
    (count, pitch), *others = dims
    if not (0 < atom < LONGEST_BLOCK and atom < pitch <= min(_SPARSEST * atom, LARGEST_PITCH)):
        return False
    return not others or count * atom >= _SHORTEST_ROW


def tiling(atom: int, dims: list[tuple[int, int]]) -> Tiling | None:
    """For blocks of ``atom`` bytes; ``None``: not for this kernel. Arguments as ``is_short``.

    A tile has a multiple of 16 blocks, so that those of a row begin at the same alignment. No tile
    goes beyond its row.
    """
    if not is_short(atom, dims):
        return None
    (count, pitch), *others = dims
    each = ((TILE_BYTES - 15 - atom) // pitch + 1) // 16 * 16
    dealt = deal(-(-count // each), 1, others)
    if dealt is None:
        return None
    arguments = [0, 0, count, atom, pitch, magic_of(atom), each, *dealt.rows]
    return Tiling(atom >= _TWO, len(others), arguments, dealt.blocks)


#: int64 arguments of the kernel
ARGUMENTS = 13


@device
def _fill(shared, at, size, begin, end):
    """Reads ``size`` bytes at an address, at the same place modulo 16, into shared memory.

    The neighbours that share a word of 16 bytes are read too, within ``begin..end``.
    """
    rank = thread_rank()
    base = at - (at & 15)
    stop = at + size
    high = min(stop, end - 15)
    f0 = base + 16 * rank
    f1 = f0 + _STEP
    f2 = f1 + _STEP
    f3 = f2 + _STEP
    ok = f0 >= begin and f0 < high
    x0, y0 = load_16_if(f0, ok)
    x1, y1 = load_16_if(f1, f1 < high)
    x2, y2 = load_16_if(f2, f2 < high)
    x3, y3 = load_16_if(f3, f3 < high)
    t0 = shared + 16 * rank
    put_16_if(t0, x0, y0, ok)
    put_16_if(t0 + _STEP, x1, y1, f1 < high)
    put_16_if(t0 + 2 * _STEP, x2, y2, f2 < high)
    put_16_if(t0 + 3 * _STEP, x3, y3, f3 < high)
    # The first and the last word of the layout may not be whole: one byte a thread.
    if rank < 32:
        word = base
        if rank >= 16:
            word = stop - 1 - ((stop - 1) & 15)
        f0 = word + (rank & 15)
        if (word < begin or word + 16 > end) and begin <= f0 < end:
            put_1(shared + (f0 - base), load_1(f0))


def _make_write_packed(long: bool) -> Callable:
    @device
    def write_packed(base, packed, size, atom, pitch, magic):
        """Packs ``size`` bytes from blocks in shared memory, the first one at ``base``."""
        rank = thread_rank()
        gap = pitch - atom
        head = min(-packed & 15, size)
        at = head + 16 * rank
        while at + 16 <= size:
            i, r = divide(at, atom, magic)
            if long:
                low, high = get_16_of_two(base + i * pitch + r, atom - r, gap)
            else:
                low, high = get_16_of_many(base + i * pitch + r, atom - r, gap, atom)
            store_16(packed + at, low, high)
            at += _STEP
        # Bytes before the first and behind the last whole word: one a thread.
        if rank < 32:
            at = rank
            last = head
            if rank >= 16:
                at = head + (size - head & -16) + rank - 16
                last = size
            if at < last:
                i, r = divide(at, atom, magic)
                store_1(packed + at, get_1(base + i * pitch + r))

    return write_packed


@cache
def tiles_body(long: bool, outer: int) -> Callable:
    """The Python function of a kernel of ``THREADS`` threads; one block of them packs one tile.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory, of any alignment; blocks of data in a row, bytes of one, bytes from one to the next; the
    ``magic_of`` a block's bytes; blocks of data in a tile; then those of ``make_to_row``.

    Args:
        long: blocks have 16 bytes or more.
        outer: 0: one row, 1: several rows, 2: several sets of them.
    """
    write_packed = _make_write_packed(long)
    to_row = make_to_row(outer)

    def kernel(user, packed, count, atom, pitch, magic, each, *rows):
        room = cuda.shared.array(_ROOM, np.int64)
        address, nbytes, strided = buffer_of(room)
        shared = shared_address(address) + 15 & -16
        row, tile, user = to_row(block_id(), user, rows)
        first = tile * each
        here = min(each, count - first)
        at = user + first * pitch
        _fill(shared, at, (here - 1) * pitch + atom, user, user + (count - 1) * pitch + atom)
        sync_block()
        to = packed + (row * count + first) * atom
        write_packed(shared + (at & 15), to, here * atom, atom, pitch, magic)

    return kernel
