"""What memory has to move at least for a layout: the floor that packing is measured against.

Memory is read and written in sectors of 32 bytes. A pack reads each sector that the layout touches
once. An unpack writes them, and where a sector holds bytes that are not the layout's, those have to
stay: it is read as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gmpi.datatypes import Plan
from gmpi.datatypes.nodes import Node, stream

SECTOR = 32
_MOST_RUNS = 1 << 21  # more are counted on a sample


class Sectors(NamedTuple):
    """Of the user's memory.

    Attributes:
        touched: with at least one byte of the layout.
        partial: of these, with other bytes as well.
    """

    touched: int
    partial: int


def count_sectors(at: np.ndarray, lengths: np.ndarray) -> Sectors:
    """Of runs of bytes at displacements, in any order, of which no two overlap."""
    order = np.argsort(at, kind="stable")
    begins, ends = at[order], (at + lengths)[order]
    # Runs that meet are one.
    opens = np.concatenate(([True], begins[1:] != ends[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    begins, ends = begins[opens], ends[closes]
    first, last = begins // SECTOR, (ends - 1) // SECTOR
    before = np.concatenate(([np.int64(-(1 << 60))], last[:-1]))
    touched = int((last - np.maximum(first, before + 1) + 1).sum())
    whole = int(np.maximum(0, ends // SECTOR - -(-begins // SECTOR)).sum())
    return Sectors(touched, touched - whole)


def sectors(plan: Plan, count: int) -> Sectors:
    """Of ``count`` elements, from an address that sectors begin at."""
    node = plan.repeated(count).node
    size = node.size
    while node.run_count() > _MOST_RUNS and node.dims and node.dims[-1].table is None:
        outer = node.dims[-1]
        fewer = max(1, outer.count * _MOST_RUNS // node.run_count())
        node = Node(0, node.dims[:-1], node.core)
        node = stream(node, fewer, outer.stride)
    found = count_sectors(*node.runs())
    share = size / node.size
    return Sectors(round(found.touched * share), round(found.partial * share))


def pack_bytes(found: Sectors, packed: int, tables: int) -> int:
    """Read and written by a pack."""
    return SECTOR * found.touched + packed + tables


def unpack_bytes(found: Sectors, packed: int, tables: int) -> int:
    """Read and written by an unpack."""
    return SECTOR * (found.touched + found.partial) + packed + tables
