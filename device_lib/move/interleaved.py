"""Elements that interleave: columns of a matrix, side by side, one after the other in the message.

Word by word, each store of an unpack goes to a row of its own, a quarter of a sector, and so does
each load of a pack. Here neighbouring threads take a *tile*: as many rows as fill a sector of the
message, of as many elements as fill one of the matrix.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.words import LOAD, LOAD_STAGED, STORE_IF
from device_lib.platform.divide import LIMIT, divide, divide_wide
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, load_8, load_gpu
from gmpi.contract.layouts import TYPE_EXTENT, TYPE_SIZE
from gmpi.datatypes.descriptor import (
    D_ATOM,
    D_DIMS,
    D_HEAD,
    D_OFFSET,
    DIMS_SHIFT,
    STRIDED,
)

_ELEMENTS_SHIFT = 2
_ELEMENTS = 1 << _ELEMENTS_SHIFT  # of a tile
_ROWS = 8
_TILE_SHIFT = 5  # log2 of its words, one for each thread of a warp
assert _ELEMENTS * _ROWS == 1 << _TILE_SHIFT


@device
def interleaved(row, descriptor, user, packed, begin, end):
    """The bytes of a packed message that are whole tiles of elements that interleave: (first, end);
    nothing: (end, end).

    Args:
        row: of a datatype of one part, with this descriptor.
        packed: address at which byte 0 would be.
    """
    whole = load_gpu(row + TYPE_SIZE)
    head = load_8(descriptor + D_HEAD)
    atom = load_8(descriptor + D_ATOM)
    count = load_8(descriptor + D_DIMS + 8)
    stride = load_8(descriptor + D_DIMS + 16)
    fits = head & 0xFF == STRIDED and head >> DIMS_SHIFT & 0xFF == 1
    fits = fits and load_8(descriptor + D_DIMS + 24) == 0  # no table of displacements
    fits = fits and atom == load_gpu(row + TYPE_EXTENT) and count & _ROWS - 1 == 0
    fits = fits and (atom == 4 or atom == 8 or atom == 16) and end < LIMIT
    at = user + load_8(descriptor + D_OFFSET)
    if not fits or (at | packed | stride) & (atom - 1) != 0:
        return end, end
    tiles = whole * _ELEMENTS
    first = divide_wide(begin + tiles - 1, tiles)[0] * tiles
    last = divide_wide(end, tiles)[0] * tiles
    if first >= last:
        return end, end
    return first, last


def _make_move(width: int, unpack: bool) -> Callable:
    load = LOAD_STAGED[width] if unpack else LOAD[width]
    store_if = STORE_IF[width]
    shift = width.bit_length() - 1

    @device
    def places(descriptor, user, packed, word):
        """(where from, where to) of a word of the tiles.

        Args:
            user, packed: of the first element.
        """
        count = load_8(descriptor + D_DIMS + 8)
        stride = load_8(descriptor + D_DIMS + 16)
        lane = word & (1 << _TILE_SHIFT) - 1
        group, row = divide((word >> _TILE_SHIFT) * _ROWS, count, load_8(descriptor + D_DIMS))
        element = group * _ELEMENTS + (lane & _ELEMENTS - 1)
        row += lane >> _ELEMENTS_SHIFT
        there = packed + (element * count + row) * width
        here = user + element * width + row * stride
        return (there, here) if unpack else (here, there)

    @device
    def move(descriptor, user, packed, first, last, rank, size):
        before, rest = divide_wide(first, load_8(descriptor + D_DIMS + 8))
        user += load_8(descriptor + D_OFFSET) + before
        packed += first
        words = last - first >> shift
        w = rank
        while w < words:
            w1 = w + size
            w2 = w1 + size
            w3 = w2 + size
            f0, t0 = places(descriptor, user, packed, w)
            f1, t1 = places(descriptor, user, packed, min(w1, words - 1))
            f2, t2 = places(descriptor, user, packed, min(w2, words - 1))
            f3, t3 = places(descriptor, user, packed, min(w3, words - 1))
            x0, y0 = load(f0)
            x1, y1 = load(f1)
            x2, y2 = load(f2)
            x3, y3 = load(f3)
            store_if(t0, x0, y0, True)
            store_if(t1, x1, y1, w1 < words)
            store_if(t2, x2, y2, w2 < words)
            store_if(t3, x3, y3, w3 < words)
            w = w3 + size

    return move


def make_interleaved(unpack: bool) -> Callable:
    """(descriptor, user's buffer, packed, first, last, rank, size): moves what ``interleaved`` has
    found, the calling thread's share; all ``size`` threads of a scope call, with their rank."""
    move_4, move_8, move_16 = (_make_move(width, unpack) for width in (4, 8, 16))

    @device
    def move(descriptor, user, packed, first, last, rank, size):
        atom = load_8(descriptor + D_ATOM)
        if atom == 8:
            move_8(descriptor, user, packed, first, last, rank, size)
        elif atom == 16:
            move_16(descriptor, user, packed, first, last, rank, size)
        else:
            move_4(descriptor, user, packed, first, last, rank, size)
        return 0

    name = "gmpi_unpack_interleaved" if unpack else "gmpi_pack_interleaved"
    return linked(name, 7, 1, move)  # type: ignore[no-any-return]
