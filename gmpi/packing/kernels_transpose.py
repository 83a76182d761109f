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
from device_lib.platform.primitives import block_id, sync_block, thread_rank

TILE = 32  # words along each side
THREADS = 256
_ROWS = THREADS // TILE  # rows of a tile that the block moves at a time
_PITCH = TILE + 1  # words: columns of a tile then lie in different banks
_WORDS = TILE * _PITCH
_SHARED = 2 * _WORDS  # low halves of the words, then high halves
MAX_OUTER = 5  # dimensions besides the two of the tile


@cache
def transpose_body(width: int, unpack: bool) -> Callable:
    """The Python function of a kernel; one block moves one tile.

    Its arguments, int64: addresses of the user's and of the packed memory; for the dimension that
    is fast in the packed bytes (0) and the one that is fast in the user's memory (1) count and
    stride; packed stride of dimension 1; number of tiles along each and its ``magic_of``;
    ``outer``, how many other dimensions there are, and for each of these its count, magic, stride
    and packed stride. All strides in bytes.
    """
    load = LOAD[width]
    store_if = STORE_IF[width]

    def kernel(
        user, packed, n0, stride0, n1, stride1, packed1, tiles0, magic0, tiles1, magic1, outer,
        c2, m2, s2, p2, c3, m3, s3, p3, c4, m4, s4, p4, c5, m5, s5, p5, c6, m6, s6, p6,
    ):  # fmt: skip
        shared = cuda.shared.array(_SHARED, np.int64)
        rest, t0 = divide(block_id(), tiles0, magic0)
        rest, t1 = divide(rest, tiles1, magic1)
        if outer > 0:
            rest, i = divide(rest, c2, m2)
            user += i * s2
            packed += i * p2
        if outer > 1:
            rest, i = divide(rest, c3, m3)
            user += i * s3
            packed += i * p3
        if outer > 2:
            rest, i = divide(rest, c4, m4)
            user += i * s4
            packed += i * p4
        if outer > 3:
            rest, i = divide(rest, c5, m5)
            user += i * s5
            packed += i * p5
        if outer > 4:
            rest, i = divide(rest, c6, m6)
            user += i * s6
            packed += i * p6
        # Where this thread reads and writes: its lane along the side that is fast, its row across.
        lane = thread_rank() & 31
        row = thread_rank() >> 5
        a0 = t0 * TILE
        a1 = t1 * TILE
        near = user + a0 * stride0 + a1 * stride1
        far = packed + a0 * width + a1 * packed1
        # Address, the step to the next row, whether the lane is inside, the row, rows there are.
        of_user = (
            near + lane * stride1 + row * stride0, stride0 * _ROWS, a1 + lane < n1, a0 + row, n0,
        )  # fmt: skip
        of_packed = (
            far + lane * width + row * packed1, packed1 * _ROWS, a0 + lane < n0, a1 + row, n1,
        )  # fmt: skip
        source, source_step, source_ok, source_row, source_end = of_packed if unpack else of_user
        target, target_step, target_ok, target_row, target_end = of_user if unpack else of_packed
        # A word outside the array is read from the tile's corner instead, and never written.
        corner = far if unpack else near
        k = row * _PITCH + lane
        x0, y0 = load(source if source_ok and source_row < source_end else corner)
        source += source_step
        ok = source_ok and source_row + _ROWS < source_end
        x1, y1 = load(source if ok else corner)
        source += source_step
        ok = source_ok and source_row + 2 * _ROWS < source_end
        x2, y2 = load(source if ok else corner)
        source += source_step
        ok = source_ok and source_row + 3 * _ROWS < source_end
        x3, y3 = load(source if ok else corner)
        shared[k] = x0
        shared[k + _ROWS * _PITCH] = x1
        shared[k + 2 * _ROWS * _PITCH] = x2
        shared[k + 3 * _ROWS * _PITCH] = x3
        if width == 16:
            shared[k + _WORDS] = y0
            shared[k + _WORDS + _ROWS * _PITCH] = y1
            shared[k + _WORDS + 2 * _ROWS * _PITCH] = y2
            shared[k + _WORDS + 3 * _ROWS * _PITCH] = y3
        sync_block()
        k = lane * _PITCH + row
        for i in range(4):
            high = shared[k + _WORDS] if width == 16 else 0
            ok = target_ok and target_row < target_end
            store_if(target, shared[k], high, ok)
            k += _ROWS
            target += target_step
            target_row += _ROWS

    return kernel


#: int64 arguments of the kernel
ARGUMENTS = 12 + 4 * MAX_OUTER
