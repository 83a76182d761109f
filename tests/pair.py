"""Two proxies without threads, whose messages reach each other, and kernels that execute commands.

An MPI of a few lines matches what they send and receive. Any of its calls can be told to fail, and
any completion, so a transfer can be taken apart at each of its steps, thousands of times a minute.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
from machine import SMALL, Machine, seq_of
from mpi4py import MPI

import gmpi
from gmpi.contract import wire
from gmpi.contract.rules import chunk_bytes_of
from gmpi.contract.sizes import Layout
from host_proxy.platform import state as st

CODE = int(MPI.ERR_OTHER)
TAG = 7


class Message(NamedTuple):
    source: int
    tag: int
    content: bytes
    request: int  # of the sender, while that is not complete; 0: it is


class Receive(NamedTuple):
    source: int
    tag: int
    address: int
    nbytes: int
    request: int


class Wire:
    """What is between the ranks: messages that nobody has received, receives without a message."""

    def __init__(self) -> None:
        self.ranks: list[Wired] = []
        self.messages: dict[tuple[int, int], list[Message]] = {}
        self.receives: dict[tuple[int, int], list[Receive]] = {}
        self.eager = 64  # longer messages are complete when they have been received

    def send(
        self, source: int, dest: int, comm: int, tag: int, content: bytes, request: int
    ) -> None:
        done = len(content) <= self.eager
        if done:
            self.ranks[source].over(request, 0, 0, 0)
        self.messages.setdefault((dest, comm), []).append(
            Message(source, tag, content, 0 if done else request)
        )
        self.match(dest, comm)

    def receive(self, rank: int, comm: int, posted: Receive) -> None:
        self.receives.setdefault((rank, comm), []).append(posted)
        self.match(rank, comm)

    def match(self, rank: int, comm: int) -> None:
        messages = self.messages.setdefault((rank, comm), [])
        receives = self.receives.setdefault((rank, comm), [])
        for posted in list(receives):
            for message in messages:
                if posted.source == message.source and posted.tag == message.tag:
                    messages.remove(message)
                    receives.remove(posted)
                    assert len(message.content) <= posted.nbytes, (message, posted)
                    ctypes.memmove(posted.address, message.content, len(message.content))
                    self.ranks[rank].over(
                        posted.request, message.source, message.tag, len(message.content)
                    )
                    if message.request:
                        self.ranks[message.source].over(message.request, 0, 0, 0)
                    break

    @property
    def left(self) -> list[Any]:
        """What nobody has taken: must be nothing after a transfer."""
        return [
            x for part in (self.messages, self.receives) for all_ in part.values() for x in all_
        ]


class Wired(Machine):
    """A machine whose MPI is the wire, and fails where it is told to.

    Attributes:
        fail_at: which of its calls fails, counted from 1, as ``steps`` counts them.
        steps: the calls so far, by name.
    """

    def __init__(self, wire_: Wire, layout: Layout) -> None:
        self.wire = wire_
        self.rank = len(wire_.ranks)
        self.fail_at = 0
        self.steps: list[str] = []
        self.done: dict[int, tuple[int, int, int]] = {}  # request: source, tag, bytes
        super().__init__(layout)
        wire_.ranks.append(self)
        row = self.state.communicator_table[0]
        row[st.C_RANK] = self.rank
        self.numbers = {int(row[st.C_HANDLE]): 0, int(row[st.C_CHUNKS]): 1}
        self.carried: set[tuple[int, int]] = set()  # handle, position

    def _install(self) -> None:
        super()._install()

        def put(which: int, arguments: int, function: Any) -> None:
            kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * arguments)
            self._functions.append(kind(function))
            self.globals[which] = ctypes.cast(self._functions[-1], ctypes.c_void_p).value

        put(st.F_TEST, 3, self._test)
        put(st.F_REQUEST_FREE, 1, lambda request: self._fails("MPI_Request_free"))

    def _fails(self, name: str) -> int:
        self.steps.append(name)
        return CODE if len(self.steps) == self.fail_at else 0

    def _message(
        self, name: str, address: int, nbytes: int, datatype: int, peer: int, tag: int, comm: int,
        request: int,
    ) -> int:  # fmt: skip
        number = self.numbers[comm]
        self.code = self._fails(f"{name} {'chunks' if number else 'messages'}")
        super()._message(name, address, nbytes, datatype, peer, tag, comm, request)
        if self.code:
            return self.code
        handle = self._request(request).value
        if name == "MPI_Isend":
            content = ctypes.string_at(address, nbytes)
            self.wire.send(self.rank, peer, number, tag, content, handle)
        else:
            self.wire.receive(self.rank, number, Receive(peer, tag, address, nbytes, handle))
        return 0

    def over(self, request: int, source: int, tag: int, nbytes: int) -> None:
        self.done[request] = source, tag, nbytes

    def _test(self, request: int, flag: int, status: int) -> int:
        over = self._request(request).value in self.done
        ctypes.c_int.from_address(flag).value = over
        return self._fails("MPI_Test") if over else 0

    def _testsome(self, size: int, handles: int, outcount: int, indices: int, statuses: int) -> int:
        g = self.globals
        found = 0
        result = 0
        for index in range(size):
            request = self._request(handles + index * int(g[st.G_HANDLE_BYTES]))
            if request.value not in self.done:
                continue
            source, tag, nbytes = self.done.pop(request.value)
            request.value = 0
            at = statuses + found * int(g[st.G_STATUS_BYTES])
            code = self._fails("completion")
            result = int(MPI.ERR_IN_STATUS) if code else result
            for field, value in (
                (st.G_STATUS_SOURCE, source), (st.G_STATUS_TAG, tag), (st.G_STATUS_ERROR, code),
                (st.G_STATUS_COUNT, nbytes),
            ):  # fmt: skip
                ctypes.c_int.from_address(at + int(g[field])).value = value
            ctypes.c_int.from_address(indices + 4 * found).value = index
            found += 1
        ctypes.c_int.from_address(outcount).value = found
        return result

    # --- the kernel's part ------------------------------------------------------------------------

    def send(self, slot: int, dest: int, data: np.ndarray) -> int:
        """A send above ``eager_bytes``: packs the first chunks and reports them."""
        chunk = chunk_bytes_of(len(data), self.layout.chunk_bytes)
        base = self.layout.chunk_buffers(slot)
        p2p = bool(self._p2p[dest])
        buffers = self.staging if p2p else self.large
        for k in range(min(wire.LARGE_BUFFERS, -(-len(data) // chunk))):
            piece = data[k * chunk : (k + 1) * chunk]
            at = base + k * self.layout.chunk_bytes
            buffers[at : at + len(piece)] = piece
        handle = self.open(
            wire.OP_ISEND, slot, flags=wire.FLAG_OUT, peer=dest, count=len(data), tag=TAG
        )
        if p2p:
            word = base + wire.LARGE_BUFFERS * self.layout.chunk_bytes
            buffers[word : word + 8].view(np.int64)[0] = handle & wire.LOW_32
        for k in range(1, min(wire.LARGE_BUFFERS, -(-len(data) // chunk))):
            self.report(handle, k * chunk, wire.PACK, k)
        return handle

    def receive(self, slot: int, source: int, room: int) -> int:
        return self.open(
            wire.OP_IRECV, slot, 2, flags=wire.FLAG_BACK, peer=source, count=room, tag=TAG
        )

    def report(self, handle: int, position: int, direction: int, index: int) -> None:
        done = (
            position << wire.CHUNK_POSITION_SHIFT | direction << wire.CHUNK_DIRECTION_SHIFT | index
        )
        self.publish(wire.OP_CHUNK, handle=handle, done=done)

    def execute(self, handle: int, user: np.ndarray) -> bool:
        """Executes the commands of a large request: whether there were any."""
        slot = handle >> wire.HANDLE_SLOT_SHIFT & wire.HANDLE_SLOT_MASK
        if self.state.slots[slot, st.S_COMMANDS] == 0:
            return False
        found = False
        packets = self.completions[slot]
        tag = seq_of((handle & wire.LOW_32) >> 1)
        base, ready = int(packets["low"][wire.BASE_PACKET]), int(packets["high"][wire.BASE_PACKET])
        for index in range(wire.LARGE_BUFFERS):
            packet = packets[wire.STATUS_PACKETS + index]
            command = int(packet["low"])
            position = command & wire.POSITION_MASK
            if packet["seq"] != tag or (handle, position) in self.carried:
                continue
            self.carried.add((handle, position))
            direction = command >> wire.DIRECTION_SHIFT & 1
            length = int(packet["high"])
            staging = base + index * self.layout.chunk_bytes
            mine = int(user.ctypes.data) + position
            assert position >= 0 and position + length <= len(user)
            if direction == wire.PACK:
                ctypes.memmove(staging, mine, length)
            else:
                if ready and position == 0:
                    word = base + wire.LARGE_BUFFERS * self.layout.chunk_bytes
                    assert ctypes.c_int64.from_address(word).value == ready
                ctypes.memmove(mine, staging, length)
            self.report(handle, position, direction, index)
            found = True
        return found


class Pair:
    """Two ranks; ``shared``: the receiver reads the sender's GPU staging."""

    def __init__(self, shared: bool, layout: Layout = SMALL) -> None:
        self.wire = Wire()
        self.layout = layout
        self.ranks = [Wired(self.wire, layout) for _ in range(2)]
        if shared:
            for mine, theirs in (self.ranks, self.ranks[::-1]):
                mine.state.peers[0, st.P_STAGING] = int(theirs.staging.ctypes.data)
                mine._elsewhere[theirs.rank] = 0
                mine._p2p[theirs.rank] = wire.P2P

    def transfer(self, nbytes: int, room: int, slots: tuple[int, int], seed: int) -> list[int]:
        """A message from rank 0 to rank 1: the error classes of both ends.

        -1 is one that stays open. Checks what has come.
        """
        self.data = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
        self.sent = self.ranks[0].send(slots[0], 1, self.data)
        return self.receive(room, slots[1])

    def receive(self, room: int, slot: int) -> list[int]:
        """The part of ``transfer`` behind the send."""
        receiver = self.ranks[1]
        user = np.full(max(room, 1), 0xA5, np.uint8)
        handles = [self.sent, receiver.receive(slot, 0, room)]
        self.run(handles, [self.data, user])
        errors = [m.error_of(h) for m, h in zip(self.ranks, handles)]
        if errors[1] in (gmpi.SUCCESS, gmpi.ERR_TRUNCATE):
            assert (errors[1] == gmpi.ERR_TRUNCATE) == (len(self.data) > room)
            expected = self.data[:room]
            got = user[: len(expected)]
            assert (got == expected).all()
        return errors

    def run(self, handles: list[int], buffers: list[np.ndarray]) -> None:
        """Until nothing happens any more."""
        quiet = 0
        while quiet < 2:
            quiet += 1
            for machine, handle, user in zip(self.ranks, handles, buffers):
                before = len(machine.steps)
                machine.step()
                if machine.execute(handle, user) or len(machine.steps) > before:
                    quiet = 0

    def check_idle(self) -> None:
        """Nothing is left anywhere: no message, no receive, no open row, no order."""
        assert self.wire.left == []
        for machine in self.ranks:
            assert machine.globals[st.G_ACTIVE] == 0
            assert (machine.state.slots[:, st.S_STATE] != st.OPEN).all()
            assert machine.globals[st.G_DOORBELL] == 0
            opened = int(machine.globals[st.G_SERIAL])
            assert machine.globals[st.G_CLOSED] == opened, "a request was closed twice, or never"

    def close(self) -> None:
        for machine in self.ranks:
            for comm in machine.state.communicators:
                comm.messages.Free()
                comm.chunks.Free()
