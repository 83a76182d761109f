"""The host side takes part: ``Context.host`` talks to kernels in the same matching space.

A rank without a kernel (I/O, a master) sends to and receives from ranks that have one, and
collectives may mix both. Methods have mpi4py's names and arguments, with ``comm`` an integer handle
as in kernels. Buffers are arrays or mpi4py's buffer specifications with any datatype
(``gmpi/host_buffer.py``).

Calls run in the calling thread, by the same protocol as the kernels' (``host_proxy/protocol.py``).
Waits are cut into slices, so that Ctrl-C arrives.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from gmpi.constants import (
    ANY_SOURCE,
    ANY_TAG,
    COMM_WORLD,
    ERR_TRUNCATE,
    OPERATIONS_REDUCE,
    PROC_NULL,
    SUCCESS,
    SUM,
)
from gmpi.errors import (
    CallError,
    ContextError,
    Fault,
    TruncationError,
    any_tag_of_host,
    flawed_message,
    rank_text,
    tag_text,
)
from gmpi.host_buffer import HostBuffer, reduced_array
from gmpi.wire import MESSAGE_HEADER, NOT_SHARED, chunk_bytes_of
from host_proxy.communicator import Communicator
from host_proxy.fetching import Arrivals
from host_proxy.protocol import Outcome, Step, chunks_of, receive_message, send_message
from host_proxy.state import G_TAG_UB, State

if TYPE_CHECKING:
    from gmpi.context import Context


class HostStatus:
    """How a receive of the host ended (see ``device_lib.context.Status``)."""

    def __init__(self, outcome: Outcome, itemsize: int) -> None:
        self.error = outcome.error
        self.source = outcome.source
        self.tag = outcome.tag
        self.nbytes = outcome.nbytes
        size = max(itemsize, 1)
        self.count = outcome.nbytes // size if outcome.nbytes % size == 0 else int(MPI.UNDEFINED)

    def __repr__(self) -> str:
        return (
            f"HostStatus(error={self.error}, source={self.source}, tag={self.tag}, "
            f"count={self.count}, nbytes={self.nbytes})"
        )


class _HostPort:
    """A buffer of the host as the protocol's port."""

    def __init__(self, state: State, data: np.ndarray, sends: bool) -> None:
        self.state = state
        self.data = data
        self.sends = sends
        self.short = np.empty(MESSAGE_HEADER + state.layout.eager_bytes, np.uint8)
        self.arrivals = Arrivals(state)
        self.use_buffers_of = self.arrivals.use_buffers_of
        self.free = self.arrivals.free

    def shared(self, comm: Communicator, dest: int) -> tuple[int, int, int]:
        return NOT_SHARED, 0, 0  # a host array is nobody's staging

    def message(self, nbytes: int) -> np.ndarray:
        if self.sends:
            self.short[MESSAGE_HEADER : MESSAGE_HEADER + nbytes] = self.data[:nbytes]
        return self.short[: MESSAGE_HEADER + nbytes]

    def deliver(self, nbytes: int) -> None:
        self.data[:nbytes] = self.short[MESSAGE_HEADER : MESSAGE_HEADER + nbytes]

    def pack(self, k: int, position: int, length: int) -> Step:
        return self.data[position : position + length]
        yield

    def unpack(self, k: int, position: int, length: int) -> Step:
        if length > 0:
            self.data[position : position + length] = self.arrivals.chunk(k, length)
        return
        yield


class Progress:
    """The operations of one context's host that are under way.

    MPI promises progress to all of them while the process waits for any: without it two ranks that
    each post a receive, then send something long and wait for that, would wait for ever.
    """

    def __init__(self) -> None:
        self.closed = ""  # why nothing can go on: what operations go on with is gone
        self.transfers = itertools.count(1)  # several threads may draw from it
        self.lock = threading.Lock()  # several threads may wait; a generator has one caller
        self.open: list[HostRequest] = []

    def start(self, request: HostRequest) -> None:
        with self.lock:
            request.advance(None)
            if not request.is_complete:
                self.open.append(request)

    def step(self) -> None:
        if self.closed:
            raise ContextError(self.closed)
        with self.lock:
            for request in self.open:
                request.step()
            self.open = [request for request in self.open if not request.is_complete]


