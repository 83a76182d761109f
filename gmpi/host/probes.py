"""``Context.host``: looking for messages before they are received."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from gmpi.contract.constants import (
    ANY_SOURCE,
    ANY_TAG,
    COMM_WORLD,
    NO_MESSAGE,
    PROC_NULL,
    SUCCESS,
)
from gmpi.errors import ContextError
from gmpi.host.arguments import Argument, checked_rank, checked_tag, require_tag
from gmpi.host.requests import HostRequest, Operation, Progress, nothing
from gmpi.host.status import HostStatus
from host_proxy.platform.communicator import Communicator
from host_proxy.reference.protocol import Outcome, Step

if TYPE_CHECKING:
    from gmpi.context import Context


class _Looked:
    """What the proxy's thread has found; tested like an MPI request.

    That thread looks, because it alone posts receives for kernels: none may be posted between its
    finding a message and taking note of it.
    """

    def __init__(
        self, context: Context, communicator: Communicator, source: int, tag: int, once: bool
    ) -> None:
        self._context = context
        self._duplicate = communicator.messages_of(tag)
        self._at = source, tag
        self._once = once
        self._asked = self._answered = False
        self.found: tuple[int, int, int] | None = None
        self.failure: MPI.Exception | None = None

    def look(self) -> None:
        try:
            self.found = self._duplicate.look(*self._at)
            self._context._state.count_probed()
        except MPI.Exception as exc:
            self.failure = exc
        self._answered = True
        self._asked = False

    def Test(self, status: MPI.Status | None = None) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.found is not None or (self._once and self._answered):
            return True
        if not self._asked:
            self._asked = True
            self._context._buffered.have_done(self.look)
        return False

    def Cancel(self) -> None:
        """A probe is nothing that could be cancelled."""


class HostProbes:
    """A part of ``Host``, which see."""

    _context: Context
    _progress: Progress

    def _communicator(self, comm: int) -> Communicator:
        raise NotImplementedError

    @property
    def _tag_high(self) -> int:
        raise NotImplementedError

    def Probe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        comm: int = COMM_WORLD,
        status: MPI.Status | None = None,
    ) -> HostStatus:
        """Waits for a message that a receive would get, and does not receive it (MPI 4.1 section
        3.8.1): its status, with the bytes of the whole message."""
        return self._look("Probe", source, tag, comm, once=False).Wait(status)

    def Iprobe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        comm: int = COMM_WORLD,
        status: MPI.Status | None = None,
    ) -> bool:
        """Whether there is such a message (MPI 4.1 section 3.8.1)."""
        request = self._look("Iprobe", source, tag, comm, once=True)
        found = not request.Wait().Is_cancelled()
        if found:
            request.result(status)
        return found

    def _look(self, call: str, source: int, tag: int, comm: int, once: bool) -> HostRequest:
        origin = self._communicator(comm)
        source = checked_rank(Argument(call, "source"), source, origin)
        tag = checked_tag(Argument(call, "tag"), tag, self._tag_high, wildcard=True)
        if origin.refuses_any_tag:
            require_tag(call, tag, self._tag_high, source, comm)
        if origin.control is not None:
            raise ContextError(
                f"{call} in host: communicator {comm} was registered with wildcards=False, where "
                "nobody looks at messages before they are received; register a second "
                "communicator for the host: g.comm(comm)"
            )
        element = np.dtype(np.uint8)
        operation = Operation(call, "receive", comm, source, tag, element)
        if source == PROC_NULL:
            steps = nothing(Outcome(0, int(SUCCESS), PROC_NULL, int(ANY_TAG)))
        else:
            steps = _found(_Looked(self._context, origin, source, tag, once))
        return HostRequest(self._progress, operation, steps, 1, None)


def _found(looked: _Looked) -> Step:
    yield looked
    if looked.found is None:
        return Outcome(0, int(SUCCESS), int(ANY_SOURCE), NO_MESSAGE)
    source, tag, nbytes = looked.found
    return Outcome(nbytes, int(SUCCESS), source, tag)
