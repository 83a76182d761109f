"""What the proxies, or the hosts, of a context tell each other, on communicators of their own.

A communicator that is freed with messages under way breaks others: an MPI library may give its
number to the next one, which then receives them. What is said here may be of no use any more to
whoever it is for, such as that a request was freed, so nobody waits for it. It is received when the
communicators are about to be freed: each rank says how many messages it has sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from mpi4py import MPI

from host_proxy.platform.duplicate import Duplicate

_TAG = 0
_PATIENCE_S = 1.0  # of a rank whose context has ended well, for those whose has not
_left: list[Any] = []  # what MPI still has of collectives that some take no part in


class Control(Duplicate):
    """A duplicate for such messages; one thread at a time uses it.

    Attributes:
        is_quiet: nothing is under way, and it can be freed; see ``quieten``.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        super().__init__(comm)
        self.is_quiet = False
        self._sends: list[MPI.Request] = []
        self._said = np.zeros(comm.Get_size(), np.int64)  # messages to each
        self._heard = 0  # messages from all

    def say(self, data: np.ndarray, rank: int) -> None:
        """Sends a message, which is not changed any more; does not wait."""
        self._sends = [request for request in self._sends if not request.Test()]
        self._sends.append(self.Isend(data, rank, _TAG))
        self._said[rank] += 1

    def hear(self, data: np.ndarray) -> int | None:
        """Receives a message, if one has come: its source."""
        status = MPI.Status()
        message = self.Improbe(MPI.ANY_SOURCE, _TAG, status)
        if message is None:
            return None
        message.Recv(data)
        self._heard += 1
        return status.Get_source()

    def _take_the_rest(self, coming: int) -> None:
        status = MPI.Status()
        for _ in range(coming - self._heard):
            message = self.Mprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            message.Recv(np.empty(status.Get_count(MPI.BYTE), np.uint8))


def quieten(controls: Iterable[Control]) -> None:
    """Receives what others have said and nobody has heard, and sees all of ours received.

    Collective over the ranks whose contexts end well; no thread says anything any more. Where some
    rank does not come, its communicators stay as they are, not ``is_quiet``: they must not be
    freed.
    """
    until = time.monotonic() + _PATIENCE_S
    asked = [control for control in controls if not control.is_quiet]
    counts = [np.empty_like(control._said) for control in asked]
    requests = [
        MPI.Intracomm.Ialltoall(control, control._said, coming)
        for control, coming in zip(asked, counts)
    ]
    for control, coming, request in zip(asked, counts, requests):
        with suppress(MPI.Exception):  # then it is not
            if not _done([request], until):
                _left.append((control, request, control._said, coming))
                continue
            control._take_the_rest(int(coming.sum()))
            control.is_quiet = _done(control._sends, until)


def _done(requests: list[MPI.Request], until: float) -> bool:
    """Whether MPI finishes all of them in time."""
    began = time.monotonic()
    while not all(request.Test() for request in requests):
        now = time.monotonic()
        if now > until:
            return False
        time.sleep(min(1e-4 + (now - began) / 20, 2e-3))
    return True
