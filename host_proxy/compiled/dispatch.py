"""One record in, one operation under way: the compiled engine's dispatch.

Both engines admit, and refuse, requests through the functions here.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract import wire
from gmpi.contract.constants import ANY_SOURCE, ANY_TAG
from gmpi.contract.moves import is_counted
from host_proxy.compiled.collectives import start_collective
from host_proxy.compiled.point_to_point import chunk_done, failed_chunk_done
from host_proxy.compiled.receiving import start_receive
from host_proxy.compiled.sending import start_send
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.platform import trace
from host_proxy.platform.flight import taken
from host_proxy.platform.idle import now_ns
from host_proxy.platform.native import (
    apart,
    bump,
    entry,
    entry_apart,
    entry_inlined,
    get,
    inlined,
    jit,
    load,
    put,
)
from host_proxy.records.checks import check, check_handle, is_matched
from host_proxy.records.completion import end, write
from host_proxy.records.fault_log import log_fault, log_record
from host_proxy.records.tables import communicator, is_large, row_of, slot_of

_COLLECTIVES = ops.COLLECTIVES
_is_counted = jit(is_counted)
_REFUSED_ORIGIN = (ANY_SOURCE & wire.LOW_32) + (ANY_TAG << 32)


@inlined
def count_null(g, value):
    """A NULL record: nothing to do, but none may be lost."""
    bump(g, st.G_NULLS, 1)
    bump(g, st.G_NULL_SUM, value)


@inlined
def wants_python(g, r):
    """Whether the record is for the mpi4py engine."""
    op = get(r, st.R_OP)
    if op == wire.OP_CHUNK:
        slot = slot_of(get(r, st.R_HANDLE))
        if slot >= get(g, st.G_SLOTS):
            return False
        row = row_of(g, slot)
        return get(row, st.S_PYTHON) == st.ENGINE and get(row, st.S_STATE) == st.OPEN
    if op == wire.OP_ISEND:
        return slot_of(get(r, st.R_HANDLE)) >= get(g, st.G_FIRST_NARROW)
    if op == wire.OP_SEND_CHANNEL or op == wire.OP_RECEIVE_CHANNEL:
        return True
    if op == wire.OP_PSEND_INIT or op == wire.OP_PRECV_INIT or op == wire.OP_REQUEST_FREE:
        return True
    if op == wire.OP_BSEND or op == wire.OP_ABORT or op == wire.OP_CANCEL or op == wire.OP_PROBE:
        return True
    if op == wire.OP_IRECV:
        return get(g, st.G_PROBED) != 0 or is_matched(r)
    if _COLLECTIVES[op] == 0:
        return False
    if is_large(get(r, st.R_HANDLE)) or _is_counted(op):
        return True
    comm = get(r, st.R_COMM)
    return comm < wire.COMMUNICATORS and get(communicator(g, comm), st.C_COLLECTIVES) > 0


@inlined
def enter(g, r, row):
    """The record's request is open in a row."""
    handle = get(r, st.R_HANDLE)
    put(row, st.S_HANDLE, handle)
    put(row, st.S_STATE, st.OPEN)
    put(row, st.S_OP, get(r, st.R_OP))
    put(row, st.S_CALL, get(r, st.R_CALL))
    put(row, st.S_COMM, get(r, st.R_COMM))
    put(row, st.S_PEER, get(r, st.R_PEER))
    put(row, st.S_TAG, get(r, st.R_TAG))
    put(row, st.S_DATATYPE, get(r, st.R_DATATYPE))
    put(row, st.S_ELEMENTS, get(r, st.R_ELEMENTS))
    put(row, st.S_BYTES, get(r, st.R_BYTES))
    put(row, st.S_BLOCK, get(r, st.R_BLOCK))
    if is_large(handle):
        put(row, st.S_ADDRESS, get(r, st.R_DONE))
    put(row, st.S_SERIAL, get(g, st.G_SERIAL))
    put(row, st.S_PENDING, 0)
    put(row, st.S_FAILED, 0)
    put(row, st.S_PYTHON, 0)
    put(row, st.S_COMMANDS, 0)
    put(row, st.S_TOLD, 0)
    put(row, st.S_CHUNK, 0)
    put(row, st.S_SOURCE, ANY_SOURCE)
    put(row, st.S_SOURCE_TAG, ANY_TAG)
    bump(g, st.G_SERIAL, 1)


@inlined
def _check(g, r):
    """The error class of a record that opens a request, else 0.

    Where waits were aborted MPI begins nothing more. Calls that had to wait, for a slot or for the
    ring, were not made: what follows them would meet the calls that other ranks made in their
    place, a collective of another length or a receive of another message.
    """
    error = check(g, r)
    op = get(r, st.R_OP)
    if error == 0:
        aborted = load(get(g, st.G_CONTROL) + wire.CONTROL_ABORT)
        if aborted != 0 and op != wire.OP_ABORT and op != wire.OP_REQUEST_FREE:
            return aborted
    return error


