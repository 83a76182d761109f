"""The mpi4py engine: every operation as a few lines of plain mpi4py (``mpi4py_operations.py``).

It serves what the compiled engine leaves to it (collectives on large buffers), everything where
that one cannot run, and is the oracle: ``GMPI_ENGINE=mpi4py`` runs whole programs on it, and the
results must be the same.

One operation is one generator (``protocol.py``). The engine keeps what each is waiting for, tests
MPI requests one by one, and resumes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from mpi4py import MPI

from gmpi.contract import moves, rules, wire
from gmpi.contract.constants import ANY_SOURCE, ANY_TAG, NO_MESSAGE, SUCCESS
from gmpi.contract.rules import chunk_bytes_of
from host_proxy.compiled import dispatch
from host_proxy.compiled.headers import BAD_LENGTH
from host_proxy.platform import flight, trace
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.records import completion, ring
from host_proxy.records.fault_log import log_record, log_request, no_payload
from host_proxy.reference import withdrawing
from host_proxy.reference.counted_operations import move_counted, read_blocks
from host_proxy.reference.failure import (
    BrokenCommunicator,
    Failure,
    PeerFailure,
    RequestFailure,
    error_class,
)
from host_proxy.reference.mpi4py_operations import CHANNEL, Operations
from host_proxy.reference.protocol import Outcome, Step, collective


class Mpi4pyEngine(Operations):
    """Runs the operations of kernels one generator each. Used by the proxy's thread only."""

    def __init__(self, state: st.State) -> None:
        super().__init__(state)
        self.requests: list[tuple[MPI.Request, int, Step]] = []
        self.answers: dict[tuple[int, int], tuple[int, Step]] = {}  # who waits for which command
        self.early: set[tuple[int, int]] = set()  # commands executed before anybody waited
        self.collectives: dict[int, deque[tuple[int, Step]]] = {}
        self.opening: list[tuple[int, Step]] = []  # who waits for a channel

    # --- records ----------------------------------------------------------------------------------

    def serve(self) -> None:
        """Takes over the decoded record."""
        state, r = self.state, self.state.record
        if r[st.R_OP] == wire.OP_CHUNK:
            self.chunk()
            return
        if r[st.R_OP] in (wire.OP_WAITS, wire.OP_WAITED):
            dispatch.note_wait(self.g, r.ctypes.data)
            return
        if dispatch.admit(self.g, r.ctypes.data) == 0:
            return
        slot = int(r[st.R_HANDLE]) >> wire.HANDLE_SLOT_SHIFT & wire.HANDLE_SLOT_MASK
        trace.note(self.g, self.row(slot))
        if r[st.R_OP] == wire.OP_SYNCHRONIZE:
            state.globals[st.G_SYNCS] += 1
            return
        state.slots[slot, st.S_PYTHON] = st.ENGINE
        objection = read_blocks(self, slot) or self.objection(slot)
        if objection:
            state.blocks.pop(slot, None)
            state.slots[slot, st.S_FAILED] = objection
            completion.complete(self.g, self.row(slot), 0, objection, ANY_SOURCE, ANY_TAG)
            return
        if r[st.R_FLAGS] & wire.FLAG_INLINE:
            target = int(state.globals[st.G_CONTROL]) + self.small(slot)
            if not ring.payload_to(self.g, r.ctypes.data, target, int(r[st.R_BYTES])):
                row = self.row(slot)
                error = no_payload(self.g, r.ctypes.data, row)
                completion.complete(self.g, row, 0, error, ANY_SOURCE, ANY_TAG)
                return
        operation = _OPERATIONS[int(r[st.R_OP])](self, slot)
        state.globals[st.G_PYTHON] += 1
        if ops.OPERATIONS[int(r[st.R_OP])].collective:
            # One at a time on a communicator, in the order of the records.
            comm = self.field(slot, st.S_COMM)
            operation = self.agreed(slot, operation)
            operation = collective(state.communicator_table[comm], operation)
            state.communicator_table[comm, st.C_COLLECTIVES] += 1
            queue = self.collectives.setdefault(comm, deque())
            queue.append((slot, operation))
            if len(queue) > 1:
                return
        self.resume(slot, operation, None)

    def has_served(self) -> None:
        """For debug mode: the record counts as taken, and its slot is still the proxy's."""

    def objection(self, slot: int) -> int:
        """For debug mode: an error class with which a request ends before it begins, or 0."""
        return 0

    def agreed(self, slot: int, operation: Step) -> Step:
        """For debug mode: a collective, and what comes before it."""
        return operation

    def ended(self, slot: int, outcome: Outcome) -> Outcome:
        """For debug mode: how a request really ends."""
        return outcome

    def chunk(self) -> None:
        """A command has been executed."""
        r = self.state.record
        row = dispatch.chunk_row(self.g, r.ctypes.data)
        if row == 0:
            if not dispatch.is_late(self.g, r.ctypes.data):
                log_record(self.g, r.ctypes.data, ops.REQUEST, int(r[st.R_HANDLE]), 0, 0)
            return
        slot = int(r[st.R_HANDLE]) >> wire.HANDLE_SLOT_SHIFT & wire.HANDLE_SLOT_MASK
        done = int(r[st.R_DONE])
        chunk = chunk_bytes_of(self.field(slot, st.S_BYTES), self.sizes[1])
        commanded = rules.is_commanded(done, chunk) or slot >= self.state.layout.first_narrow
        commanded |= self.field(slot, st.S_OP) in moves.BY_OP
        if commanded and self.field(slot, st.S_COMMANDS) > 0:
            completion.command_done(self.g, row)
        key = slot, done
        if key in self.answers:
            self.resume(*self.answers.pop(key), None)
        else:
            self.early.add(key)

    def cancel(self, slot: int) -> Step:
        """Withdraws a receive whose message has not come (MPI 4.1 section 3.8.4)."""
        handle = self.field(slot, st.S_ELEMENTS)
        receive = withdrawing.request_of(self.state, handle, wire.OP_IRECV)
        if receive is None:
            return self.no_request(slot, handle)
        if self.field(receive, st.S_STATE) == st.OPEN:
            if self.field(receive, st.S_PYTHON) == 0:
                request = withdrawing.take_out(self.state, receive)
                if request is not None:
                    tag = self.field(receive, st.S_TAG)
                    self.communicator(receive).messages_of(tag).started(request, "receive")
                    self.unmatched.add(receive)
                    self.resume(receive, self.rest_of_withdrawn(receive, request), None)
            for request, whose, _ in self.requests:
                if whose == receive and receive in self.unmatched:
                    request.Cancel()
        return Outcome(0)
        yield

    def free(self, slot: int) -> Step:
        """A kernel will not wait for a request (MPI 4.1 section 3.7.3)."""
        handle = self.field(slot, st.S_ELEMENTS)
        if handle >> wire.HANDLE_PARTITIONED_SHIFT == 1:
            return (yield from self.free_partitioned(slot))
        allowed = wire.OP_ISEND, wire.OP_IRECV, wire.OP_BSEND
        if withdrawing.request_of(self.state, handle, *allowed) is None:
            return self.no_request(slot, handle)
        return Outcome(0)

    def no_request(self, slot: int, handle: int) -> Outcome:
        """A call was given a handle that it does not take."""
        error = ops.FIELD_CLASSES[ops.REQUEST]
        value = handle & ~withdrawing.STALE if handle > 0 else handle
        log_request(self.g, self.row(slot), ops.REQUEST, error, 0, value, 0)
        return Outcome(0, error)

    def take_over(self) -> None:
        """Goes on with receives of the compiled engine that have no buffers for what has come."""
        for slot in np.flatnonzero(self.state.slots[:, st.S_PYTHON] == st.HANDED):
            self.state.slots[slot, st.S_PYTHON] = st.ENGINE
            self.state.globals[st.G_HANDED] -= 1
            self.resume(int(slot), self.rest_of_irecv(int(slot)), None)

    # --- running ----------------------------------------------------------------------------------

    def resume(self, slot: int, operation: Step, value: object) -> None:
        """Runs an operation until it waits for something that has not happened yet."""
        while True:
            if value is not None and slot in self.unmatched:
                self.unmatched.discard(slot)
                if isinstance(value, MPI.Status) and value.Is_cancelled():
                    operation.close()
                    self.finish(slot, Outcome(0, int(SUCCESS), ANY_SOURCE, NO_MESSAGE))
                    return
            # What is called, and whether anything is, only the operation knows.
            row = self.row(slot)
            nbytes = self.field(slot, st.S_BYTES)
            flight.called(
                self.g, row, 0, self.field(slot, st.S_PEER), self.field(slot, st.S_TAG), nbytes
            )
            try:
                if isinstance(value, RequestFailure):
                    waits_for = operation.throw(value)
                else:
                    waits_for = operation.send(value)
                flight.returned(self.g, 0)
            except StopIteration as stop:
                self.finish(slot, stop.value)
                return
            except (MPI.Exception, Failure) as exc:
                self.fail(slot, exc)
                return
            if waits_for is CHANNEL:
                self.opening.append((slot, operation))
                return
            if isinstance(waits_for, tuple):
                if waits_for not in self.early:
                    self.answers[waits_for] = slot, operation
                    return
                self.early.discard(waits_for)
                value = None
                continue
            value = self.test(slot, waits_for)
            if value is None:
                self.requests.append((waits_for, slot, operation))
                return

    def test(self, slot: int, request: Any) -> MPI.Status | RequestFailure | None:
        """What to go on with: the request's status, or its failure; None while it is pending."""
        status = MPI.Status()
        try:
            if not request.Test(status):
                return None
        except MPI.Exception as exc:
            flight.finished(self.g, self.row(slot), exc.Get_error_class())
            return RequestFailure(exc, status)
        flight.finished(self.g, self.row(slot), 0)
        return status

    def step(self) -> bool:
        """Tests every pending MPI request once; whether anything completed or was heard."""
        if self.state.globals[st.G_HANDED]:
            self.take_over()
        if self.state.globals[st.G_OPENING]:
            self.state.opening()
        if self.state.globals[st.G_BUFFERED]:
            self.state.buffered.step()
        heard = bool(self.state.globals[st.G_CHANNELS]) and self.channels.listen()
        if heard:
            opening, self.opening = self.opening, []
            for slot, operation in opening:
                self.resume(slot, operation, None)
        pending, self.requests = self.requests, []
        before = len(pending)
        for request, slot, operation in pending:
            value = self.test(slot, request)
            if value is None:
                self.requests.append((request, slot, operation))
            else:
                self.resume(slot, operation, value)
        return heard or len(self.requests) < before

    def fail(self, slot: int, exc: MPI.Exception | Failure) -> None:
        error = error_class(exc)
        cause = exc.cause if isinstance(exc, RequestFailure) else exc
        if self.field(slot, st.S_FAILED):
            pass  # the compiled engine has logged it
        elif isinstance(cause, MPI.Exception):
            code = cause.Get_error_code()
            log_request(self.g, self.row(slot), ops.MPI_CALL, error, code, code, 0)
        elif isinstance(cause, PeerFailure):
            log_request(self.g, self.row(slot), ops.PEER, error, 0, cause.rank, 0)
        elif isinstance(cause, BrokenCommunicator):
            comm = self.field(slot, st.S_COMM)
            log_request(self.g, self.row(slot), ops.BROKEN, error, 0, comm, 0)
        else:
            log_request(self.g, self.row(slot), ops.MESSAGE, error, 0, BAD_LENGTH, 0)
        self.state.slots[slot, st.S_FAILED] = error
        # What has been packed for it must not count for the slot's next request.
        self.early = {key for key in self.early if key[0] != slot}
        self.finish(slot, Outcome(0, error))

    def finish(self, slot: int, outcome: Outcome) -> None:
        """Completes the request of a slot; a collective makes room for the next one."""
        state = self.state
        operation = self.field(slot, st.S_OP)
        state.blocks.pop(slot, None)
        outcome = self.ended(slot, outcome)
        self.unmatched.discard(slot)
        state.globals[st.G_PYTHON] -= 1
        completion.complete(
            self.g, self.row(slot), outcome.nbytes, outcome.error, outcome.source, outcome.tag
        )
        if ops.OPERATIONS[operation].collective:
            comm = self.field(slot, st.S_COMM)
            queue = self.collectives[comm]
            queue.popleft()
            state.communicator_table[comm, st.C_COLLECTIVES] -= 1
            if queue:
                self.resume(*queue[0], None)


