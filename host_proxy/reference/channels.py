"""Channels of the direct road: proxies open them (``gmpi/contract/channels.py``).

The receiver decides: whether the sender's GPU and ours map each other's memory, and whether there
is an inbox left. It answers its own kernel at once and tells the sender's proxy, which asks if it
wants to know before it has been told. What has been decided holds for the life of the communicator.

Whoever sends to us, or takes part in direct collectives with us, is also told of the arrays that
are registered here, and answers where it has mapped them (``gmpi/memory/registered.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gmpi.contract.channels import Places
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.state import P_DIRECT, State

PROXIED = -1  # in place of a channel

# What is said, in _WORDS words:
_ASK = 0  # tag, 0
_TELL = 1  # tag, channel
_OFFER = 2  # a registered array
_MAPPED = 3  # the answer
_WORDS = 16


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
        self._senders: dict[int, tuple[int, int]] = {}  # rank of the node: (communicator, rank)
        # Version of the registered arrays that all of them have been told of, and on how many
        # communicators collectives are direct.
        self._offered = 0, 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no channel so far; any thread, as the next two."""
        return not self._inboxes and not self._told

    def inboxes(self) -> dict[tuple[int, int, int], int]:
        """Those that we receive from: (communicator, source, tag): number of the inbox."""
        return {key: n for key, n in list(self._inboxes.items()) if n != PROXIED}

    def told(self) -> dict[tuple[int, int, int], int]:
        """Those that we send to: (communicator, dest, tag): number of the receiver's inbox."""
        return {key: n for key, n in list(self._told.items()) if n != PROXIED}

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
                self._say(comm, dest, _ASK, tag)
            return None
        channel = self._told[key]
        if channel == PROXIED:
            return NONE
        remote = int(self._state.peers[peer, P_DIRECT]) + self._places.inbox(channel)
        return Ends(remote, self._places.cells(peer, channel))

    def listen(self) -> bool:
        """Takes what other proxies have said; whether anything was."""
        heard = False
        collecting = 0
        for comm, communicator in enumerate(self._state.communicators):
            control = communicator.control
            if control is None or communicator.is_free:
                continue
            collecting += communicator.collects
            words = np.empty(_WORDS, np.int64)
            while (source := control.hear(words)) is not None:
                heard = True
                self._hear(comm, source, *map(int, words))
        self._offer_new(collecting)
        return heard

    def _hear(self, comm: int, source: int, what: int, *words: int) -> None:
        registered = self._state.registered
        if what == _ASK:
            self._inbox(comm, source, words[0])
        elif what == _TELL:
            self._told[comm, source, words[0]] = words[1]
        elif what == _OFFER:
            answer = registered.map(self._peer(comm, source), list(words))
            if answer is not None:
                self._say(comm, source, _MAPPED, *answer)
        else:
            registered.mapped(self._peer(comm, source), list(words))

    def _offer_new(self, collecting: int) -> None:
        """Tells all senders, and those in direct collectives, of what has been registered since.

        Args:
            collecting: on how many communicators collectives are direct.
        """
        registered = self._state.registered
        if registered is None or (registered.version, collecting) == self._offered:
            return
        self._offered = registered.version, collecting
        for comm, communicator in enumerate(self._state.communicators):
            for rank in range(communicator.size if communicator.collects else 0):
                peer = self._peer(comm, rank)
                known = self._senders.get(peer)
                if peer < 0 or rank == communicator.rank or (known and self._peer(*known) >= 0):
                    continue
                self._senders[peer] = comm, rank
        for peer in self._senders:
            self._offer(peer)

    def _offer(self, peer: int) -> None:
        comm, rank = self._senders[peer]
        if self._peer(comm, rank) < 0:
            return  # the communicator has been freed
        for offer in self._state.registered.offers(peer):
            self._say(comm, rank, _OFFER, *offer)

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
        peer = self._peer(comm, source)
        if peer < 0:
            return PROXIED
        key = comm, source, tag
        if key not in self._inboxes:
            channel = PROXIED
            if self._given < self._places.channels:
                channel = self._given
                self._given += 1
            self._inboxes[key] = channel
            self._say(comm, source, _TELL, tag, channel)
            self._senders[peer] = comm, source
            if self._state.registered is not None:
                self._offer(peer)
        return self._inboxes[key]

    def _say(self, comm: int, rank: int, *words: int) -> None:
        control = self._state.communicators[comm].control
        assert control is not None
        data = np.zeros(_WORDS, np.int64)
        data[: len(words)] = words
        control.say(data, rank)
