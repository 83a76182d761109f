"""Whether arrays of requests and the like have room for as many as a call says.

What lies behind them is not the call's: it would be read as handles, and set to REQUEST_NULL.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64
from device_lib.proxied.closing_all import STATUS_BYTES
from gmpi.contract.constants import ERR_COUNT
from gmpi.contract.wire import CALL_SHIFT, LISTED, LOW_32, OP_WAIT

WORD = 8  # bytes of a handle, or of an index


@device
def elements_of(array, each):
    """Of so many bytes each; an array, or a tuple of handles."""
    address, room, strided = gpu.buffer_of(array)
    return int64(room) // each


@device
def statuses_of(statuses):
    if statuses is None:
        return int64(LOW_32)
    return elements_of(statuses, STATUS_BYTES)


def make_refuse(report: Callable) -> Callable:
    """Of a scope, all of whose threads call what it returns together.

    Args:
        report: tells the host of a call that was refused.
    """

    @device
    def refuse(ctx, call, count, most):
        """Whether a call is refused, with ERR_COUNT, because of its arrays.

        Args:
            call: of ``call_of``.
            count: what it says.
            most: that they have room for.
        """
        if 0 <= count and count <= most:
            return False
        report(ctx, OP_WAIT | call, int64(count), ERR_COUNT | min(int64(most), LOW_32) << 8)
        return True

    return refuse  # type: ignore[no-any-return]


def call_of(name: str) -> int:
    """What a fault says of a call's name, without GMPI_."""
    return (1 + LISTED.index(name)) << CALL_SHIFT
