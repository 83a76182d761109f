"""Where the bytes of a request lie in the user's memory, when they do not lie in one piece.

Derived datatypes are rows of a table in device memory, which the host writes (``Context.commit``).
A strided array view becomes such a row here, from its shape and strides. The *layout* of a request
is an address and a row; it is kept in device memory with the slot, so that whoever waits for the
request, or helps with it, can move its bytes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.interleaved import interleaved, make_interleaved
from device_lib.move.pack_part import pack_part, part_begin, unpack_part
from device_lib.platform.context import datatype_address, layouts_address
from device_lib.platform.divide import LIMIT, divide_wide, product
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64, load_8, load_gpu, opaque, store_8
from gmpi.contract import layouts
from gmpi.contract.wire import POSITION_MASK
from gmpi.datatypes.descriptor import (
    ALIGNMENT_SHIFT,
    D_ATOM,
    D_BEGIN,
    D_DIMS,
    D_HEAD,
    D_MAGIC,
    D_OFFSET,
    D_SIZE,
    DESCRIPTOR_BYTES,
    DIM_BYTES,
    DIMS_SHIFT,
    STRIDED,
)

# What ``primitives.describe`` tells of a buffer (int64, in memory of the calling thread).
BUFFER_ADDRESS = 0
BUFFER_BYTES = 8
BUFFER_DIMS = 16  # 0: the elements are one contiguous run
BUFFER_ITEM = 24
BUFFER_SHAPE = 32  # count and stride of each dimension, the outermost first


@device
def type_row(ctx, datatype):
    """The row of a derived datatype; 0 when it is not, or no longer, committed (any thread)."""
    row = datatype_address(ctx, int64(datatype) & (layouts.DERIVED_ROWS - 1))
    if load_gpu(row + layouts.TYPE_HANDLE) != datatype:
        return 0
    return row


@device
def derived_bytes(row, count):
    """Packed bytes of ``count`` elements; 0 for whatever the proxy is going to refuse."""
    size = load_gpu(row + layouts.TYPE_SIZE)
    if size == 0 or count <= 0:
        return 0
    return max(product(count, size, POSITION_MASK), 0)


# --- a strided view as a row ----------------------------------------------------------------------


@device
def _magic(number):
    """``divide.magic_of``; 0 makes every number below LIMIT a remainder, as it should."""
    if number <= 0 or number >= LIMIT:
        return 0
    bits = 0
    while 1 << bits < number:
        bits += opaque(1)
    quotient, rest = divide_wide((1 << (31 + bits)) + number - 1, number)
    return quotient | bits << 32


@device
def _write_rows(descriptor, buffer):
    """Repetitions of a view, innermost first: (how many, bytes of the atom, log2 of the alignment).

    Contiguous dimensions become part of the atom, or one repetition (``gmpi/datatypes/nodes.py``).
    """
    atom = load_8(buffer + BUFFER_ITEM)
    rows = 0
    count = 1
    stride = 0
    common = 0
    d = load_8(buffer + BUFFER_DIMS) - 1
    while d >= 0:
        n = load_8(buffer + BUFFER_SHAPE + d * 16)
        step = load_8(buffer + BUFFER_SHAPE + d * 16 + 8)
        if n != 1:
            if rows == 0 and step == atom:
                atom *= n
            elif rows > 0 and step == count * stride:
                count *= n
            else:
                rows += 1
                count = n
                stride = step
                common |= step
            if rows > 0:
                row = descriptor + D_DIMS + (rows - 1) * DIM_BYTES
                store_8(row + 8, count)
                store_8(row + 16, stride)
                store_8(row + 24, 0)
        d -= opaque(1)
    common |= atom
    shift = 0
    while shift < 4 and common >> shift & 1 == 0:
        shift += opaque(1)
    return rows, atom, shift


@device
def write_view(layout, buffer, nbytes):
    """Makes a row of a strided view: what ``descriptor.describe`` does on the host (one thread)."""
    own = layout + layouts.LAYOUT_OWN
    descriptor = own + layouts.TYPE_HEADER
    rows, atom, shift = _write_rows(descriptor, buffer)
    store_8(descriptor + D_HEAD, STRIDED | rows << DIMS_SHIFT | shift << ALIGNMENT_SHIFT)
    store_8(descriptor + D_BEGIN, 0)
    store_8(descriptor + D_SIZE, nbytes)
    store_8(descriptor + D_OFFSET, 0)
    store_8(descriptor + D_ATOM, atom)
    store_8(own + layouts.TYPE_SIZE, nbytes)
    store_8(own + layouts.TYPE_EXTENT, 0)
    store_8(own + layouts.TYPE_PARTS, 1)
    store_8(own + layouts.TYPE_DESCRIPTORS, descriptor)
    store_8(layout + layouts.LAYOUT_TYPE, own)


@device
def finish_view(layout, lane, lanes):
    """The numbers to divide by: those of the words of each width, and of the repetitions.

    By all lanes of a warp after ``write_view`` and a barrier: each one takes a long division.
    """
    descriptor = layout + layouts.LAYOUT_OWN + layouts.TYPE_HEADER
    rows = load_8(descriptor + D_HEAD) >> DIMS_SHIFT & 0xFF
    i = lane
    while i < 5 + rows:
        if i < 5:
            number = load_8(descriptor + D_ATOM) >> i
            store_8(descriptor + D_MAGIC + i * 8, _magic(number))
        else:
            row = descriptor + D_DIMS + (i - 5) * DIM_BYTES
            store_8(row, _magic(load_8(row + 8)))
        i += opaque(lanes)


# --- moving ---------------------------------------------------------------------------------------


def _make_move(unpack: bool) -> Callable:
    """What all movers are called by: each has what the next one needs, and saves no more."""
    name = "gmpi_unpack" if unpack else "gmpi_pack"
    move_part = unpack_part if unpack else pack_part
    move_interleaved = make_interleaved(unpack)

    @device
    def move_repeated(user, row, descriptor, origin, begin, end, rank, size):
        """``move`` of several elements of a datatype of one part, which repeats by itself.

        Args:
            origin: address at which byte 0 of the message would be.
        """
        first, last = interleaved(row, descriptor, user, origin, begin, end)
        if first < last:
            move_interleaved(descriptor, user, origin, first, last, rank, size)
        low, high = begin, first
        turn = 0
        while turn < 2:
            if low < high:
                move_part(descriptor, user, origin, low, high, 2, rank, size)
            low, high = last, end
            turn += opaque(1)
        return 0

    repeated = linked(f"{name}_repeated", 8, 1, move_repeated)

    @device
    def move_parts(user, row, packed, begin, end, rank, size):
        """``move`` of a datatype of several parts."""
        whole = load_gpu(row + layouts.TYPE_SIZE)
        extent = load_gpu(row + layouts.TYPE_EXTENT)
        parts = load_gpu(row + layouts.TYPE_PARTS)
        descriptors = load_gpu(row + layouts.TYPE_DESCRIPTORS)
        origin = packed - begin
        element, rest = divide_wide(begin, whole)
        first = element * whole
        part = 0
        while first < end:
            descriptor = descriptors + part * DESCRIPTOR_BYTES
            at = first + part_begin(descriptor)
            low = max(begin, at) - at
            high = min(end - at, load_8(descriptor + D_SIZE))
            if low < high:
                move_part(
                    descriptor, user + element * extent, origin + at, low, high, 1, rank, size
                )
            part += 1
            if part == parts:
                part = 0
                first += whole
                element += opaque(1)
        return 0

    several = linked(f"{name}_parts", 7, 1, move_parts)

    @device
    def move(user, row, packed, begin, end, rank, size):
        """Moves bytes ``begin..end`` of the packed message; byte ``begin`` is at ``packed``.

        Args:
            user: address of the user's buffer.
            row: of the datatype.
        """
        parts = load_gpu(row + layouts.TYPE_PARTS)
        whole = load_gpu(row + layouts.TYPE_SIZE)
        descriptor = load_gpu(row + layouts.TYPE_DESCRIPTORS)
        if parts != 1:
            several(user, row, packed, begin, end, rank, size)
        elif end > whole:
            repeated(user, row, descriptor, packed - begin, begin, end, rank, size)
        else:
            move_part(descriptor, user, packed - begin, begin, end, 1, rank, size)
        return 0

    return linked(f"{name}_layout", 7, 1, move)  # type: ignore[no-any-return]


pack_elements, unpack_elements = _make_move(False), _make_move(True)


@device
def pack_layout(layout, packed, begin, end, rank, size):
    """``pack_elements`` of the address and the row that a layout has."""
    user = load_gpu(layout + layouts.LAYOUT_USER)
    row = load_gpu(layout + layouts.LAYOUT_TYPE)
    return pack_elements(user, row, packed, begin, end, rank, size)


@device
def unpack_layout(layout, packed, begin, end, rank, size):
    user = load_gpu(layout + layouts.LAYOUT_USER)
    row = load_gpu(layout + layouts.LAYOUT_TYPE)
    return unpack_elements(user, row, packed, begin, end, rank, size)


@device
def layout_of(ctx, slot, direction):
    """The slot's layout; ``direction`` is LAYOUT_SEND or LAYOUT_RECV."""
    return layouts_address(ctx, slot) + direction
