"""What the proxy holds of a user's communicator: duplicates, so that nothing else matches."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from gmpi.wire import duplicate_of


@dataclass
class Communicator:
    """One registered communicator.

    Attributes:
        messages: collectives, and first messages of all tags, or of some.
        chunks: what follows first messages.
        peers: which peer each rank is, -1 for one on another node.
        near: whether kernels pack what they send to each rank into GPU staging.
        more: where no receive uses ANY_TAG, first messages of other tags.
    """

    messages: MPI.Comm
    chunks: MPI.Comm
    rank: int
    size: int
    name: str
    peers: np.ndarray
    near: np.ndarray
    more: tuple[MPI.Comm, ...] = ()

    @property
    def refuses_any_tag(self) -> bool:
        """Whether the user has said that no receive uses ANY_TAG."""
        return bool(self.more)

    @property
    def all_messages(self) -> tuple[MPI.Comm, ...]:
        """All duplicates on which first messages travel."""
        return self.messages, *self.more

    def messages_of(self, tag: int) -> MPI.Comm:
        """The duplicate on which first messages with this tag travel."""
        if not self.more:
            return self.messages
        return self.all_messages[duplicate_of(operator.index(tag), len(self.more))]
