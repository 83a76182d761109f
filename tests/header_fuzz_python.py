"""The half of ``header_fuzz.py`` that is Python: receives of the host, and of kernels that have no
chunk buffers, with an MPI that delivers what the fuzzer has made up."""

from __future__ import annotations

from typing import Any

import numpy as np
from header_fuzz import (
    CHUNK,
    EAGER,
    FIRST,
    LARGE,
    LONG,
    MAILBOX,
    PEERS,
    REFUSED,
    REGION,
    STEPS,
    TAKEN,
    TRUNCATED,
    may_come,
    write,
)  # fmt: skip
from mpi4py import MPI
from record_fuzz import Harness
from stubbed_mpi import TAG_UB

from gmpi.contract import wire
from gmpi.contract.constants import ERR_TRUNCATE
from gmpi.host.port import HostPort
from host_proxy.platform import state as st
from host_proxy.platform.communicator import Communicator
from host_proxy.reference.failure import Failure, PeerFailure
from host_proxy.reference.kernel_port import KernelPort
from host_proxy.reference.mpi4py_engine import Mpi4pyEngine
from host_proxy.reference.protocol import receive_message


class _Request:
    """A request of the fake MPI: complete when it is asked for."""

    def __init__(self, finish: Any) -> None:
        self.finish = finish

    def Free(self) -> None:
        pass


class _Comm:
    """One duplicate: what comes is what the world says."""

    def __init__(self, world: World, first: bool) -> None:
        self.world, self.first = world, first

    def Irecv(self, buffer: Any, source: int, tag: int) -> _Request:
        assert self.first or 0 <= tag <= TAG_UB, tag
        memory = np.asarray(buffer[0])
        return _Request(lambda status: self.world.arrive(self.first, memory, source, tag, status))

    def receive(self, buffer: np.ndarray, source: int, tag: int) -> _Request:
        return self.Irecv([buffer], source, tag)  # nobody probes here

    def Isend(self, buffer: Any, dest: int, tag: int) -> _Request:
        assert 0 <= dest < 3 and 0 <= tag <= TAG_UB, (dest, tag)
        return _Request(lambda status: None)


