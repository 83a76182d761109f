"""Refusing bad records before they reach MPI, and remembering why.

Every value that came from the device is checked here, for both engines. The first fault found is
logged with what is allowed, the request ends with its error class, and nothing else is touched.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from gmpi.constants import (
    ANY_SOURCE,
    ANY_TAG,
    DATATYPE_MARK,
    DATATYPES,
    GMPI_ERR_NO_RESOURCE,
    OPERATIONS_REDUCE,
    PROC_NULL,
)
from gmpi.wire import (
    FLAG_INLINE,
    FLAWS,
    HANDLE_CONTEXT_MASK,
    HANDLE_CONTEXT_SHIFT,
    HANDLE_LARGE_SHIFT,
    HANDLE_SLOT_MASK,
    HANDLE_SLOT_SHIFT,
    HANDLE_UNITS_MASK,
    HANDLE_UNITS_SHIFT,
    INLINE_BYTES,
    OP_ISEND,
    OP_SYNCHRONIZE,
    POSITION_MASK,
    SLOT_UNITS,
    TAG_MASK,
)
from host_proxy import operations as ops
from host_proxy.native import entry, jit
from host_proxy.ring import (
    R_BLOCK,
    R_BYTES,
    R_COMM,
    R_DATATYPE,
    R_DONE,
    R_ELEMENTS,
    R_FLAGS,
    R_HANDLE,
    R_MARK,
    R_OP,
    R_PEER,
    R_REDUCTION,
    R_TAG,
)
from host_proxy.state import (
    E_BLOCK,
    E_CLASS,
    E_CODE,
    E_COMM,
    E_DATATYPE,
    E_ELEMENTS,
    E_FIELD,
    E_HIGH,
    E_LOW,
    E_OP,
    E_PEER,
    E_SLOT,
    E_TAG,
    E_VALUE,
    ERRORS,
    G_CONTEXT,
    G_EAGER,
    G_ERRORS,
    G_REQUEST_SLOTS,
    G_SLOTS,
    G_TAG_UB,
    OPEN,
    S_BLOCK,
    S_COMM,
    S_DATATYPE,
    S_ELEMENTS,
    S_OP,
    S_PEER,
    S_STATE,
    S_TAG,
    T_COMMUNICATORS,
    T_DATATYPES,
    T_HANDLE,
    T_PEERS,
    T_SIZE,
)

_DATATYPE_COUNT = len(DATATYPES)
_REDUCTION_COUNT = len(OPERATIONS_REDUCE)
_COMMUNICATOR_COUNT = 256
_FIELDS = ops.FIELDS
_KNOWN = ops.KNOWN
_CLASSES = np.zeros(32768, np.int64)
for _field, _class in ops.FIELD_CLASSES.items():
    _CLASSES[_field] = _class


@jit
def slot_of(handle):
    return (handle >> HANDLE_SLOT_SHIFT) & HANDLE_SLOT_MASK


@jit
def is_large(handle):
    return (handle >> HANDLE_LARGE_SHIFT) & 1


@entry
def log_record(g, r, e, field, value, low, high):
    """Logs a fault of the record; returns its error class."""
    error = _CLASSES[field]
    log_call(g, r, e, r[R_OP], field, error, value, low, high)
    return error


@jit
def log_fault(g, r, e):
    """Logs a call that the device refused by itself."""
    field = ops.REQUEST
    if r[R_DONE] == GMPI_ERR_NO_RESOURCE:
        field = ops.RESOURCE
    log_call(g, r, e, r[R_FLAGS], field, r[R_DONE] & 0xFF, r[R_ELEMENTS], 0, 0)


@jit
def log_call(g, r, e, op, field, error, value, low, high):
    row = g[G_ERRORS] % ERRORS
    e[row, E_OP] = op
    e[row, E_FIELD] = field
    e[row, E_VALUE] = value
    e[row, E_LOW] = low
    e[row, E_HIGH] = high
    e[row, E_CLASS] = error
    e[row, E_CODE] = 0
    e[row, E_BLOCK] = r[R_BLOCK]
    e[row, E_COMM] = r[R_COMM]
    e[row, E_PEER] = r[R_PEER]
    e[row, E_TAG] = r[R_TAG]
    e[row, E_DATATYPE] = r[R_DATATYPE]
    e[row, E_ELEMENTS] = r[R_ELEMENTS]
    e[row, E_SLOT] = slot_of(r[R_HANDLE])
    g[G_ERRORS] += 1


@entry
def log_request(g, s, e, slot, field, error, code, value, high):
    """Logs what went wrong with a request that is open in a slot."""
    row = g[G_ERRORS] % ERRORS
    e[row, E_OP] = s[slot, S_OP]
    e[row, E_FIELD] = field
    e[row, E_VALUE] = value
    e[row, E_LOW] = 0
    e[row, E_HIGH] = high
    e[row, E_CLASS] = error
    e[row, E_CODE] = code
    e[row, E_BLOCK] = s[slot, S_BLOCK]
    e[row, E_COMM] = s[slot, S_COMM]
    e[row, E_PEER] = s[slot, S_PEER]
    e[row, E_TAG] = s[slot, S_TAG]
    e[row, E_DATATYPE] = s[slot, S_DATATYPE]
    e[row, E_ELEMENTS] = s[slot, S_ELEMENTS]
    e[row, E_SLOT] = slot
    g[G_ERRORS] += 1


@jit
def check_handle(g, s, r):
    """Whether the record's handle can be answered: the right context, slot, class and generation."""
    handle = r[R_HANDLE]
    slot = slot_of(handle)
    if handle <= 0 or handle >> 59 != 0 or slot >= g[G_SLOTS]:
        return False
    if (handle >> HANDLE_CONTEXT_SHIFT) & HANDLE_CONTEXT_MASK != g[G_CONTEXT]:
        return False
    if handle & TAG_MASK != r[R_MARK] or s[slot, S_STATE] == OPEN:
        return False
    units = (handle >> HANDLE_UNITS_SHIFT) & HANDLE_UNITS_MASK
    if units < 1 or units >= SLOT_UNITS:
        return False
    return is_large(handle) == (slot >= g[G_REQUEST_SLOTS])


