"""Refusing bad records before they reach MPI.

Every value that came from the device is checked here, for both engines. The first fault found is
logged with what is allowed, the request ends with its error class, and nothing else is touched.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract import constants, moves, wire
from gmpi.contract.layouts import DERIVED_MARK, DERIVED_MASK, DERIVED_ROWS
from gmpi.contract.moves import BACK, OUT
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.platform.native import apart, entry, get, inlined, jit, put
from host_proxy.records.completion import size_of
from host_proxy.records.fault_log import log_record
from host_proxy.records.tables import (
    communicator,
    is_large,
    refuses_any_source,
    refuses_any_tag,
    row_of,
    slot_of,
)

_DATATYPE_COUNT = len(constants.DATATYPES)
_OPERATIONS_OF_MPI = len(constants.OPERATIONS_REDUCE)
_UNFIT = constants.UNFIT
_FIELDS = ops.FIELDS
# What a kernel chooses in a handle: slot, packets and class.
_CHOSEN = (
    wire.HANDLE_SLOT_MASK << wire.HANDLE_SLOT_SHIFT
    | wire.HANDLE_PACKETS_MASK << wire.HANDLE_PACKETS_SHIFT
    | 1 << wire.HANDLE_LARGE_SHIFT
)
_blocks = jit(moves.blocks)
_moves_blocks = jit(moves.moves_blocks)
_reduces = jit(moves.reduces)
_out_offset = jit(moves.out_offset)


@inlined
def check_handle(g, r):
    """Whether the record's handle can be answered: right context, slot, class and generation."""
    handle = get(r, st.R_HANDLE)
    slot = slot_of(handle)
    # Generation and context, and nothing above them.
    if handle & ~_CHOSEN != get(r, st.R_SEQ) | get(g, st.G_CONTEXT) << wire.HANDLE_CONTEXT_SHIFT:
        return False
    if slot >= get(g, st.G_SLOTS) or get(row_of(g, slot), st.S_STATE) == st.OPEN:
        return False
    packets = (handle >> wire.HANDLE_PACKETS_SHIFT) & wire.HANDLE_PACKETS_MASK
    if packets < 1 or packets >= wire.SLOT_PACKETS:
        return False
    place = slot - get(g, st.G_REQUEST_SLOTS)
    if place < 0:
        return is_large(handle) == 0
    # Between large and narrow slots are some that nobody can have.
    there = place < get(g, st.G_LARGE_SLOTS) or slot >= get(g, st.G_FIRST_NARROW)
    return there and is_large(handle) == 1


@inlined
def is_matched(r):
    """Whether the record is of a receive of a message that a probe has taken."""
    call = get(r, st.R_CALL)
    matched = call == wire.MATCHED >> wire.CALL_SHIFT or call == wire.MATCHED_TOO >> wire.CALL_SHIFT
    return matched and get(r, st.R_OP) == wire.OP_IRECV


@inlined
def check(g, r):
    """Error class of the first fault of the record, 0 when it may be executed.

    Fills in ``R_BYTES``. ``check_handle`` comes first.
    """
    put(r, st.R_BYTES, 0)
    field, value, low, high = _find(g, r)
    if field != 0:
        return log_record(g, r, field, value, low, high)
    return 0


_NONE = (0, 0, 0, 0)


@inlined
def _find(g, r):
    """The first fault of the record, as ``log_record`` wants it."""
    op = get(r, st.R_OP)
    fields = _FIELDS[op & 0xFF]
    if fields & ops.KNOWN == 0:
        return ops.OPERATION, op, 1, wire.LAST_OPCODE
    if fields & (ops.COMMUNICATOR | ops.DATATYPE) == 0:
        return _NONE
    comm = get(r, st.R_COMM)
    peers = 0
    if fields & ops.COMMUNICATOR:
        if comm <= wire.PRIVATE_COMMUNICATOR:
            peers = get(communicator(g, comm), st.C_SIZE)
        if peers == 0:  # nobody's
            return ops.COMMUNICATOR, comm, 0, 0
        if fields & ops.COLLECTIVE and get(communicator(g, comm), st.C_BROKEN):
            return ops.BROKEN, comm, 0, 0
    named = fields
    if is_matched(r):  # it says which message
        named &= ~(ops.SOURCE | ops.TAG)
    peer = get(r, st.R_PEER)
    rank = named & (ops.DEST | ops.SOURCE | ops.ROOT)  # one of them, or none
    if rank and (peer < 0 or peer >= peers):
        allowed = peer == constants.PROC_NULL
        if rank == ops.SOURCE and peer == constants.ANY_SOURCE:
            allowed = not refuses_any_source(g, comm)
        if rank == ops.ROOT or not allowed:
            return rank, peer, 0, peers - 1
    tag = get(r, st.R_TAG)
    if named & ops.TAG and (tag < 0 or tag > get(g, st.G_TAG_UB)):
        if tag != constants.ANY_TAG or named & ops.DEST or refuses_any_tag(g, comm):
            return ops.TAG, tag, 0, get(g, st.G_TAG_UB)
    if fields & ops.REDUCTION:
        reduction = tag  # which is where a tag would be
        if (
            reduction < 0
            or reduction >= constants.OPERATIONS
            or get(get(g, st.G_REDUCTIONS), reduction) == 0
        ):
            return ops.REDUCTION, reduction, 0, 0
    if fields & ops.DATATYPE:
        return _find_in_data(g, r, fields)
    return _NONE


