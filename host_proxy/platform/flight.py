"""The flight recorder: the last events of the proxy, for the report of a job that stands still.

Both engines write it, always: an event is four stores into a ring of 32-byte entries in the
proxy's own memory. There is no lock: one thread writes, and a reader drops what was overwritten
while it read. Nor is the clock read for an event, which would be most of its cost: the loop does so
after a turn with work and at times while it idles, and events have the time of that last look.
They are at most a turn late while there is work, and 64 naps (5 ms) after a long idle.

    word 0   when, ns
    word 1   kind | operation or function << 8 | communicator << 16 | call << 25 | peer << 32
    word 2   message tag | low half of the request handle << 32: the ticket of its record
    word 3   bytes | error class << 48
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from gmpi.contract import wire
from gmpi.contract.moves import ROWS
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.platform.native import entry_inlined, get, inlined, put

TAKEN, REFUSED, CALLED, RETURNED, FINISHED, COMPLETED = range(1, 7)

#: Functions of MPI, by their place in the globals; 0 is whichever the mpi4py engine calls.
FUNCTIONS = {
    0: "MPI",
    st.F_ISEND: "MPI_Isend",
    st.F_ISSEND: "MPI_Issend",
    st.F_IRECV: "MPI_Irecv",
    st.F_TEST: "MPI_Test",
    st.F_TESTSOME: "MPI_Testsome",
    st.F_IALLREDUCE: "MPI_Iallreduce",
    st.F_IBCAST: "MPI_Ibcast",
    st.F_IBARRIER: "MPI_Ibarrier",
    **{st.F_MOVING + i: f"MPI_{row.nonblocking}" for i, row in enumerate(ROWS)},
}


@inlined
def _next(g):
    number = get(g, st.G_FLIGHT)
    put(g, st.G_FLIGHT, number + 1)
    at = get(g, st.G_FLIGHT_AT) + (number & get(g, st.G_FLIGHT_LAST)) * st.FLIGHT_BYTES
    put(at, 0, get(g, st.G_NOW))
    return at


@inlined
def _what(row):
    """Word 1 of an event of an open request, without the kind."""
    comm = get(row, st.S_COMM) << 16 | get(row, st.S_CALL) << wire.CALL_SHIFT
    return get(row, st.S_OP) << 8 | comm | get(row, st.S_PEER) << 32


@inlined
def taken(g, r, error):
    """A record has been taken, and refused if ``error`` is not 0."""
    op = get(r, st.R_OP)
    kind = TAKEN if error == 0 else REFUSED
    nbytes = get(r, st.R_DONE) >> 8 if op == wire.OP_CHUNK else get(r, st.R_BYTES)
    at = _next(g)
    comm = get(r, st.R_COMM) << 16 | get(r, st.R_CALL) << wire.CALL_SHIFT
    put(at, 1, kind | op << 8 | comm | get(r, st.R_PEER) << 32)
    put(at, 2, (get(r, st.R_TAG) & wire.LOW_32) | get(r, st.R_HANDLE) << 32)
    put(at, 3, (nbytes & wire.BYTES_MASK) | error << wire.ERROR_SHIFT)


@entry_inlined
def called(g, row, function, peer, tag, nbytes):
    """MPI is about to be called for an open request."""
    put(g, st.G_INSIDE, function)
    at = _next(g)
    put(at, 1, CALLED | function << 8 | get(row, st.S_COMM) << 16 | peer << 32)
    put(at, 2, (tag & wire.LOW_32) | get(row, st.S_HANDLE) << 32)
    put(at, 3, nbytes & wire.BYTES_MASK)


@entry_inlined
def returned(g, code):
    """MPI has returned, with its error code, from the call that was noted last."""
    at = _next(g)
    put(at, 1, RETURNED | code << 32)


@entry_inlined
def finished(g, row, code):
    """MPI has completed something of an open request."""
    at = _next(g)
    put(at, 1, FINISHED | _what(row))
    put(at, 2, (get(row, st.S_TAG) & wire.LOW_32) | get(row, st.S_HANDLE) << 32)
    put(at, 3, code << wire.ERROR_SHIFT)


@inlined
def completed(g, row, nbytes, error):
    """The completion of an open request is written."""
    at = _next(g)
    put(at, 1, COMPLETED | _what(row))
    put(at, 2, (get(row, st.S_TAG) & wire.LOW_32) | get(row, st.S_HANDLE) << 32)
    put(at, 3, (nbytes & wire.BYTES_MASK) | error << wire.ERROR_SHIFT)


# --- reading --------------------------------------------------------------------------------------


class Event(NamedTuple):
    """One event, as reports have it.

    Attributes:
        time_s: CLOCK_MONOTONIC, comparable between the ranks of a node.
        kind: ``taken``, ``refused``, ``called``, ``returned``, ``finished`` or ``completed``.
        operation: the call of the kernel, or the function of MPI.
        ticket: of the record that opened the request; -1 where there is none.
        error: an error class; of ``returned``, MPI's own code.
    """

    time_s: float
    kind: str
    operation: str
    ticket: int
    communicator: int
    peer: int
    tag: int
    nbytes: int
    error: int

    def text(self, now_s: float) -> str:
        what = {
            "taken": f"record {self.ticket} taken: {self.operation}",
            "refused": f"record {self.ticket} refused: {self.operation}",
            "called": f"record {self.ticket}: {self.operation} called",
            "returned": "MPI returned",
            "finished": f"record {self.ticket}: MPI is done with something of {self.operation}",
            "completed": f"record {self.ticket}: {self.operation} completed",
        }[self.kind]
        if self.kind != "returned":
            what += f", peer {self.peer} tag {self.tag} communicator {self.communicator}"
        if self.nbytes:
            what += f", {self.nbytes} bytes"
        if self.error:
            what += f", error {self.error}"
        return f"{self.time_s - now_s:+.6f} s  {what}"


_KINDS = {
    TAKEN: "taken",
    REFUSED: "refused",
    CALLED: "called",
    RETURNED: "returned",
    FINISHED: "finished",
    COMPLETED: "completed",
}


def events(state: st.State) -> list[Event]:
    """The last events, oldest first; any thread, while the proxy goes on."""
    g = state.globals
    if g[st.G_FLIGHT_OFF]:
        return []
    size = int(g[st.G_FLIGHT_LAST]) + 1
    before = int(g[st.G_FLIGHT])
    raw = ctypes.string_at(int(g[st.G_FLIGHT_AT]), size * st.FLIGHT_BYTES)
    after = int(g[st.G_FLIGHT])
    rows = np.frombuffer(raw, np.int64).reshape(size, -1)
    return [_event(state, rows[i % size]) for i in range(max(0, after - size + 1), before)]


def _event(state: st.State, row: np.ndarray) -> Event:
    when, what, request, how = (int(word) for word in row)
    kind, number = _KINDS[what & 0xFF], what >> 8 & 0xFF
    if kind == "returned":
        return Event(when / 1e9, kind, "MPI", -1, -1, -1, -1, 0, what >> 32)
    name = (
        FUNCTIONS.get(number, "?")
        if kind == "called"
        else ops.name_of(number, what >> wire.CALL_SHIFT & wire.CALL_MASK)
    )
    nbytes = how & wire.BYTES_MASK
    if kind == "completed" and number in (wire.OP_SEND_CHANNEL, wire.OP_RECEIVE_CHANNEL):
        nbytes = 0  # there is the road and the channel's address, packed
    seq = request >> 32 & wire.LOW_32
    tag = ((request & wire.LOW_32) ^ 0x80000000) - 0x80000000
    return Event(
        when / 1e9, kind, name, state.record_number(seq), what >> 16 & wire.COMMUNICATOR_MASK,
        what >> 32, tag, nbytes, how >> wire.ERROR_SHIFT,
    )  # fmt: skip
