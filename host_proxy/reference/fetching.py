"""Chunks for the CPU: where a receive has no chunk buffers that threads of a kernel empty.

Such are the receives of the host, and those of kernels for at most ``eager_bytes`` that a longer
message comes to. Its chunks come as MPI messages, or lie in the sender's GPU staging or in our
mailboxes: those are copied on a stream that waits for no kernel.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from mpi4py import MPI

from gmpi.contract import wire
from gmpi.contract.rules import mailbox_groups
from host_proxy.compiled.headers import Header
from host_proxy.platform.state import G_MAILBOXES, P_STAGING, State


class Arrivals:
    """The chunks of one message, on the CPU."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._scratch: dict[int, np.ndarray] = {}  # chunks that are MPI messages
        self._base = 0  # address of the sender's chunk buffers, in GPU memory
        self._mailed: np.ndarray | None = None  # or all of the message

    def use_buffers_of(self, peer: int, header: Header):
        """The chunks are in another rank's buffers, or in a mailbox; ends when the first is there.

        Yields what a protocol's operation may wait for.
        """
        layout = self._state.layout
        if header.way & wire.MAILED:
            message = _Mailed(self._state, layout.mailbox_of(peer, header.shared), header)
            yield message
            self._mailed = message.content
            return
        base = int(self._state.peers[peer, P_STAGING])
        self._base = base + layout.chunk_buffers(header.shared)
        yield _ReadyWord(self._state, self._base + wire.LARGE_BUFFERS * layout.chunk_bytes, header)

    def free(self, k: int) -> np.ndarray:
        """Memory to receive chunk ``k`` into: its own until LARGE_BUFFERS chunks later."""
        index = k % wire.LARGE_BUFFERS
        if index not in self._scratch:
            self._scratch[index] = np.empty(self._state.layout.chunk_bytes, np.uint8)
        return self._scratch[index]

    def chunk(self, k: int, length: int) -> np.ndarray:
        """The first bytes of chunk ``k``, which is there."""
        if self._mailed is not None:
            return self._mailed[:length]
        if not self._base:
            return self.free(k)[:length]
        address = self._base + k % wire.LARGE_BUFFERS * self._state.layout.chunk_bytes
        return self._state.fetch(address, length)


class _ReadyWord:
    """The sender's threads have packed the first chunk, which they are at since before the message
    was sent: tested like an MPI request."""

    def __init__(self, state: State, address: int, header: Header) -> None:
        self._state, self._address, self._seq = state, address, header.seq

    def Test(self, status: MPI.Status | None = None) -> bool:
        return int(self._state.fetch(self._address, 8).view(np.int64)[0]) == self._seq


class _Mailed:
    """All packets of a message are in its mailbox: tested like an MPI request."""

    def __init__(self, state: State, place: int, header: Header) -> None:
        self._state, self._header = state, header
        self._address = int(state.globals[G_MAILBOXES]) + place * wire.MAILBOX_STRIDE
        self.content = np.empty(0, np.uint8)

    def Test(self, status: MPI.Status | None = None) -> bool:
        groups = mailbox_groups(self._header.total)
        blocks = -(-groups // wire.MAILBOX_GROUPS)
        size = blocks * wire.MAILBOX_GROUPS * wire.MAILBOX_PACKETS * wire.PACKET_BYTES
        found = self._state.fetch(self._address, size)
        packets = found.reshape(
            blocks, wire.MAILBOX_PACKETS, wire.MAILBOX_GROUPS, wire.PACKET_BYTES
        ).swapaxes(1, 2)
        packets = packets.reshape(-1, wire.PACKET_BYTES)[: groups * wire.MAILBOX_PACKETS]
        tags = packets[:, wire.PACKET_PAYLOAD :].copy().view(np.uint32)
        if not (tags == self._header.seq).all():
            return False
        words = packets[:, : wire.PACKET_PAYLOAD].reshape(groups, -1, 16)  # of each group three
        ends = range(0, groups, wire.MAILBOX_GROUPS)
        content = [words[k : k + wire.MAILBOX_GROUPS].swapaxes(0, 1).reshape(-1) for k in ends]
        self.content = np.concatenate(content)[: self._header.total]
        return True
