"""``Context.host``: persistent requests (MPI 4.1 sections 3.9 and 6.13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from gmpi.contract.constants import ANY_SOURCE, ANY_TAG, COMM_WORLD, SUCCESS, SUM
from gmpi.host.arguments import Argument
from gmpi.host.buffer import HostBuffer
from gmpi.host.requests import HostRequest, Operation, Prepared
from gmpi.host.status import HostStatus
from host_proxy.reference.protocol import Outcome

if TYPE_CHECKING:
    import numpy as np

    from host_proxy.platform.communicator import Communicator


class HostPersistent:
    """A persistent request: ``Start`` begins its operation, after each end once more.

    While it is inactive, ``Wait`` and ``Test`` return at once, with an empty status. What is
    written to a buffer before ``Start`` goes out.
    """

    def __init__(self, name: str, begin: Callable[[], HostRequest]) -> None:
        self._name = name
        self._begin: Callable[[], HostRequest] | None = begin
        self._request: HostRequest | None = None

    def Start(self) -> None:
        """Begins the operation (MPI 4.1 section 3.9).

        Raises:
            ArgumentError: it is under way, or the request has been freed.
        """
        if self.is_active:
            raise self._refused("active", "an inactive one: wait for it first")
        self._request = self._made()()

    def Wait(self, status: MPI.Status | None = None) -> HostStatus:
        """Waits for the operation; then the request is inactive. Raises as ``Wait`` of others."""
        if self._request is None or not self.is_active:
            return self._empty(status)
        return self._request.Wait(status)

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Whether the operation is complete, or none is under way; raises as ``Wait``."""
        if self._request is not None and self.is_active:
            return self._request.Test(status)
        self._empty(status)
        return True

    def Get_status(self, status: MPI.Status | None = None) -> bool:
        """Whether the operation is complete, or none is under way; the request stays active (MPI
        4.1 section 3.7.6)."""
        if self._request is not None and self.is_active:
            return self._request.Get_status(status)
        self._empty(status)
        return True

    def Cancel(self) -> None:
        """Cancels a receive that is under way, as ``Cancel`` of others."""
        if self._request is not None and self.is_active:
            self._request.Cancel()

    def Free(self) -> None:
        """Frees the request; what is under way still completes (MPI 4.1 section 3.9)."""
        self._made()
        self._begin = None

    # --- for calls that wait for several ----------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether it was started, and nobody has been told of its end yet."""
        return self._request is not None and self._request.is_active

    def poll(self) -> bool:
        return self._request is None or self._request.poll()

    def result(self, status: MPI.Status | None = None) -> HostStatus:
        if self._request is None or not self.is_active:
            return self._empty(status)
        return self._request.result(status)

    def _empty(self, status: MPI.Status | None) -> HostStatus:
        found = HostStatus(Outcome(0, int(SUCCESS), int(ANY_SOURCE), int(ANY_TAG)), 1)
        found.copy_to(status)
        return found

    def _made(self) -> Callable[[], HostRequest]:
        if self._begin is None:
            raise self._refused("freed", "one that has not been freed")
        return self._begin

    def _refused(self, state: str, allowed: str) -> Exception:
        text = f"the persistent request is {state}, allowed is {allowed}"
        return Argument(self._name, "request").refused(text, state, allowed, MPI.ERR_REQUEST)


class HostPersistentCalls:
    """A part of ``Host``, which see. Arguments are checked when a request is made."""

    if TYPE_CHECKING:
        # What the other parts of the class have.
        _send: Callable[..., Prepared]
        _to_send: Callable[..., tuple[Operation, HostBuffer]]
        _receive: Callable[..., Prepared]
        _start: Callable[[Prepared], HostRequest]
        _reduction: Callable[..., tuple[np.ndarray, np.ndarray, int]]
        _broadcast: Callable[..., tuple[int, HostBuffer]]
        _allreduce: Callable[..., HostRequest]
        _buffered: Callable[..., HostRequest]
        _bcast: Callable[..., HostRequest]
        _barrier: Callable[..., HostRequest]
        _communicator: Callable[[int], Communicator]

    def Send_init(
        self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD
    ) -> HostPersistent:
        """A persistent send (MPI 4.1 section 3.9)."""
        return self._persistent_send("Send_init", buf, dest, tag, comm, False)

    def Ssend_init(
        self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD
    ) -> HostPersistent:
        """A persistent synchronous send (MPI 4.1 section 3.9)."""
        return self._persistent_send("Ssend_init", buf, dest, tag, comm, True)

    def Bsend_init(
        self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD
    ) -> HostPersistent:
        """A persistent buffered send (MPI 4.1 section 3.9): a Start is an ``Ibsend``."""
        self._to_send("Bsend_init", buf, dest, tag, comm, ("buf", "tag"))
        return HostPersistent(
            "Bsend_init", lambda: self._buffered("Bsend_init", buf, dest, tag, comm)
        )

    def Rsend_init(
        self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD
    ) -> HostPersistent:
        """A persistent send whose receive is posted at each Start (MPI 4.1 section 3.9): as
        ``Send_init``."""
        return self._persistent_send("Rsend_init", buf, dest, tag, comm, False)

    def _persistent_send(
        self, call: str, buf: Any, dest: int, tag: int, comm: int, synchronous: bool
    ) -> HostPersistent:
        names = ("buf", "tag")
        self._to_send(call, buf, dest, tag, comm, names)

        def begin() -> HostRequest:
            return self._start(self._send(call, buf, dest, tag, comm, names, synchronous))

        return HostPersistent(call, begin)

    def Recv_init(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, comm: int = COMM_WORLD
    ) -> HostPersistent:
        """A persistent receive (MPI 4.1 section 3.9)."""
        self._receive("Recv_init", buf, source, tag, comm)
        return HostPersistent(
            "Recv_init", lambda: self._start(self._receive("Recv_init", buf, source, tag, comm))
        )

    def Allreduce_init(
        self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD
    ) -> HostPersistent:
        """A persistent Allreduce (MPI 4.1 section 6.13.8); all ranks start it in the same order
        among their collectives."""
        call = "Allreduce_init"
        self._reduction(call, sendbuf, recvbuf, op, comm)
        return HostPersistent(call, lambda: self._allreduce(call, sendbuf, recvbuf, op, comm))

    def Bcast_init(self, buf: Any, root: int = 0, comm: int = COMM_WORLD) -> HostPersistent:
        """A persistent Bcast (MPI 4.1 section 6.13.2); likewise."""
        self._broadcast("Bcast_init", buf, root, comm)
        return HostPersistent("Bcast_init", lambda: self._bcast("Bcast_init", buf, root, comm))

    def Barrier_init(self, comm: int = COMM_WORLD) -> HostPersistent:
        """A persistent Barrier (MPI 4.1 section 6.13.1); likewise."""
        self._communicator(comm)
        return HostPersistent("Barrier_init", lambda: self._barrier("Barrier_init", comm))

    def Startall(self, requests: Sequence[HostPersistent]) -> None:
        """Starts all, in their order (MPI 4.1 section 3.9)."""
        for request in requests:
            request.Start()
