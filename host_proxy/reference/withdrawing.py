"""What a handle names; and taking a receive that the compiled engine has posted out of its table,
to cancel it."""

from __future__ import annotations

import ctypes

from mpi4py import MPI

from gmpi.contract import wire
from host_proxy.platform import mpi_library
from host_proxy.platform import state as st

STALE = 1 << 59  # in a handle: the kernel knows that it names no open request


def request_of(state: st.State, handle: int, *operations: int) -> int | None:
    """The slot of the request, of one of some operations, that a handle names; None: of none."""
    slot = handle >> wire.HANDLE_SLOT_SHIFT & wire.HANDLE_SLOT_MASK
    if handle <= 0 or handle >> 59 != 0 or slot >= state.layout.slots:
        return None
    context = handle >> wire.HANDLE_CONTEXT_SHIFT & wire.HANDLE_CONTEXT_MASK
    row = state.slots[slot]
    ours = context == state.globals[st.G_CONTEXT] and row[st.S_HANDLE] == handle
    if not ours or row[st.S_OP] not in operations or row[st.S_COMM] == wire.PRIVATE_COMMUNICATOR:
        return None
    return slot


def take_out(state: st.State, slot: int) -> MPI.Request | None:
    """The MPI request of a receive, from now on the mpi4py engine's; None: its message has come."""
    g = state.globals
    kept, window, end = (int(g[i]) for i in (st.G_KEPT, st.G_WINDOW, st.G_END))
    for first, last, which in ((0, kept, st.G_KEPT), (window, end, st.G_END)):
        for number in range(first, last):
            if tuple(state.pending[number, [st.A_SLOT, st.A_KIND]]) == (slot, st.RECEIVE):
                at = int(g[st.G_HANDLES]) + number * mpi_library.HANDLE_BYTES
                request = mpi_library.request_at(at)
                # What follows it moves up: there may be no sweep that does it.
                state.pending[number : last - 1] = state.pending[number + 1 : last].copy()
                left = (last - 1 - number) * mpi_library.HANDLE_BYTES
                ctypes.memmove(at, at + mpi_library.HANDLE_BYTES, left)
                g[which] -= 1
                if which == st.G_END and number < g[st.G_SWEEP]:
                    g[st.G_SWEEP] -= 1
                g[st.G_ACTIVE] -= 1
                g[st.G_PYTHON] += 1
                state.slots[slot, st.S_PENDING] -= 1
                state.slots[slot, st.S_PYTHON] = st.ENGINE
                return request
    return None
