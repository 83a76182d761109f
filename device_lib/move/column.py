"""Columns: elements of 4, 8 or 16 bytes at equal distances, which a send packs without a layout.

A layout lets any thread find any byte later; a short message is packed by the call itself, so its
address, distance and length are enough, and nothing is written to device memory.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.layouts import BUFFER_ADDRESS, BUFFER_DIMS, BUFFER_ITEM, BUFFER_SHAPE
from device_lib.move.words import LOAD, STORE_IF
from device_lib.platform.primitives import device, load_8, load_gpu, opaque
from gmpi.contract.layouts import TYPE_DESCRIPTORS, TYPE_PARTS
from gmpi.datatypes.descriptor import D_ATOM, D_DIMS, D_HEAD, D_OFFSET, DIMS_SHIFT, STRIDED


@device
def find_column(buffer, row, count, nbytes):
    """A layout that needs no lookup: elements of 4, 8 or 16 bytes at equal distances (any thread).

    Returns:
        (address of the first one, bytes from one to the next, log2 of the bytes of one); the last
        is 0 for any other layout.
    """
    address = load_8(buffer + BUFFER_ADDRESS)
    item = 0
    stride = 0
    if row == 0:
        if load_8(buffer + BUFFER_DIMS) == 1:
            item = load_8(buffer + BUFFER_ITEM)
            stride = load_8(buffer + BUFFER_SHAPE + 8)
    elif count == 1 and load_gpu(row + TYPE_PARTS) == 1:
        descriptor = load_gpu(row + TYPE_DESCRIPTORS)
        head = load_8(descriptor + D_HEAD)
        plain = load_8(descriptor + D_DIMS + 24) == 0  # no table of displacements
        if head & 0xFF == STRIDED and head >> DIMS_SHIFT & 0xFF == 1 and plain:
            item = load_8(descriptor + D_ATOM)
            stride = load_8(descriptor + D_DIMS + 16)
            address += load_8(descriptor + D_OFFSET)
    shift = 0
    if item == 4:
        shift = 2
    elif item == 8:
        shift = 3
    elif item == 16:
        shift = 4
    if (address | stride | nbytes) & (item - 1) != 0:
        shift = 0
    return address, stride, shift


def _make_pack_column(width: int) -> Callable:
    load = LOAD[width]
    store_if = STORE_IF[width]

    @device
    def pack_column(packed, address, stride, nbytes, rank, size):
        count = nbytes // width
        i = rank
        while i < count:
            # Two loads are under way before the first store.
            j = min(i + size, count - 1)
            a0, b0 = load(address + i * stride)
            a1, b1 = load(address + j * stride)
            store_if(packed + i * width, a0, b0, True)
            store_if(packed + j * width, a1, b1, i + size < count)
            i += opaque(2 * size)

    return pack_column


_pack_column_4 = _make_pack_column(4)
_pack_column_8 = _make_pack_column(8)
_pack_column_16 = _make_pack_column(16)


@device
def pack_column(packed, address, stride, column, nbytes, rank, size):
    """Packs what ``find_column`` has found; ``column``: log2 of the bytes of an element."""
    if column == 2:
        _pack_column_4(packed, address, stride, nbytes, rank, size)
    elif column == 3:
        _pack_column_8(packed, address, stride, nbytes, rank, size)
    elif column == 4:
        _pack_column_16(packed, address, stride, nbytes, rank, size)