class World:
    """Ports of the host and of a kernel, and the memory of peers, around one receive at a time."""

    def __init__(self, harness: Harness, seed: int) -> None:
        self.harness = harness  # the memory
        self.state = harness.state
        self.state.fetch = self.fetch
        self.random = np.random.default_rng(seed)
        self.seed = np.int64(seed * 2 + 1)
        self.engine = Mpi4pyEngine(self.state)
        peers = np.array(PEERS, np.int64)
        messages: Any = _Comm(self, True)
        chunks: Any = _Comm(self, False)
        self.comm = Communicator(messages, chunks, 0, 3, "fuzz", peers, np.zeros(3, np.int64))
        self.scratch = np.zeros(wire.MESSAGE_HEADER + EAGER, np.uint8)
        self.counts = np.zeros(4, np.int64)

    def content(self, position: int, length: int) -> np.ndarray:
        return ((np.arange(position, position + length) * 7 + self.salt) & 0xFF).astype(np.uint8)

    def fetch(self, address: int, nbytes: int) -> np.ndarray:
        """GPU memory: that of the peer which has some, or our mailboxes."""
        offset = address - int(self.state.globals[st.G_MAILBOXES])
        if offset >= 0 and offset + nbytes <= MAILBOX:
            return np.zeros(nbytes, np.uint8)  # they have not come, and never will
        offset = address - int(self.state.peers[0, st.P_STAGING])
        assert offset >= 0 and offset + nbytes <= REGION, f"{nbytes} bytes at {address:#x}"
        stride = LARGE * CHUNK + wire.READY_BYTES
        if offset % stride == LARGE * CHUNK and nbytes == 8:
            return np.array([self.header[3] >> 32 & 0xFFFFFFFF], np.int64).view(np.uint8)
        index = offset % stride // CHUNK
        return self.content(self.newest(index) * CHUNK, nbytes)

    def newest(self, index: int) -> int:
        """Which chunk is in a buffer of the sender."""
        return self.came - (self.came - index) % LARGE

    def arrive(
        self, first: bool, memory: np.ndarray, source: int, tag: int, status: MPI.Status
    ) -> None:
        if first:
            memory[: self.nbytes] = self.scratch[: self.nbytes]
            nbytes = self.nbytes
        else:
            assert tag == 2 * (self.header[1] >> 32 & 0xFFFFFFFF)
            self.came += 1
            position = self.came * CHUNK
            chunks = self.header[2] == wire.NOT_SHARED  # they are messages
            length = min(CHUNK, int(self.header[0]) - position) if chunks else 0
            memory[:length] = self.content(position, length)
            nbytes = length
            if self.wrong == 0:
                nbytes += 1 if nbytes == 0 else -1
            self.wrong -= 1
        status.Set_source(self.source)
        status.Set_tag(7)
        status.Set_elements(MPI.BYTE, nbytes)

    def one(self) -> None:
        """One receive: of the host, or of a kernel that has no chunk buffers."""
        state = self.state
        self.salt = int(self.random.integers(0, 256))
        self.source = int(self.random.integers(0, 3))
        self.wrong = int(self.random.integers(0, 24))
        seed, nbytes = write(int(self.scratch.ctypes.data), self.seed)
        self.seed, self.nbytes = np.int64(seed), int(nbytes)
        self.header = [int(word) for word in self.scratch[:32].view(np.int64)]
        may = may_come(int(self.scratch.ctypes.data), self.nbytes, self.source)
        total = self.header[0]
        shared = may == 2 and self.header[2] != wire.NOT_SHARED
        self.came = 0 if shared else -1
        self.scratch[32:] = self.content(0, EAGER)
        room = int(self.random.integers(0, EAGER + 1))
        data = np.full(room + 6000, 0xA5, np.uint8)
        if self.random.random() < 0.5:
            room += int(self.random.integers(0, 5000))
            port: Any = HostPort(state, data[:room], sends=False)
            where = data
        else:
            slot = int(self.random.integers(0, FIRST))
            port = KernelPort(self.engine, slot)
            where = port.small()
            where[:] = 0xA5
        step = receive_message(state.address, port, self.comm, self.source, 7, room, EAGER)
        try:
            outcome = self.drive(step)
        except PeerFailure:  # the header says so, or what came instead of a chunk
            assert self.header[2] == wire.ABANDONED or self.wrong < 0
            self.counts[REFUSED] += 1
            return
        except Failure:
            assert may == 2 and self.wrong < 0
            self.counts[REFUSED] += 1
            return
        if outcome is None:
            assert may == 2, "it waits for what nobody has announced"
            self.counts[LONG] += 1
            return
        if outcome.error not in (0, ERR_TRUNCATE) or (outcome.error and outcome.nbytes == 0):
            assert may == 0 or (room == 0 and outcome.error == ERR_TRUNCATE), outcome
            self.counts[REFUSED] += 1
            return
        assert may and not (may == 2 and self.wrong < 0), (outcome, self.header)
        kept = min(total, room)
        assert outcome.nbytes == kept and outcome.total == total, outcome
        assert (outcome.error != 0) == (total > room), outcome
        assert (where[:kept] == self.content(0, kept)).all(), (outcome, self.header)
        self.counts[TRUNCATED if outcome.error else TAKEN] += 1

    def drive(self, step: Any) -> Any:
        """Runs an operation, at most STEPS steps of it: how it ended."""
        value = None
        for _ in range(STEPS):
            try:
                waits_for = step.send(value)
            except StopIteration as stop:
                return stop.value
            value = MPI.Status()
            if isinstance(waits_for, _Request):
                waits_for.finish(value)
            elif not waits_for.Test(value):
                return None
        step.close()
        return None
