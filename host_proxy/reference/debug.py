"""Debug mode (``GMPI_DEBUG=1``): the mpi4py engine with checks around every record.

Everything runs on the mpi4py engine, so the compiled loop stays as it is. What is checked:

* fields of a record that its operation does not use are zero, flags fit the operation, and the
  block that it names exists;
* the buffer of a receive, or of a result, overlaps no buffer of a pending request, and that of a
  send no pending receive's (MPI 4.1 section 3.7.2 and 3.7.4);
* the buffer of a send still has, when the send completes, the bytes that were sent;
* all ranks of a collective call the same (``agreement.py``);
* nobody writes around or behind the staging of a request: *canaries*;
* what a request of the direct road uses is memory that is there (``gmpi/memory/registered.py``);
* nobody relies on what is not his: ring slots that were read, completions, and staging that was
  given back are filled with *poison*.

Buffers are compared where they lie in one piece: not strided slices and derived datatypes, and not
shared memory, which the host cannot read.

Requests of the direct road are none of the proxy's. It is told when one opens and when one ends
(``device_lib/direct/watching.py``), and answers with an error class. They take slots of the same
numbers as ours, so their buffers are compared with those of all others.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gmpi.contract import wire
from gmpi.contract.constants import ERR_BUFFER, ERR_INTERN, PROC_NULL, SUCCESS
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.records import completion
from host_proxy.records.fault_log import log_record, log_request
from host_proxy.reference.agreement import Said, agreed
from host_proxy.reference.failure import Disagreement
from host_proxy.reference.flows import flows_of
from host_proxy.reference.kernel_port import KernelPort
from host_proxy.reference.mpi4py_engine import Mpi4pyEngine
from host_proxy.reference.protocol import Outcome, Step

POISON = 0xDA  # even: no sequence number
CANARY = 0xC5
CANARY_BYTES = wire.STAGING_LEAD - wire.MESSAGE_HEADER  # before the header of each staging buffer

_GONE = (
    "is in memory that the host cannot read: it was freed; free an array when the requests that "
    "use it have been waited for, and the kernel that has its address has ended"
)

# Records that use fields as they like.
_ANYTHING = (
    wire.OP_NULL, wire.OP_FAULT, wire.OP_WAITS, wire.OP_WAITED, wire.OP_SEND_CHANNEL,
    wire.OP_RECEIVE_CHANNEL,
)  # fmt: skip

#: Copies memory of a kernel's buffer to the host; None where it cannot.
Reader = Callable[[int, int], np.ndarray | None]


class Buffer(NamedTuple):
    """Where the bytes of a pending request are; address 0: not known, or not in one piece."""

    address: int
    nbytes: int
    writes: bool
    name: str

    def __str__(self) -> str:
        return f"{self.name} at {self.address:#x}..{self.address + self.nbytes:#x}"

    def conflicts(self, other: Buffer) -> bool:
        if not (self.writes or other.writes) or not (self.address and other.address):
            return False
        ends = self.address + self.nbytes, other.address + other.nbytes
        return self.address < ends[1] and other.address < ends[0]


class DebugPort(KernelPort):
    """The staging of a request, watched."""

    engine: DebugEngine

    def message(self, nbytes: int) -> np.ndarray:
        memory = super().message(nbytes)
        op = self.engine.field(self.slot, st.S_OP)
        if op == wire.OP_ISEND and nbytes:
            self.engine.sent(self.slot, 0, memory[wire.MESSAGE_HEADER :])
        elif op == wire.OP_IRECV:
            memory[:] = POISON  # before MPI gets it
        return memory

    def pack(self, k: int, position: int, length: int) -> Step:
        memory = yield from super().pack(k, position, length)
        if k < wire.LARGE_BUFFERS and self.has_chunks:
            self.engine.check_tail(self.slot, self.buffer(k)[length:], f"chunk {k}")
        if self.engine.field(self.slot, st.S_OP) == wire.OP_ISEND:
            self.engine.sent(self.slot, position, memory)
        return memory


class DebugEngine(Mpi4pyEngine):
    """Attributes:
    blocks: the largest grid so far.
    """

    port = DebugPort

    def __init__(self, state: st.State, read: Reader) -> None:
        super().__init__(state)
        self.read = read
        self.blocks = 0
        self.buffers: dict[int, Buffer] = {}
        self.sums: dict[int, list[tuple[int, int, int]]] = {}  # position, length, checksum
        self.clean: set[int] = set()  # slots whose staging is all poison
        self.direct: dict[int, np.ndarray] = {}  # what the error log says of them, as of ours
        layout = state.layout
        for slot in range(layout.slots + 1):
            place = self.canary(slot)
            place[:] = CANARY
        self.large[:] = POISON

    # --- hooks of the engine ----------------------------------------------------------------------

    def serve(self) -> None:
        r = self.state.record
        address, handle_packet = int(r[st.R_ADDRESS]), wire.HANDLE_PACKET * wire.PACKET_BYTES
        if r[st.R_OP] in (wire.OP_OPENS, wire.OP_ENDS):
            self.answer_direct()
            return
        if r[st.R_OP] in ops.OPERATIONS:
            reserved = ctypes.c_uint32.from_address(address + handle_packet + 8).value
            if reserved == int(r[st.R_PEER]) & wire.LOW_32:
                reserved = 0  # the peer again: the same word goes to two lanes
            problems = list(self.problems(r, reserved))
            if problems:
                self.log_record(f"record {self.state.taken}: {'; '.join(problems)}")
        super().serve()

    def has_served(self) -> None:
        """Not before the record counts as taken: until then a slot of poison looks like one into
        which no record has come, and ``synchronize`` took the ring for empty."""
        ctypes.memset(int(self.state.record[st.R_ADDRESS]), POISON, wire.SLOT_BYTES)

    def objection(self, slot: int) -> int:
        """Looks at a request that has just been opened; an error class refuses it."""
        r = self.state.record
        ctypes.memset(self._completion(slot), POISON, wire.SLOT_BYTES)
        self.check_canaries(slot)
        op, flags = int(r[st.R_OP]), int(r[st.R_FLAGS])
        if slot in self.clean and op == wire.OP_ISEND and not flags & wire.FLAG_INLINE:
            if slot < self.state.layout.request_slots:
                tail = self._payload(slot)[int(r[st.R_BYTES]) :]
                self.check_tail(slot, tail, "the payload")
        self.clean.discard(slot)
        self.sums[slot] = []
        mine = self._buffer(slot)
        if overlap := self._overlap(mine):
            self.log(slot, ERR_BUFFER, overlap)
            return int(ERR_BUFFER)
        self.buffers[slot] = mine
        return 0

    def answer_direct(self) -> None:
        """A request of the direct road opens or ends: says whether it may, or how it has gone."""
        handle = int(self.state.record[st.R_HANDLE])
        slot = handle >> wire.HANDLE_SLOT_SHIFT & wire.HANDLE_SLOT_MASK
        if self.state.record[st.R_OP] == wire.OP_OPENS:
            op = handle >> wire.WATCHED_OP_SHIFT & 0xFF
            problem, row = self._opens(slot, op)
        else:
            mine = self.buffers.pop(slot, None)
            # Freed: the buffer is the user's again when the other rank has said that it received.
            freed = handle >> wire.WATCHED_OP_SHIFT & 0xFF == wire.OP_REQUEST_FREE
            problem = "" if mine is None or freed else self._changed(slot, mine)
            row = self.direct.pop(slot, None)
            if freed:
                return
        if problem and row is not None:
            number = self.state.notes.keep(problem)
            log_request(self.g, row.ctypes.data, ops.DEBUG, int(ERR_BUFFER), 0, number, 0)
        error = int(ERR_BUFFER) if problem else 0
        completion.answer(self.g, slot, error, handle & wire.LOW_32)

    def _opens(self, slot: int, op: int) -> tuple[str, np.ndarray | None]:
        """(What is wrong with a request of the direct road, in words; what the error log says of
        it). It is known from now on, if nothing is."""
        r, row = self.state.record, np.zeros(st.S_COUNT, np.int64)
        address, nbytes = int(r[st.R_ELEMENTS]), int(r[st.R_DONE])
        for column, value in (
            (st.S_OP, op), (st.S_CALL, r[st.R_CALL]), (st.S_COMM, r[st.R_COMM]),
            (st.S_PEER, r[st.R_PEER]), (st.S_TAG, r[st.R_TAG]), (st.S_BLOCK, r[st.R_BLOCK]),
            (st.S_DATATYPE, r[st.R_DATATYPE]), (st.S_SLOT, slot),
            (st.S_ELEMENTS, nbytes // max(int(r[st.R_DATATYPE]) >> 8 & 0xFF, 1)),
        ):  # fmt: skip
            row[column] = value
        name = ops.name_of(op, int(r[st.R_CALL]))
        name = f"{name} in block {int(r[st.R_BLOCK])} (record {self.state.taken})"
        mine = Buffer(address if nbytes else 0, nbytes, op == wire.OP_IRECV, name)
        problem = self._overlap(mine)
        if mine.address and not problem:
            now = self.read(address, nbytes)
            if now is None:
                problem = f"the buffer of {mine} {_GONE}"
            elif stale := self.state.registered.stale(address, nbytes):
                problem = f"the buffer of {mine}: {stale}"
            elif not mine.writes:
                self.sums[slot] = [(0, nbytes, zlib.crc32(now.data))]
        if not problem:
            self.buffers[slot], self.direct[slot] = mine, row
        return problem, row

    def _overlap(self, mine: Buffer) -> str:
        """Which pending request uses memory that a new one uses, in words; empty: none."""
        for other in self.buffers.values():
            if mine.conflicts(other):
                return (
                    f"the buffer of {mine} overlaps that of {other}, which is pending; wait for "
                    "that request first"
                )
        return ""

    def agreed(self, slot: int, operation: Step) -> Step:
        """A collective, once all ranks have said that they call the same."""
        fields = (
            st.S_OP,
            st.S_CALL,
            st.S_PEER,
            st.S_TAG,
            st.S_DATATYPE,
            st.S_ELEMENTS,
            st.S_BYTES,
            st.S_BLOCK,
        )
        rank = self.state.communicators[0].rank
        mine = Said(rank, *(self.field(slot, which) for which in fields))
        try:
            communicator = self.communicator(slot)
            counted = flows_of(self.state, slot)
            return (yield from agreed(communicator, mine, operation, counted))
        except Disagreement as exc:
            self.log(slot, exc.error, exc.text)
            self.state.slots[slot, st.S_FAILED] = exc.error
            raise

    def ended(self, slot: int, outcome: Outcome) -> Outcome:
        """Looks at a request that is about to complete."""
        self.check_canaries(slot)
        mine = self.buffers.pop(slot, None)
        if mine is not None and outcome.error == SUCCESS:
            changed = self._changed(slot, mine)
            if changed:
                self.log(slot, ERR_BUFFER, changed)
                outcome = outcome._replace(error=int(ERR_BUFFER))
        if self.state.layout.request_slots <= slot < self.state.layout.first_narrow:
            size = wire.LARGE_BUFFERS * self.sizes[1]
            begin = self.state.layout.chunk_buffers(slot)
            self.large[begin : begin + size] = POISON
        if self.field(slot, st.S_OP) == wire.OP_ISEND:
            self._payload(slot)[:] = POISON
            self.clean.add(slot)
        return outcome

    # --- the checks -------------------------------------------------------------------------------

    def problems(self, r: np.ndarray, reserved: int):
        """What is odd about a record, besides what ``checks.check`` refuses."""
        op, flags = int(r[st.R_OP]), int(r[st.R_FLAGS])
        if op in _ANYTHING:
            return
        operation = ops.OPERATIONS[op]
        fields = operation.fields
        if reserved:
            yield f"reserved word of {operation.name} is {reserved:#x}, must be 0"
        if self.blocks and r[st.R_BLOCK] >= self.blocks:
            yield (
                f"block of {operation.name} is {int(r[st.R_BLOCK])}, "
                f"allowed is 0..{self.blocks - 1}"
            )
        unused = [
            ("peer", st.R_PEER, ops.DEST | ops.SOURCE | ops.ROOT),
            ("tag", st.R_TAG, ops.TAG | ops.REDUCTION | ops.IN_PLACE),
            ("datatype", st.R_DATATYPE, ops.DATATYPE),
            ("count", st.R_ELEMENTS, ops.COUNT),
            ("communicator", st.R_COMM, ops.COMMUNICATOR),
        ]
        for name, column, users in unused:
            if not fields & users and r[column] != 0:
                yield f"{name} of {operation.name} is {int(r[column])}, must be 0"
        allowed = {
            wire.OP_ISEND: wire.FLAG_OUT | wire.FLAG_INLINE | wire.FLAWS,
            wire.OP_IRECV: wire.FLAG_BACK | wire.FLAWS,
            wire.OP_PROBE: wire.FLAG_BACK,
        }.get(op, 0xFF if fields & ops.DATATYPE else 0)
        if flags & ~allowed:
            yield f"flags of {operation.name} are {flags:#x}, allowed are {allowed:#x}"

    def canary(self, slot: int) -> np.ndarray:
        """What stands before a slot's staging, and so behind that of the slot before it."""
        layout = self.state.layout
        begin = layout.small + slot * layout.small_stride
        return self.memory[begin : min(begin + CANARY_BYTES, layout.large)]

    def check_canaries(self, slot: int) -> None:
        for number, where in ((slot, "before"), (slot + 1, "behind")):
            place = self.canary(number)
            if (place != CANARY).any():
                at = int(place.ctypes.data) + int(np.flatnonzero(place != CANARY)[0])
                self.log(slot, ERR_INTERN, f"memory {where} the staging of {self._name(slot)} was "
                                           f"overwritten, first at {at:#x}")  # fmt: skip
                place[:] = CANARY

    def check_tail(self, slot: int, tail: np.ndarray, what: str) -> None:
        wrong = np.flatnonzero(tail != POISON)
        if len(wrong):
            at = int(tail.ctypes.data) + int(wrong[0])
            self.log(slot, ERR_INTERN, f"the kernel wrote behind {what} of {self._name(slot)}, "
                                       f"first at {at:#x} of its staging")  # fmt: skip
            tail[:] = POISON

    def sent(self, slot: int, position: int, data: np.ndarray) -> None:
        """Notes what MPI, or the receiver, gets of a send."""
        self.sums[slot].append((position, len(data), zlib.crc32(data.data)))

    def _changed(self, slot: int, mine: Buffer) -> str:
        """Which bytes of a send's buffer are not those that were sent; empty: none."""
        if mine.writes or not mine.address:
            return ""
        for position, length, checksum in self.sums[slot]:
            now = self.read(mine.address + position, length)
            if now is None and slot in self.direct:
                return f"the buffer of {mine} {_GONE}"
            if now is not None and zlib.crc32(now.data) != checksum:
                return (
                    f"the buffer of {mine} was changed while the send was pending, in its bytes "
                    f"{position}..{position + length}; wait for the request first"
                )
        return ""

    # --- words ------------------------------------------------------------------------------------

    def log(self, slot: int, error: int, text: str) -> None:
        number = self.state.notes.keep(text)
        log_request(self.g, self.row(slot), ops.DEBUG, int(error), 0, number, 0)

    def log_record(self, text: str) -> None:
        number = self.state.notes.keep(text)
        log_record(self.g, self.state.record.ctypes.data, ops.DEBUG, number, 0, 0)

    def _name(self, slot: int) -> str:
        number = self.state.record_number(self.field(slot, st.S_HANDLE))
        block = self.field(slot, st.S_BLOCK)
        name = ops.name_of(self.field(slot, st.S_OP), self.field(slot, st.S_CALL))
        return f"{name} in block {block} (record {number})"

    def _buffer(self, slot: int) -> Buffer:
        r = self.state.record
        address, nbytes, flags = int(r[st.R_DONE]), int(r[st.R_BYTES]), int(r[st.R_FLAGS])
        moves = flags & (wire.FLAG_OUT | wire.FLAG_BACK) and r[st.R_PEER] != PROC_NULL
        call = int(r[st.R_OP]) | int(r[st.R_CALL]) << wire.CALL_SHIFT
        replaced = call == wire.OP_ISEND | wire.REPLACE
        # Of one that is to be received into, all has been packed.
        if not moves or nbytes == 0 or address & wire.SCATTERED or replaced:
            address = 0
        return Buffer(address, nbytes, bool(flags & wire.FLAG_BACK), self._name(slot))

    def _payload(self, slot: int) -> np.ndarray:
        begin = self.small(slot)
        return self.memory[begin : begin + self.sizes[0]]

    def _completion(self, slot: int) -> int:
        return int(self.state.globals[st.G_CONTROL]) + (
            self.state.layout.completions + slot * wire.SLOT_BYTES
        )
