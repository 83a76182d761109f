"""Time stamps of requests (``Context(trace=n)``): where the microseconds go.

One row a request, the last ``n`` of them, in CLOCK_MONOTONIC ns, comparable between the ranks of a
node. Off, it costs one test of a number per stamp. On, a message waits for one look at the clock at
either end: what else is noted is noted behind MPI's call.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes

import numpy as np

from host_proxy.platform import state as st
from host_proxy.platform.idle import now_ns
from host_proxy.platform.native import entry_inlined, get, inlined, put

DTYPE = np.dtype(
    [
        ("handle", np.int64),
        ("op", np.int64),
        ("picked_up", np.int64),  # the record was read from the ring
        ("called", np.int64),  # the MPI call that starts the operation has returned
        ("arrived", np.int64),  # MPI says that it is complete
        ("completed", np.int64),  # the completion is about to be written
        ("call", np.int64),  # which call of the user's it was: operations.name_of
        ("comm", np.int64),
        ("peer", np.int64),  # as the call says
        ("tag", np.int64),
        ("nbytes", np.int64),  # room of a receive; once it is completed, what has come
        ("block", np.int64),
        ("error", np.int64),
        ("source", np.int64),  # of the message that a receive has got
        ("source_tag", np.int64),
        ("serial", np.int64),  # its number of all requests, from 1
    ]
)
WAITS = -1  # in place of a serial number: the row is a kernel's that waits on the direct road


@inlined
def _row(g, row):
    """The row of an open request."""
    return get(g, st.G_TRACE_AT) + (get(row, st.S_SERIAL) % get(g, st.G_TRACE)) * (st.TR_COUNT * 8)


@inlined
def begin(g, row):
    """Notes that a record has been read from the ring, whose request is now open."""
    if get(g, st.G_TRACE) != 0:
        put(row, st.S_PICKED_UP, now_ns(g))


@entry_inlined
def note(g, row):
    """Notes what an open request is, unless it is noted."""
    picked_up = get(row, st.S_PICKED_UP)
    if picked_up != 0:
        put(row, st.S_PICKED_UP, 0)
        at = _row(g, row)
        put(at, st.TR_HANDLE, get(row, st.S_HANDLE))
        put(at, st.TR_OP, get(row, st.S_OP))
        put(at, st.TR_CALL, get(row, st.S_CALL))
        put(at, st.TR_COMM, get(row, st.S_COMM))
        put(at, st.TR_PEER, get(row, st.S_PEER))
        put(at, st.TR_TAG, get(row, st.S_TAG))
        put(at, st.TR_BYTES, get(row, st.S_BYTES))
        put(at, st.TR_BLOCK, get(row, st.S_BLOCK))
        put(at, st.TR_PICKED_UP, picked_up)
        put(at, st.TR_CALLED, 0)
        put(at, st.TR_ARRIVED, 0)
        put(at, st.TR_COMPLETED, 0)
        put(at, st.TR_SERIAL, get(row, st.S_SERIAL) + 1)


@inlined
def leave_out(g, row):
    """An open row is none of the proxy's: a kernel waits on the direct road."""
    if get(g, st.G_TRACE) != 0:
        put(_row(g, row), st.TR_SERIAL, WAITS)


@inlined
def called(g, row):
    """Notes that the call that starts the operation has returned."""
    if get(g, st.G_TRACE) != 0:
        now = now_ns(g)
        note(g, row)
        put(_row(g, row), st.TR_CALLED, now)


@inlined
def arrived(g, row):
    """Notes that MPI says that it is complete, until ``carried_on``."""
    if get(g, st.G_TRACE) != 0:
        now = now_ns(g)
        put(_row(g, row), st.TR_ARRIVED, now)
        put(g, st.G_ARRIVED, now)


@inlined
def carried_on(g):
    """What follows has not just arrived."""
    put(g, st.G_ARRIVED, 0)


@inlined
def end(g, row, nbytes, error, source, tag):
    """Notes that the completion is about to be written, and what it says.

    Where it follows the arrival at once, that is when: the clock is not read again.
    """
    if get(g, st.G_TRACE) != 0:
        note(g, row)
        at = _row(g, row)
        put(at, st.TR_BYTES, nbytes)
        put(at, st.TR_ERROR, error)
        put(at, st.TR_SOURCE, source)
        put(at, st.TR_SOURCE_TAG, tag)
        now = get(g, st.G_ARRIVED)
        put(at, st.TR_COMPLETED, now if now != 0 else now_ns(g))


def read(state: st.State) -> np.ndarray:
    """A copy of the trace, oldest request first, of what has been noted."""
    size = int(state.globals[st.G_TRACE])
    raw = ctypes.string_at(int(state.globals[st.G_TRACE_AT]), size * DTYPE.itemsize)
    serial = int(state.globals[st.G_SERIAL])
    wanted = np.arange(max(0, serial - size), serial)
    rows = np.frombuffer(raw, DTYPE)[wanted % size]
    kept: np.ndarray = rows[rows["serial"] == wanted + 1]
    return kept


def lost(state: st.State) -> int:
    """How many requests there is no room for any more."""
    return max(0, int(state.globals[st.G_SERIAL]) - int(state.globals[st.G_TRACE]))
