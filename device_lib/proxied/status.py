"""What a wait returns: the Status of a completion, in registers or in the user's array."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform.context import Status
from device_lib.platform.primitives import device, store_8
from gmpi.contract.wire import BYTES_MASK, ERROR_SHIFT, LOW_32


@device
def sign32(value):
    """The low 32 bits as a signed number."""
    return ((value & LOW_32) ^ 0x80000000) - 0x80000000


@device
def status_of(outcome, count, origin):
    return Status(
        outcome >> ERROR_SHIFT & 0xFF,
        sign32(origin),
        sign32(origin >> 32),
        sign32(count),
        outcome & BYTES_MASK,
    )


@device
def store_status(at, status):
    """Stores it as an element of an array of statuses."""
    store_8(at, status.error)
    store_8(at + 8, status.source)
    store_8(at + 16, status.tag)
    store_8(at + 24, status.count)
    store_8(at + 32, status.nbytes)
