"""``Context.host``: looking for messages before they are received."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
from gmpi.host.collectives import unpacked
from gmpi.host.port import HostPort
from gmpi.host.requests import HostRequest, Operation, Progress, nothing
from gmpi.host.status import HostStatus
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.duplicate import Found
from host_proxy.reference.protocol import Outcome, Step, receive_rest

if TYPE_CHECKING:
    from gmpi.context import Context
    from gmpi.host.buffer import HostBuffer

T = TypeVar("T")


class _Looked(Generic[T]):
    """What the proxy's thread has found; tested like an MPI request.

    That thread looks, because it alone posts receives for kernels: none may be posted between its
    finding a message and taking note of it.
    """

    def __init__(self, context: Context, look: Callable[[], T | None], once: bool) -> None:
        self._context = context
        self._look = look
        self._once = once
        self._asked = self._answered = False
        self.found: T | None = None
        self.failure: MPI.Exception | None = None

    def look(self) -> None:
        try:
            self.found = self._look()
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
        origin, source, tag = self._looked_at(call, source, tag, comm)
        element = np.dtype(np.uint8)
        operation = Operation(call, "receive", comm, source, tag, element)
        if source == PROC_NULL:
            steps = nothing(Outcome(0, int(SUCCESS), PROC_NULL, int(ANY_TAG)))
        else:
            duplicate = origin.messages_of(tag)
            steps = _found(_Looked(self._context, lambda: duplicate.look(source, tag), once))
        return HostRequest(self._progress, operation, steps, 1, None)

    def _looked_at(
        self, call: str, source: int, tag: int, comm: int
    ) -> tuple[Communicator, int, int]:
        """(communicator, source, tag) of a probe, checked."""
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
        return origin, source, tag

    # --- messages that nobody else can receive any more -------------------------------------------

    def Mprobe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        comm: int = COMM_WORLD,
        status: MPI.Status | None = None,
    ) -> HostMessage:
        """Waits for a message and takes it: only the object that is returned can receive it (MPI
        4.1 section 3.8.2)."""
        message = self._take("Mprobe", source, tag, comm, False, status)
        assert message is not None
        return message

    def Improbe(
        self,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        comm: int = COMM_WORLD,
        status: MPI.Status | None = None,
    ) -> HostMessage | None:
        """The same if there is one, else None (MPI 4.1 section 3.8.2)."""
        return self._take("Improbe", source, tag, comm, True, status)

    def _take(
        self, call: str, source: int, tag: int, comm: int, once: bool, status: MPI.Status | None
    ) -> HostMessage | None:
        origin, source, tag = self._looked_at(call, source, tag, comm)
        operation = Operation(call, "receive", comm, source, tag, np.dtype(np.uint8))
        if source == PROC_NULL:
            none = Outcome(0, int(SUCCESS), PROC_NULL, int(ANY_TAG))
            HostRequest(self._progress, operation, nothing(none), 1, None).Wait(status)
            return HostMessage(self, comm, origin, None)
        duplicate = origin.messages_of(tag)
        looked = _Looked(self._context, lambda: duplicate.take(source, tag), once)
        request = HostRequest(self._progress, operation, _taken(looked), 1, None)
        request.Wait()
        if looked.found is None:
            return None
        request.result(status)
        return HostMessage(self, comm, origin, looked.found)

    def _received(
        self, call: str, buf: Any, comm: int, origin: Communicator, found: Found | None
    ) -> HostRequest:
        """Starts to receive what has been taken; None: from PROC_NULL."""
        self._communicator(comm)
        buffer = self._buffer(buf, Argument(call, "buf"), True)
        source, tag = (PROC_NULL, ANY_TAG) if found is None else (found.source, found.tag)
        operation = Operation(
            call, "receive", comm, source, tag, buffer.element, buffer.count, buffer.nbytes
        )
        if found is None:
            steps = nothing(Outcome(0, int(SUCCESS), PROC_NULL, int(ANY_TAG)))
        else:
            state = self._context._state
            port = HostPort(state, buffer.data, sends=False)
            message = port.message(state.layout.eager_bytes)
            request = found.receive(origin.messages_of(found.tag), message)
            rest = receive_rest(state.address, port, origin, message, request, buffer.nbytes)
            steps = unpacked(rest, buffer)
        return HostRequest(self._progress, operation, steps, buffer.itemsize, buffer)

    def _buffer(self, spec: Any, argument: Argument, writable: bool) -> HostBuffer:
        raise NotImplementedError


class HostMessage:
    """A message that ``Mprobe`` has taken. It has to be received, once.

    Attributes:
        source, tag: of the message.
    """

    def __init__(
        self, host: HostProbes, comm: int, origin: Communicator, found: Found | None
    ) -> None:
        self.source = PROC_NULL if found is None else found.source
        self.tag = int(ANY_TAG) if found is None else found.tag
        self._host, self._comm, self._origin = host, comm, origin
        self._found = found
        self._is_received = False

    def Recv(self, buf: Any, status: MPI.Status | None = None) -> HostStatus:
        """Receives the message (MPI 4.1 section 3.8.3); ``buf`` and errors are as of ``Recv`` of
        the host."""
        return self._start("Mrecv", buf).Wait(status)

    def Irecv(self, buf: Any) -> HostRequest:
        """Starts to receive it (MPI 4.1 section 3.8.3)."""
        return self._start("Imrecv", buf)

    def _start(self, call: str, buf: Any) -> HostRequest:
        if self._is_received:
            allowed = "one that has not been received"
            text = f"the message has been received, allowed is {allowed}"
            raise Argument(call, "message").refused(text, self, allowed, MPI.ERR_REQUEST)
        request = self._host._received(call, buf, self._comm, self._origin, self._found)
        self._is_received = True
        return request


def _taken(looked: _Looked[Found]) -> Step:
    yield looked
    if looked.found is None:
        return Outcome(0, int(SUCCESS), int(ANY_SOURCE), NO_MESSAGE)
    found = looked.found
    return Outcome(found.length(), int(SUCCESS), found.source, found.tag)


def _found(looked: _Looked[tuple[int, int, int]]) -> Step:
    yield looked
    if looked.found is None:
        return Outcome(0, int(SUCCESS), int(ANY_SOURCE), NO_MESSAGE)
    source, tag, nbytes = looked.found
    return Outcome(nbytes, int(SUCCESS), source, tag)
