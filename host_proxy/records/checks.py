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
from host_proxy.platform.native import entry, get, jit, put
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
_COLLECTIVES = ops.COLLECTIVES
_FIELDS = ops.FIELDS
_KNOWN = ops.KNOWN
_blocks = jit(moves.blocks)
_moves_blocks = jit(moves.moves_blocks)
_reduces = jit(moves.reduces)
_out_offset = jit(moves.out_offset)


@jit
def check_handle(g, r):
    """Whether the record's handle can be answered: right context, slot, class and generation."""
    handle = get(r, st.R_HANDLE)
    slot = slot_of(handle)
    if handle <= 0 or handle >> 59 != 0 or slot >= get(g, st.G_SLOTS):
        return False
    if (handle >> wire.HANDLE_CONTEXT_SHIFT) & wire.HANDLE_CONTEXT_MASK != get(g, st.G_CONTEXT):
        return False
    if handle & wire.LOW_32 != get(r, st.R_SEQ) or get(row_of(g, slot), st.S_STATE) == st.OPEN:
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


@jit
def is_matched(r):
    """Whether the record is of a receive of a message that a probe has taken."""
    call = get(r, st.R_CALL)
    matched = call == wire.MATCHED >> wire.CALL_SHIFT or call == wire.MATCHED_TOO >> wire.CALL_SHIFT
    return get(r, st.R_OP) == wire.OP_IRECV and matched


@jit
def check(g, r):
    """Error class of the first fault of the record, 0 when it may be executed.

    Fills in ``R_BYTES``. ``check_handle`` comes first.
    """
    op = get(r, st.R_OP)
    put(r, st.R_BYTES, 0)
    if _KNOWN[op] == 0:
        return log_record(g, r, ops.OPERATION, op, 1, wire.LAST_OPCODE)
    fields = _FIELDS[op]
    if is_matched(r):  # it says which message
        fields &= ~(ops.SOURCE | ops.TAG)
    peer = get(r, st.R_PEER)
    tag = get(r, st.R_TAG)
    peers = 0
    if fields & ops.COMMUNICATOR:
        comm = get(r, st.R_COMM)
        if comm <= wire.PRIVATE_COMMUNICATOR:
            peers = get(communicator(g, comm), st.C_SIZE)
        if peers == 0:  # nobody's
            return log_record(g, r, ops.COMMUNICATOR, comm, 0, 0)
        if _COLLECTIVES[op] and get(communicator(g, comm), st.C_BROKEN):
            return log_record(g, r, ops.BROKEN, comm, 0, 0)
    if fields & ops.DEST and (peer < 0 or peer >= peers) and peer != constants.PROC_NULL:
        return log_record(g, r, ops.DEST, peer, 0, peers - 1)
    if fields & ops.SOURCE and (peer < 0 or peer >= peers):
        if peer != constants.PROC_NULL and (
            peer != constants.ANY_SOURCE or refuses_any_source(g, get(r, st.R_COMM))
        ):
            return log_record(g, r, ops.SOURCE, peer, 0, peers - 1)
    if fields & ops.ROOT and (peer < 0 or peer >= peers):
        return log_record(g, r, ops.ROOT, peer, 0, peers - 1)
    if fields & ops.TAG and (tag < 0 or tag > get(g, st.G_TAG_UB)):
        if tag != constants.ANY_TAG or fields & ops.DEST or refuses_any_tag(g, get(r, st.R_COMM)):
            return log_record(g, r, ops.TAG, tag, 0, get(g, st.G_TAG_UB))
    if fields & ops.REDUCTION:
        reduction = tag  # which is where a tag would be
        if (
            reduction < 0
            or reduction >= constants.OPERATIONS
            or get(get(g, st.G_REDUCTIONS), reduction) == 0
        ):
            return log_record(g, r, ops.REDUCTION, reduction, 0, 0)
    if fields & ops.DATATYPE:
        return _check_data(g, r)
    return 0


@entry
def bytes_moved(g, op, comm, root, high, nbytes, way):
    """How many bytes of a collective that moves blocks of ``nbytes`` go out, or come back.

    Args:
        high: of packet 1 of the record: the reduction, or 1 for MPI_IN_PLACE.
    """
    row = communicator(g, comm)
    in_place = 0 if _reduces(op) else high
    return nbytes * _blocks(op, way, get(row, st.C_RANK), get(row, st.C_SIZE), root, in_place)


