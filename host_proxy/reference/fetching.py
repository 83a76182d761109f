"""Chunks for the CPU: where a receive has no chunk buffers that threads of a kernel empty.

Such are the receives of the host, and those of kernels for at most ``eager_bytes`` that a longer
message comes to. Its chunks come as MPI messages, or lie in the sender's GPU staging or in our
landing places: those are copied on a stream that waits for no kernel.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from mpi4py import MPI

from gmpi.contract.rules import landing_groups
from gmpi.contract.wire import (
    LANDED,
    LANDING_GROUPS,
    LANDING_STRIDE,
    LANDING_UNITS,
    LARGE_BUFFERS,
    UNIT_BYTES,
    UNIT_PAYLOAD,
)
from host_proxy.compiled.headers import Header
from host_proxy.platform.state import G_LANDING, P_STAGING, State


class Arrivals:
    """The chunks of one message, on the CPU."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._scratch: dict[int, np.ndarray] = {}  # chunks that are MPI messages
        self._base = 0  # address of the sender's chunk buffers, in GPU memory
        self._landed: np.ndarray | None = None  # or all of the message

    def use_buffers_of(self, peer: int, header: Header):
        """The chunks are in another rank's buffers, or have landed; ends when the first is there.

        Yields what a protocol's operation may wait for.
        """
        layout = self._state.layout
        if header.way & LANDED:
            message = _Landed(self._state, layout.landing_place(peer, header.shared), header)
            yield message
            self._landed = message.content
            return
        base = int(self._state.peers[peer, P_STAGING])
        self._base = base + layout.chunk_buffers(header.shared)
        yield _ReadyWord(self._state, self._base + LARGE_BUFFERS * layout.chunk_bytes, header)

    def free(self, k: int) -> np.ndarray:
        """Memory to receive chunk ``k`` into: its own until LARGE_BUFFERS chunks later."""
        index = k % LARGE_BUFFERS
        if index not in self._scratch:
            self._scratch[index] = np.empty(self._state.layout.chunk_bytes, np.uint8)
        return self._scratch[index]

    def chunk(self, k: int, length: int) -> np.ndarray:
        """The first bytes of chunk ``k``, which is there."""
        if self._landed is not None:
            return self._landed[:length]
        if not self._base:
            return self.free(k)[:length]
        address = self._base + k % LARGE_BUFFERS * self._state.layout.chunk_bytes
        return self._state.fetch(address, length)


class _ReadyWord:
    """The sender's threads have packed the first chunk, which they are at since before the message
    was sent: tested like an MPI request."""

    def __init__(self, state: State, address: int, header: Header) -> None:
        self._state, self._address, self._mark = state, address, header.mark

    def Test(self, status: MPI.Status | None = None) -> bool:
        return int(self._state.fetch(self._address, 8).view(np.int64)[0]) == self._mark


class _Landed:
    """All units of a message are in its landing place: tested like an MPI request."""

    def __init__(self, state: State, place: int, header: Header) -> None:
        self._state, self._header = state, header
        self._address = int(state.globals[G_LANDING]) + place * LANDING_STRIDE
        self.content = np.empty(0, np.uint8)

    def Test(self, status: MPI.Status | None = None) -> bool:
        groups = landing_groups(self._header.total)
        blocks = -(-groups // LANDING_GROUPS)
        size = blocks * LANDING_GROUPS * LANDING_UNITS * UNIT_BYTES
        found = self._state.fetch(self._address, size)
        units = found.reshape(blocks, LANDING_UNITS, LANDING_GROUPS, UNIT_BYTES).swapaxes(1, 2)
        units = units.reshape(-1, UNIT_BYTES)[: groups * LANDING_UNITS]
        tags = units[:, UNIT_PAYLOAD:].copy().view(np.uint32)
        if not (tags == self._header.mark).all():
            return False
        self.content = units[:, :UNIT_PAYLOAD].reshape(-1)[: self._header.total]
        return True