class HostRequest:
    """An operation of the host that is under way.

    It progresses while any operation of the host is tested or waited for.
    """

    def __init__(
        self, progress: Progress, name: str, operation: Step, itemsize: int, keep: Any
    ) -> None:
        self.name = name
        self.is_complete = False
        self._progress = progress
        self._operation = operation
        self._itemsize = itemsize
        self._keep = keep  # the buffer, which MPI uses
        self._waits_for: MPI.Request | None = None
        self._status: HostStatus | None = None
        self._total = 0  # bytes of the message that came
        self._flaw = 0  # what is wrong with it
        self._failure: MPI.Exception | None = None
        progress.start(self)

    def advance(self, value: Any) -> None:
        """Runs the operation until it waits for MPI; the progress lock is held."""
        try:
            self._waits_for = self._operation.send(value)
        except StopIteration as stop:
            self._status = HostStatus(stop.value, self._itemsize)
            self._total = stop.value.total
            self._flaw = stop.value.flaw
            self.is_complete = True
        except MPI.Exception as exc:
            self._failure = exc
            self.is_complete = True

    def step(self) -> None:
        """Goes on as far as MPI has come; the progress lock is held."""
        while not self.is_complete:
            assert self._waits_for is not None
            status = MPI.Status()
            try:
                if not self._waits_for.Test(status):
                    return
            except MPI.Exception as exc:
                self._failure = exc
                self.is_complete = True
                return
            self.advance(status)

    def Test(self) -> bool:
        """Whether the operation is complete (MPI 4.1 section 3.7.3)."""
        if not self.is_complete:
            self._progress.step()
        return self.is_complete

    def Wait(self) -> HostStatus:
        """Waits for the operation; raises what it ended with, unless that is success."""
        started = time.monotonic()
        while not self.Test():
            if time.monotonic() - started < 0.002:
                os.sched_yield()
            else:
                time.sleep(50e-6)
        if self._failure is not None:
            raise self._failure
        assert self._status is not None
        if self._status.error == ERR_TRUNCATE:
            raise TruncationError(self._truncation(self._status))
        if self._flaw:
            source, tag = self._status.source, self._status.tag
            raise CallError(flawed_message(self.name, self._flaw, source, tag))
        return self._status

    def _truncation(self, status: HostStatus) -> Fault:
        allowed = f"at most {status.nbytes} bytes"
        text = (
            f"{self.name} in host: message length is {self._total}, allowed is {allowed}; receive "
            f"with a larger buffer [the message from rank {rank_text(status.source)} with tag "
            f"{tag_text(status.tag)} is longer than the buffer; {status.nbytes} bytes were "
            "delivered]"
        )
        length = "message length"
        return Fault(
            text, self.name, length, self._total, allowed, -1, ERR_TRUNCATE, TruncationError
        )


