"""Moving the blocks of a collective with counts: each has a layout of its own (``counts.py``).

``pack_any`` and ``unpack_any`` are what moves the bytes of a request that do not lie in one piece,
of whatever kind.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.copy import copy_from_staging, copy_to_staging
from device_lib.move.layouts import pack_layout, unpack_layout
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, load_gpu, opaque
from gmpi.contract.counts import BLOCK_BYTES, BLOCK_ENTRY, BLOCK_FIRST, IN_BLOCKS, packed_bytes
from gmpi.contract.layouts import LAYOUT_TYPE, LAYOUT_USER

_packed_bytes = device(packed_bytes)


def _make_move(unpack: bool) -> Callable:
    move_layout = unpack_layout if unpack else pack_layout

    @device
    def move(layout, packed, begin, end, rank, size):
        """Moves bytes ``begin..end`` of the packed blocks; byte ``begin`` is at ``packed``."""
        entry = load_gpu(layout + LAYOUT_USER)
        last = entry + (load_gpu(layout + LAYOUT_TYPE) & ~IN_BLOCKS) * BLOCK_ENTRY
        at = 0
        while entry < last and at < end:
            nbytes = load_gpu(entry + BLOCK_BYTES)
            low = max(begin, at)
            high = min(end, at + nbytes)
            if low < high:
                where = packed + low - begin
                first = load_gpu(entry + BLOCK_FIRST) + low - at
                if load_gpu(entry + LAYOUT_TYPE) != 0:
                    move_layout(entry, where, first, first + high - low, rank, size)
                elif unpack:
                    user = load_gpu(entry + LAYOUT_USER)
                    copy_from_staging(user + first, where, high - low, rank, size)
                else:
                    user = load_gpu(entry + LAYOUT_USER)
                    copy_to_staging(where, user + first, high - low, rank, size)
            at += _packed_bytes(nbytes)
            entry += opaque(BLOCK_ENTRY)
        return 0

    return move


pack_blocks = linked("gmpi_pack_blocks", 6, 1, _make_move(False))
unpack_blocks = linked("gmpi_unpack_blocks", 6, 1, _make_move(True))


@device
def _is_of_blocks(layout):
    return load_gpu(layout + LAYOUT_TYPE) & IN_BLOCKS != 0


@device
def pack_any(layout, packed, begin, end, rank, size):
    """``pack_layout``, or ``pack_blocks`` where the layout says so."""
    if _is_of_blocks(layout):
        pack_blocks(layout, packed, begin, end, rank, size)
    else:
        pack_layout(layout, packed, begin, end, rank, size)


@device
def unpack_any(layout, packed, begin, end, rank, size):
    """The reverse."""
    if _is_of_blocks(layout):
        unpack_blocks(layout, packed, begin, end, rank, size)
    else:
        unpack_layout(layout, packed, begin, end, rank, size)
