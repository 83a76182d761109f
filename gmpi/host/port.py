"""A buffer of the host as the port of ``host_proxy/reference/protocol.py``."""

from __future__ import annotations

import numpy as np

from gmpi.contract.wire import MESSAGE_HEADER, NOT_SHARED
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.state import State
from host_proxy.reference.fetching import Arrivals
from host_proxy.reference.protocol import Step


class HostPort:
    """A buffer of the host as the protocol's port."""

    def __init__(self, state: State, data: np.ndarray, sends: bool) -> None:
        self.state = state
        self.data = data
        self.sends = sends
        self.short = np.empty(MESSAGE_HEADER + state.layout.eager_bytes, np.uint8)
        self.arrivals = Arrivals(state)
        self.use_buffers_of = self.arrivals.use_buffers_of
        self.free = self.arrivals.free

    def shared(self, comm: Communicator, dest: int) -> tuple[int, int, int]:
        return NOT_SHARED, 0, 0  # a host array is nobody's staging

    def message(self, nbytes: int) -> np.ndarray:
        if self.sends:
            self.short[MESSAGE_HEADER : MESSAGE_HEADER + nbytes] = self.data[:nbytes]
        return self.short[: MESSAGE_HEADER + nbytes]

    def deliver(self, nbytes: int) -> None:
        self.data[:nbytes] = self.short[MESSAGE_HEADER : MESSAGE_HEADER + nbytes]

    def pack(self, k: int, position: int, length: int) -> Step:
        return self.data[position : position + length]
        yield

    def unpack(self, k: int, position: int, length: int) -> Step:
        if length > 0:
            self.data[position : position + length] = self.arrivals.chunk(k, length)
        return
        yield
