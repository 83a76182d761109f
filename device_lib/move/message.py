"""What a call is about to move: checks, sizes and words of its record that every operation shares
(any thread).

Nothing here reports an error: a flaw becomes a flag of the record, no byte is moved, and the proxy
refuses the record, naming operation, field, value and calling block. Refusing on the host keeps
the call short and gives one place that words errors.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform.context import eager_bytes, leads_grid
from device_lib.platform.primitives import (
    buffer_of,
    device,
    int64,
    itemsize_of,
    load_8,
    memory_space,
)
from gmpi.contract import wire
from gmpi.contract.constants import (
    DATATYPE_MARK,
    DATATYPES,
    FIRST_WITH_GAPS,
    IN_PLACE,
    TWOINT,
)
from gmpi.contract.layouts import DERIVED_MARK, DERIVED_MASK

_DATATYPE_COUNT = len(DATATYPES)


@device
def word0_of(op, flags, comm, datatype):
    """Low word of a record's first packet; a handle that does not fit its field becomes invalid.

    ``op`` is an opcode, with BLOCKING or SENDRECV where the user has called that.
    """
    if comm < 0 or comm >= wire.COMMUNICATORS:
        comm = wire.NO_COMMUNICATOR
    if datatype < 0 or datatype > wire.LOW_32:
        datatype = wire.LOW_32
    return op | flags << 8 | int64(comm) << 16 | int64(datatype) << 32


@device
def pair(peer, tag):
    """Peer or root, and message tag or reduction, in one word."""
    return (int64(peer) & wire.LOW_32) | int64(tag) << 32


@device
def is_derived(datatype):
    return datatype & ~DERIVED_MASK == DERIVED_MARK


@device
def is_scattered(datatype, strided):
    """Whether the bytes do not lie in one piece. False at compile time for a contiguous array and a
    constant of ``gmpi``: then nothing of that way is in the kernel."""
    return strided != 0 or is_derived(datatype)


@device
def fitting(datatype, buffer):
    """The datatype as the record says it: another one, which no check passes, where its size is not
    that of the elements of the array.

    Bytes fit everything: an array of them may hold any datatype, and ``gmpi.BYTE`` moves any array.
    """
    size = int64(datatype) >> 8 & 0xFF
    itemsize = itemsize_of(buffer)
    if size == itemsize or size <= 1 or itemsize <= 1:
        return int64(datatype)
    if datatype == TWOINT and itemsize == 4:  # pairs of integers, one after the other
        return int64(datatype)
    if datatype & ~0xFFFF != DATATYPE_MARK or datatype & 0xFF >= _DATATYPE_COUNT:
        return int64(datatype)
    return DATATYPE_MARK | itemsize << 8 | wire.DATATYPE_UNFIT | int64(datatype) & 0xFF


@device
def message_bytes(count, datatype):
    """Bytes of ``count`` elements; 0 for whatever the proxy is going to refuse."""
    if datatype & ~0xFFFF != DATATYPE_MARK or datatype & 0xFF >= _DATATYPE_COUNT:
        return 0
    size = int64(datatype) >> 8 & 0xFF
    if count <= 0 or count > wire.POSITION_MASK // 32:
        return 0
    return int64(count) * size


@device
def is_sound(word0, count):
    """Whether the proxy would accept datatype, count and buffer of a call."""
    datatype = word0 >> wire.DATATYPE_SHIFT & wire.LOW_32
    known = (datatype & ~0xFFFF == DATATYPE_MARK) & (datatype & 0xFF < FIRST_WITH_GAPS)
    counted = (count >= 0) & (count <= wire.POSITION_MASK // 32)
    return known & counted & (word0 >> 8 & wire.FLAWS == 0)


@device
def size_of(word0):
    """Bytes of an element of a call's datatype, a basic one."""
    return word0 >> wire.DATATYPE_SHIFT + 8 & 0xFF


@device
def record_bytes(word0, count):
    """``message_bytes`` of a call whose record begins with ``word0``."""
    return message_bytes(count, word0 >> wire.DATATYPE_SHIFT & wire.LOW_32)


@device
def room_in_shared(ctx):
    """Bytes of a buffer that may lie in shared memory: none where other blocks move them, too."""
    return eager_bytes(ctx) * (1 - leads_grid(ctx))


@device
def inspect(ctx, buffer, nbytes, way):
    """(address, bytes to move, flags) of a buffer that ``nbytes`` are moved from or to.

    ``way`` is FLAG_OUT or FLAG_BACK, or both; it becomes part of the flags when bytes move.
    """
    address, room, strided = buffer_of(buffer)
    flags = 0
    if nbytes > 0:
        space = memory_space(address)
        if address == 0:
            flags = wire.FLAG_NULL_BUFFER
        elif strided != 0:
            flags = wire.FLAG_STRIDED_BUFFER
        elif room < nbytes:
            flags = wire.FLAG_SHORT_BUFFER
        elif space == 2 or (space == 1 and nbytes > room_in_shared(ctx)):
            # Other threads cannot address this thread's memory, nor other blocks this block's.
            flags = wire.FLAG_PRIVATE_BUFFER
        else:
            return address, nbytes, way
    return 0, 0, flags


@device
def inspect_reduction(ctx, sendbuf, recvbuf, nbytes):
    """(address to pack from, address to unpack to, bytes, flags)."""
    way = wire.FLAG_OUT | wire.FLAG_BACK
    send, room, strided = buffer_of(sendbuf)
    recv, moved, flags = inspect(ctx, recvbuf, nbytes, way)
    if send == IN_PLACE:
        return recv, recv, moved, flags
    send, sent, more = inspect(ctx, sendbuf, nbytes, way)
    if moved == sent:
        return send, recv, moved, flags | more
    return 0, 0, 0, (flags | more) & ~way


@device
def element_at(words, number, size):
    """Address of an element, of ``size`` bytes, of an array that ``describe`` has described."""
    address = load_8(words)
    dimension = load_8(words + 16)
    if dimension == 0:
        return address + number * size
    while dimension > 0:
        dimension -= 1
        count = load_8(words + 32 + 16 * dimension)
        address += number % count * load_8(words + 40 + 16 * dimension)
        number //= count
    return address
