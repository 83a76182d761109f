"""What a kernel knows of the neighbours on a communicator with a topology (any thread)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform.primitives import device, int64, load_gpu
from gmpi.contract.topology import DEGREES, MISSING
from gmpi.contract.wire import (
    COMMUNICATOR_MASK,
    COMMUNICATORS,
    DEVICE_TOPOLOGY,
    TOPOLOGY_BYTES,
)


@device
def _word(ctx, comm, which):
    if comm < 0 or comm >= COMMUNICATORS:
        return int64(0)
    return int64(load_gpu(ctx.device + DEVICE_TOPOLOGY + int64(comm) * TOPOLOGY_BYTES + which))


@device
def degrees(ctx, comm):
    """How many neighbours send blocks to this rank, PROC_NULL among them, | how many it sends
    blocks to << 32."""
    return _word(ctx, comm, DEGREES)


@device
def missing(ctx, word0):
    """A bit for each that is PROC_NULL.

    Args:
        word0: of the call's record.
    """
    return _word(ctx, word0 >> 16 & COMMUNICATOR_MASK, MISSING)
