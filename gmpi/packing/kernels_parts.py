"""Kernels that pack plans of several parts in one launch, for calls from the host (``gmpi.pack``).

A block takes one tile: of a strided block as in ``kernels_strided``, of a list of runs as in
``kernels_runs``. Which one, a table says; the numbers of each part are rows of another one, as wide
as the part of most dimensions needs.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

from device_lib.move.words import load_once_4, load_once_8
from gmpi.packing import kernels_runs, kernels_strided
from gmpi.packing.kernels_runs import WARPS, make_move_unit
from gmpi.packing.kernels_strided import Shape, move_lines, names_of, scope_of

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


def _read(names: list[str], at: int) -> list[str]:
    """Source lines that read words of a row from word ``at`` on."""
    return [f"{name} = load_8(row + {8 * (at + k)})" for k, name in enumerate(names)]


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
    shape = shape_of(width, unpack)
    lines = [
        "tile = cuda.blockIdx.x",
        f"row = rows + load_4(part_of + tile * 4) * {8 * row_words(dims)}",
        *_read(_HEAD, 0),
        "tile -= first",
        "packed += begin",
        "user += offset",
    ]
    strided = [*_read(names_of(dims), len(_HEAD)), *move_lines(width, dims, unpack, shape)]
    if runs:
        lines.append(f"if kind == {RUNS}:")
        lines += [f" {line}" for line in _read(_RUNS_NAMES, len(_HEAD))]
        lines.append(f" unit = tile * {WARPS} + (cuda.threadIdx.x >> 5)")
        lines.append(" lane = cuda.threadIdx.x & 31")
        lines.append(f" move_unit(user, packed, unit, lane, {', '.join(_RUNS_NAMES)})")
        lines.append("else:")
        strided = [f" {line}" for line in strided]
    scope = scope_of(width, shape)
    scope |= {"load_4": load_once_4, "load_8": load_once_8}
    if runs:
        scope["move_unit"] = make_move_unit(width, unpack)
    head = "def kernel(user, packed, part_of, rows):"
    exec("\n ".join([head, *lines, *strided]), scope)
    return cast(Callable, scope["kernel"])
