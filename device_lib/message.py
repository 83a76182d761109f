"""What a call is about to move: the checks and sizes that every operation shares (any thread).

Nothing here reports an error: a flaw becomes a flag of the record, no byte is moved, and the proxy
refuses the record, naming operation, field, value and calling block. Refusing on the host keeps
the call short and gives one place that words errors.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.context import eager_bytes
from device_lib.primitives import buffer_of, device, memory_space
from gmpi.constants import DATATYPE_MARK, DATATYPES, IN_PLACE
from gmpi.wire import (
    FLAG_NULL_BUFFER,
    FLAG_PRIVATE_BUFFER,
    FLAG_SHORT_BUFFER,
    FLAG_STRIDED_BUFFER,
    POSITION_MASK,
)

_DATATYPE_COUNT = len(DATATYPES)


@device
def message_bytes(count, datatype):
    """Bytes of ``count`` elements; 0 for whatever the proxy is going to refuse."""
    if datatype & ~0xFFFF != DATATYPE_MARK or datatype & 0xFF >= _DATATYPE_COUNT:
        return 0
    size = datatype >> 8 & 0xFF
    if count <= 0 or count > POSITION_MASK // 32:
        return 0
    return count * size


@device
def inspect(ctx, buffer, nbytes):
    """(address, bytes to move, flaw flags) of a buffer that ``nbytes`` are moved from or to."""
    address, room, strided = buffer_of(buffer)
    flaws = 0
    if nbytes > 0:
        space = memory_space(address)
        if address == 0:
            flaws = FLAG_NULL_BUFFER
        elif strided != 0:
            flaws = FLAG_STRIDED_BUFFER
        elif room < nbytes:
            flaws = FLAG_SHORT_BUFFER
        elif space == 2 or (space == 1 and nbytes > eager_bytes(ctx)):
            # Other threads cannot address this thread's memory, nor other blocks this block's.
            flaws = FLAG_PRIVATE_BUFFER
    if flaws != 0:
        nbytes = 0
    return address, nbytes, flaws


@device
def inspect_reduction(ctx, sendbuf, recvbuf, nbytes):
    """(address to pack from, address to unpack to, bytes, flaw flags)."""
    send, room, strided = buffer_of(sendbuf)
    recv, fitting, flaws = inspect(ctx, recvbuf, nbytes)
    if send == IN_PLACE:
        return recv, recv, fitting, flaws
    send, nbytes, more = inspect(ctx, sendbuf, nbytes)
    return send, recv, min(nbytes, fitting), flaws | more
