"""Remembering why a call has failed: the first fault, and the last ones (both engines)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from gmpi.contract.constants import (
    ERR_ARG,
    ERR_COMM,
    ERR_COUNT,
    ERR_OTHER,
    ERR_TRUNCATE,
    GMPI_ERR_NO_RESOURCE,
)
from gmpi.contract.moves import is_counted
from gmpi.contract.wire import OP_WAIT, OP_WINDOW, PRIVATE_COMMUNICATOR
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.platform.native import apart, bump, entry_apart, get, jit, put
from host_proxy.records.tables import communicator, slot_of

_COLLECTIVES = ops.COLLECTIVES
_is_counted = jit(is_counted)
_CLASSES = np.zeros(ops.DEBUG + 1, np.int64)
for _field, _class in ops.FIELD_CLASSES.items():
    _CLASSES[_field] = _class


@jit
def _next_fault(g):
    number = get(g, st.G_FAULTS)
    if number > 0:  # the first one is kept for good
        number = 1 + (number - 1) % (st.FAULTS - 1)
    bump(g, st.G_FAULTS, 1)
    return get(g, st.G_FAULT_TABLE) + number * (st.E_COUNT * 8)


@jit
def _log_call(g, r, op, field, error, value, low, high):
    at = _next_fault(g)
    put(at, st.E_OP, op)
    put(at, st.E_CALL, get(r, st.R_CALL))
    put(at, st.E_FIELD, field)
    put(at, st.E_VALUE, value)
    put(at, st.E_LOW, low)
    put(at, st.E_HIGH, high)
    put(at, st.E_CLASS, error)
    put(at, st.E_CODE, 0)
    put(at, st.E_BLOCK, get(r, st.R_BLOCK))
    put(at, st.E_COMM, get(r, st.R_COMM))
    put(at, st.E_PEER, get(r, st.R_PEER))
    put(at, st.E_TAG, get(r, st.R_TAG))
    put(at, st.E_DATATYPE, get(r, st.R_DATATYPE))
    put(at, st.E_ELEMENTS, get(r, st.R_ELEMENTS))
    put(at, st.E_SLOT, slot_of(get(r, st.R_HANDLE)))


@entry_apart
def log_record(g, r, field, value, low, high):
    """Logs a fault of the record; returns its error class."""
    error = _CLASSES[field]
    _log_call(g, r, get(r, st.R_OP), field, error, value, low, high)
    return error


@apart
def log_fault(g, r):
    """Logs a call that the device refused by itself."""
    error = get(r, st.R_DONE) & 0xFF
    field = ops.REQUEST
    value = get(r, st.R_ELEMENTS)
    if get(r, st.R_FLAGS) == OP_WINDOW:
        field = ops.WINDOW + (get(r, st.R_COMM) & ops.WINDOW_FIELDS)
        value = get(r, st.R_HANDLE)
    elif error == GMPI_ERR_NO_RESOURCE:
        field = ops.RESOURCE
    elif error == ERR_TRUNCATE:
        field = ops.LENGTH
        value = get(r, st.R_HANDLE)
    elif error == ERR_ARG:
        field = ops.PARTITION
    elif error == ERR_COUNT and get(r, st.R_FLAGS) == OP_WAIT:
        field = ops.ROOM
    elif error == ERR_COUNT:
        field = ops.BLOCKS if _is_counted(get(r, st.R_FLAGS)) else ops.LENGTHS
    elif error == ERR_COMM:
        field = ops.ROAD
    elif error == ERR_OTHER and _COLLECTIVES[get(r, st.R_FLAGS)]:
        # Another rank has called something else: nothing after it can be right.
        put(communicator(g, get(r, st.R_COMM) & (PRIVATE_COMMUNICATOR - 1)), st.C_BROKEN, 1)
        _log_call(g, r, get(r, st.R_FLAGS), ops.CALL, error, get(r, st.R_HANDLE), value, 0)
        return
    _log_call(g, r, get(r, st.R_FLAGS), field, error, value, 0, get(r, st.R_DONE) >> 8)


@entry_apart
def log_request(g, row, field, error, code, value, high):
    """Logs what went wrong with a request that is open in a slot."""
    at = _next_fault(g)
    put(at, st.E_OP, get(row, st.S_OP))
    put(at, st.E_CALL, get(row, st.S_CALL))
    put(at, st.E_FIELD, field)
    put(at, st.E_VALUE, value)
    put(at, st.E_LOW, 0)
    put(at, st.E_HIGH, high)
    put(at, st.E_CLASS, error)
    put(at, st.E_CODE, code)
    put(at, st.E_BLOCK, get(row, st.S_BLOCK))
    put(at, st.E_COMM, get(row, st.S_COMM))
    put(at, st.E_PEER, get(row, st.S_PEER))
    put(at, st.E_TAG, get(row, st.S_TAG))
    put(at, st.E_DATATYPE, get(row, st.S_DATATYPE))
    put(at, st.E_ELEMENTS, get(row, st.S_ELEMENTS))
    put(at, st.E_SLOT, get(row, st.S_SLOT))


@entry_apart
def no_payload(g, r, row):
    """The payload that the record announces is not in it: error class of the request."""
    error = _CLASSES[ops.REQUEST]
    log_request(g, row, ops.REQUEST, error, 0, get(r, st.R_HANDLE), 0)
    return error
