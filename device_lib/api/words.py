"""What a call says of itself in a record, and what it asks of a communicator (any thread)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.layouts import is_derived
from device_lib.platform.context import world_rank, world_size
from device_lib.platform.primitives import device, int64, load_sys
from device_lib.proxied.status import sign32
from gmpi.contract.constants import COMM_WORLD
from gmpi.contract.wire import (
    COMMUNICATOR_BYTES,
    COMMUNICATORS,
    LOW_32,
    MAPPED_COMMUNICATORS,
    NO_COMMUNICATOR,
)


@device
def word0_of(op, flags, comm, datatype):
    """Low word of a record's first packet; a handle that does not fit its field becomes invalid.

    ``op`` is an opcode, with BLOCKING or SENDRECV where the user has called that.
    """
    if comm < 0 or comm >= COMMUNICATORS:
        comm = NO_COMMUNICATOR
    if datatype < 0 or datatype > LOW_32:
        datatype = LOW_32
    return op | flags << 8 | int64(comm) << 16 | int64(datatype) << 32


@device
def pair(peer, tag):
    """Peer or root, and message tag or reduction, in one word."""
    return (int64(peer) & LOW_32) | int64(tag) << 32


@device
def is_scattered(datatype, strided):
    """Whether the bytes do not lie in one piece. False at compile time for a contiguous array and a
    constant of ``gmpi``: then nothing of that way is in the kernel."""
    return strided != 0 or is_derived(datatype)


@device
def _communicator_word(ctx, comm):
    if comm < 0 or comm >= COMMUNICATORS:
        return 0xFFFFFFFF  # rank -1, size 0
    return load_sys(ctx.mapped + MAPPED_COMMUNICATORS + int64(comm) * COMMUNICATOR_BYTES)


@device
def comm_rank(ctx, comm):
    """Rank of this process in the communicator (any thread; MPI 4.1 section 7.4.1)."""
    if comm == COMM_WORLD:
        return world_rank(ctx)
    return sign32(_communicator_word(ctx, comm))


@device
def comm_size(ctx, comm):
    """Number of processes in the communicator (any thread; MPI 4.1 section 7.4.1)."""
    if comm == COMM_WORLD:
        return world_size(ctx)
    return sign32(_communicator_word(ctx, comm) >> 32)
