"""Registered arrays that other ranks of the node store long messages to: a table in device memory.

It lies behind the table of channels and the counters of these. The host fills it: when an array is
registered, and when the proxy of another rank has mapped it. Kernels look there for the buffer of a
long receive (``device_lib/direct/registered.py``).
"""

from __future__ import annotations

ROWS = 64  # arrays; what is registered beyond them goes through staging
ALIGNMENT = 16  # address and length of what is stored straight are multiples of it

IN_USE = 0  # rows that may be in use
RANKS = 8  # of the node
DIRECT_BYTES = 16  # of a rank's direct memory
DIRECT = 24  # for each rank where that begins, as mapped here; 0: it is not

# A row. All its words are 0 where it is nobody's.
BEGIN = 0  # address of the array
BYTES = 8
SHIFTS = 16  # for each rank, what to add to an address in the array so that it can store there
MAPPED = 1  # in the same word, which is even otherwise: the rank has mapped it


def header_bytes(ranks: int) -> int:
    """Compiled, too."""
    return DIRECT + 8 * ranks


def row_bytes(ranks: int) -> int:
    """Compiled, too."""
    return SHIFTS + 8 * ranks


def table_bytes(ranks: int) -> int:
    return header_bytes(ranks) + ROWS * row_bytes(ranks)
