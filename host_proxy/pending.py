"""Pending MPI requests of the compiled engine: a dense array of MPI handles, a row of ours beside each.

Dense, because MPI_Testsome takes an array; ours beside it, because the answer is an index.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from host_proxy import operations as ops
from host_proxy.checks import log_request
from host_proxy.completion import complete
from host_proxy.native import call, jit, load, load_int, store, store_int
from host_proxy.state import (
    A_COUNT,
    A_INDEX,
    A_KIND,
    A_SLOT,
    F_ERROR_CLASS,
    F_IRECV,
    F_ISEND,
    G_ACTIVE,
    G_BYTE,
    G_HANDLE_BYTES,
    G_HANDLES,
    G_OUTCOUNT,
    S_FAILED,
    S_ORDERS,
    S_PENDING,
    S_SOURCE,
    S_SOURCE_TAG,
)


@jit
def error_class(g, code):
    """MPI_Error_class."""
    if code == 0:
        return 0
    call(g[F_ERROR_CLASS], (code, g[G_OUTCOUNT]))
    return load_int(g[G_OUTCOUNT])


@jit
def next_handle(g):
    """Address of the MPI handle of the next request to be added."""
    return g[G_HANDLES] + g[G_ACTIVE] * g[G_HANDLE_BYTES]


@jit
def add(g, s, a, slot, kind, index):
    """Keeps the request that MPI has just written at ``next_handle``."""
    row = g[G_ACTIVE]
    a[row, A_SLOT] = slot
    a[row, A_KIND] = kind
    a[row, A_INDEX] = index
    s[slot, S_PENDING] += 1
    g[G_ACTIVE] = row + 1


@jit
def remove(g, a, row):
    """Forgets a completed request; the last one takes its place."""
    last = g[G_ACTIVE] - 1
    if row != last:
        for column in range(A_COUNT):  # a slice assignment would take Numba two seconds
            a[row, column] = a[last, column]
        if g[G_HANDLE_BYTES] == 8:
            store(g[G_HANDLES] + row * 8, load(g[G_HANDLES] + last * 8))
        else:
            store_int(g[G_HANDLES] + row * 4, load_int(g[G_HANDLES] + last * 4))
    g[G_ACTIVE] = last


@jit
def isend(g, s, a, address, nbytes, dest, tag, comm, slot, kind, index):
    """MPI_Isend of bytes; 0 or the error code. ``comm`` is an MPI handle."""
    code = call(g[F_ISEND], (address, nbytes, g[G_BYTE], dest, tag, comm, next_handle(g)))
    if code == 0:
        add(g, s, a, slot, kind, index)
    return code


@jit
def irecv(g, s, a, address, nbytes, source, tag, comm, slot, kind, index):
    """MPI_Irecv of bytes; 0 or the error code. ``comm`` is an MPI handle."""
    code = call(g[F_IRECV], (address, nbytes, g[G_BYTE], source, tag, comm, next_handle(g)))
    if code == 0:
        add(g, s, a, slot, kind, index)
    return code


@jit
def fail(g, s, t, e, slot, code):
    """MPI has returned ``code`` for something of the slot's request; the first one counts."""
    error = error_class(g, code)
    if s[slot, S_FAILED] == 0:
        s[slot, S_FAILED] = error
        log_request(g, s, e, slot, ops.MPI_CALL, error, code, code, 0)
    settle(g, s, t, slot)


@jit
def settle(g, s, t, slot):
    """Ends a failed request once MPI and the kernel have let go of its staging."""
    if s[slot, S_PENDING] == 0 and s[slot, S_ORDERS] == 0:
        complete(g, s, t, slot, 0, s[slot, S_FAILED], s[slot, S_SOURCE], s[slot, S_SOURCE_TAG])
