"""The blocks of a collective with counts, as its arguments say them (``gmpi/contract/counts.py``).

The arguments of one way are a *side*: a buffer, and what its blocks are: either one count and one
datatype, or arrays of integers with an element for each block, in device, shared or constant
memory. ``survey`` goes through them once before a slot is taken, ``write_blocks`` a second time,
for the tables. Nothing of the user's is touched where the survey finds a flaw.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

from device_lib.move.layouts import BUFFER_ADDRESS, BUFFER_BYTES, BUFFER_DIMS
from device_lib.move.message import is_derived
from device_lib.platform import primitives as gpu
from device_lib.platform.context import sign32
from device_lib.platform.divide import divide_wide
from device_lib.platform.primitives import device, int64
from device_lib.proxied.flaws import UNLIMITED, derived_flaw, repeats
from device_lib.proxied.opening_blocks import INVALID, block_bytes, derived_row
from gmpi.contract import counts
from gmpi.contract.constants import DATATYPE_MARK, DATATYPES
from gmpi.contract.layouts import (
    DISTINCT_MASK,
    LAYOUT_TYPE,
    LAYOUT_USER,
    TYPE_DISTINCT,
    TYPE_EXTENT,
)
from gmpi.contract.wire import (
    FLAG_NULL_BUFFER,
    FLAG_OVERLAP,
    FLAG_PRIVATE_BUFFER,
    FLAG_SHORT_BUFFER,
    FLAG_STRIDED_BUFFER,
    POSITION_MASK,
)

_packed_bytes = device(counts.packed_bytes)
_DATATYPE_COUNT = len(DATATYPES)

# The arrays of one way, in memory of the calling thread: of counts, displacements and datatypes the
# address and the bytes of an element (0: it is no such array; address 0: there is none), and how
# many elements all of them have.
ARRAYS_COUNTS = 0
ARRAYS_DISPLS = 16
ARRAYS_TYPES = 32
ARRAYS_LENGTH = 48
ARRAYS_BYTES = 56


class Side(NamedTuple):
    """One way of a call.

    Attributes:
        buffer: what ``primitives.describe`` wrote.
        arrays: address of its arrays; 0: all blocks have ``count`` elements of ``datatype``, one
            block after the other.
        first: which element of the arrays is that of the first block.
        number: how many blocks.
        joined: the blocks lie one after the other, whatever the arrays have besides counts.
        writes: bytes come to the buffer.
        missing: a bit for each block that stays as it is, whatever its count.
    """

    buffer: int
    arrays: int
    first: int
    number: int
    count: int  # type: ignore[assignment]  # MPI's word; hides tuple.count
    datatype: int
    joined: int
    writes: int
    missing: int


@device
def _integer(array, i):
    """Element ``i`` of an array of integers; ``array``: address of its two words."""
    at = gpu.load_8(array)
    if gpu.load_8(array + 8) == 4:
        return sign32(int64(gpu.load_4_if(at + i * 4, 1)))
    return gpu.load_8(at + i * 8)


@device
def block(side, i, joined_at):
    """(count, displacement, datatype) of a block; ``joined_at``: elements before it."""
    gone = side.missing != 0 and side.missing >> i & 1 != 0
    if side.arrays == 0:
        return min(side.count, 0) if gone else side.count, i * side.count, side.datatype
    datatype = side.datatype
    count = _integer(side.arrays + ARRAYS_COUNTS, side.first + i)
    if gone:
        count = min(count, 0)  # whatever is wrong is told all the same
    displ = joined_at
    if side.joined == 0:
        displ = _integer(side.arrays + ARRAYS_DISPLS, side.first + i)
    if gpu.load_8(side.arrays + ARRAYS_TYPES) != 0:
        datatype = _integer(side.arrays + ARRAYS_TYPES, side.first + i)
    return count, displ, datatype


@device
def array_flaw(side):
    """Whether the arrays have an element for each block: the flaw, or 0."""
    if side.arrays == 0 or side.number == 0:
        return 0
    k = 0
    while k < ARRAYS_LENGTH:
        if gpu.load_8(side.arrays + k) != 0 and gpu.load_8(side.arrays + k + 8) == 0:
            return counts.FLAW_ARRAY | (k >> 4) << counts.FLAW_INDEX_SHIFT
        k += gpu.opaque(16)
    if gpu.load_8(side.arrays + ARRAYS_LENGTH) < side.first + side.number:
        return (
            counts.FLAW_LENGTH | gpu.load_8(side.arrays + ARRAYS_LENGTH) << counts.FLAW_INDEX_SHIFT
        )
    return 0


@device
def _is_known(row, datatype):
    if is_derived(datatype):
        return row != 0
    return datatype & ~0xFFFF == DATATYPE_MARK and datatype & 0xFF < _DATATYPE_COUNT


@device
def is_typed(side):
    """Whether each block has a datatype of its own, and displacements are in bytes."""
    return side.arrays != 0 and gpu.load_8(side.arrays + ARRAYS_TYPES) != 0


@device
def offset_of(side, row, count, displ, nbytes):
    """Where a block begins, in bytes: -1 where that is far outside of everything."""
    if displ > POSITION_MASK or displ < -POSITION_MASK:
        return False, 0
    if is_typed(side):
        return True, displ
    if row == 0:
        return True, displ * (nbytes // count)
    extent = gpu.load_gpu(row + TYPE_EXTENT)
    if extent == 0 or displ == 0:
        return True, 0
    most, rest = divide_wide(UNLIMITED, max(extent, -extent))
    return max(displ, -displ) <= most, displ * extent


@device
def _block_flaw(side, row, count, displ, nbytes):
    """What is wrong with where a block lies: the flaw without its index, or 0."""
    address = gpu.load_8(side.buffer + BUFFER_ADDRESS)
    room = gpu.load_8(side.buffer + BUFFER_BYTES)
    strided = gpu.load_8(side.buffer + BUFFER_DIMS) != 0
    if address < 0 or (address == 0 and (row == 0 or room < UNLIMITED)):
        return counts.FLAW_BUFFER | FLAG_NULL_BUFFER << counts.FLAW_FLAGS_SHIFT
    if strided and (row != 0 or is_typed(side)):
        return counts.FLAW_BUFFER | FLAG_STRIDED_BUFFER << counts.FLAW_FLAGS_SHIFT
    if side.writes and (
        (row != 0 and count > gpu.load_gpu(row + TYPE_DISTINCT) & DISTINCT_MASK)
        or (strided and repeats(side.buffer))
    ):
        return counts.FLAW_BUFFER | FLAG_OVERLAP << counts.FLAW_FLAGS_SHIFT
    sound, offset = offset_of(side, row, count, displ, nbytes)
    if not sound:
        return counts.FLAW_OUTSIDE
    if row != 0:
        flags = derived_flaw(row, address, room, count, offset)
        if flags == FLAG_SHORT_BUFFER:
            return counts.FLAW_OUTSIDE
        return counts.FLAW_BUFFER | flags << counts.FLAW_FLAGS_SHIFT if flags != 0 else 0
    return counts.FLAW_OUTSIDE if offset < 0 or offset + nbytes > room else 0


@device
def survey(ctx, side, reduced):
    """Goes through the blocks of a side (one thread).

    Returns:
        (bytes, as packed; address of all of them if they are one run, else 0; the flaw, 0: none).
    """
    flaw = array_flaw(side)
    plain = gpu.load_8(side.buffer + BUFFER_DIMS) == 0
    address = gpu.load_8(side.buffer + BUFFER_ADDRESS)
    is_run = plain
    run = 0
    total = 0  # bytes
    packed = 0  # the same, each block at a multiple of 16
    elements = 0
    i = 0
    while i < side.number and flaw == 0:
        count, displ, datatype = block(side, i, elements)
        row = derived_row(ctx, datatype)
        nbytes = block_bytes(datatype, row, count, 1)
        if not _is_known(row, datatype) or (reduced and row != 0):
            flaw = counts.FLAW_DATATYPE
        elif count < 0 or nbytes == INVALID or packed + nbytes > POSITION_MASK >> 1:
            flaw = counts.FLAW_COUNT
        elif nbytes > 0:
            flaw = _block_flaw(side, row, count, displ, nbytes)
            sound, offset = offset_of(side, row, count, displ, nbytes)
            at = address + offset
            if total == 0:
                run = at
            if row != 0 or at != run + total:
                is_run = False
            total += nbytes
            packed += nbytes if side.joined else _packed_bytes(nbytes)
        elements += count
        if flaw != 0:
            flaw |= i << counts.FLAW_INDEX_SHIFT
        i += gpu.opaque(1)
    if flaw == 0 and total > 0 and gpu.memory_space(address) == 2:
        flaw = counts.FLAW_BUFFER | FLAG_PRIVATE_BUFFER << counts.FLAW_FLAGS_SHIFT
    if flaw != 0:
        return 0, 0, flaw
    if is_run:
        return total, run, 0
    return packed, 0, 0


@device
def write_blocks(ctx, side, table, entries, own, total, lane, lanes):
    """Writes what the proxy reads of a side, and where its blocks lie; all lanes of one warp.

    Args:
        table: address of the side's first entry in staging.
        entries: the same in device memory; 0: not wanted.
        own: row that a strided view has as a datatype.
        total: bytes of all blocks, which are one for whoever moves them if they are joined.
    """
    address = gpu.load_8(side.buffer + BUFFER_ADDRESS)
    strided = gpu.load_8(side.buffer + BUFFER_DIMS) != 0
    elements = 0
    i = 0
    while i < side.number:
        count, displ, datatype = block(side, i, elements)
        elements += count
        if i % lanes == lane:
            at = table + i * counts.TABLE_ENTRY
            gpu.store_8(at, count)
            gpu.store_8(at + 8, displ)
            gpu.store_8(at + 16, datatype)
            if entries != 0 and (i == 0 or side.joined == 0):
                row = derived_row(ctx, datatype)
                nbytes = block_bytes(datatype, row, count, 1)
                offset = 0
                if nbytes > 0:
                    sound, offset = offset_of(side, row, count, displ, nbytes)
                entry = entries + i * counts.BLOCK_ENTRY
                gpu.store_gpu(entry + LAYOUT_USER, address if strided else address + offset)
                gpu.store_gpu(entry + LAYOUT_TYPE, own if strided else row)
                gpu.store_gpu(entry + counts.BLOCK_BYTES, total if side.joined else nbytes)
                gpu.store_gpu(entry + counts.BLOCK_FIRST, offset if strided else 0)
        i += gpu.opaque(1)
