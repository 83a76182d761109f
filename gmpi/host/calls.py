"""The host side takes part: ``Context.host`` talks to kernels in the same matching space.

A rank without a kernel (I/O, a master) sends to and receives from ranks that have one, and
collectives may mix both. Methods have mpi4py's names and arguments, with ``comm`` an integer handle
as in kernels. Buffers are arrays or mpi4py's buffer specifications with any datatype
(``gmpi/host/buffer.py``).

Calls run in the calling thread, by the same protocol as the kernels'
(``host_proxy/reference/protocol.py``); ``gmpi/host/requests.py`` waits for them,
``gmpi/host/arguments.py`` says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from gmpi.contract.constants import (
    ANY_SOURCE,
    ANY_TAG,
    COMM_WORLD,
    PROC_NULL,
    SUCCESS,
    UNDEFINED,
)
from gmpi.errors import ContextError
from gmpi.host.arguments import Argument, checked_rank, checked_tag, require_tag
from gmpi.host.buffer import HostBuffer
from gmpi.host.collectives import HostCollectives, unpacked
from gmpi.host.combined import HostCombined
from gmpi.host.persistent import HostPersistentCalls
from gmpi.host.port import HostPort
from gmpi.host.probes import HostProbes
from gmpi.host.requests import (
    AnyRequest,
    HostRequest,
    Operation,
    Prepared,
    Progress,
    nothing,
    results,
    wait_until,
)
from gmpi.host.status import HostStatus
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.state import G_TAG_UB, P_DIRECT
from host_proxy.reference.protocol import (
    Outcome,
    receive_message,
    send_message,
)

if TYPE_CHECKING:
    from gmpi.context import Context


class Host(HostCollectives, HostCombined, HostProbes, HostPersistentCalls):
    """``Context.host``: mpi4py-like calls that match those of kernels.

    All that they raise is a ``GMPIError``; arguments are checked before MPI sees them. Waits end
    with the context's: ``Context.abort``, ``timeout_s``.
    """

    def __init__(self, context: Context, progress: Progress) -> None:
        self._context = context
        self._progress = progress

    # --- one-sided --------------------------------------------------------------------------------

    def Win_fence(self, win: int) -> None:
        """Takes part in GMPI_Win_fence (MPI 4.1 section 12.5.1), on a rank without kernels.

        Raises:
            ContextError: it is no window, or kernels of this rank can call it.
        """
        comm = self._context._windows.comm_of(win)
        if self._context._has_kernels:
            raise ContextError("Win_fence: this rank has kernels, which call GMPI_Win_fence")
        self._barrier("Win_fence", comm).Wait()

    def Win_get_notify_value(self, win: int, notification_idx: int) -> int:
        """A counter of this rank's (MPI after 5.0, draft, section 12.6); kernels may be running.

        A copy of 8 bytes, which waits for nobody. The host has no call that resets a counter:
        kernels do it without losing a count.

        Args:
            win: a handle of ``Context.win``, on a rank with kernels.
            notification_idx: which one, from 0 on.

        Raises:
            ContextError: it is no window, or has no such counter.
        """
        return self._context._windows.notify_value(win, notification_idx)

    # --- point to point --------------------------------------------------------------------------

    def Isend(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> HostRequest:
        """Starts a send (MPI 4.1 section 3.7.2); ``buf`` must stay unchanged until Wait."""
        return self._start(self._send("Isend", buf, dest, tag, comm))

    def Irecv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, comm: int = COMM_WORLD
    ) -> HostRequest:
        """Starts a receive (MPI 4.1 section 3.7.2).

        A message longer than ``buf`` makes Wait raise TruncationError; what fits is delivered.
        With ``ANY_TAG`` on a communicator where none may use it, ArgumentError.
        """
        return self._start(self._receive("Irecv", buf, source, tag, comm))

    def Send(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> None:
        """Blocking send (MPI 4.1 section 3.2.1)."""
        self._start(self._send("Send", buf, dest, tag, comm)).Wait()

    def Issend(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> HostRequest:
        """Starts a send that is complete when it is received (MPI 4.1 section 3.7.2)."""
        return self._start(self._send("Issend", buf, dest, tag, comm, synchronous=True))

    def Ssend(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> None:
        """Sends, and blocks until it is received (MPI 4.1 section 3.4)."""
        self._start(self._send("Ssend", buf, dest, tag, comm, synchronous=True)).Wait()

    def Recv(
        self,
        buf: Any,
        source: int = ANY_SOURCE,
        tag: int = ANY_TAG,
        comm: int = COMM_WORLD,
        status: MPI.Status | None = None,
    ) -> HostStatus:
        """Blocking receive (MPI 4.1 section 3.2.4); ``status`` is filled in."""
        return self._start(self._receive("Recv", buf, source, tag, comm)).Wait(status)

    def Sendrecv(  # as many arguments as MPI's
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        comm: int = COMM_WORLD,
        status: MPI.Status | None = None,
    ) -> HostStatus:
        """Send and receive together (MPI 4.1 section 3.10).

        Nothing is started unless both can be, and nothing is left open where one fails.
        """
        call = "Sendrecv"
        receive = self._receive(call, recvbuf, source, recvtag, comm, ("recvbuf", "recvtag"))
        send = self._send(call, sendbuf, dest, sendtag, comm, ("sendbuf", "sendtag"))
        incoming = self._start(receive)
        outgoing = self._start(send)
        wait_until(outgoing.poll)
        if outgoing.failed:
            incoming.Cancel()
        wait_until(incoming.poll)
        outgoing.result()
        return incoming.Wait(status)

    # --- waiting for several ----------------------------------------------------------------------

    def Waitall(
        self,
        requests: Sequence[AnyRequest],
        statuses: list[MPI.Status] | None = None,
    ) -> list[HostStatus]:
        """Waits for all, making progress on each (MPI 4.1 section 3.7.5).

        Args:
            statuses: filled in, one for each; those that are missing are appended.

        Raises:
            GMPIError: what the first one that failed ended with; all have ended.
        """
        for request in requests:
            wait_until(request.poll)
        return results(requests, statuses)

    def Testall(
        self,
        requests: Sequence[AnyRequest],
        statuses: list[MPI.Status] | None = None,
    ) -> bool:
        """Whether all are complete; then as ``Waitall``, else none of them has been tested."""
        if not all(request.poll() for request in requests):  # each makes progress on all
            return False
        results(requests, statuses)
        return True

    def Waitany(self, requests: Sequence[AnyRequest], status: MPI.Status | None = None) -> int:
        """Waits for one of those that are still open: its index; ``gmpi.UNDEFINED``: there is
        none (MPI 4.1 section 3.7.5)."""
        found = [UNDEFINED]

        def one() -> bool:
            found[0], done = self._first(requests)
            return done

        wait_until(one)
        if found[0] != UNDEFINED:
            requests[found[0]].result(status)
        return found[0]

    def Testany(
        self, requests: Sequence[AnyRequest], status: MPI.Status | None = None
    ) -> tuple[int, bool]:
        """(the index of one that is complete, or ``gmpi.UNDEFINED``; whether one is, or none is
        left), as ``Waitany``."""
        index, done = self._first(requests)
        if index != UNDEFINED:
            requests[index].result(status)
        return index, done

    def Waitsome(
        self,
        requests: Sequence[AnyRequest],
        statuses: list[MPI.Status] | None = None,
    ) -> list[int] | None:
        """Waits for at least one of those that are still open (MPI 4.1 section 3.7.5).

        Returns:
            The indices of all that are complete, or None: there is none.
        """
        wait_until(lambda: self._first(requests)[1])
        return self.Testsome(requests, statuses)

    def Testsome(
        self,
        requests: Sequence[AnyRequest],
        statuses: list[MPI.Status] | None = None,
    ) -> list[int] | None:
        """The indices of all that are complete, as ``Waitsome``; statuses in their order."""
        if not any(request.is_active for request in requests):
            return None
        found = [i for i, r in enumerate(requests) if r.is_active and r.poll()]
        results([requests[i] for i in found], statuses)
        return found

    @staticmethod
    def _first(requests: Sequence[AnyRequest]) -> tuple[int, bool]:
        active = [(i, request) for i, request in enumerate(requests) if request.is_active]
        for i, request in active:
            if request.poll():
                return i, True
        return int(UNDEFINED), not active

    # --- helpers ----------------------------------------------------------------------------------

    def _send(
        self,
        call: str,
        buf: Any,
        dest: int,
        tag: int,
        comm: int,
        names: tuple[str, str] = ("buf", "tag"),
        synchronous: bool = False,
    ) -> Prepared:
        """A send; ``names`` of its buffer and tag."""
        operation, buffer = self._to_send(call, buf, dest, tag, comm, names)
        if operation.peer == PROC_NULL:
            return Prepared(operation, nothing(Outcome(0)), buffer)
        assert operation.peer is not None and operation.tag is not None
        target = self._communicator(comm)
        port = HostPort(self._context._state, buffer.data, sends=True)
        number = self._progress.transfer_number(self._tag_high)
        step = send_message(
            port, target, operation.peer, operation.tag, buffer.nbytes, self._sizes(), number,
            synchronous,
        )  # fmt: skip
        return Prepared(operation, self._progress.numbered(number, step), buffer)

    def _to_send(
        self, call: str, buf: Any, dest: int, tag: int, comm: int, names: tuple[str, str]
    ) -> tuple[Operation, HostBuffer]:
        """What is to be sent, checked."""
        target = self._communicator(comm)
        buffer = self._buffer(buf, Argument(call, names[0]), writable=False)
        dest = checked_rank(Argument(call, "dest"), dest, target)
        tag = checked_tag(Argument(call, names[1]), tag, self._tag_high, wildcard=False)
        if dest != PROC_NULL:
            self._require_proxied(call, target, dest, comm)
        return self._operation(call, "send", comm, buffer, dest, tag), buffer

    def _receive(
        self,
        call: str,
        buf: Any,
        source: int,
        tag: int,
        comm: int,
        names: tuple[str, str] = ("buf", "tag"),
    ) -> Prepared:
        """A receive; ``names`` of its buffer and tag."""
        origin = self._communicator(comm)
        buffer = self._buffer(buf, Argument(call, names[0]), writable=True)
        source = checked_rank(Argument(call, "source"), source, origin)
        tag = checked_tag(Argument(call, names[1]), tag, self._tag_high, wildcard=True)
        if origin.refuses_any_tag:
            require_tag(call, tag, self._tag_high, source, comm)
        operation = self._operation(call, "receive", comm, buffer, source, tag)
        if source == PROC_NULL:
            none = Outcome(0, SUCCESS, PROC_NULL, ANY_TAG)
            return Prepared(operation, nothing(none), buffer)
        self._require_proxied(call, origin, source, comm)
        state = self._context._state
        port = HostPort(state, buffer.data, sends=False)
        eager = state.layout.eager_bytes
        step = receive_message(state.address, port, origin, source, tag, buffer.nbytes, eager)
        return Prepared(operation, unpacked(step, buffer), buffer)

    def _require_proxied(self, call: str, target: Communicator, rank: int, comm: int) -> None:
        """Messages of kernels to and from this rank must not be on the direct road, where the host
        cannot meet them."""
        if target.control is None or rank < 0:
            return
        peer = int(target.peers[rank])
        if peer >= 0 and self._context._state.peers[peer, P_DIRECT]:
            raise ContextError(
                f"{call} in host: communicator {comm} was registered with wildcards=False, and "
                f"kernels exchange messages with rank {rank} on the direct road, without the host; "
                "register a second communicator for the host: g.comm(comm)"
            )

    def _operation(
        self, call: str, kind: str, comm: int, buffer: HostBuffer, peer: int, tag: int | None
    ) -> Operation:
        return Operation(call, kind, comm, peer, tag, buffer.element, buffer.count, buffer.nbytes)

    def _start(self, prepared: Prepared) -> HostRequest:
        operation, steps, buffer = prepared
        return HostRequest(self._progress, operation, steps, buffer.itemsize, buffer)

    @property
    def _tag_high(self) -> int:
        return int(self._context._state.globals[G_TAG_UB])

    def _communicator(self, comm: int) -> Communicator:
        """Every call asks for it first: nothing begins in a context that has ended."""
        self._context._require_open()
        self._progress.require()
        known = self._context._state.communicators
        if not isinstance(comm, (int, np.integer)) or not 0 <= comm < len(known):
            raise ContextError(
                f"communicator handle is {comm!r}, allowed is 0..{len(known) - 1}; "
                "register it with Context.comm() first"
            )
        if known[comm].is_free:
            raise ContextError(f"communicator handle is {comm}, which was freed")
        return known[comm]
