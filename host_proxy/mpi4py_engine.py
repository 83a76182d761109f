"""The mpi4py engine: every operation as a few lines of plain mpi4py, in Python.

It serves what the compiled engine leaves to it (collectives on large buffers), everything where
that one cannot run, and is the oracle: ``GMPI_ENGINE=mpi4py`` runs whole programs on it, and the
results must be the same.

One operation is one generator (``protocol.py``). The engine keeps what each is waiting for, tests
MPI requests one by one, and resumes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
from collections import deque

import numpy as np
from mpi4py import MPI

from gmpi import wire
from gmpi.constants import (
    ANY_TAG,
    DATATYPES,
    OPERATIONS_REDUCE,
    PROC_NULL,
    SUCCESS,
)
from gmpi.wire import (
    CHUNK_DIRECTION_SHIFT,
    CHUNK_POSITION_SHIFT,
    FRAGMENT,
    LARGE_BUFFERS,
    MESSAGE_HEADER,
    OP_CHUNK,
    PACK,
    STAGING_LEAD,
    UNPACK,
    chunk_bytes_of,
)
from host_proxy import completion, dispatch, ring
from host_proxy import operations as ops
from host_proxy.checks import log_record, log_request
from host_proxy.idle import now_ns
from host_proxy.protocol import Outcome, Step, chunks_of, receive_message, send_message
from host_proxy.state import (
    G_CHUNK,
    G_DRAIN,
    G_PYTHON,
    G_SYNCS,
    G_TAG_UB,
    G_TRANSFERS,
    S_BYTES,
    S_COMM,
    S_DATATYPE,
    S_OP,
    S_ORDERS,
    S_PEER,
    S_PYTHON,
    S_REDUCTION,
    S_TAG,
    T_COLLECTIVES,
    T_COMMUNICATORS,
    State,
)


def done_word(position: int, direction: int, index: int) -> int:
    """What a CHUNK record says when the order with these values has been carried out."""
    return position << CHUNK_POSITION_SHIFT | direction << CHUNK_DIRECTION_SHIFT | index


class KernelPort:
    """The user's buffer of a kernel's request, behind the staging of its slot."""

    def __init__(self, engine: Mpi4pyEngine, slot: int) -> None:
        self.engine = engine
        self.slot = slot

    def first(self, nbytes: int) -> np.ndarray:
        begin = self.engine.small(self.slot) - MESSAGE_HEADER
        return self.engine.memory[begin : begin + MESSAGE_HEADER + nbytes]

    def fragment(self) -> np.ndarray:
        return self.first(self.engine.sizes[0])[MESSAGE_HEADER:]

    def buffer(self, k: int) -> np.ndarray:
        layout = self.engine.state.layout
        number = (self.slot - layout.request_slots) * LARGE_BUFFERS + k % LARGE_BUFFERS
        begin = layout.large + number * layout.chunk_bytes
        return self.engine.memory[begin : begin + layout.chunk_bytes]

    def free(self, k: int) -> np.ndarray:
        return self.buffer(k) if self.is_large() else self.engine.drain

    def is_large(self) -> bool:
        return self.slot >= self.engine.state.layout.request_slots

    def pack(self, k: int, position: int, length: int) -> Step:
        if k >= LARGE_BUFFERS:  # the first ones are packed by the call itself, without an order
            self.order(k % LARGE_BUFFERS, position, length, PACK)
        yield self.slot, done_word(position, PACK, k % LARGE_BUFFERS)
        return self.buffer(k)[:length]

    def unpack(self, k: int, position: int, length: int) -> Step:
        if length > 0 and self.is_large():
            index = FRAGMENT if position == 0 else k % LARGE_BUFFERS
            self.order(index, position, length, UNPACK)
            yield self.slot, done_word(position, UNPACK, index)

    def order(self, index: int, position: int, length: int, direction: int) -> None:
        state = self.engine.state
        completion.order(state.g, state.s, self.slot, index, position, length, direction)


class Mpi4pyEngine:
    """Runs the operations of kernels one generator each. Used by the proxy's thread only."""

    def __init__(self, state: State, mapped: int) -> None:
        self.state = state
        layout = state.layout
        self.sizes = layout.eager_bytes, layout.chunk_bytes
        self.memory = _view(mapped, layout.mapped_bytes)
        self.drain = _view(int(state.g[G_DRAIN]), int(state.g[G_CHUNK]))
        self.requests: list[tuple[MPI.Request, int, Step]] = []
        self.answers: dict[tuple[int, int], tuple[int, Step]] = {}  # who waits for which order
        self.early: set[tuple[int, int]] = set()  # orders carried out before anybody waited
        self.collectives: dict[int, deque[tuple[int, Step]]] = {}
        self.operations = {
            wire.OP_PING: self.ping,
            wire.OP_ISEND: self.isend,
            wire.OP_IRECV: self.irecv,
            wire.OP_ALLREDUCE: self.allreduce,
            wire.OP_BCAST: self.bcast,
            wire.OP_BARRIER: self.barrier,
        }

    def small(self, slot: int) -> int:
        """Offset of the payload in the slot's small staging buffer."""
        layout = self.state.layout
        return layout.small + slot * layout.small_stride + STAGING_LEAD

    # --- the operations ---------------------------------------------------------------------------

    def ping(self, slot: int) -> Step:
        return Outcome(now_ns(self.state.g) & wire.BYTES_MASK)
        yield

    def isend(self, slot: int) -> Step:
        row = self.state.s[slot]
        if row[S_PEER] == PROC_NULL:
            return Outcome(0)
        g = self.state.g
        g[G_TRANSFERS] += 1
        number = int(g[G_TRANSFERS]) % min(int(g[G_TAG_UB]), 0x7FFFFFFE) + 1
        return (
            yield from send_message(
                KernelPort(self, slot),
                self.communicator(slot),
                int(row[S_PEER]),
                int(row[S_TAG]),
                int(row[S_BYTES]),
                self.sizes,
                number,
            )
        )

    def irecv(self, slot: int) -> Step:
        row = self.state.s[slot]
        if row[S_PEER] == PROC_NULL:
            return Outcome(0, SUCCESS, PROC_NULL, ANY_TAG)
        outcome = yield from receive_message(
            KernelPort(self, slot),
            self.communicator(slot),
            int(row[S_PEER]),
            int(row[S_TAG]),
            int(row[S_BYTES]),
            self.sizes,
        )
        if outcome.error != SUCCESS:
            s, room = self.state.s, int(row[S_BYTES])
            log_request(
                self.state.g, s, self.state.e, slot, ops.LENGTH, outcome.error, 0,
                outcome.total, room,
            )  # fmt: skip
        return outcome

    def allreduce(self, slot: int) -> Step:
        row = self.state.s[slot]
        datatype = DATATYPES[row[S_DATATYPE] & 0xFF][1]
        op = OPERATIONS_REDUCE[row[S_REDUCTION]][1]
        comm = self.communicator(slot).messages

        def reduce(memory: np.ndarray) -> MPI.Request:
            count = len(memory) // max(1, datatype.Get_size())
            return comm.Iallreduce(MPI.IN_PLACE, [memory, count, datatype], op)

        return (yield from self.by_chunks(slot, reduce, packs=True, unpacks=True))

    def bcast(self, slot: int) -> Step:
        row = self.state.s[slot]
        communicator = self.communicator(slot)
        root = int(row[S_PEER])
        comm = communicator.messages

        def broadcast(memory: np.ndarray) -> MPI.Request:
            return comm.Ibcast([memory, MPI.BYTE], root)

        sends = communicator.rank == root
        return (yield from self.by_chunks(slot, broadcast, packs=sends, unpacks=not sends))

    def barrier(self, slot: int) -> Step:
        yield self.communicator(slot).messages.Ibarrier()
        return Outcome(0)

    def by_chunks(self, slot: int, start, packs: bool, unpacks: bool) -> Step:
        """A collective on the slot's buffer, fragment first, then chunk by chunk.

        All ranks cut alike and start the pieces in the same order, each when it is packed.
        """
        port = KernelPort(self, slot)
        nbytes = int(self.state.s[slot, S_BYTES])
        eager, largest = self.sizes
        yield start(port.fragment()[: min(nbytes, eager)])
        if nbytes <= eager:
            return Outcome(nbytes)
        if unpacks:
            yield from port.unpack(FRAGMENT, 0, eager)
        chunk = chunk_bytes_of(nbytes, eager, largest)
        for k, (position, length) in enumerate(chunks_of(nbytes, eager, chunk)):
            if packs:
                memory = yield from port.pack(k, position, length)
            else:
                memory = port.buffer(k)[:length]
            yield start(memory)
            if unpacks:
                yield from port.unpack(k, position, length)
        return Outcome(nbytes)

    def communicator(self, slot: int):
        return self.state.communicators[self.state.s[slot, S_COMM]]

    # --- records ------------------------------------------------------------------------------------

    def record(self, r: np.ndarray) -> None:
        """Takes over the record decoded in ``r``."""
        state = self.state
        if r[ring.R_OP] == OP_CHUNK:
            self.chunk(r)
            return
        slot = dispatch.admit(state.g, state.s, state.t, r, state.e)
        if slot < 0:
            return
        if r[ring.R_OP] == wire.OP_SYNCHRONIZE:
            state.g[G_SYNCS] += 1
            return
        state.s[slot, S_PYTHON] = 1
        if r[ring.R_FLAGS] & wire.FLAG_INLINE:
            target = self.memory.ctypes.data + self.small(slot)
            ring.payload_to(r, target, int(r[ring.R_BYTES]))
        operation = self.operations[int(r[ring.R_OP])](slot)
        state.g[G_PYTHON] += 1
        if ops.OPERATIONS[int(r[ring.R_OP])].collective:
            # One at a time on a communicator, in the order of the records.
            comm = int(state.s[slot, S_COMM])
            state.t[T_COMMUNICATORS + comm, T_COLLECTIVES] += 1
            queue = self.collectives.setdefault(comm, deque())
            queue.append((slot, operation))
            if len(queue) > 1:
                return
        self.resume(slot, operation, None)

    def chunk(self, r: np.ndarray) -> None:
        """An order has been carried out."""
        state = self.state
        slot = dispatch.chunk_slot(state.g, state.s, r)
        if slot < 0:
            log_record(state.g, r, state.e, ops.REQUEST, r[ring.R_HANDLE], 0, 0)
            return
        done = int(r[ring.R_DONE])
        position = done >> CHUNK_POSITION_SHIFT
        first = self.sizes[0] + LARGE_BUFFERS * chunk_bytes_of(
            int(state.s[slot, S_BYTES]), *self.sizes
        )
        ordered = done >> CHUNK_DIRECTION_SHIFT & 1 == UNPACK or position >= first
        if ordered and state.s[slot, S_ORDERS] > 0:
            completion.order_done(state.g, state.s, slot)
        key = slot, done
        if key in self.answers:
            self.resume(*self.answers.pop(key), None)
        else:
            self.early.add(key)

    # --- running -------------------------------------------------------------------------------------

    def resume(self, slot: int, operation: Step, value: object) -> None:
        """Runs an operation until it waits for something that has not happened yet."""
        while True:
            try:
                waits_for = operation.send(value)
            except StopIteration as stop:
                self.finish(slot, stop.value)
                return
            except MPI.Exception as exc:
                self.fail(slot, exc)
                return
            if not isinstance(waits_for, MPI.Request):
                if waits_for not in self.early:
                    self.answers[waits_for] = slot, operation
                    return
                self.early.discard(waits_for)
                value = None
                continue
            status = MPI.Status()
            try:
                completed = waits_for.Test(status)
            except MPI.Exception as exc:
                self.fail(slot, exc)
                return
            if not completed:
                self.requests.append((waits_for, slot, operation))
                return
            value = status

    def step(self) -> bool:
        """Tests every pending MPI request once; whether anything completed."""
        pending, self.requests = self.requests, []
        before = len(pending)
        status = MPI.Status()
        for request, slot, operation in pending:
            try:
                completed = request.Test(status)
            except MPI.Exception as exc:
                self.fail(slot, exc)
                continue
            if completed:
                self.resume(slot, operation, status)
                status = MPI.Status()
            else:
                self.requests.append((request, slot, operation))
        return len(self.requests) < before

    def fail(self, slot: int, exc: MPI.Exception) -> None:
        error = exc.Get_error_class()
        state = self.state
        log_request(
            state.g, state.s, state.e, slot, ops.MPI_CALL, error, exc.Get_error_code(),
            exc.Get_error_code(), 0,
        )  # fmt: skip
        self.finish(slot, Outcome(0, error))

    def finish(self, slot: int, outcome: Outcome) -> None:
        """Completes the request of a slot; a collective makes room for the next one."""
        state = self.state
        operation = int(state.s[slot, S_OP])
        state.g[G_PYTHON] -= 1
        completion.complete(
            state.g, state.s, state.t, slot, outcome.nbytes, outcome.error, outcome.source,
            outcome.tag,
        )  # fmt: skip
        if ops.OPERATIONS[operation].collective:
            comm = int(state.s[slot, S_COMM])
            queue = self.collectives[comm]
            queue.popleft()
            state.t[T_COMMUNICATORS + comm, T_COLLECTIVES] -= 1
            if queue:
                self.resume(*queue[0], None)


def _view(address: int, nbytes: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
