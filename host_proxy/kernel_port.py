"""The mpi4py engine's side of a kernel's buffer: the port that ``protocol.py`` works with."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from gmpi.wire import (
    CHUNK_DIRECTION_SHIFT,
    CHUNK_POSITION_SHIFT,
    LANDED,
    LARGE_BUFFERS,
    MESSAGE_HEADER,
    NEAR,
    NOT_SHARED,
    PACK,
    TAG_MASK,
    UNPACK,
    landed,
    landing_groups,
    lands,
)
from host_proxy import completion
from host_proxy.communicator import Communicator
from host_proxy.fetching import Arrivals
from host_proxy.headers import Header
from host_proxy.protocol import Step
from host_proxy.state import (
    G_LARGE_DEVICE,
    G_STAGING,
    P_DEVICE,
    P_READS,
    P_STAGING,
    R_DONE,
    S_BYTES,
    S_HANDLE,
)

if TYPE_CHECKING:
    from host_proxy.mpi4py_engine import Mpi4pyEngine


def view(address: int, nbytes: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def done_word(position: int, direction: int, index: int) -> int:
    """What a CHUNK record says when the order with these values has been carried out."""
    return position << CHUNK_POSITION_SHIFT | direction << CHUNK_DIRECTION_SHIFT | index


class KernelPort:
    """The user's buffer of a kernel's request, behind the staging of its slot."""

    def __init__(self, engine: Mpi4pyEngine, slot: int) -> None:
        self.engine = engine
        self.slot = slot
        self.is_large = slot >= engine.state.layout.request_slots
        self.address = int(engine.state.record[R_DONE])  # of the user's buffer: it is being served
        self.own = 0  # offset of the slot's chunk buffers in large staging
        self.arrivals = Arrivals(engine.state)  # where chunks come that there is no buffer for
        if self.is_large:
            self.own = engine.state.layout.chunk_buffers(slot)

    def set_base(self, address: int, ready: int = 0) -> None:
        """Says where the chunk buffers are: once for a request, and before its first order.

        A thread that waits reads this unit and those of the orders one after the other; of two
        that a request has said it could take the first together with an order meant for the second.
        """
        completion.set_base(self.engine.g, self.engine.row(self.slot), address, ready)

    def use_own_buffers(self) -> None:
        """The chunk buffers are the slot's own, in large staging."""
        self.set_base(int(self.engine.state.globals[G_LARGE_DEVICE]) + self.own)

    def message(self, nbytes: int) -> np.ndarray:
        begin = self.engine.small(self.slot) - MESSAGE_HEADER
        return self.engine.memory[begin : begin + MESSAGE_HEADER + nbytes]

    def small(self) -> np.ndarray:
        """The payload in the slot's small staging buffer."""
        return self.message(self.engine.sizes[0])[MESSAGE_HEADER:]

    def deliver(self, nbytes: int) -> None:
        """Nothing: the waiting threads take it from there."""

    def shared(self, comm: Communicator, dest: int) -> tuple[int, int, int]:
        state = self.engine.state
        near = int(comm.near[dest])
        if near:
            self.set_base(int(state.globals[G_STAGING]) + self.own)
            nbytes = self.engine.field(self.slot, S_BYTES)
            if near & LANDED and not lands(nbytes, self.address, self.engine.sizes[1]):
                near = NEAR
            return self.slot, near, self.engine.field(self.slot, S_HANDLE) & TAG_MASK
        self.use_own_buffers()
        peer = int(comm.peers[dest])
        reads = peer >= 0 and state.peers[peer, P_READS]
        return self.slot if reads else NOT_SHARED, 0, 0

    def use_buffers_of(self, peer: int, header: Header) -> Step:
        state = self.engine.state
        if not self.is_large:
            yield from self.arrivals.use_buffers_of(peer, header)
        elif header.way & LANDED:
            place = state.layout.landing_place(peer, header.shared)
            self.set_base(landed(place, landing_groups(header.total), header.mark))
        else:
            base = int(state.peers[peer, P_STAGING if header.way else P_DEVICE])
            self.set_base(base + state.layout.chunk_buffers(header.shared), header.mark)

    def buffer(self, k: int) -> np.ndarray:
        size = self.engine.sizes[1]
        begin = self.own + k % LARGE_BUFFERS * size
        return self.engine.large[begin : begin + size]

    def free(self, k: int) -> np.ndarray:
        if not self.is_large:
            return self.arrivals.free(k)
        if k == 0:
            self.use_own_buffers()
        return self.buffer(k)

    def pack(self, k: int, position: int, length: int) -> Step:
        index = k % LARGE_BUFFERS
        if k >= LARGE_BUFFERS:  # the first ones are packed by the call itself, without an order
            self.order(index, position, length, PACK)
        if k > 0:  # the very first one before its record
            yield self.slot, done_word(position, PACK, index)
        return self.buffer(k)[:length]

    def unpack(self, k: int, position: int, length: int) -> Step:
        if length <= 0:
            return
        if self.is_large:
            index = k % LARGE_BUFFERS
            self.order(index, position, length, UNPACK)
            yield self.slot, done_word(position, UNPACK, index)
        else:  # longer than the receive was thought for
            self.small()[position : position + length] = self.arrivals.chunk(k, length)

    def order(self, index: int, position: int, length: int, direction: int) -> None:
        engine = self.engine
        completion.order(engine.g, engine.row(self.slot), index, position, length, direction)
