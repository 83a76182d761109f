"""Kernels that pack plans of several parts in one launch, for calls from the host (``gmpi.pack``).

A block takes one tile: of a strided block as in ``kernels_strided``, of a list of runs as in
``kernels_runs``. Which one, a table says; the numbers of each part are rows of another one, as wide
as the part of most dimensions needs.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache

from numba import cuda

from device_lib.move.words import load_once_4, load_once_8
from device_lib.platform.primitives import device
from device_lib.platform.unroll import unrolled
from gmpi.packing import kernels_runs, kernels_strided
from gmpi.packing.kernels_runs import WARPS, make_move_unit
from gmpi.packing.kernels_strided import Shape, make_move_tile, names_of

THREADS = kernels_strided.THREADS
assert THREADS == kernels_runs.THREADS
ARGUMENTS = 4
RUNS = 1  # kind of a part; 0: strided
_HEAD = ["first", "begin", "offset", "kind"]
_RUNS_NAMES = ["size", "positions", "deltas", "units", "scale"]


def registers(width: int, dims: int) -> int:
    """At most: 4 to 6 blocks of threads on each multiprocessor."""
    return kernels_runs.REGISTERS[width] if dims <= 3 else 64


def shape_of(width: int, unpack: bool) -> Shape:
    """How the words of a strided part are dealt out: in tiles of ``THREADS`` threads."""
    return kernels_strided.SHAPES[width, unpack]._replace(threads=THREADS)


def row_words(dims: int) -> int:
    """int64 words of a row, for parts of so many dimensions at most, and one at least."""
    return len(_HEAD) + max(len(names_of(dims)), len(_RUNS_NAMES))


def _make_read(at: int, words: int) -> Callable:
    """(row) -> the tuple of so many of its words, from word ``at`` on."""

    def make(k: int) -> Callable:
        place = 8 * (at + k)

        @device
        def read(row):
            return load_once_8(row + place)

        return read

    return unrolled(make, words)


@cache
def parts_body(width: int, dims: int, runs: bool, unpack: bool) -> Callable:
    """The Python function of a kernel of ``THREADS`` threads; a block of them moves one tile.

    Its arguments, int64: addresses of the user's and of the packed memory; address of the part of
    each tile (int32); address of the rows. A row begins with the part's first tile, its packed
    position, its displacement, and what it is; then come the numbers of a strided block
    (``kernels_strided.names_of``) or of a list of runs (``make_move_unit``).

    Args:
        dims: of each strided block; those with fewer get outer ones of count 1.
        runs: whether there are lists of runs.
    """
    row_bytes = 8 * row_words(dims)
    read_head = _make_read(0, len(_HEAD))
    read_strided = _make_read(len(_HEAD), len(names_of(dims)))
    read_runs = _make_read(len(_HEAD), len(_RUNS_NAMES))
    move_tile = make_move_tile(width, dims, unpack, shape_of(width, unpack))
    move_unit = make_move_unit(width, unpack)

    def kernel(user, packed, part_of, rows):
        row = rows + load_once_4(part_of + cuda.blockIdx.x * 4) * row_bytes
        first, begin, offset, kind = read_head(row)
        tile = cuda.blockIdx.x - first
        packed += begin
        user += offset
        if runs and kind == RUNS:
            unit = tile * WARPS + (cuda.threadIdx.x >> 5)
            move_unit(user, packed, unit, cuda.threadIdx.x & 31, *read_runs(row))
        else:
            move_tile(user, packed, tile, cuda.threadIdx.x, read_strided(row))

    return kernel
