"""``Context.host``: buffered and ready sends, calls that send and receive, Abort."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from gmpi.contract.constants import ANY_SOURCE, ANY_TAG, COMM_WORLD, PROC_NULL
from gmpi.host.arguments import Argument
from gmpi.host.buffer import HostBuffer
from gmpi.host.requests import HostRequest, Operation, Prepared, Progress, nothing
from gmpi.host.status import HostStatus
from host_proxy.platform.communicator import Communicator
from host_proxy.reference.protocol import Outcome

if TYPE_CHECKING:
    from gmpi.context import Context


class HostCombined:
    """A part of ``Host``, which see."""

    _context: Context
    _progress: Progress

    def _communicator(self, comm: int) -> Communicator:
        raise NotImplementedError

    def _send(self, call: str, buf: Any, dest: int, tag: int, comm: int) -> Prepared:
        raise NotImplementedError

    def _to_send(
        self, call: str, buf: Any, dest: int, tag: int, comm: int, names: tuple[str, str]
    ) -> tuple[Operation, HostBuffer]:
        raise NotImplementedError

    def _receive(
        self, call: str, buf: Any, source: int, tag: int, comm: int, names: tuple[str, str]
    ) -> Prepared:
        raise NotImplementedError

    def _start(self, prepared: Prepared) -> HostRequest:
        raise NotImplementedError

    # --- modes of sends ---------------------------------------------------------------------------

    def Ibsend(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> HostRequest:
        """Starts a buffered send, which is complete at once (MPI 4.1 section 3.7.2).

        No buffer is attached: memory is taken as it is needed, until the message has gone. What
        fails then is raised by ``synchronize`` and ``close``, which waits for it.
        """
        return self._buffered("Ibsend", buf, dest, tag, comm)

    def _buffered(self, call: str, buf: Any, dest: int, tag: int, comm: int) -> HostRequest:
        operation, buffer = self._to_send(call, buf, dest, tag, comm, ("buf", "tag"))
        self._keep(operation, buffer)
        operation = operation._replace(kind="buffered")  # the message is another request's
        return self._start(Prepared(operation, nothing(Outcome(buffer.nbytes)), buffer))

    def Bsend(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> None:
        """Buffered send (MPI 4.1 section 3.4), as ``Ibsend``."""
        self._keep(*self._to_send("Bsend", buf, dest, tag, comm, ("buf", "tag")))

    def Irsend(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> HostRequest:
        """Starts a send whose receive is posted (MPI 4.1 section 3.7.2): as ``Isend``."""
        return self._start(self._send("Irsend", buf, dest, tag, comm))

    def Rsend(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> None:
        """Send whose receive is posted (MPI 4.1 section 3.4): as ``Send``."""
        self._start(self._send("Rsend", buf, dest, tag, comm)).Wait()

    # --- send and receive -------------------------------------------------------------------------

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        comm: int = COMM_WORLD,
        status: MPI.Status | None = None,
    ) -> HostStatus:
        """Sends what is in a buffer and receives into it (MPI 4.1 section 3.10)."""
        call = "Sendrecv_replace"
        return self._both(call, (buf, dest, sendtag), (buf, source, recvtag), comm).Wait(status)

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        comm: int = COMM_WORLD,
    ) -> HostRequest:
        """Starts a send and a receive (MPI 4.1 section 3.10): the receive's request.

        What is sent is copied, as by ``Ibsend``.
        """
        sent, received = (sendbuf, dest, sendtag), (recvbuf, source, recvtag)
        return self._both("Isendrecv", sent, received, comm)

    def Isendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        comm: int = COMM_WORLD,
    ) -> HostRequest:
        """``Isendrecv`` from and into one buffer (MPI 4.1 section 3.10)."""
        call = "Isendrecv_replace"
        return self._both(call, (buf, dest, sendtag), (buf, source, recvtag), comm)

    def _both(
        self, call: str, sent: tuple[Any, int, int], received: tuple[Any, int, int], comm: int
    ) -> HostRequest:
        """Nothing is started unless both can be."""
        sendbuf, recvbuf = ("sendbuf", "recvbuf") if call == "Isendrecv" else ("buf", "buf")
        receive = self._receive(call, *received, comm, (recvbuf, "recvtag"))
        self._keep(*self._to_send(call, *sent, comm, (sendbuf, "sendtag")))
        return self._start(receive)

    def _keep(self, operation: Operation, buffer: HostBuffer) -> None:
        assert operation.peer is not None and operation.tag is not None
        if operation.peer != PROC_NULL:
            data, name = buffer.data.copy(), operation.name
            self._context._buffered.send(name, data, operation.peer, operation.tag, operation.comm)

    # --- environment ------------------------------------------------------------------------------

    def Abort(self, errorcode: int = 0, comm: int = COMM_WORLD) -> None:
        """Ends all ranks of a communicator, and with most MPI libraries the job (MPI 4.1 section
        9.7). Does not return."""
        communicator = self._communicator(comm)
        code = Argument("Abort", "errorcode").whole(errorcode, "an integer")
        communicator.messages.Abort(ctypes.c_int(code).value)
