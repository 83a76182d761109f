"""The mpi4py engine's side of a kernel's buffer: the port that ``protocol.py`` works with."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from gmpi.contract import wire
from gmpi.contract.rules import fits_mailbox, is_readable, mailbox_groups, mailed
from host_proxy.compiled.headers import Header
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.state import (
    G_LARGE_DEVICE,
    G_STAGING,
    P_STAGING,
    S_ADDRESS,
    S_BYTES,
    S_HANDLE,
)
from host_proxy.records import completion
from host_proxy.reference.fetching import Arrivals
from host_proxy.reference.protocol import Step

if TYPE_CHECKING:
    from host_proxy.reference.mpi4py_operations import Operations


def view(address: int, nbytes: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def done_word(position: int, direction: int, index: int) -> int:
    """What a CHUNK record says when the command with these values has been executed."""
    return position << wire.CHUNK_POSITION_SHIFT | direction << wire.CHUNK_DIRECTION_SHIFT | index


class KernelPort:
    """The user's buffer of a kernel's request, behind the staging of its slot.

    A request in a small or in a narrow slot has no chunk buffers: its chunks are in memory of their
    own (``Arrivals``). To and from a narrow slot's buffer they go by way of small staging.
    """

    def __init__(self, engine: Operations, slot: int) -> None:
        layout = engine.state.layout
        self.engine = engine
        self.slot = slot
        self.has_chunks = layout.request_slots <= slot < layout.first_narrow
        self.is_narrow = slot >= layout.first_narrow
        self.own = layout.chunk_buffers(slot) if self.has_chunks else 0  # in large staging
        self.has_base = False
        self.reads_sender = False  # the user's threads do
        self.packs = False
        self.arrivals = Arrivals(engine.state)

    @property
    def address(self) -> int:
        """The user's buffer, as the record says it."""
        return self.engine.field(self.slot, S_ADDRESS)

    def set_base(self, address: int, ready: int = 0) -> None:
        """Says where the chunk buffers are: once for a request, and before its first command.

        A thread that waits reads this packet and those of the commands one after the other; of two
        that a request has said it could take the first together with a command meant for the
        second.
        """
        completion.set_base(self.engine.g, self.engine.row(self.slot), address, ready)
        self.has_base = True

    def message(self, nbytes: int) -> np.ndarray:
        begin = self.engine.small(self.slot) - wire.MESSAGE_HEADER
        return self.engine.memory[begin : begin + wire.MESSAGE_HEADER + nbytes]

    def small(self) -> np.ndarray:
        """The payload in the slot's small staging buffer."""
        begin = self.engine.small(self.slot)
        return self.engine.memory[begin : begin + self.engine.sizes[0]]

    def deliver(self, nbytes: int) -> None:
        """Nothing: the waiting threads take it from there."""

    def shared(self, comm: Communicator, dest: int) -> tuple[int, int, int]:
        p2p = int(comm.p2p[dest])
        if self.is_narrow or not p2p:
            return wire.NOT_SHARED, 0, 0
        self.set_base(int(self.engine.state.globals[G_STAGING]) + self.own)
        nbytes = self.engine.field(self.slot, S_BYTES)
        if p2p & wire.MAILED and not fits_mailbox(nbytes, self.address, self.engine.sizes[1]):
            p2p = wire.P2P
        return self.slot, p2p, self.engine.field(self.slot, S_HANDLE) & wire.LOW_32

    def use_buffers_of(self, peer: int, header: Header) -> Step:
        state = self.engine.state
        readable = is_readable(header.shared, header.way, self.address)
        if not (self.has_chunks or (self.is_narrow and readable)):
            yield from self.arrivals.use_buffers_of(peer, header)
            return
        self.reads_sender = True
        if header.way & wire.MAILED:
            place = state.layout.mailbox_of(peer, header.shared)
            self.set_base(mailed(place, mailbox_groups(header.total), header.seq))
        else:
            base = int(state.peers[peer, P_STAGING])
            self.set_base(base + state.layout.chunk_buffers(header.shared), header.seq)

    def buffer(self, k: int) -> np.ndarray:
        size = self.engine.sizes[1]
        begin = self.own + k % wire.LARGE_BUFFERS * size
        return self.engine.large[begin : begin + size]

    def free(self, k: int) -> np.ndarray:
        return self.buffer(k) if self.has_chunks else self.arrivals.free(k)

    def pack(self, k: int, position: int, length: int) -> Step:
        if self.is_narrow:
            self.packs = True
            memory = self.free(k)[:length]
            yield from self.by_pieces(memory, position, wire.PACK)
            return memory
        index = k % wire.LARGE_BUFFERS
        if (
            k >= wire.LARGE_BUFFERS
        ):  # the first ones are packed by the call itself, without a command
            self.command(index, position, length, wire.PACK)
        if k > 0:  # the very first one before its record
            yield self.slot, done_word(position, wire.PACK, index)
        return self.buffer(k)[:length]

    def unpack(self, k: int, position: int, length: int) -> Step:
        if length <= 0:
            return
        if self.has_chunks or self.reads_sender:
            index = k % wire.LARGE_BUFFERS
            self.command(index, position, length, wire.UNPACK)
            yield self.slot, done_word(position, wire.UNPACK, index)
        elif self.is_narrow:
            yield from self.by_pieces(self.arrivals.chunk(k, length), position, wire.UNPACK)
        else:  # longer than the receive was thought for
            self.small()[position : position + length] = self.arrivals.chunk(k, length)

    def by_pieces(self, memory: np.ndarray, position: int, direction: int) -> Step:
        """Moves a chunk between the user's buffer and ``memory``, by way of small staging."""
        small = self.small()
        # Commands for one buffer have growing positions: a reduction's have two.
        index = int(self.packs and direction == wire.UNPACK)
        for begin in range(0, len(memory), len(small)):
            piece = memory[begin : begin + len(small)]
            if direction == wire.UNPACK:
                small[: len(piece)] = piece
            self.command(index, position + begin, len(piece), direction)
            yield self.slot, done_word(position + begin, direction, index)
            if direction == wire.PACK:
                piece[:] = small[: len(piece)]

    def move(self, memory: np.ndarray, position: int, direction: int) -> Step:
        """Moves bytes between the user's buffer, from ``position`` on, and ``memory``, all by
        commands: of a collective of which the call itself has packed nothing."""
        if not self.has_chunks:
            self.packs |= direction == wire.PACK
            yield from self.by_pieces(memory, position, direction)
            return
        size = self.engine.sizes[1]
        under_way: deque[tuple[int, int, int]] = deque()  # index, where in memory, and to where
        for k, begin in enumerate(range(0, len(memory), size)):
            index = 2 * direction + k % 2  # a pair of buffers each way
            end = min(begin + size, len(memory))
            if len(under_way) == 2:
                yield from self.moved(memory, position, direction, *under_way.popleft())
            if direction == wire.UNPACK:
                self.buffer(index)[: end - begin] = memory[begin:end]
            self.command(index, position + begin, end - begin, direction)
            under_way.append((index, begin, end))
        while under_way:
            yield from self.moved(memory, position, direction, *under_way.popleft())

    def moved(
        self, memory: np.ndarray, position: int, direction: int, index: int, begin: int, end: int
    ) -> Step:
        """Waits until a command of ``move`` has been executed."""
        yield self.slot, done_word(position + begin, direction, index)
        if direction == wire.PACK:
            memory[begin:end] = self.buffer(index)[: end - begin]

    def command(self, index: int, position: int, length: int, direction: int) -> None:
        engine = self.engine
        if not self.has_base:
            own = int(engine.state.globals[G_LARGE_DEVICE]) + self.own
            self.set_base(own if self.has_chunks else wire.IN_SMALL)
        completion.command(engine.g, engine.row(self.slot), index, position, length, direction)
