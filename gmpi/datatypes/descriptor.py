"""The descriptor of a part: how a kernel is told what to look up. Fixed size, all int64.

``device_lib/move/lookup.py`` reads it. Where it lies does not matter to the reader: a host-launched
kernel gets it by value and puts it into shared memory, a committed type has its own in device
memory, a strided array view builds one on the stack of the calling thread.

    word  0   kind | dims << 8 | log2(alignment) << 16
          1   begin: packed position of the part        2   size: packed bytes
          3   offset: displacement of everything        4   atom: packed bytes of what is repeated
          5   run list: address of positions, uint32, in units of the alignment
          6   run list: address of (displacement - position), int64, bytes
          7   run list: address of the work units, int32
          8.. atom in words of 1, 2, 4, 8, 16 bytes: its ``magic_of``
         16.. one row of four words for each dimension, innermost first:
              count's magic, count, stride, address of the table or 0

A row for one more dimension follows the last one: the repetition of the whole datatype.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

import numpy as np

from device_lib.platform.divide import LIMIT, magic_of
from gmpi.datatypes.parts import MAX_DIMS, Part, RunList

STRIDED = 0
RUN_LIST = 1
D_HEAD = 0
D_BEGIN = 8
D_SIZE = 16
D_OFFSET = 24
D_ATOM = 32
D_POSITIONS = 40
D_DELTAS = 48
D_UNITS = 56
D_MAGIC = 64
D_DIMS = 128
DIM_BYTES = 32
DIMS_SHIFT = 8
ALIGNMENT_SHIFT = 16
DESCRIPTOR_WORDS = (D_DIMS + DIM_BYTES * (MAX_DIMS + 1)) // 8
DESCRIPTOR_BYTES = 8 * DESCRIPTOR_WORDS


class Tables(NamedTuple):
    """Addresses of a part's tables in device memory; 0 where it has none."""

    table: int = 0
    positions: int = 0
    deltas: int = 0
    units: int = 0


def alignment_of(part: Part, extent: int) -> int:
    """The part's alignment when it is repeated every ``extent`` bytes."""
    common = gcd(part.alignment, part.size, extent)
    return common & -common


def table_arrays(part: Part, alignment: int = 0) -> dict[str, np.ndarray]:
    """The contents of a part's tables, by the names in ``Tables``.

    Args:
        alignment: what ``describe`` gets, 0 for the part's own.
    """
    found: dict[str, np.ndarray] = {}
    if part.table is not None:
        found["table"] = part.table
    if isinstance(part, RunList):
        positions = part.positions
        found["positions"] = (positions // (alignment or part.alignment)).astype(np.uint32)
        found["deltas"] = part.displacements - positions[:-1]
        found["units"] = part.units().astype(np.int32)
    return found


def _magic(number: int) -> int:
    """Wide numbers are divided without one."""
    return magic_of(number) if 0 < number < LIMIT else 0


def describe(part: Part, tables: Tables, extent: int, alignment: int = 0) -> np.ndarray:
    """The descriptor of a part.

    Args:
        alignment: of everything the part is used for, 0 for the part's own.
        extent: of the datatype, bytes: the stride of the repetition that follows the last dim.

    Returns:
        int64[DESCRIPTOR_WORDS]
    """
    words = np.zeros(DESCRIPTOR_WORDS, np.int64)
    kind = RUN_LIST if isinstance(part, RunList) else STRIDED
    shift = (alignment or part.alignment).bit_length() - 1
    words[0] = kind | len(part.dims) << DIMS_SHIFT | shift << ALIGNMENT_SHIFT
    words[1:5] = part.begin, part.size, part.offset, part.atom
    words[5:8] = tables.positions, tables.deltas, tables.units
    for k in range(5):
        words[8 + k] = _magic(part.atom >> k)
    row = D_DIMS // 8
    for dim in part.dims:
        address = tables.table if dim.table is not None else 0
        words[row : row + 4] = _magic(dim.count), dim.count, dim.stride, address
        row += 4
    words[row : row + 4] = 0, LIMIT, extent, 0
    return words
