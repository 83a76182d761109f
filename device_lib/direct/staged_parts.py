"""Moving the bytes of a long message between the user's buffer and where they are staged; all
threads of whoever moves them, each its share."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.copy import copy_from_staging, copy_to_staging
from device_lib.move.layouts import layout_of
from device_lib.platform.primitives import device
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND
from gmpi.contract.wire import SCATTERED


def make_push(pack: Callable) -> Callable:
    """
    Args:
        pack: moves bytes of a buffer that is SCATTERED.
    """

    @device
    def push(ctx, slot, there, address, begin, nbytes, rank, size):
        """Stores ``nbytes`` of a send, from byte ``begin`` on."""
        if address == SCATTERED:
            layout = layout_of(ctx, slot, LAYOUT_SEND)
            pack(layout, there, begin, begin + nbytes, rank, size)
        else:
            copy_to_staging(there, address + begin, nbytes, rank, size)

    return push  # type: ignore[no-any-return]


def make_take(unpack: Callable) -> Callable:
    """
    Args:
        unpack: moves bytes to a buffer that is SCATTERED.
    """

    @device
    def take(ctx, slot, there, target, begin, end, rank, size):
        """Moves bytes ``begin`` to ``end`` - 1 of a receive to its buffer."""
        if target == SCATTERED:
            layout = layout_of(ctx, slot, LAYOUT_RECV)
            unpack(layout, there, begin, end, rank, size)
        else:
            copy_from_staging(target + begin, there, end - begin, rank, size)

    return take  # type: ignore[no-any-return]