@entry_inlined
def admit(g, r):
    """Opens the record's request: the address of its row, 0 when it was refused or opens none."""
    op = get(r, st.R_OP)
    if op == wire.OP_NULL:
        count_null(g, get(r, st.R_ELEMENTS))
        return 0
    if op == wire.OP_FAULT:
        log_fault(g, r)
        return 0
    if not check_handle(g, r):
        taken(g, r, log_record(g, r, ops.REQUEST, get(r, st.R_HANDLE), 0, 0))
        return 0
    error = _check(g, r)
    taken(g, r, error)
    row = row_of(g, slot_of(get(r, st.R_HANDLE)))
    if error != 0:
        _refuse(g, r, row, error)
        return 0
    enter(g, r, row)
    trace.begin(g, row)
    return row


@apart
def _refuse(g, r, row, error):
    """Ends a request that is not opened."""
    handle = get(r, st.R_HANDLE)
    put(row, st.S_HANDLE, handle)
    put(row, st.S_FAILED, error)  # for what is_late() is asked about
    write(g, slot_of(handle), handle, 0, error, 0, _REFUSED_ORIGIN, 0)


@entry
def chunk_row(g, r):
    """The row of a CHUNK record, 0 when no open request has its handle."""
    taken(g, r, 0)
    slot = slot_of(get(r, st.R_HANDLE))
    if slot >= get(g, st.G_SLOTS):
        return 0
    row = row_of(g, slot)
    if get(row, st.S_STATE) != st.OPEN or get(row, st.S_HANDLE) != get(r, st.R_HANDLE):
        return 0
    return row


@entry
def is_late(g, r):
    """Whether a CHUNK record is about a request that has failed since: nothing to be said of it.

    A call fills the first chunk buffers without asking, and reports each.
    """
    slot = slot_of(get(r, st.R_HANDLE))
    if slot >= get(g, st.G_SLOTS):
        return False
    row = row_of(g, slot)
    return get(row, st.S_HANDLE) == get(r, st.R_HANDLE) and get(row, st.S_FAILED) != 0


@entry_apart
def note_wait(g, r):
    """A kernel waits on the direct road: the request's row says so as if it were ours, for reports
    and time-outs, until its second record."""
    handle = get(r, st.R_HANDLE)
    slot = slot_of(handle)
    op = get(r, st.R_FLAGS)
    known = (
        handle > 0 and slot < get(g, st.G_REQUEST_SLOTS) and get(r, st.R_COMM) < wire.COMMUNICATORS
    )
    named = (
        op == wire.OP_ISEND or op == wire.OP_IRECV or op == wire.OP_GRID or _COLLECTIVES[op] != 0
    )
    if not known or not named:
        log_record(g, r, ops.REQUEST, handle, 0, 0)
        return
    row = row_of(g, slot)
    if get(r, st.R_OP) == wire.OP_WAITED:
        if get(row, st.S_STATE) == st.OPEN and get(row, st.S_HANDLE) == handle:
            put(row, st.S_STATE, st.COMPLETE)
            bump(g, st.G_CLOSED, 1)
        return
    if get(row, st.S_STATE) == st.OPEN:
        if get(row, st.S_HANDLE) != handle:  # a wait and GMPI_Synchronize may both say it
            log_record(g, r, ops.REQUEST, handle, 0, 0)
        return
    put(r, st.R_OP, op)
    put(r, st.R_BYTES, get(r, st.R_DONE))
    enter(g, r, row)
    trace.leave_out(g, row)


@apart
def dispatch_chunk(g, r):
    row = chunk_row(g, r)
    if row == 0:
        if not is_late(g, r):
            log_record(g, r, ops.REQUEST, get(r, st.R_HANDLE), 0, 0)
    elif get(row, st.S_FAILED) != 0:
        failed_chunk_done(g, r, row)
    elif not chunk_done(g, r, row):
        log_record(g, r, ops.REQUEST, get(r, st.R_DONE), 0, 0)


@inlined
def dispatch(g, r):
    """Carries out one decoded record."""
    op = get(r, st.R_OP)
    if op == wire.OP_CHUNK:
        dispatch_chunk(g, r)
        return
    if op == wire.OP_WAITS or op == wire.OP_WAITED:
        note_wait(g, r)
        return
    row = admit(g, r)
    if row == 0:
        return
    if op == wire.OP_ISEND:
        start_send(g, r, row)
    elif op == wire.OP_IRECV:
        start_receive(g, row)
    elif op == wire.OP_PING:
        end(g, row, now_ns(g) & wire.BYTES_MASK)
    elif op == wire.OP_SYNCHRONIZE:
        bump(g, st.G_SYNCS, 1)
    else:
        start_collective(g, r, row)
    trace.called(g, row)
