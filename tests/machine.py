"""The proxy without its thread, on memory of its own, with an MPI that only takes notes.

What a kernel would write, tests write packet by packet; ``step()`` lets the compiled engine run
until it has nothing more to do. Every MPI call that it makes is checked: a wrong one is a failure
of the test, whatever else happens.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

import gmpi
from gmpi.contract import wire
from gmpi.contract.partitions import Wanted
from gmpi.contract.sizes import Layout
from host_proxy.compiled import loop
from host_proxy.platform import mpi_library
from host_proxy.platform import state as st
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.duplicate import Duplicate
from host_proxy.platform.make_state import Habits, make_state
from host_proxy.platform.state import State, no_gpu
from host_proxy.records.ring import return_slots, take
from host_proxy.reference.mpi4py_engine import Mpi4pyEngine

PACKET = np.dtype([("low", "<i8"), ("high", "<u4"), ("seq", "<u4")])
SMALL = Layout(ring_slots=64, request_slots=32, large_slots=4, eager_bytes=256, chunk_bytes=512)
CONTEXT = 5
RANKS = 4  # in communicator 0, as far as the engine knows


@dataclass
class Posted:
    """An MPI call that the engine made."""

    name: str
    address: int
    nbytes: int
    peer: int
    tag: int
    comm: int


def seq_of(ticket: int) -> int:
    return (ticket << 1 | 1) & wire.LOW_32


class Host:
    """Stands for what makes and frees partitioned requests (``gmpi/host/partitioned_making.py``),
    and for buffered sends (``gmpi/host/buffered.py``).

    Attributes:
        busy: how often it answers only when it is asked again.
        fault: what it answers.
    """

    def __init__(self, calls: list[Posted]) -> None:
        self.calls = calls
        self.busy = 0
        self.fault: Any = None

    def make(self, sends: bool, wanted: Wanted, block: int) -> Any:
        name = "send" if sends else "receive"
        place = wanted.address, wanted.count, wanted.peer, wanted.tag, wanted.comm
        return self._answer(Posted(name, *place))

    def free(self, handle: int, block: int) -> Any:
        return self._answer(Posted("free", handle, 0, 0, 0, 0))

    def send_for_kernel(
        self, call: str, data: np.ndarray, dest: int, tag: int, comm: int, block: int
    ) -> int:
        self.calls.append(Posted(call, data.ctypes.data, data.nbytes, dest, tag, comm))
        return 0

    def _answer(self, call: Posted) -> Any:
        self.busy -= 1
        if self.busy >= 0:
            return None
        self.calls.append(call)
        return SimpleNamespace(value=0xABCD1234, fault=self.fault)


class Machine:
    """State, memory and a fake MPI; ``first`` is the first ticket."""

    def __init__(self, layout: Layout = SMALL, first: int = 0) -> None:
        self.layout = layout
        self._memory = np.zeros(layout.mapped_bytes + 4096, np.uint8)
        skip = -int(self._memory.ctypes.data) % 4096
        self.mapped = self._memory[skip : skip + layout.mapped_bytes]
        self.large = self.mapped[layout.large :]
        self.staging = np.zeros(layout.large_bytes, np.uint8)  # GPU staging
        self.address = int(self.mapped.ctypes.data)
        peers = np.zeros((1, st.P_COUNT), np.int64)
        self.state: State = make_state(
            layout,
            self.address,
            (self.address, int(self.staging.ctypes.data), 0),
            peers,
            CONTEXT,
            Habits(flight=64, idle=(0, 0, 1000)),
            no_gpu,
        )
        self.g = self.state.address
        self.globals = self.state.globals
        self.ring = self._packets(layout.ring, layout.ring_slots)
        self.completions = self._packets(layout.completions, layout.slots)
        self.ticket = first
        self.globals[st.G_HEAD] = first
        self._elsewhere = np.full(RANKS, -1, np.int64)
        self._p2p = np.zeros(RANKS, np.int64)
        real = Duplicate(MPI.COMM_SELF.Dup()), Duplicate(MPI.COMM_SELF.Dup())
        for comm in real:
            comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.state.communicators.append(
            Communicator(*real, 0, RANKS, "test", self._elsewhere, self._p2p)
        )
        row = self.state.communicator_table[0]
        row[st.C_SIZE] = RANKS
        row[st.C_PEERS] = self._elsewhere.ctypes.data
        row[st.C_P2P] = self._p2p.ctypes.data
        row[st.C_CHUNKS] = mpi_library.handle(real[1])
        row[st.C_HANDLE] = mpi_library.handle(real[0])
        self.comms = {int(row[st.C_HANDLE]), int(row[st.C_CHUNKS])}
        self.python = Mpi4pyEngine(self.state)
        self.calls: list[Posted] = []
        self.host = self.state.making = self.state.buffered = Host(self.calls)
        self.wrong: list[str] = []  # illegal MPI calls
        self.code = 0  # what MPI calls return
        self.handed_out = 0  # requests so far
        self.posted: dict[int, Posted] = {}  # messages, by request
        self.finished: dict[int, tuple[int, int]] = {}  # (source, tag) of requests, for Testsome
        self.tested: list[int] = []  # how many requests each Testsome got
        self._install()

    def _packets(self, offset: int, slots: int) -> np.ndarray:
        end = offset + slots * wire.SLOT_BYTES
        return self.mapped[offset:end].view(PACKET).reshape(slots, wire.SLOT_PACKETS)

    # --- the fake MPI -----------------------------------------------------------------------------

    def _install(self) -> None:
        self._functions: list[Any] = []

        def put(which: int, arguments: int, function: Any) -> None:
            kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * arguments)
            self._functions.append(kind(function))
            self.globals[which] = ctypes.cast(self._functions[-1], ctypes.c_void_p).value

        put(st.F_ISEND, 7, lambda *a: self._message("MPI_Isend", *a))
        put(st.F_IRECV, 7, lambda *a: self._message("MPI_Irecv", *a))
        put(st.F_IALLREDUCE, 7, self._allreduce)
        put(st.F_IBCAST, 6, self._bcast)
        put(st.F_IBARRIER, 2, self._barrier)
        put(st.F_TESTSOME, 5, self._testsome)
        put(st.F_TEST, 3, lambda request, flag, status: 0)  # not yet
        put(st.F_REQUEST_FREE, 1, lambda request: 0)
        put(st.F_NANOSLEEP, 2, self._stop)
        put(st.F_YIELD, 1, self._stop)

    def _stop(self, *_: int) -> int:
        self.globals[st.G_STOP] = 1
        return 0

    def _check(self, fine: bool, text: str) -> None:
        if not fine:
            self.wrong.append(text)

    def _inside(self, address: int, nbytes: int) -> bool:
        notes = int(self.globals[st.G_NOTES])
        regions = [
            (self.address + self.layout.small, self.address + self.layout.large),
            (self.address + self.layout.large, self.address + self.layout.mapped_bytes),
            (notes, notes + self.layout.slots * st.NOTE_BYTES),
        ]
        return any(low <= address and address + nbytes <= high for low, high in regions)

    def _message(
        self, name: str, address: int, nbytes: int, datatype: int, peer: int, tag: int, comm: int,
        request: int,
    ) -> int:  # fmt: skip
        what = f"{name}({nbytes} bytes, peer {peer}, tag {tag})"
        receive = name == "MPI_Irecv"
        self._check(0 <= nbytes < 1 << 31 and self._inside(address, nbytes), f"{what}: memory")
        self._check(datatype == self.globals[st.G_BYTE], f"{what}: datatype")
        wild = receive and peer == gmpi.ANY_SOURCE
        self._check(0 <= peer < RANKS or wild, f"{what}: peer")
        wild = receive and tag == gmpi.ANY_TAG
        self._check(0 <= tag <= self.globals[st.G_TAG_UB] or wild, f"{what}: tag")
        self._check(comm in self.comms, f"{what}: communicator")
        self._hand_out(request)
        self.calls.append(Posted(name, address, nbytes, peer, tag, comm))
        self.posted[self.handed_out] = self.calls[-1]
        return self.code

    def _allreduce(
        self, send: int, data: int, count: int, datatype: int, op: int, comm: int, request: int
    ) -> int:
        known = {int(row[st.D_HANDLE]): int(row[st.D_SIZE]) for row in self.state.datatypes}
        what = f"MPI_Iallreduce({count})"
        self._check(send == self.globals[st.G_IN_PLACE], f"{what}: send buffer")
        self._check(datatype in known, f"{what}: datatype")
        nbytes = count * known.get(datatype, 0)
        self._check(count >= 0 and self._inside(data, nbytes), f"{what}: memory")
        self._check(op in self.state.reductions.table, f"{what}: op")
        self._check(comm in self.comms, f"{what}: communicator")
        self._hand_out(request)
        self.calls.append(Posted("MPI_Iallreduce", data, nbytes, 0, 0, comm))
        return self.code

    def _bcast(
        self, data: int, count: int, datatype: int, root: int, comm: int, request: int
    ) -> int:
        what = f"MPI_Ibcast({count}, root {root})"
        self._check(count >= 0 and self._inside(data, count), f"{what}: memory")
        self._check(0 <= root < RANKS and comm in self.comms, f"{what}: root or communicator")
        self._hand_out(request)
        self.calls.append(Posted("MPI_Ibcast", data, count, root, 0, comm))
        return self.code

    def _barrier(self, comm: int, request: int) -> int:
        self._check(comm in self.comms, "MPI_Ibarrier: communicator")
        self._hand_out(request)
        self.calls.append(Posted("MPI_Ibarrier", 0, 0, 0, 0, comm))
        return self.code

    def _hand_out(self, request: int) -> None:
        """Every request gets a number of its own as its handle."""
        if self.code == 0:
            self.handed_out += 1
            self._request(request).value = self.handed_out

    def _request(self, address: int) -> Any:
        """The request handle at an address."""
        wide = self.globals[st.G_HANDLE_BYTES] == 8
        return (ctypes.c_int64 if wide else ctypes.c_int32).from_address(address)

    def _testsome(self, size: int, handles: int, outcount: int, indices: int, statuses: int) -> int:
        self.tested.append(size)
        width = int(self.globals[st.G_STATUS_BYTES])
        done = 0
        for index in range(size):
            request = self._request(handles + index * int(self.globals[st.G_HANDLE_BYTES]))
            self._check(0 < request.value <= self.handed_out, f"MPI_Testsome: {request.value}")
            if request.value not in self.finished:
                continue
            source, tag = self.finished.pop(request.value)
            nbytes = self._came(request.value)
            request.value = 0
            ctypes.c_int.from_address(indices + 4 * done).value = index
            at = statuses + done * width
            ctypes.c_int.from_address(at + int(self.globals[st.G_STATUS_SOURCE])).value = source
            ctypes.c_int.from_address(at + int(self.globals[st.G_STATUS_TAG])).value = tag
            ctypes.c_int.from_address(at + int(self.globals[st.G_STATUS_COUNT])).value = nbytes
            done += 1
        ctypes.c_int.from_address(outcount).value = done
        return 0

    def _came(self, request: int) -> int:
        """Bytes that a receive has got: of a message, those that its header calls for."""
        posted = self.posted.get(request)
        if posted is None or posted.name == "MPI_Isend" or posted.nbytes < wire.MESSAGE_HEADER:
            return 0
        total, chunk = (ctypes.c_int64 * 2).from_address(posted.address)
        return wire.MESSAGE_HEADER + (0 if chunk else total)

    def finish(self, number: int, source: int = 0, tag: int = 0) -> None:
        """MPI will say that the request at place ``number`` of the pending ones is complete."""
        at = int(self.globals[st.G_HANDLES]) + number * int(self.globals[st.G_HANDLE_BYTES])
        self.finished[self._request(at).value] = source, tag

    # --- the kernel's part ------------------------------------------------------------------------

    def handle(self, ticket: int, slot: int, packets: int = 1) -> int:
        large = int(slot >= self.layout.request_slots)
        return (
            seq_of(ticket)
            | slot << wire.HANDLE_SLOT_SHIFT
            | packets << wire.HANDLE_PACKETS_SHIFT
            | large << wire.HANDLE_LARGE_SHIFT
            | CONTEXT << wire.HANDLE_CONTEXT_SHIFT
        )

    def packets_of(
        self, ticket: int, op: int, *, flags: int = 0, comm: int = 0, datatype: int = gmpi.BYTE,
        peer: int = 0, count: int = 0, tag: int = 0, handle: int = 0, done: int = 0,
        block: int = 0, payload: bytes = b"",
    ) -> np.ndarray:  # fmt: skip
        """A record, as packets: the ring's bytes of one slot."""
        packets = np.zeros(wire.SLOT_PACKETS, PACKET)
        packets["seq"] = seq_of(ticket)
        word0 = op | flags << 8 | comm << 16 | datatype << 32
        packets["low"][:4] = np.array([word0, count, handle, done], np.uint64).astype(np.int64)
        packets["high"][:4] = [peer & 0xFFFFFFFF, tag & 0xFFFFFFFF, 0, block]
        for k in range(0, len(payload), wire.PACKET_PAYLOAD):
            piece = payload[k : k + wire.PACKET_PAYLOAD].ljust(wire.PACKET_PAYLOAD, b"\0")
            packet = packets[wire.HEADER_PACKETS + k // wire.PACKET_PAYLOAD]
            packet["low"] = int.from_bytes(piece[:8], "little", signed=True)
            packet["high"] = int.from_bytes(piece[8:], "little")
        return packets

    def publish(self, op: int, **fields: Any) -> int:
        """Writes a whole record; its ticket."""
        ticket = self.ticket
        self.ticket += 1
        slot = ticket % self.layout.ring_slots
        self.ring[slot] = self.packets_of(ticket, op, **_signed(fields))
        return ticket

    def open(self, op: int, slot: int = 0, packets: int = 1, **fields: Any) -> int:
        """Publishes a record that opens a request in a slot; the handle."""
        handle = self.handle(self.ticket, slot, packets)
        self.publish(op, handle=handle, **fields)
        return handle

    def completion(self, handle: int) -> np.ndarray | None:
        """The packets of a request's completion, None while it is not complete."""
        slot = handle >> wire.HANDLE_SLOT_SHIFT & wire.HANDLE_SLOT_MASK
        packets = handle >> wire.HANDLE_PACKETS_SHIFT & wire.HANDLE_PACKETS_MASK
        found = self.completions[slot, :packets].copy()
        return found if (found["seq"] == (handle & wire.LOW_32)).all() else None

    def error_of(self, handle: int) -> int:
        """Error class of a complete request, -1 while it is not complete."""
        packets = self.completion(handle)
        return -1 if packets is None else int(packets["low"][0]) >> wire.ERROR_SHIFT & 0xFF

    # --- the engine's part ------------------------------------------------------------------------

    def step(self) -> None:
        """Runs the compiled engine, and what it leaves to the other one, until both are idle."""
        idle = 0
        while idle < 3:
            self.globals[st.G_STOP] = 0
            reason = loop.run(self.g)
            if reason == loop.STOPPED:
                idle += 3
            elif reason == loop.RECORD:
                self.python.serve()
                take(self.g)
                return_slots(self.g)
                idle = 0
            idle += not self.python.step()
        assert self.wrong == [], self.wrong

    @property
    def faults(self) -> list[np.ndarray]:
        return st.fault_rows(self.state, 0)


def _signed(fields: dict[str, Any]) -> dict[str, Any]:
    """Words as the unsigned numbers that the record's bytes are."""
    return {
        k: v & 0xFFFFFFFFFFFFFFFF if k in ("count", "handle", "done") else v
        for k, v in fields.items()
    }
