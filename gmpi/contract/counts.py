"""Collectives whose blocks have counts of their own: what a request says of its blocks.

Counts, displacements and datatypes for each rank do not fit a record. The kernel writes them into
the small staging of the request, where the results will be: a *table*, which the proxy reads, and
checks, when it takes the record (``host_proxy/reference/counts.py``).

    word 0   blocks that go out | blocks that come back << 32
         1   what the kernel has found wrong, 0: nothing (``flaw``)
         2   bytes of the buffer that this is about
         3   RUN_OUT, RUN_BACK: these bytes are one run in the user's memory
         4.. of each block, those that go out first: count, displacement, datatype

What is packed are the blocks, one after the other: each begins at a multiple of 16 bytes, or, where
they are one run, right behind the one before it. What goes out follows the table, or what comes
back, whichever is longer (``moves.out_offset``).

Whoever moves bytes of the request reads where its blocks lie from a second table, in device memory
(BLOCK_*): in small slots up to FEW_BLOCKS of them; with more a request takes a large slot, however
short it is.
"""

from __future__ import annotations

from gmpi.contract.layouts import LAYOUT_BLOCKS, LAYOUTS_BYTES

TABLE_NUMBERS = 0
TABLE_FLAW = 8
TABLE_ROOM = 16
TABLE_FORM = 24
TABLE_HEAD = 32
TABLE_ENTRY = 24
RUN_OUT = 1
RUN_BACK = 2

# Flaws
FLAW_COUNT = 1  # negative, or more bytes than can be moved
FLAW_DATATYPE = 2
FLAW_OUTSIDE = 3  # a block leaves the buffer
FLAW_BUFFER = 4  # FLAG_* of wire.py say what
FLAW_ARRAY = 5  # an array of integers is no such array
FLAW_LENGTH = 6  # it has fewer elements than there are blocks
FLAW_MASK = 0xF
FLAW_WAY_SHIFT = 4
FLAW_FLAGS_SHIFT = 8
FLAW_INDEX_SHIFT = 16  # which block

# In device memory, of each block: a layout (LAYOUT_USER, LAYOUT_TYPE; type 0: bytes in one run),
# how many bytes, and the first of them among those of the layout.
BLOCK_BYTES = 16
BLOCK_FIRST = 24
BLOCK_ENTRY = 32
FEW_BLOCKS = (LAYOUTS_BYTES - LAYOUT_BLOCKS) // BLOCK_ENTRY
# In LAYOUT_TYPE of a request: LAYOUT_USER is the address of such a table, of so many blocks.
IN_BLOCKS = 1 << 62
BLOCK_ALIGNMENT = 16


def table_bytes(blocks: int) -> int:
    """Length of a table. This and all below: compiled for kernels."""
    return TABLE_HEAD + blocks * TABLE_ENTRY


def most_blocks(eager: int) -> int:
    """Of how many blocks the table fits a small staging of ``eager`` bytes."""
    return (eager - TABLE_HEAD) // TABLE_ENTRY


def packed_bytes(nbytes: int) -> int:
    """What a block takes among others, packed."""
    return (nbytes + BLOCK_ALIGNMENT - 1) & ~(BLOCK_ALIGNMENT - 1)