@entry
def bytes_moved(g, op, comm, root, high, nbytes, way):
    """How many bytes of a collective that moves blocks of ``nbytes`` go out, or come back.

    Args:
        high: of packet 1 of the record: the reduction, or 1 for MPI_IN_PLACE.
    """
    row = communicator(g, comm)
    in_place = 0 if _reduces(op) else high
    return nbytes * _blocks(op, way, get(row, st.C_RANK), get(row, st.C_SIZE), root, in_place)


@apart
def _find_in_blocks(g, r, nbytes):
    """What is wrong with the size of a block."""
    op = get(r, st.R_OP)
    comm = get(r, st.R_COMM)
    most = wire.POSITION_MASK // get(communicator(g, comm), st.C_SIZE)
    if nbytes > most:
        size = nbytes // get(r, st.R_ELEMENTS)
        return ops.COUNT, get(r, st.R_ELEMENTS), 0, most // size
    high = get(r, st.R_TAG)
    if not _reduces(op) and (high < 0 or high > 1):
        return ops.REQUEST, high, 0, 1
    out = bytes_moved(g, op, comm, get(r, st.R_PEER), high, nbytes, OUT)
    back = bytes_moved(g, op, comm, get(r, st.R_PEER), high, nbytes, BACK)
    flags = get(r, st.R_FLAGS)
    said = (wire.FLAG_OUT if out > 0 else 0) | (wire.FLAG_BACK if back > 0 else 0)
    if flags & (wire.FLAG_OUT | wire.FLAG_BACK | wire.FLAG_INLINE) != said:
        return ops.REQUEST, flags, 0, said
    large = is_large(get(r, st.R_HANDLE))
    if out + back > 0 and (_out_offset(back) + out > get(g, st.G_EAGER)) != (large == 1):
        return ops.REQUEST, nbytes, 0, get(g, st.G_EAGER)
    return _NONE


@jit
def _is_unfit(reduction, datatype):
    """Whether MPI does not define a predefined operation for a datatype."""
    return 0 <= reduction < _OPERATIONS_OF_MPI and _UNFIT[reduction] >> (datatype & 0xFF) & 1 != 0


@inlined
def _find_in_data(g, r, fields):
    """Datatype, count and buffer, and whether slot and record have what the size calls for."""
    datatype = get(r, st.R_DATATYPE)
    most = wire.POSITION_MASK // 32
    if datatype & ~DERIVED_MASK == DERIVED_MARK:
        row = get(g, st.G_DERIVED) + (datatype & (DERIVED_ROWS - 1)) * (st.D_COUNT * 8)
        reduced = fields & ops.REDUCTION != 0
        if reduced or get(row, st.D_HANDLE) != datatype:
            return ops.DATATYPE, datatype, 0, 0
        size = get(row, st.D_SIZE)
        most = wire.POSITION_MASK // max(size, 1)
    elif datatype & ~0xFFFF != constants.DATATYPE_MARK or datatype & 0xFF >= _DATATYPE_COUNT:
        return ops.DATATYPE, datatype, 0, 0
    else:
        size = size_of(g, datatype)
        if (datatype >> 8) & 0xFF != size:
            return ops.DATATYPE, datatype, 0, 0
        if fields & ops.REDUCTION != 0:
            if _is_unfit(get(r, st.R_TAG), datatype):
                return ops.REDUCTION, get(r, st.R_TAG), 0, 0
        elif datatype & 0xFF >= constants.FIRST_WITH_GAPS:
            return ops.DATATYPE, datatype, 0, 0
    count = get(r, st.R_ELEMENTS)
    if count < 0 or count > most:
        return ops.COUNT, count, 0, most
    nbytes = count * size
    put(r, st.R_BYTES, nbytes)
    flags = get(r, st.R_FLAGS)
    if flags & wire.FLAWS:
        return ops.BUFFER, flags & wire.FLAWS, get(r, st.R_DONE), nbytes
    op = get(r, st.R_OP)
    if _moves_blocks(op):
        return _find_in_blocks(g, r, nbytes)
    inline = flags & wire.FLAG_INLINE != 0
    if inline and nbytes > wire.INLINE_BYTES:
        return ops.REQUEST, nbytes, 0, wire.INLINE_BYTES
    if nbytes == 0 or (
        fields & (ops.DEST | ops.SOURCE) and get(r, st.R_PEER) == constants.PROC_NULL
    ):
        return _NONE
    large = is_large(get(r, st.R_HANDLE))
    if (nbytes > get(g, st.G_EAGER)) != (large == 1):
        return ops.REQUEST, nbytes, 0, get(g, st.G_EAGER)
    if op == wire.OP_ISEND and nbytes <= wire.INLINE_BYTES and not inline:
        return ops.REQUEST, nbytes, 0, wire.INLINE_BYTES
    return _NONE
