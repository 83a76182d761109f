"""Packing blocks of one word each whose neighbours in memory are far apart in the packed bytes.

The columns of a matrix, one after the other, is the classic case. Whichever side a thread follows,
it jumps on the other one, and a memory system that moves 32 bytes at least moves 4 to 8 times too
many. So a block reads a square tile along the user's memory, turns it over in shared memory and
writes it along the packed bytes. The packed order stays what the datatype says; only the order in
which it is visited changes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import cuda

from device_lib.move.words import LOAD, STORE_IF
from device_lib.platform.divide import divide
from device_lib.platform.primitives import block_id, device, sync_block, thread_rank

TILE = 32  # words along each side
THREADS = 256
_ROWS = THREADS // TILE  # rows of a tile that the block moves at a time
_PITCH = TILE + 1  # words: columns of a tile then lie in different banks
_WORDS = TILE * _PITCH
_SHARED = 2 * _WORDS  # low halves of the words, then high halves
MAX_OUTER = 5  # dimensions besides the two of the tile


def _make_outer(k: int) -> Callable:
    """(rest, user, packed, outer, numbers) -> the addresses of a tile, by its number among those
    of the same place in the dimensions before k; numbers of four a dimension."""
    count, magic, stride, packed_stride = 4 * k, 4 * k + 1, 4 * k + 2, 4 * k + 3
    onward = _make_outer(k + 1) if k + 1 < MAX_OUTER else None

    @device
    def add(rest, user, packed, outer, numbers):
        if outer > k:
            rest, i = divide(rest, numbers[count], numbers[magic])
            user += i * numbers[stride]
            packed += i * numbers[packed_stride]
        if onward is not None:
            return onward(rest, user, packed, outer, numbers)
        return user, packed

    return add


def _make_read(width: int) -> Callable:
    """(shared, k, side, corner) -> puts what a thread reads of a tile into shared memory, at k.

    A side: address, the step to the next row, whether the lane is inside, the row, rows there are.
    A word outside the array is read from the tile's corner instead, and never written.
    """
    load = LOAD[width]

    @device
    def read(shared, k, side, corner):
        at, step, inside, row, end = side
        x0, y0 = load(at if inside and row < end else corner)
        at += step
        ok = inside and row + _ROWS < end
        x1, y1 = load(at if ok else corner)
        at += step
        ok = inside and row + 2 * _ROWS < end
        x2, y2 = load(at if ok else corner)
        at += step
        ok = inside and row + 3 * _ROWS < end
        x3, y3 = load(at if ok else corner)
        shared[k] = x0
        shared[k + _ROWS * _PITCH] = x1
        shared[k + 2 * _ROWS * _PITCH] = x2
        shared[k + 3 * _ROWS * _PITCH] = x3
        if width == 16:
            shared[k + _WORDS] = y0
            shared[k + _WORDS + _ROWS * _PITCH] = y1
            shared[k + _WORDS + 2 * _ROWS * _PITCH] = y2
            shared[k + _WORDS + 3 * _ROWS * _PITCH] = y3

    return read


def _make_write(width: int) -> Callable:
    """(shared, k, side) -> writes a tile from shared memory, at k, turned over."""
    store_if = STORE_IF[width]

    @device
    def write(shared, k, side):
        at, step, inside, row, end = side
        for _ in range(TILE // _ROWS):
            high = shared[k + _WORDS] if width == 16 else 0
            store_if(at, shared[k], high, inside and row < end)
            k += _ROWS
            at += step
            row += _ROWS

    return write


@cache
def transpose_body(width: int, unpack: bool) -> Callable:
    """The Python function of a kernel; one block moves one tile.

    Its arguments, int64: addresses of the user's and of the packed memory; for the dimension that
    is fast in the packed bytes (0) and the one that is fast in the user's memory (1) count and
    stride; packed stride of dimension 1; number of tiles along each and its ``magic_of``;
    ``outer``, how many other dimensions there are, and for each of these its count, magic, stride
    and packed stride. All strides in bytes.
    """
    add_outer = _make_outer(0)
    read = _make_read(width)
    write = _make_write(width)

    def kernel(user, packed, *numbers):
        n0, stride0, n1, stride1, packed1, tiles0, magic0, tiles1, magic1, outer = numbers[:10]
        shared = cuda.shared.array(_SHARED, np.int64)
        rest, t0 = divide(block_id(), tiles0, magic0)
        rest, t1 = divide(rest, tiles1, magic1)
        user, packed = add_outer(rest, user, packed, outer, numbers[10:])
        # Where this thread reads and writes: its lane along the side that is fast, its row across.
        lane = thread_rank() & 31
        row = thread_rank() >> 5
        a0 = t0 * TILE
        a1 = t1 * TILE
        near = user + a0 * stride0 + a1 * stride1
        far = packed + a0 * width + a1 * packed1
        of_user = (
            near + lane * stride1 + row * stride0, stride0 * _ROWS, a1 + lane < n1, a0 + row, n0,
        )  # fmt: skip
        of_packed = (
            far + lane * width + row * packed1, packed1 * _ROWS, a0 + lane < n0, a1 + row, n1,
        )  # fmt: skip
        read(shared, row * _PITCH + lane, of_packed if unpack else of_user, far if unpack else near)
        sync_block()
        write(shared, lane * _PITCH + row, of_user if unpack else of_packed)

    return kernel


#: int64 arguments of the kernel
ARGUMENTS = 12 + 4 * MAX_OUTER
