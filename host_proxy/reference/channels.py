"""Channels of the direct road: proxies open them (``gmpi/contract/channels.py``).

The receiver decides: whether the sender's GPU and ours map each other's memory, and whether there
is an inbox left. It answers its own kernel at once and tells the sender's proxy, which asks if it
wants to know before it has been told. What has been decided holds for the life of the communicator.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gmpi.contract.channels import Places
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.state import P_DIRECT, State

PROXIED = -1  # in place of a channel

_ASK = 0
_TELL = 1


class Ends(NamedTuple):
    """Of a channel, for the kernel of one end.

    Attributes:
        remote: address of the other end's memory, as mapped here; or one of those below.
        local: offset of ours in our direct memory.
    """

    remote: int
    local: int


NONE = Ends(0, 0)  # the proxied road
NEVER = Ends(1, 0)  # the same for all channels between these two ranks


class Channels:
    """All channels of one rank. Used by the proxy's thread only."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._places = Places(len(state.peers))
        self._given = 0  # inboxes so far
        self._inboxes: dict[tuple[int, int, int], int] = {}  # (communicator, source, tag)
        self._told: dict[tuple[int, int, int], int] = {}  # (communicator, dest, tag)
        self._asked: set[tuple[int, int, int]] = set()

    def receive_end(self, comm: int, source: int, tag: int) -> Ends:
        """Of the channel from a rank."""
        channel = self._inbox(comm, source, tag)
        peer = self._peer(comm, source)
        if peer < 0:
            return NEVER
        if channel == PROXIED:
            return NONE
        cells = self._places.cells(self._state.node_rank, channel)
        return Ends(int(self._state.peers[peer, P_DIRECT]) + cells, self._places.inbox(channel))

    def send_end(self, comm: int, dest: int, tag: int) -> Ends | None:
        """Of the channel to a rank; None: it has been asked and has not answered yet."""
        key = comm, dest, tag
        peer = self._peer(comm, dest)
        if peer < 0:
            return NEVER
        if key not in self._told:
            if key not in self._asked:
                self._asked.add(key)
                self._say(comm, dest, _ASK, tag, 0)
            return None
        channel = self._told[key]
        if channel == PROXIED:
            return NONE
        remote = int(self._state.peers[peer, P_DIRECT]) + self._places.inbox(channel)
        return Ends(remote, self._places.cells(peer, channel))

    def listen(self) -> bool:
        """Takes what other proxies have said; whether anything was."""
        heard = False
        for comm, communicator in enumerate(self._state.communicators):
            control = communicator.control
            if control is None or communicator.is_free:
                continue
            words = np.empty(3, np.int64)
            while (source := control.hear(words)) is not None:
                what, tag, channel = map(int, words)
                heard = True
                if what == _ASK:
                    self._inbox(comm, source, tag)
                else:
                    self._told[comm, source, tag] = channel
        return heard

    def _peer(self, comm: int, rank: int) -> int:
        """The row of a rank whose direct memory is mapped here; -1: there is no such thing."""
        if not 0 <= comm < len(self._state.communicators):
            return -1
        communicator: Communicator = self._state.communicators[comm]
        if communicator.control is None or communicator.is_free:
            return -1
        if not 0 <= rank < communicator.size:
            return -1
        peer = int(communicator.peers[rank])
        return peer if peer >= 0 and self._state.peers[peer, P_DIRECT] else -1

    def _inbox(self, comm: int, source: int, tag: int) -> int:
        """The channel from a rank, which is told of it; PROXIED: there is none."""
        if self._peer(comm, source) < 0:
            return PROXIED
        key = comm, source, tag
        if key not in self._inboxes:
            channel = PROXIED
            if self._given < self._places.channels:
                channel = self._given
                self._given += 1
            self._inboxes[key] = channel
            self._say(comm, source, _TELL, tag, channel)
        return self._inboxes[key]

    def _say(self, comm: int, rank: int, what: int, tag: int, channel: int) -> None:
        control = self._state.communicators[comm].control
        assert control is not None
        control.say(np.array([what, tag, channel], np.int64), rank)