@jit
def check(g, s, t, r, e):
    """Error class of the first fault of the record, 0 when it may be carried out.

    Fills in ``R_BYTES``. ``check_handle`` comes first.
    """
    op = r[R_OP]
    if _KNOWN[op] == 0:
        return log_record(g, r, e, ops.OPERATION, op, 1, OP_SYNCHRONIZE)
    fields = _FIELDS[op]
    comm = r[R_COMM]
    peers = np.int64(0)
    if fields & ops.COMMUNICATOR:
        if comm >= _COMMUNICATOR_COUNT or t[T_COMMUNICATORS + comm, T_HANDLE] == 0:
            return log_record(g, r, e, ops.COMMUNICATOR, comm, 0, 0)
        peers = t[T_COMMUNICATORS + comm, T_PEERS]
    peer = r[R_PEER]
    if fields & ops.DEST and peer != PROC_NULL and (peer < 0 or peer >= peers):
        return log_record(g, r, e, ops.DEST, peer, 0, peers - 1)
    if fields & ops.SOURCE:
        if peer != PROC_NULL and peer != ANY_SOURCE and (peer < 0 or peer >= peers):
            return log_record(g, r, e, ops.SOURCE, peer, 0, peers - 1)
    if fields & ops.ROOT and (peer < 0 or peer >= peers):
        return log_record(g, r, e, ops.ROOT, peer, 0, peers - 1)
    if fields & ops.TAG:
        wild = r[R_TAG] == ANY_TAG and op != OP_ISEND
        if not wild and (r[R_TAG] < 0 or r[R_TAG] > g[G_TAG_UB]):
            return log_record(g, r, e, ops.TAG, r[R_TAG], 0, g[G_TAG_UB])
    if fields & ops.REDUCTION and (r[R_REDUCTION] < 0 or r[R_REDUCTION] >= _REDUCTION_COUNT):
        return log_record(g, r, e, ops.REDUCTION, r[R_REDUCTION], 0, _REDUCTION_COUNT - 1)
    r[R_BYTES] = 0
    if fields & ops.DATATYPE:
        datatype = r[R_DATATYPE]
        number = datatype & 0xFF
        if datatype & ~0xFFFF != DATATYPE_MARK or number >= _DATATYPE_COUNT:
            return log_record(g, r, e, ops.DATATYPE, datatype, 0, 0)
        size = t[T_DATATYPES + number, T_SIZE]
        if (datatype >> 8) & 0xFF != size:
            return log_record(g, r, e, ops.DATATYPE, datatype, 0, 0)
        most = POSITION_MASK // 32
        if r[R_ELEMENTS] < 0 or r[R_ELEMENTS] > most:
            return log_record(g, r, e, ops.COUNT, r[R_ELEMENTS], 0, most)
        r[R_BYTES] = r[R_ELEMENTS] * size
        flaws = r[R_FLAGS] & FLAWS
        if flaws:
            return log_record(g, r, e, ops.BUFFER, flaws, 0, r[R_BYTES])
    return check_size(g, r, e, fields)


@jit
def check_size(g, r, e, fields):
    """Whether the slot and the record have what the size of the message calls for."""
    nbytes = r[R_BYTES]
    if nbytes == 0 or (fields & (ops.DEST | ops.SOURCE) and r[R_PEER] == PROC_NULL):
        return 0
    large = is_large(r[R_HANDLE])
    inline = r[R_FLAGS] & FLAG_INLINE != 0
    if (nbytes > g[G_EAGER]) != (large == 1) or (inline and nbytes > INLINE_BYTES):
        return log_record(g, r, e, ops.REQUEST, nbytes, 0, g[G_EAGER])
    if r[R_OP] == OP_ISEND and nbytes <= INLINE_BYTES and not inline:
        return log_record(g, r, e, ops.REQUEST, nbytes, 0, INLINE_BYTES)
    return 0
