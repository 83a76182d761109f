"""What is wrong with a buffer whose bytes may be scattered, before anything of it is touched."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.layouts import BUFFER_ADDRESS, BUFFER_BYTES, BUFFER_DIMS, BUFFER_SHAPE
from device_lib.move.message import room_in_shared
from device_lib.platform.divide import product
from device_lib.platform.primitives import device, load_8, load_gpu, memory_space, opaque
from gmpi.contract.layouts import DISTINCT_MASK, TYPE_DISTINCT, TYPE_EXTENT, TYPE_HIGH, TYPE_LOW
from gmpi.contract.wire import (
    FLAG_BACK,
    FLAG_NULL_BUFFER,
    FLAG_OVERLAP,
    FLAG_PRIVATE_BUFFER,
    FLAG_SHORT_BUFFER,
    FLAG_STRIDED_BUFFER,
)

UNLIMITED = 1 << 61
_LOWEST_ADDRESS = 4096  # nothing lies below: BOTTOM with displacements that are no addresses


@device
def derived_flaw(row, address, room, count, offset):
    """Whether ``count`` elements, of which the first is at ``offset``, stay within the ``room``
    bytes at an address: the flag, or 0."""
    low = load_gpu(row + TYPE_LOW) + offset
    high = load_gpu(row + TYPE_HIGH) + offset
    extent = load_gpu(row + TYPE_EXTENT)
    far = product(max(count - 1, 0), max(extent, -extent), UNLIMITED)
    if far < 0:
        return FLAG_SHORT_BUFFER
    far = far if extent > 0 else -far
    low += min(far, 0)
    high += max(far, 0)
    if address + low < _LOWEST_ADDRESS:
        return FLAG_NULL_BUFFER
    if room < UNLIMITED and (low < 0 or high > room):
        return FLAG_SHORT_BUFFER
    return 0


@device
def repeats(buffer):
    """Whether the view has several elements at one address (stride 0)."""
    d = load_8(buffer + BUFFER_DIMS) - 1
    while d >= 0:
        at = buffer + BUFFER_SHAPE + d * 16
        if load_8(at) > 1 and load_8(at + 8) == 0:
            return True
        d -= opaque(1)
    return False


@device
def flaw_of(ctx, buffer, row, count, nbytes, way):
    """What is wrong with a buffer that ``nbytes`` (more than 0) are moved from or to, 0: nothing.

    Args:
        buffer: what ``primitives.describe`` wrote.
        row: of a derived datatype, else 0.
    """
    address = load_8(buffer + BUFFER_ADDRESS)
    room = load_8(buffer + BUFFER_BYTES)
    strided = load_8(buffer + BUFFER_DIMS) != 0
    space = memory_space(address)
    if row != 0:
        if strided:
            return FLAG_STRIDED_BUFFER
        if address == 0 and room < UNLIMITED:
            return FLAG_NULL_BUFFER
        flaw = derived_flaw(row, address, room, count, 0)
        if flaw != 0:
            return flaw
        if way == FLAG_BACK and count > load_gpu(row + TYPE_DISTINCT) & DISTINCT_MASK:
            return FLAG_OVERLAP
    else:
        if address == 0:
            return FLAG_NULL_BUFFER
        if room < nbytes:
            return FLAG_SHORT_BUFFER
        if way == FLAG_BACK and repeats(buffer):
            return FLAG_OVERLAP
    if space == 2 or (space == 1 and nbytes > room_in_shared(ctx)):
        return FLAG_PRIVATE_BUFFER
    return 0
