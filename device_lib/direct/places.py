"""Where the bytes of a collective lie that go at once: *places*.

A place is an address, or, of what is not in one piece, a slot, whose layouts say where the bytes
are, and which of the packed bytes is meant. Both count alike: n bytes further is the place + n.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.copy import copy_from_staging, copy_to_staging
from device_lib.move.layouts import layout_of, pack_layout, unpack_layout
from device_lib.move.stretch import put_stretch
from device_lib.platform.primitives import device, load_gpu
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND, LAYOUT_USER
from gmpi.contract.wire import POSITION_MASK, SCATTERED

_SLOT_SHIFT = 40
_SLOT_MASK = 0xFFFF
assert POSITION_MASK < 1 << _SLOT_SHIFT and _SLOT_MASK << _SLOT_SHIFT < SCATTERED


@device
def place_of(slot, address, first):
    """The place of a buffer's byte ``first``.

    Args:
        slot: with the layouts of a buffer whose address is SCATTERED.
    """
    if address == SCATTERED:
        return SCATTERED | slot << _SLOT_SHIFT | first
    return address + first


@device
def is_scattered(place):
    return place & SCATTERED != 0


@device
def _layout(ctx, place, direction):
    return layout_of(ctx, place >> _SLOT_SHIFT & _SLOT_MASK, direction)


@device
def address_in(ctx, place, direction):
    """An address of the buffer.

    Args:
        direction: LAYOUT_SEND or LAYOUT_RECV.
    """
    if is_scattered(place):
        return load_gpu(_layout(ctx, place, direction) + LAYOUT_USER)
    return place


def _make_put(copy: Callable) -> Callable:
    @device
    def put(ctx, target, place, nbytes, rank, size):
        """Stores the calling thread's share of what goes out, from a place on, to an address."""
        if is_scattered(place):
            begin = place & POSITION_MASK
            layout = _layout(ctx, place, LAYOUT_SEND)
            pack_layout(layout, target, begin, begin + nbytes, rank, size)
        else:
            copy(target, place, nbytes, rank, size)

    return put  # type: ignore[no-any-return]


put_to_slot = _make_put(copy_to_staging)
put_anywhere = _make_put(put_stretch)


@device
def take(ctx, place, staged, nbytes, rank, size):
    """The calling thread's share of what comes back, to a place.

    Args:
        staged: where it is, at a multiple of 16, but of what is not in one piece.
    """
    if is_scattered(place):
        begin = place & POSITION_MASK
        layout = _layout(ctx, place, LAYOUT_RECV)
        unpack_layout(layout, staged, begin, begin + nbytes, rank, size)
    else:
        copy_from_staging(place, staged, nbytes, rank, size)
