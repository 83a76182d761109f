"""Pending MPI requests of the compiled engine: an array of MPI handles, our rows beside it.

An array, because MPI_Testsome takes one; ours beside it, because the answer is an index. It is
swept window by window, and what is still pending moves together on the way:

    0 ......... G_KEPT ......... G_WINDOW ......... G_SWEEP ......... G_END
      tested and       nothing            not yet           added since
      pending                             tested            the sweep began

So requests stay in the order in which they were posted, and are answered in that order as far as
MPI completes them in it. A kernel that gets its answers in order makes its next calls in order;
where both ranks do so, MPI finds the receive for a message near the head of its list, which it
searches from there. (Answers in any order: 1024 receives, Open MPI, half the rate.)
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.constants import ERR_INTERN
from host_proxy import flight
from host_proxy import operations as ops
from host_proxy.checks import log_request
from host_proxy.completion import close, complete
from host_proxy.native import bump, call, get, jit, load, load_int, put, store, store_int
from host_proxy.state import (
    A_COUNT,
    A_INDEX,
    A_KIND,
    A_ROW_BYTES,
    A_SLOT,
    F_ERROR_CLASS,
    F_IRECV,
    F_ISEND,
    F_REQUEST_FREE,
    F_TEST,
    G_ACTIVE,
    G_BYTE,
    G_DRAIN,
    G_END,
    G_HANDLE_BYTES,
    G_HANDLES,
    G_KEPT,
    G_OUTCOUNT,
    G_PENDING_TABLE,
    G_STATUS,
    GONE,
    S_FAILED,
    S_ORDERS,
    S_PENDING,
    S_SLOT,
    S_SOURCE,
    S_SOURCE_TAG,
    S_TOLD,
)


@jit
def error_class(g, code):
    """MPI_Error_class."""
    if code == 0:
        return 0
    call(get(g, F_ERROR_CLASS), (code, get(g, G_OUTCOUNT)))
    return load_int(get(g, G_OUTCOUNT))


@jit
def entry_at(g, number):
    """Address of our row beside the MPI handle ``number``."""
    return get(g, G_PENDING_TABLE) + number * A_ROW_BYTES


@jit
def next_handle(g):
    """Address of the MPI handle of the next request to be added."""
    return get(g, G_HANDLES) + get(g, G_END) * get(g, G_HANDLE_BYTES)


@jit
def add(g, row, kind, index):
    """Keeps the MPI request that has just been written at ``next_handle``."""
    at = entry_at(g, get(g, G_END))
    put(at, A_SLOT, get(row, S_SLOT))
    put(at, A_KIND, kind)
    put(at, A_INDEX, index)
    bump(row, S_PENDING, 1)
    bump(g, G_END, 1)
    bump(g, G_ACTIVE, 1)


@jit
def keep(g, begin, end):
    """Moves what is still pending of a range behind what the sweep has kept before."""
    kept = get(g, G_KEPT)
    handles = get(g, G_HANDLES)
    for number in range(begin, end):
        at = entry_at(g, number)
        if get(at, A_SLOT) == GONE:
            continue
        if kept != number:
            for column in range(A_COUNT):
                put(entry_at(g, kept), column, get(at, column))
            if get(g, G_HANDLE_BYTES) == 8:
                store(handles + kept * 8, load(handles + number * 8))
            else:
                store_int(handles + kept * 4, load_int(handles + number * 4))
        kept += 1
    put(g, G_KEPT, kept)


@jit
def isend(g, row, address, nbytes, dest, tag, comm, kind, index):
    """MPI_Isend of bytes for an open request. ``comm`` is an MPI handle."""
    byte = get(g, G_BYTE)
    flight.called(g, row, F_ISEND, dest, tag, nbytes)
    code = call(get(g, F_ISEND), (address, nbytes, byte, dest, tag, comm, next_handle(g)))
    flight.returned(g, code)
    if code == 0:
        add(g, row, kind, index)
    else:
        fail(g, row, code)


@jit
def isend_short(g, row, address, nbytes, dest, tag, comm, kind):
    """``isend`` of what MPI mostly takes at once: whether it has, and nothing is pending."""
    request = next_handle(g)
    byte = get(g, G_BYTE)
    flight.called(g, row, F_ISEND, dest, tag, nbytes)
    code = call(get(g, F_ISEND), (address, nbytes, byte, dest, tag, comm, request))
    flight.returned(g, code)
    flag = get(g, G_OUTCOUNT)
    if code == 0:
        store_int(flag, 0)
        code = call(get(g, F_TEST), (request, flag, get(g, G_STATUS)))
    if code != 0:
        fail(g, row, code)
        return False
    if load_int(flag) != 0:
        return True
    add(g, row, kind, 0)
    return False


@jit
def irecv(g, row, address, nbytes, source, tag, comm, kind, index):
    """MPI_Irecv of bytes for an open request. ``comm`` is an MPI handle."""
    byte = get(g, G_BYTE)
    flight.called(g, row, F_IRECV, source, tag, nbytes)
    code = call(get(g, F_IRECV), (address, nbytes, byte, source, tag, comm, next_handle(g)))
    flight.returned(g, code)
    if code == 0:
        add(g, row, kind, index)
    else:
        fail(g, row, code)


@jit
def notify(g, row, peer, tag, comm):
    """An empty message that nobody waits for. ``comm`` is an MPI handle."""
    request = next_handle(g)
    byte = get(g, G_BYTE)
    flight.called(g, row, F_ISEND, peer, tag, 0)
    code = call(get(g, F_ISEND), (get(g, G_DRAIN), 0, byte, peer, tag, comm, request))
    flight.returned(g, code)
    if code == 0:
        code = call(get(g, F_REQUEST_FREE), (request,))
    if code != 0:
        fail(g, row, code)


@jit
def fail(g, row, code):
    """MPI has returned ``code`` for something of the slot's request; the first one counts."""
    error = error_class(g, code)
    if get(row, S_FAILED) == 0:
        put(row, S_FAILED, error)
        log_request(g, row, ops.MPI_CALL, error, code, code, 0)
    settle(g, row)


@jit
def refuse(g, row, flaw):
    """What has come for the slot's request is no message of ours (``headers.py`` says why)."""
    if get(row, S_FAILED) == 0:
        put(row, S_FAILED, ERR_INTERN)
        log_request(g, row, ops.MESSAGE, ERR_INTERN, 0, flaw, 0)
    settle(g, row)


@jit
def settle(g, row):
    """Ends a failed request once MPI and the kernel have let go of its staging."""
    if get(row, S_PENDING) == 0 and get(row, S_ORDERS) == 0:
        if get(row, S_TOLD):
            close(g, row)
        else:
            complete(g, row, 0, get(row, S_FAILED), get(row, S_SOURCE), get(row, S_SOURCE_TAG))