# Not bound methods: an engine that refers to itself keeps the memory of its context for longer.
_OPERATIONS = {
    wire.OP_PING: Mpi4pyEngine.ping,
    wire.OP_ISEND: Mpi4pyEngine.isend,
    wire.OP_IRECV: Mpi4pyEngine.irecv,
    wire.OP_ALLREDUCE: Mpi4pyEngine.allreduce,
    wire.OP_BCAST: Mpi4pyEngine.bcast,
    wire.OP_BARRIER: Mpi4pyEngine.barrier,
    **{row.op: move_counted if row.counted else Mpi4pyEngine.move_blocks for row in moves.ALL_ROWS},
    wire.OP_SEND_CHANNEL: Mpi4pyEngine.send_channel,
    wire.OP_RECEIVE_CHANNEL: Mpi4pyEngine.receive_channel,
    wire.OP_PSEND_INIT: Mpi4pyEngine.make_partitioned,
    wire.OP_PRECV_INIT: Mpi4pyEngine.make_partitioned,
    wire.OP_REQUEST_FREE: Mpi4pyEngine.free,
    wire.OP_BSEND: Mpi4pyEngine.bsend,
    wire.OP_ABORT: Mpi4pyEngine.abort,
    wire.OP_CANCEL: Mpi4pyEngine.cancel,
    wire.OP_PROBE: Mpi4pyEngine.probe,
}
