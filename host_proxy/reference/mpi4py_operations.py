"""The operations of the mpi4py engine, one generator each, as a few lines of plain mpi4py."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from gmpi.contract import moves, rules, wire
from gmpi.contract.constants import (
    ANY_SOURCE,
    ANY_TAG,
    DATATYPES,
    NO_MESSAGE,
    PROC_NULL,
    SUCCESS,
)
from gmpi.contract.moves import BACK, OUT
from gmpi.contract.partitions import WANTED_BYTES, Wanted
from gmpi.contract.rules import chunk_bytes_of
from host_proxy.compiled.headers import Header, header_in, write_header
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.duplicate import Found
from host_proxy.platform.idle import now_ns
from host_proxy.records.checks import bytes_moved
from host_proxy.records.fault_log import log_request, no_payload
from host_proxy.reference.blocks import begin
from host_proxy.reference.channels import NEVER, NONE, Channels, Ends
from host_proxy.reference.failure import Failure
from host_proxy.reference.kernel_port import KernelPort, view
from host_proxy.reference.protocol import (
    Outcome,
    Step,
    chunks_of,
    receive_chunks,
    receive_message,
    receive_rest,
    send_message,
)

CHANNEL = object()  # what an operation waits for that asks for a channel


def channel_outcome(ends: Ends) -> Outcome:
    """The completion that tells a kernel of a channel: in its fields, two addresses."""
    local = 0 if ends in (NONE, NEVER) else ends.local + 1
    return Outcome(local, SUCCESS, ends.remote & wire.LOW_32, ends.remote >> 32)


class _Asked:
    """A question to the host, asked again until it answers: tested like an MPI request."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask
        self.answer: Any = None

    def Test(self, status: MPI.Status | None = None) -> bool:
        self.answer = self._ask()
        return self.answer is not None


