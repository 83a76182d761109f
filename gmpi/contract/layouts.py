"""Datatypes and layouts in device memory: where bytes lie that are not in one piece.

Rows of datatypes are written by the host (``gmpi/committed.py``), layouts by the call that opens a
request (``device_lib/move/layouts.py``). Both are read by the threads that move its bytes.
"""

from __future__ import annotations

# A derived datatype has a row of a table, which the host writes when it is committed. Its handle
# names row and generation:  DERIVED_MARK | generation (18) << 10 | row (10)
DERIVED_MARK = 0x5 << 28
DERIVED_MASK = (1 << 28) - 1
DERIVED_ROWS = 1024
DERIVED_GENERATION_SHIFT = 10
TYPE_HANDLE = 0  # 0: nobody's row
TYPE_SIZE = 8  # packed bytes of one element
TYPE_EXTENT = 16
TYPE_LOW = 24  # first and last + 1 byte that one element touches, relative to the buffer
TYPE_HIGH = 32
# So many elements do not overlap, more cannot be received | bytes of each of its basic elements, 0
# where they differ << TYPE_BASIC_SHIFT.
TYPE_DISTINCT = 40
TYPE_BASIC_SHIFT = 48
DISTINCT_MASK = (1 << TYPE_BASIC_SHIFT) - 1
TYPE_PARTS = 48  # descriptors (gmpi/datatypes/descriptor.py), each of DESCRIPTOR_BYTES
TYPE_DESCRIPTORS = 56  # where they are
TYPE_HEADER = 64
TYPE_BYTES = 512  # a row: the header, and one descriptor

# A layout says where the bytes of one request lie: an address, and the row of a datatype. A strided
# array view makes a row of its own, in the layout itself.
LAYOUT_USER = 0
LAYOUT_TYPE = 8
LAYOUT_OWN = 64
LAYOUT_BYTES = LAYOUT_OWN + TYPE_BYTES
LAYOUT_SEND = 0  # in a slot's part of device memory
LAYOUT_RECV = LAYOUT_BYTES
LAYOUT_INLINE = 2 * LAYOUT_BYTES  # INLINE_BYTES, packed for the record
# Where the blocks of a collective with counts lie (gmpi/contract/counts.py), in a small slot.
LAYOUT_BLOCKS = 1408
LAYOUTS_BYTES = 1920
