"""Time stamps of requests (``Context(trace=n)``): where the microseconds go.

One row a request, the last ``n`` of them, in CLOCK_MONOTONIC ns, comparable between the ranks of a
node. Off, it costs one test of a number per stamp.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes

import numpy as np

from host_proxy.platform.idle import now_ns
from host_proxy.platform.native import get, jit, put
from host_proxy.platform.state import (
    G_TRACE,
    G_TRACE_AT,
    S_HANDLE,
    S_OP,
    S_SERIAL,
    TR_COUNT,
    TR_HANDLE,
    TR_OP,
    TR_PICKED_UP,
    State,
)

DTYPE = np.dtype(
    [
        ("handle", np.int64),
        ("op", np.int64),
        ("picked_up", np.int64),  # the record was read from the ring
        ("called", np.int64),  # the MPI call that starts the operation has returned
        ("arrived", np.int64),  # MPI says that it is complete
        ("completed", np.int64),  # the completion is written
    ]
)


@jit
def stamp(g, row, column):
    """Notes that an open request has reached a stage."""
    if get(g, G_TRACE) != 0:
        at = get(g, G_TRACE_AT) + (get(row, S_SERIAL) % get(g, G_TRACE)) * (TR_COUNT * 8)
        if column == TR_PICKED_UP:
            put(at, TR_HANDLE, get(row, S_HANDLE))
            put(at, TR_OP, get(row, S_OP))
        put(at, column, now_ns(g))


def read(state: State) -> np.ndarray:
    """A copy of the trace, oldest request first."""
    from host_proxy.platform.state import G_SERIAL

    size = int(state.globals[G_TRACE])
    raw = ctypes.string_at(int(state.globals[G_TRACE_AT]), size * DTYPE.itemsize)
    rows = np.frombuffer(raw, DTYPE)
    serial = int(state.globals[G_SERIAL])
    if serial <= size:
        return rows[:serial].copy()
    return np.roll(rows, -(serial % size))
