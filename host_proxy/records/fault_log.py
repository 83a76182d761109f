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
from gmpi.contract.wire import OP_WINDOW, PRIVATE_COMMUNICATOR
from host_proxy.platform import operations as ops
from host_proxy.platform.native import bump, entry, get, jit, put
from host_proxy.platform.state import (
    C_BROKEN,
    E_BLOCK,
    E_CALL,
    E_CLASS,
    E_CODE,
    E_COMM,
    E_COUNT,
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
    FAULTS,
    G_FAULT_TABLE,
    G_FAULTS,
    R_BLOCK,
    R_CALL,
    R_COMM,
    R_DATATYPE,
    R_DONE,
    R_ELEMENTS,
    R_FLAGS,
    R_HANDLE,
    R_OP,
    R_PEER,
    R_TAG,
    S_BLOCK,
    S_CALL,
    S_COMM,
    S_DATATYPE,
    S_ELEMENTS,
    S_OP,
    S_PEER,
    S_SLOT,
    S_TAG,
)
from host_proxy.records.tables import communicator, slot_of

_COLLECTIVES = ops.COLLECTIVES
_is_counted = jit(is_counted)
_CLASSES = np.zeros(ops.DEBUG + 1, np.int64)
for _field, _class in ops.FIELD_CLASSES.items():
    _CLASSES[_field] = _class


@jit
def _next_fault(g):
    number = get(g, G_FAULTS)
    if number > 0:  # the first one is kept for good
        number = 1 + (number - 1) % (FAULTS - 1)
    bump(g, G_FAULTS, 1)
    return get(g, G_FAULT_TABLE) + number * (E_COUNT * 8)


@jit
def _log_call(g, r, op, field, error, value, low, high):
    at = _next_fault(g)
    put(at, E_OP, op)
    put(at, E_CALL, get(r, R_CALL))
    put(at, E_FIELD, field)
    put(at, E_VALUE, value)
    put(at, E_LOW, low)
    put(at, E_HIGH, high)
    put(at, E_CLASS, error)
    put(at, E_CODE, 0)
    put(at, E_BLOCK, get(r, R_BLOCK))
    put(at, E_COMM, get(r, R_COMM))
    put(at, E_PEER, get(r, R_PEER))
    put(at, E_TAG, get(r, R_TAG))
    put(at, E_DATATYPE, get(r, R_DATATYPE))
    put(at, E_ELEMENTS, get(r, R_ELEMENTS))
    put(at, E_SLOT, slot_of(get(r, R_HANDLE)))


@entry
def log_record(g, r, field, value, low, high):
    """Logs a fault of the record; returns its error class."""
    error = _CLASSES[field]
    _log_call(g, r, get(r, R_OP), field, error, value, low, high)
    return error


@jit
def log_fault(g, r):
    """Logs a call that the device refused by itself."""
    error = get(r, R_DONE) & 0xFF
    field = ops.REQUEST
    value = get(r, R_ELEMENTS)
    if get(r, R_FLAGS) == OP_WINDOW:
        field = ops.WINDOW + (get(r, R_COMM) & ops.WINDOW_FIELDS)
        value = get(r, R_HANDLE)
    elif error == GMPI_ERR_NO_RESOURCE:
        field = ops.RESOURCE
    elif error == ERR_TRUNCATE:
        field = ops.LENGTH
        value = get(r, R_HANDLE)
    elif error == ERR_ARG:
        field = ops.PARTITION
    elif error == ERR_COUNT:
        field = ops.BLOCKS if _is_counted(get(r, R_FLAGS)) else ops.LENGTHS
    elif error == ERR_COMM:
        field = ops.ROAD
    elif error == ERR_OTHER and _COLLECTIVES[get(r, R_FLAGS)]:
        # Another rank has called something else: nothing after it can be right.
        put(communicator(g, get(r, R_COMM) & (PRIVATE_COMMUNICATOR - 1)), C_BROKEN, 1)
        _log_call(g, r, get(r, R_FLAGS), ops.CALL, error, get(r, R_HANDLE), value, 0)
        return
    _log_call(g, r, get(r, R_FLAGS), field, error, value, 0, get(r, R_DONE) >> 8)


@entry
def log_request(g, row, field, error, code, value, high):
    """Logs what went wrong with a request that is open in a slot."""
    at = _next_fault(g)
    put(at, E_OP, get(row, S_OP))
    put(at, E_CALL, get(row, S_CALL))
    put(at, E_FIELD, field)
    put(at, E_VALUE, value)
    put(at, E_LOW, 0)
    put(at, E_HIGH, high)
    put(at, E_CLASS, error)
    put(at, E_CODE, code)
    put(at, E_BLOCK, get(row, S_BLOCK))
    put(at, E_COMM, get(row, S_COMM))
    put(at, E_PEER, get(row, S_PEER))
    put(at, E_TAG, get(row, S_TAG))
    put(at, E_DATATYPE, get(row, S_DATATYPE))
    put(at, E_ELEMENTS, get(row, S_ELEMENTS))
    put(at, E_SLOT, get(row, S_SLOT))


@entry
def no_payload(g, r, row):
    """The payload that the record announces is not in it: error class of the request."""
    error = _CLASSES[ops.REQUEST]
    log_request(g, row, ops.REQUEST, error, 0, get(r, R_HANDLE), 0)
    return error
