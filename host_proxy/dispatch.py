"""One record in, one operation under way: the compiled engine's dispatch.

``next_step`` says what the record at the head of the ring calls for; ``dispatch`` does it. Both
engines open and refuse requests through the functions here.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.constants import ANY_SOURCE, ANY_TAG, SUCCESS
from gmpi.wire import (
    BYTES_MASK,
    OP_CHUNK,
    OP_FAULT,
    OP_IRECV,
    OP_ISEND,
    OP_NULL,
    OP_PING,
    OP_SYNCHRONIZE,
    TAG_MASK,
)
from host_proxy import operations as ops
from host_proxy import pending
from host_proxy.checks import check, check_handle, is_large, log_fault, log_record, slot_of
from host_proxy.collectives import start_collective
from host_proxy.completion import complete, order_done, write
from host_proxy.idle import now_ns
from host_proxy.native import entry, jit
from host_proxy.point_to_point import chunk_done, start_receive, start_send
from host_proxy.ring import (
    R_BLOCK,
    R_BYTES,
    R_COMM,
    R_DATATYPE,
    R_DONE,
    R_ELEMENTS,
    R_HANDLE,
    R_OP,
    R_PEER,
    R_REDUCTION,
    R_TAG,
)
from host_proxy.state import (
    G_NULL_SUM,
    G_NULLS,
    G_SERIAL,
    G_SYNCS,
    OPEN,
    S_BLOCK,
    S_BYTES,
    S_COMM,
    S_COUNT,
    S_DATATYPE,
    S_ELEMENTS,
    S_FAILED,
    S_HANDLE,
    S_OP,
    S_ORDERS,
    S_PEER,
    S_PYTHON,
    S_REDUCTION,
    S_SERIAL,
    S_STATE,
    S_TAG,
    T_COLLECTIVES,
    T_COMMUNICATORS,
    TR_CALLED,
    TR_PICKED_UP,
)
from host_proxy.trace import stamp

_COLLECTIVES = ops.COLLECTIVES


@jit
def wants_python(s, t, r):
    """Whether the record is for the mpi4py engine."""
    op = r[R_OP]
    slot = slot_of(r[R_HANDLE])
    if op == OP_CHUNK:
        return slot < s.shape[0] and s[slot, S_PYTHON] == 1 and s[slot, S_STATE] == OPEN
    if _COLLECTIVES[op] == 0:
        return False
    if is_large(r[R_HANDLE]):
        return True
    comm = r[R_COMM]
    return comm < 256 and t[T_COMMUNICATORS + comm, T_COLLECTIVES] > 0


@jit
def refuse(g, r, error):
    """Completes a request that is not opened. The handle has been checked."""
    origin = (ANY_SOURCE & TAG_MASK) | (ANY_TAG & TAG_MASK) << 32
    write(g, slot_of(r[R_HANDLE]), r[R_HANDLE], 0, error, 0, origin)


@entry
def admit(g, s, t, r, e):
    """Opens the record's request: its slot, or -1 when it was refused or opens none."""
    if r[R_OP] == OP_NULL:
        return -1
    if r[R_OP] == OP_FAULT:
        log_fault(g, r, e)
        return -1
    if not check_handle(g, s, r):
        log_record(g, r, e, ops.REQUEST, r[R_HANDLE], 0, 0)
        return -1
    error = check(g, s, t, r, e)
    if error != 0:
        refuse(g, r, error)
        return -1
    slot = slot_of(r[R_HANDLE])
    for column in range(S_COUNT):
        s[slot, column] = 0
    s[slot, S_STATE] = OPEN
    s[slot, S_HANDLE] = r[R_HANDLE]
    s[slot, S_OP] = r[R_OP]
    s[slot, S_COMM] = r[R_COMM]
    s[slot, S_PEER] = r[R_PEER]
    s[slot, S_TAG] = r[R_TAG]
    s[slot, S_DATATYPE] = r[R_DATATYPE]
    s[slot, S_ELEMENTS] = r[R_ELEMENTS]
    s[slot, S_REDUCTION] = r[R_REDUCTION]
    s[slot, S_BYTES] = r[R_BYTES]
    s[slot, S_BLOCK] = r[R_BLOCK]
    s[slot, S_SERIAL] = g[G_SERIAL]
    g[G_SERIAL] += 1
    stamp(g, s, slot, TR_PICKED_UP)
    return slot


@entry
def chunk_slot(g, s, r):
    """The slot of a CHUNK record, -1 when no open request has its handle."""
    slot = slot_of(r[R_HANDLE])
    if slot >= s.shape[0] or s[slot, S_STATE] != OPEN or s[slot, S_HANDLE] != r[R_HANDLE]:
        return -1
    return slot


@jit
def dispatch(g, s, a, t, r, e):
    """Carries out one decoded record."""
    op = r[R_OP]
    if op == OP_NULL:
        g[G_NULLS] += 1
        g[G_NULL_SUM] += r[R_ELEMENTS]
        return
    if op == OP_CHUNK:
        slot = chunk_slot(g, s, r)
        if slot < 0:
            log_record(g, r, e, ops.REQUEST, r[R_HANDLE], 0, 0)
        elif s[slot, S_FAILED] != 0:
            if s[slot, S_ORDERS] > 0:
                order_done(g, s, slot)
            pending.settle(g, s, t, slot)
        elif not chunk_done(g, s, a, t, r, e, slot):
            log_record(g, r, e, ops.REQUEST, r[R_DONE], 0, 0)
        return
    slot = admit(g, s, t, r, e)
    if slot < 0:
        return
    if op == OP_ISEND:
        start_send(g, s, a, t, r, e, slot)
    elif op == OP_IRECV:
        start_receive(g, s, a, t, e, slot)
    elif op == OP_PING:
        complete(g, s, t, slot, now_ns(g) & BYTES_MASK, SUCCESS, ANY_SOURCE, ANY_TAG)
    elif op == OP_SYNCHRONIZE:
        g[G_SYNCS] += 1
    else:
        start_collective(g, s, a, t, r, e, slot)
    stamp(g, s, slot, TR_CALLED)
