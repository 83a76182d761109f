"""What the proxy holds of a user's communicator: duplicates, so that nothing else matches."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np

from gmpi.contract.rules import duplicate_of
from host_proxy.platform.control import Control
from host_proxy.platform.duplicate import Duplicate
from host_proxy.platform.neighbours import Neighbours


@dataclass
class Communicator:
    """One registered communicator.

    Attributes:
        messages: collectives, and first messages of all tags, or of some.
        chunks: what follows first messages.
        peers: which peer each rank is, -1 for one on another node.
        p2p: how the memory of each rank is reached (``gmpi.memory.peers``); 0: not at all.
        more: where no receive uses ANY_TAG, first messages of other tags.
        compared: in debug mode, what ranks say of their calls of collectives.
        control: where no receive uses a wildcard, what proxies say of channels.
        neighbours: where it has a topology; ``messages`` is a graph with its edges then.
        is_free: it has been given back; its handle is nobody's, or somebody else's.
        collects: its ranks' kernels carry out collectives without proxies.
    """

    messages: Duplicate
    chunks: Duplicate
    rank: int
    size: int
    name: str
    peers: np.ndarray
    p2p: np.ndarray
    more: tuple[Duplicate, ...] = ()
    compared: Duplicate | None = None
    control: Control | None = None
    neighbours: Neighbours | None = None
    is_free: bool = False
    collects: bool = False

    @property
    def duplicates(self) -> tuple[Duplicate, ...]:
        """All of them."""
        beside = [one for one in (self.compared, self.control) if one is not None]
        return (*self.all_messages, self.chunks, *beside)

    @property
    def refuses_any_tag(self) -> bool:
        """Whether the user has said that no receive uses ANY_TAG."""
        return bool(self.more)

    @property
    def all_messages(self) -> tuple[Duplicate, ...]:
        """All duplicates on which first messages travel."""
        return self.messages, *self.more

    def messages_of(self, tag: int) -> Duplicate:
        """The duplicate on which first messages with this tag travel."""
        if not self.more:
            return self.messages
        return self.all_messages[duplicate_of(operator.index(tag), len(self.more))]
