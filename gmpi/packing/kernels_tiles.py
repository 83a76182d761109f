"""Packing short blocks of any length at a regular pitch: through shared memory.

Where lengths, displacements or pointers are odd, no word of the user's memory is a word of the
packed bytes, and putting words together from global memory costs several instructions a byte. Here
a block of threads takes a tile of consecutive blocks and reads one side of it as it lies, the
user's memory with its gaps or the packed bytes, in whole words of 16 bytes into shared memory,
where a byte may be asked for at any place. What is written is put together there.

Gaps between blocks of data may be read, but nothing before the first and behind the last byte of
the layout; no byte of a gap is ever written.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np
from numba import cuda

from device_lib.platform.divide import LIMIT, divide, magic_of
from device_lib.platform.primitives import block_id, buffer_of, device, sync_block, thread_rank
from gmpi.packing.tile_words import (
    SPREAD_STEP,
    get_1,
    get_16_of_many,
    get_16_of_two,
    load_1,
    load_16_if,
    put_1,
    put_16_if,
    shared_address,
    spread_4_if,
    spread_along,
    spread_few,
    store_1,
    store_16,
)

THREADS = SPREAD_STEP
REGISTERS = 40  # at most: 12 blocks of threads on each multiprocessor
_STEP = 16 * THREADS  # bytes that the threads read, or write, at a time
TILE_BYTES = 4 * _STEP  # shared memory for one tile
# Up to 15 bytes to align it, and those behind the tile that are read with its last ones.
_ROOM = (TILE_BYTES + 16 + 32) // 8
LONGEST_BLOCK = 128  # bytes; longer ones are packed well enough word by word
LARGEST_PITCH = 512
_SPARSEST = 4  # most bytes of the user's memory for one that is packed
MAX_OUTER = 2  # dimensions besides the innermost one
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


def tiling(atom: int, dims: list[tuple[int, int]]) -> Tiling | None:
    """For blocks of ``atom`` bytes; ``None``: not for this kernel.

    A tile has a multiple of 16 blocks, so that those of a row begin at the same alignment.

    Args:
        dims: (count, stride in bytes), innermost first. The innermost one is a row; no tile goes
            beyond it.
    """
    if not 1 <= len(dims) <= 1 + MAX_OUTER:
        return None
    (count, pitch), *others = dims
    if not (0 < atom < LONGEST_BLOCK and atom < pitch <= min(_SPARSEST * atom, LARGEST_PITCH)):
        return None
    if others and count * atom < _SHORTEST_ROW:
        return None
    each = ((TILE_BYTES - 15 - atom) // pitch + 1) // 16 * 16
    tiles = -(-count // each)
    blocks = tiles * prod(n for n, stride in others)
    if blocks >= LIMIT:
        return None
    (n1, stride1), (n2, stride2) = [*others, (1, 0), (1, 0)][:2]
    arguments = [
        0, 0, count, atom, pitch, magic_of(atom), magic_of(pitch), each,
        tiles, magic_of(tiles), n1, magic_of(n1), stride1, stride2,
    ]  # fmt: skip
    return Tiling(atom >= _TWO, len(others), arguments, blocks)


#: int64 arguments of the kernel
ARGUMENTS = 14


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


@device
def _write_words(base, user, count, atom, pitch, magic):
    """Unpacks ``count`` blocks that lie one after the other in shared memory at ``base``.

    Whole words of the user's memory first, then the bytes around them in each block.
    """
    rank = thread_rank()
    last = (count - 1) * pitch + atom - 4
    # Whole words, by their place: neighbouring threads write neighbouring words.
    at = (-user & 3) + 4 * rank
    while at <= last:
        i, r = divide(at, pitch, magic)
        spread_4_if(user + at, base + i * atom + r, r + 4 <= atom)
        at += 4 * THREADS
    # The bytes before and behind them in each block.
    i = rank
    while i < count:
        to = user + i * pitch
        source = base + i * atom
        head = min(-to & 3, atom)
        tail = atom - head & 3
        if head > 0:
            spread_few(to, source, head)
        if tail > 0:
            spread_few(to + atom - tail, source + atom - tail, tail)
        i += THREADS


@device
def _write_bytes(base, user, count, atom, pitch, magic):
    """As ``_write_words``, thread by thread the bytes of the user's memory, gaps left out.

    An instruction of a warp then writes all data of one sector of 32 bytes.
    """
    at = thread_rank() - (user & 31)
    if at < 0:
        at += THREADS
    i, r = divide(at, pitch, magic)
    blocks, onward = divide(THREADS, pitch, magic)
    left = (count - 1) * pitch + atom - at
    ahead = blocks * atom + onward
    place, pair, steps = r | left << 32, atom | pitch << 32, ahead | onward << 32
    spread_along(user + at, base + i * atom + r, place, pair, steps)


@cache
def tiles_body(long: bool, outer: int, unpack: bool, words: bool = False) -> Callable:
    """The Python function of a kernel of ``THREADS`` threads; one block of them moves one tile.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory, of any alignment; blocks of data in a row, bytes of one, bytes from one to the next; the
    ``magic_of`` both; blocks of data in a tile; tiles of a row and their magic; number of rows and
    its magic, bytes from one row to the next, bytes to the next set of rows.

    Args:
        long: blocks have 16 bytes or more.
        outer: 0: one row, 1: several rows, 2: several sets of them.
        words: every block begins at a multiple of 4 in the user's memory. Only the ends of blocks
            are then unpacked byte by byte, by one or two instructions; where they begin anywhere,
            four to six of them write most sectors once more (``tests/gpu/unpack.sh``).
    """
    write_packed = _make_write_packed(long)
    write_user = _write_words if words else _write_bytes

    # wide: a kernel, whose arguments are constants of its launch
    def kernel(
        user, packed, count, atom, pitch, magic_atom, magic_pitch, each,
        tiles, magic_tiles, rows, magic_rows, to_row, to_set,
    ):  # fmt: skip
        room = cuda.shared.array(_ROOM, np.int64)
        address, nbytes, strided = buffer_of(room)
        shared = shared_address(address) + 15 & -16
        tile = block_id()
        if outer > 0:
            row, tile = divide(tile, tiles, magic_tiles)
            packed += row * (count * atom)
            if outer > 1:
                i, row = divide(row, rows, magic_rows)
                user += i * to_set
            user += row * to_row
        first = tile * each
        here = min(each, count - first)
        to_user = user + first * pitch
        to_packed = packed + first * atom
        size = here * atom
        if unpack:
            _fill(shared, to_packed, size, packed, packed + count * atom)
            sync_block()
            write_user(shared + (to_packed & 15), to_user, here, atom, pitch, magic_pitch)
        else:
            reach = (here - 1) * pitch + atom
            _fill(shared, to_user, reach, user, user + (count - 1) * pitch + atom)
            sync_block()
            write_packed(shared + (to_user & 15), to_packed, size, atom, pitch, magic_atom)

    return kernel