@jit
def _check_blocks(g, r, nbytes):
    """What the size of a block calls for."""
    op = get(r, st.R_OP)
    comm = get(r, st.R_COMM)
    most = wire.POSITION_MASK // get(communicator(g, comm), st.C_SIZE)
    if nbytes > most:
        size = nbytes // get(r, st.R_ELEMENTS)
        return log_record(g, r, ops.COUNT, get(r, st.R_ELEMENTS), 0, most // size)
    high = get(r, st.R_TAG)
    if not _reduces(op) and (high < 0 or high > 1):
        return log_record(g, r, ops.REQUEST, high, 0, 1)
    out = bytes_moved(g, op, comm, get(r, st.R_PEER), high, nbytes, OUT)
    back = bytes_moved(g, op, comm, get(r, st.R_PEER), high, nbytes, BACK)
    flags = get(r, st.R_FLAGS)
    said = (wire.FLAG_OUT if out > 0 else 0) | (wire.FLAG_BACK if back > 0 else 0)
    if flags & (wire.FLAG_OUT | wire.FLAG_BACK | wire.FLAG_INLINE) != said:
        return log_record(g, r, ops.REQUEST, flags, 0, said)
    large = is_large(get(r, st.R_HANDLE))
    if out + back > 0 and (_out_offset(back) + out > get(g, st.G_EAGER)) != (large == 1):
        return log_record(g, r, ops.REQUEST, nbytes, 0, get(g, st.G_EAGER))
    return 0


@jit
def _is_unfit(reduction, datatype):
    """Whether MPI does not define a predefined operation for a datatype: MINLOC and MAXLOC are for
    pairs, all others for anything else."""
    of_pairs = reduction == constants.MINLOC or reduction == constants.MAXLOC
    return reduction < _OPERATIONS_OF_MPI and of_pairs != (datatype & 0xFF >= constants.FIRST_PAIR)


@jit
def _check_data(g, r):
    """Datatype, count and buffer, and whether slot and record have what the size calls for."""
    datatype = get(r, st.R_DATATYPE)
    most = wire.POSITION_MASK // 32
    if datatype & ~DERIVED_MASK == DERIVED_MARK:
        row = get(g, st.G_DERIVED) + (datatype & (DERIVED_ROWS - 1)) * (st.D_COUNT * 8)
        reduced = _FIELDS[get(r, st.R_OP)] & ops.REDUCTION != 0
        if reduced or get(row, st.D_HANDLE) != datatype:
            return log_record(g, r, ops.DATATYPE, datatype, 0, 0)
        size = get(row, st.D_SIZE)
        most = wire.POSITION_MASK // max(size, 1)
    elif datatype & ~0xFFFF != constants.DATATYPE_MARK or datatype & 0xFF >= _DATATYPE_COUNT:
        return log_record(g, r, ops.DATATYPE, datatype, 0, 0)
    else:
        size = size_of(g, datatype)
        if (datatype >> 8) & 0xFF != size:
            return log_record(g, r, ops.DATATYPE, datatype, 0, 0)
        if _FIELDS[get(r, st.R_OP)] & ops.REDUCTION != 0:
            if _is_unfit(get(r, st.R_TAG), datatype):
                return log_record(g, r, ops.REDUCTION, get(r, st.R_TAG), 0, 0)
        elif datatype & 0xFF >= constants.FIRST_WITH_GAPS:
            return log_record(g, r, ops.DATATYPE, datatype, 0, 0)
    count = get(r, st.R_ELEMENTS)
    if count < 0 or count > most:
        return log_record(g, r, ops.COUNT, count, 0, most)
    nbytes = count * size
    put(r, st.R_BYTES, nbytes)
    flags = get(r, st.R_FLAGS)
    if flags & wire.FLAWS:
        return log_record(g, r, ops.BUFFER, flags & wire.FLAWS, get(r, st.R_DONE), nbytes)
    op = get(r, st.R_OP)
    if _moves_blocks(op):
        return _check_blocks(g, r, nbytes)
    inline = flags & wire.FLAG_INLINE != 0
    if inline and nbytes > wire.INLINE_BYTES:
        return log_record(g, r, ops.REQUEST, nbytes, 0, wire.INLINE_BYTES)
    if nbytes == 0 or (
        _FIELDS[op] & (ops.DEST | ops.SOURCE) and get(r, st.R_PEER) == constants.PROC_NULL
    ):
        return 0
    large = is_large(get(r, st.R_HANDLE))
    if (nbytes > get(g, st.G_EAGER)) != (large == 1):
        return log_record(g, r, ops.REQUEST, nbytes, 0, get(g, st.G_EAGER))
    if op == wire.OP_ISEND and nbytes <= wire.INLINE_BYTES and not inline:
        return log_record(g, r, ops.REQUEST, nbytes, 0, wire.INLINE_BYTES)
    return 0
