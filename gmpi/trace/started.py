"""Requests that are made once and started often: what a Start and a Pready say of a message.

A Start names a request, and what made it has said what it sends or receives: a call in a kernel for
persistent requests, the host for partitioned ones (``gmpi/host/partitioned.py``), whoever asked it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

KINDS = {
    "send_init": "send", "ssend_init": "send", "bsend_init": "send",
    "rsend_init": "send", "recv_init": "receive",
    "allreduce_init": "collective", "bcast_init": "collective", "barrier_init": "collective",
}  # fmt: skip


class Partitioned(NamedTuple):
    """One end of a partitioned request.

    Attributes:
        comm: what all ranks call the communicator.
        peer: rank of the context; None: there is none.
        order: how many ends of this rank with the same communicator, peer and tag were made before:
            by that the two ends have found each other (MPI 4.1 section 4.2.1).
        nbytes: of all partitions.
    """

    sends: bool
    comm: str
    peer: int | None
    tag: int
    order: int
    nbytes: int
    proxied: bool


class Made(NamedTuple):
    """A persistent request, by the call that made it."""

    call: str
    event: np.ndarray

    @property
    def kind(self) -> str:
        return KINDS[self.call]