class Operations:
    """What comes of the request of a slot, by its operation: ``Mpi4pyEngine`` runs them."""

    port = KernelPort

    def __init__(self, state: st.State) -> None:
        self.state = state
        self.g = state.address
        layout = state.layout
        self.sizes = layout.eager_bytes, layout.chunk_bytes
        self.memory = view(int(state.globals[st.G_CONTROL]), layout.mapped_bytes)
        self.large = self.memory[layout.large :]
        self.channels = Channels(state)
        self.taken: dict[int, tuple[int, Found]] = {}  # by matched probes, each with communicator
        self.unmatched: set[int] = set()  # receives that can be cancelled: nothing has come

    def small(self, slot: int) -> int:
        """Offset of the payload in the slot's small staging buffer."""
        layout = self.state.layout
        return layout.small + slot * layout.small_stride + wire.STAGING_LEAD

    def row(self, slot: int) -> int:
        return self.state.row(slot)

    def field(self, slot: int, which: int) -> int:
        return int(self.state.slots[slot, which])

    def ping(self, slot: int) -> Step:
        return Outcome(now_ns(self.g) & wire.BYTES_MASK)
        yield

    def isend(self, slot: int) -> Step:
        dest = self.field(slot, st.S_PEER)
        if dest == PROC_NULL:
            return Outcome(0)
        g = self.state.globals
        g[st.G_TRANSFERS] += 1
        layout = self.state.layout
        number = rules.transfer_number(
            int(g[st.G_TRANSFERS]),
            max(slot - layout.request_slots, 0),
            layout.slots - layout.request_slots,
            int(g[st.G_TAG_UB]),
        )
        port = self.port(self, slot)
        tag, nbytes = self.field(slot, st.S_TAG), self.field(slot, st.S_BYTES)
        comm = self.communicator(slot)
        synchronous = self.field(slot, st.S_CALL) << wire.CALL_SHIFT >= wire.SYNCHRONOUS
        return (
            yield from send_message(port, comm, dest, tag, nbytes, self.sizes, number, synchronous)
        )

    def bsend(self, slot: int) -> Step:
        """Complete when the bytes are ours: the message goes on by itself (MPI 4.1 section 3.6)."""
        nbytes, block = self.field(slot, st.S_BYTES), self.field(slot, st.S_BLOCK)
        dest = self.field(slot, st.S_PEER)
        if dest == PROC_NULL:
            return Outcome(0)
        port = self.port(self, slot)
        memory = np.empty(nbytes, np.uint8)
        if nbytes <= self.sizes[0]:
            memory[:] = port.small()[:nbytes]
        else:
            yield from port.move(memory, 0, wire.PACK)
        call = ops.name_of(wire.OP_BSEND, self.field(slot, st.S_CALL))
        comm, tag = self.field(slot, st.S_COMM), self.field(slot, st.S_TAG)
        error = self.state.buffered.send_for_kernel(call, memory, dest, tag, comm, block)
        return Outcome(nbytes, error)

    def abort(self, slot: int) -> Step:
        """Ends all ranks (MPI 4.1 section 9.7)."""
        block, code = self.field(slot, st.S_BLOCK), self.field(slot, st.S_ELEMENTS)
        rank = self.state.communicators[0].rank
        text = f"GMPI: rank {rank}: GMPI_Abort in block {block}, error code {code}"
        print(f"\n{text}\n", file=sys.stderr, flush=True)
        self.communicator(slot).messages.Abort(ctypes.c_int(code).value)
        return Outcome(0)
        yield

    def irecv(self, slot: int) -> Step:
        if self.field(slot, st.S_CALL) << wire.CALL_SHIFT in (wire.MATCHED, wire.MATCHED_TOO):
            return (yield from self.matched_irecv(slot))
        source = self.field(slot, st.S_PEER)
        if source == PROC_NULL:
            return Outcome(0, SUCCESS, PROC_NULL, ANY_TAG)
        port = self.port(self, slot)
        tag, room = self.field(slot, st.S_TAG), self.field(slot, st.S_BYTES)
        comm = self.communicator(slot)
        eager, _ = self.sizes
        if self.state.globals[st.G_PROBED]:
            self.state.count_probed()
        self.unmatched.add(slot)
        outcome = yield from receive_message(self.g, port, comm, source, tag, room, eager)
        return self.logged(slot, outcome)

    def rest_of_withdrawn(self, slot: int, request: MPI.Request) -> Step:
        """Of a receive that the compiled engine has posted, and that may be cancelled."""
        port = self.port(self, slot)
        message, room = port.message(self.sizes[0]), self.field(slot, st.S_BYTES)
        comm = self.communicator(slot)
        outcome = yield from receive_rest(self.g, port, comm, message, request, room)
        return self.logged(slot, outcome)

    def probe(self, slot: int) -> Step:
        """Looks for a message, or waits for one (MPI 4.1 section 3.8.1)."""
        source, tag = self.field(slot, st.S_PEER), self.field(slot, st.S_TAG)
        if source == PROC_NULL:
            return Outcome(0, SUCCESS, PROC_NULL, ANY_TAG)
        duplicate = self.communicator(slot).messages_of(tag)
        call = self.field(slot, st.S_CALL) << wire.CALL_SHIFT
        takes = call in (wire.MATCHED, wire.MATCHED_TOO)

        def look() -> Any:
            found = duplicate.take(source, tag) if takes else duplicate.look(source, tag)
            self.state.count_probed()
            return found

        asked = _Asked(look)
        if call not in (wire.NONBLOCKING, wire.MATCHED_TOO):
            yield asked
        elif not asked.Test():
            return Outcome(0, SUCCESS, ANY_SOURCE, NO_MESSAGE)
        if takes:
            found = asked.answer
            number = self.field(slot, st.S_HANDLE) & rules.MESSAGE_NUMBERS
            self.taken[number] = self.field(slot, st.S_COMM), found
            return Outcome(found.length(), SUCCESS, found.source, found.tag)
        source, tag, nbytes = asked.answer
        return Outcome(nbytes, SUCCESS, source, tag)

    def matched_irecv(self, slot: int) -> Step:
        """Receives a message that a matched probe has taken (MPI 4.1 section 3.8.3)."""
        number, in_use = self.field(slot, st.S_PEER), self.field(slot, st.S_TAG)
        comm = self.field(slot, st.S_COMM)
        if number == PROC_NULL:
            return Outcome(0, SUCCESS, PROC_NULL, ANY_TAG)
        if in_use != 1 or self.taken.get(number, (-1,))[0] != comm:
            error, value = ops.FIELD_CLASSES[ops.REQUEST], number | comm << rules.MESSAGE_COMM_SHIFT
            log_request(self.g, self.row(slot), ops.TAKEN, error, 0, value, 0)
            return Outcome(0, error)
        _, found = self.taken.pop(number)
        self.state.slots[slot, [st.S_PEER, st.S_TAG]] = found.source, found.tag
        port, room = self.port(self, slot), self.field(slot, st.S_BYTES)
        communicator = self.communicator(slot)
        message = port.message(self.sizes[0])
        write_header(message, Header(0, 0, 0, wire.NO_HEADER, 0, 0))
        request = found.receive(communicator.messages_of(found.tag), message)
        outcome = yield from receive_rest(self.g, port, communicator, message, request, room)
        return self.logged(slot, outcome)

    def rest_of_irecv(self, slot: int) -> Step:
        """What follows a header that the compiled engine has received, and checked."""
        port = self.port(self, slot)
        header = header_in(port.message(0))
        source, tag = self.field(slot, st.S_SOURCE), self.field(slot, st.S_SOURCE_TAG)
        comm, room = self.communicator(slot), self.field(slot, st.S_BYTES)
        error = self.field(slot, st.S_FAILED)  # of MPI, with the header
        failure = Failure(error) if error else None
        outcome = yield from receive_chunks(port, comm, source, tag, header, room, failure)
        return self.logged(slot, outcome)

    def logged(self, slot: int, outcome: Outcome) -> Outcome:
        """Notes what is wrong with the message that a receive has got."""
        room, row, error = self.field(slot, st.S_BYTES), self.row(slot), outcome.error
        if outcome.flaw:
            log_request(self.g, row, ops.MESSAGE, error, 0, outcome.flaw, 0)
        elif error != SUCCESS:
            log_request(self.g, row, ops.LENGTH, error, 0, outcome.total, room)
        return outcome

    def allreduce(self, slot: int) -> Step:
        _, datatype, dtype = DATATYPES[self.field(slot, st.S_DATATYPE) & 0xFF]
        op = self.state.reductions.known[self.field(slot, st.S_TAG)]
        comm = self.communicator(slot).messages

        def reduce(memory: np.ndarray) -> MPI.Request:
            count = len(memory) // dtype.itemsize
            return comm.Iallreduce(MPI.IN_PLACE, [memory, count, datatype], op)

        return (yield from self.by_chunks(slot, reduce, packs=True, unpacks=True))

    def bcast(self, slot: int) -> Step:
        communicator = self.communicator(slot)
        root = self.field(slot, st.S_PEER)
        comm = communicator.messages

        def broadcast(memory: np.ndarray) -> MPI.Request:
            return comm.Ibcast([memory, MPI.BYTE], root)

        sends = communicator.rank == root
        return (yield from self.by_chunks(slot, broadcast, packs=sends, unpacks=not sends))

    def barrier(self, slot: int) -> Step:
        yield self.communicator(slot).messages.Ibarrier()
        return Outcome(0)

    def move_blocks(self, slot: int) -> Step:
        """A collective that moves blocks: one call of MPI, however long."""
        op, comm = self.field(slot, st.S_OP), self.field(slot, st.S_COMM)
        root, tag, nbytes = (self.field(slot, f) for f in (st.S_PEER, st.S_TAG, st.S_BYTES))
        out, back = (
            int(bytes_moved(self.g, op, comm, root, tag, nbytes, way)) for way in (OUT, BACK)
        )
        port, row = self.port(self, slot), moves.BY_OP[op]
        small = port.small()
        offset = moves.out_offset(back)
        send, result = small[offset : offset + out], small[:back]
        is_short = offset + out <= self.sizes[0]
        communicator = self.communicator(slot)
        if not is_short:
            send, result = np.empty(out, np.uint8), np.empty(back, np.uint8)
            shift = communicator.rank * nbytes if row.shifted and tag else 0
            yield from port.move(send, shift, wire.PACK)
        datatype, reduction = MPI.BYTE, None
        if row.reduces:
            datatype = DATATYPES[self.field(slot, st.S_DATATYPE) & 0xFF][1]
            reduction = self.state.reductions.known[tag]
        yield begin(row, communicator, send, result, datatype, reduction, root)
        if not is_short and back > self.sizes[0]:
            yield from port.move(result, 0, wire.UNPACK)
        elif not is_short:
            small[:back] = result
        return Outcome(back)

    def send_channel(self, slot: int) -> Step:
        at = self.field(slot, st.S_COMM), self.field(slot, st.S_PEER), self.field(slot, st.S_TAG)
        while (ends := self.channels.send_end(*at)) is None:
            yield CHANNEL
        return channel_outcome(ends)

    def receive_channel(self, slot: int) -> Step:
        at = self.field(slot, st.S_COMM), self.field(slot, st.S_PEER), self.field(slot, st.S_TAG)
        return channel_outcome(self.channels.receive_end(*at))
        yield

    def make_partitioned(self, slot: int) -> Step:
        r = self.state.record
        if not r[st.R_FLAGS] & wire.FLAG_INLINE or self.field(slot, st.S_BYTES) != WANTED_BYTES:
            return Outcome(0, no_payload(self.g, r.ctypes.data, self.row(slot)))
        begin = self.small(slot)
        words = self.memory[begin : begin + WANTED_BYTES].view(np.int64)
        wanted = Wanted.of_words(words.tolist())
        sends = self.field(slot, st.S_OP) == wire.OP_PSEND_INIT
        block = self.field(slot, st.S_BLOCK)
        return (
            yield from self.answered(slot, lambda: self.state.making.make(sends, wanted, block))
        )

    def free_partitioned(self, slot: int) -> Step:
        handle, block = self.field(slot, st.S_ELEMENTS), self.field(slot, st.S_BLOCK)
        return (yield from self.answered(slot, lambda: self.state.making.free(handle, block)))

    def answered(self, slot: int, ask: Callable[[], Any]) -> Step:
        """What the host answers, as soon as it does."""
        asked = _Asked(ask)
        yield asked
        if asked.answer.fault is None:
            return Outcome(asked.answer.value)
        error, number = asked.answer.fault.error_class, self.state.notes.keep(asked.answer.fault)
        log_request(self.g, self.row(slot), ops.WORDED, error, 0, number, 0)
        return Outcome(0, error)

    def by_chunks(self, slot: int, start, packs: bool, unpacks: bool) -> Step:
        """A collective on the slot's buffer, chunk by chunk if it is long.

        All ranks cut alike and start the pieces in the same order, each when it is packed.
        """
        port = self.port(self, slot)
        nbytes = self.field(slot, st.S_BYTES)
        eager, largest = self.sizes
        if nbytes <= eager:
            yield start(port.small()[:nbytes])
            return Outcome(nbytes)
        chunk = chunk_bytes_of(nbytes, largest)
        for k, (position, length) in enumerate(chunks_of(nbytes, chunk)):
            if packs:
                memory = yield from port.pack(k, position, length)
            else:
                memory = port.free(k)[:length]
            yield start(memory)
            if unpacks:
                yield from port.unpack(k, position, length)
        return Outcome(nbytes)

    def communicator(self, slot: int) -> Communicator:
        return self.state.communicator(self.field(slot, st.S_COMM))
