"""What a handle names; and taking a receive that the compiled engine has posted out of its table,
to cancel it."""

from __future__ import annotations

import ctypes

from mpi4py import MPI

from gmpi.contract import wire
from host_proxy.platform import mpi_library
from host_proxy.platform.state import (
    A_KIND,
    A_SLOT,
    ENGINE,
    G_ACTIVE,
    G_CONTEXT,
    G_END,
    G_HANDLES,
    G_KEPT,
    G_PYTHON,
    G_SWEEP,
    G_WINDOW,
    RECEIVE,
    S_COMM,
    S_HANDLE,
    S_OP,
    S_PENDING,
    S_PYTHON,
    State,
)

STALE = 1 << 59  # in a handle: the kernel knows that it names no open request


def request_of(state: State, handle: int, *operations: int) -> int | None:
    """The slot of the request, of one of some operations, that a handle names; None: of none."""
    slot = handle >> wire.HANDLE_SLOT_SHIFT & wire.HANDLE_SLOT_MASK
    if handle <= 0 or handle >> 59 != 0 or slot >= state.layout.slots:
        return None
    context = handle >> wire.HANDLE_CONTEXT_SHIFT & wire.HANDLE_CONTEXT_MASK
    row = state.slots[slot]
    ours = context == state.globals[G_CONTEXT] and row[S_HANDLE] == handle
    if not ours or row[S_OP] not in operations or row[S_COMM] == wire.PRIVATE_COMMUNICATOR:
        return None
    return slot


def take_out(state: State, slot: int) -> MPI.Request | None:
    """The MPI request of a receive, from now on the mpi4py engine's; None: its message has come."""
    g = state.globals
    kept, window, end = (int(g[i]) for i in (G_KEPT, G_WINDOW, G_END))
    for first, last, which in ((0, kept, G_KEPT), (window, end, G_END)):
        for number in range(first, last):
            if tuple(state.pending[number, [A_SLOT, A_KIND]]) == (slot, RECEIVE):
                at = int(g[G_HANDLES]) + number * mpi_library.HANDLE_BYTES
                request = mpi_library.request_at(at)
                # What follows it moves up: there may be no sweep that does it.
                state.pending[number : last - 1] = state.pending[number + 1 : last].copy()
                left = (last - 1 - number) * mpi_library.HANDLE_BYTES
                ctypes.memmove(at, at + mpi_library.HANDLE_BYTES, left)
                g[which] -= 1
                if which == G_END and number < g[G_SWEEP]:
                    g[G_SWEEP] -= 1
                g[G_ACTIVE] -= 1
                g[G_PYTHON] += 1
                state.slots[slot, S_PENDING] -= 1
                state.slots[slot, S_PYTHON] = ENGINE
                return request
    return None