class Host:
    """``Context.host``: mpi4py-like calls that match those of kernels."""

    def __init__(self, context: Context, progress: Progress) -> None:
        self._context = context
        self._progress = progress

    # --- point to point --------------------------------------------------------------------------

    def Isend(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> HostRequest:
        """Starts a send (MPI 4.1 section 3.7.2); ``buf`` must stay unchanged until Wait."""
        buffer = self._buffer(buf, "buf", writable=False)
        target = self._communicator(comm)
        if dest == PROC_NULL:
            return self._start("Isend", _nothing(Outcome(0)), buffer)
        eager, chunk = self._sizes()

        # Transfer numbers of the host: the upper half. The proxy's are the lower half.
        upper = int(self._context._state.globals[G_TAG_UB])
        number = (upper >> 2) + next(self._progress.transfers) % (upper >> 2)
        port = _HostPort(self._context._state, buffer.data, sends=True)
        step = send_message(port, target, dest, tag, buffer.nbytes, (eager, chunk), number)
        return self._start("Isend", step, buffer)

    def Irecv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, comm: int = COMM_WORLD
    ) -> HostRequest:
        """Starts a receive (MPI 4.1 section 3.7.2).

        A message longer than ``buf`` makes Wait raise TruncationError; what fits is delivered.
        With ``ANY_TAG`` on a communicator where none may use it, ArgumentError.
        """
        buffer = self._buffer(buf, "buf", writable=True)
        origin = self._communicator(comm)
        if tag == ANY_TAG and origin.refuses_any_tag:
            upper = int(self._context._state.globals[G_TAG_UB])
            raise any_tag_of_host("Irecv", upper, source, comm)
        if source == PROC_NULL:
            none = Outcome(0, SUCCESS, PROC_NULL, ANY_TAG)
            return self._start("Irecv", _nothing(none), buffer)
        state = self._context._state
        port = _HostPort(state, buffer.data, sends=False)
        eager = state.layout.eager_bytes
        step = receive_message(state.address, port, origin, source, tag, buffer.nbytes, eager)
        return self._start("Irecv", _unpacked(step, buffer), buffer)

    def Send(self, buf: Any, dest: int, tag: int = 0, comm: int = COMM_WORLD) -> None:
        """Blocking send (MPI 4.1 section 3.2.1)."""
        self.Isend(buf, dest, tag, comm).Wait()

    def Recv(
        self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, comm: int = COMM_WORLD
    ) -> HostStatus:
        """Blocking receive (MPI 4.1 section 3.2.4)."""
        return self.Irecv(buf, source, tag, comm).Wait()

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        comm: int = COMM_WORLD,
    ) -> HostStatus:
        """Send and receive together (MPI 4.1 section 3.10)."""
        incoming = self.Irecv(recvbuf, source, recvtag, comm)
        outgoing = self.Isend(sendbuf, dest, sendtag, comm)
        outgoing.Wait()
        return incoming.Wait()

    def Waitall(self, requests: Sequence[HostRequest]) -> list[HostStatus]:
        """Waits for all, making progress on each (MPI 4.1 section 3.7.5)."""
        return [request.Wait() for request in requests]

    # --- collectives: all ranks, host or kernel --------------------------------------------------

    def Barrier(self, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.3."""
        self._run("Barrier", _await(self._communicator(comm).messages.Ibarrier()))

    def Bcast(self, buf: Any, root: int = 0, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.4."""
        communicator = self._communicator(comm)
        sends = communicator.rank == root
        buffer = self._buffer(buf, "buf", writable=not sends)
        data = buffer.data
        step = self._by_chunks(
            buffer.nbytes,
            lambda at, n: communicator.messages.Ibcast([data[at : at + n], MPI.BYTE], root),
        )
        self._run("Bcast", step if sends else _unpacked(step, buffer))

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.9.6; ``sendbuf`` may be ``gmpi.IN_PLACE``, ``op`` is as in kernels.

        Buffers are arrays: MPI defines reductions for predefined datatypes only.
        """
        result = reduced_array(recvbuf, "recvbuf", writable=True)
        if not isinstance(sendbuf, int):
            source = reduced_array(sendbuf, "sendbuf", writable=False)
            if source.nbytes != result.nbytes:
                raise ValueError(
                    f"sendbuf has {source.nbytes} bytes, recvbuf {result.nbytes}: make them equal"
                )
            result.reshape(-1)[:] = source.reshape(-1)
        communicator = self._communicator(comm)
        flat = result.reshape(-1)
        size = result.itemsize
        if not isinstance(op, (int, np.integer)) or not 0 <= op < len(OPERATIONS_REDUCE):
            names = ", ".join("gmpi." + name for name, _ in OPERATIONS_REDUCE)
            raise ValueError(f"op is {op!r}, allowed is one of {names}")
        reduction = OPERATIONS_REDUCE[op][1]

        def start(at: int, n: int) -> MPI.Request:
            piece = flat[at // size : (at + n) // size]
            return communicator.messages.Iallreduce(MPI.IN_PLACE, piece, reduction)

        self._run("Allreduce", self._by_chunks(result.nbytes, start))

    def _by_chunks(self, nbytes: int, start: Any) -> Step:
        """Cuts as kernels do: ranks must start the same pieces in the same order."""
        eager, largest = self._sizes()
        chunk = chunk_bytes_of(nbytes, largest) if nbytes > eager else max(nbytes, 1)
        for position, length in chunks_of(nbytes, chunk) or [(0, 0)]:
            yield start(position, length)
        return Outcome(nbytes)

    # --- helpers ----------------------------------------------------------------------------------

    def _run(self, name: str, operation: Step) -> None:
        HostRequest(self._progress, name, operation, 1, None).Wait()

    def _start(self, name: str, operation: Step, buffer: HostBuffer) -> HostRequest:
        return HostRequest(self._progress, name, operation, buffer.itemsize, buffer)

    def _buffer(self, spec: Any, name: str, writable: bool) -> HostBuffer:
        return HostBuffer(spec, name, writable, lambda: self._context._datatypes.plans)

    def _sizes(self) -> tuple[int, int]:
        layout = self._context.layout
        return layout.eager_bytes, layout.chunk_bytes

    def _communicator(self, comm: int) -> Communicator:
        self._context._require_open()
        known = self._context._state.communicators
        if not isinstance(comm, (int, np.integer)) or not 0 <= comm < len(known):
            raise ContextError(
                f"communicator handle is {comm!r}, allowed is 0..{len(known) - 1}; "
                "register it with Context.comm() first"
            )
        return known[comm]


def _nothing(outcome: Outcome) -> Step:
    return outcome
    yield


def _unpacked(operation: Step, buffer: HostBuffer) -> Step:
    outcome: Outcome = yield from operation
    buffer.unpack(outcome.nbytes)
    return outcome


def _await(request: MPI.Request) -> Step:
    yield request
    return Outcome(0)
