"""Operations of the host that are under way: requests, their statuses, waiting for them.

A wait is cut into slices, so that Ctrl-C arrives, and ends like a kernel's: when the context is
aborted, or when nothing has moved for ``timeout_s``. What MPI has of the operation then stays with
it (``gmpi/lifetime/unfinished.py``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from mpi4py import MPI

from gmpi.contract.constants import DATATYPE_NAMES, DATATYPES, ERR_TRUNCATE, NO_MESSAGE
from gmpi.errors import CallError, ContextError, Fault, GMPIError, TruncationError
from gmpi.faults import flawed_message
from gmpi.host.arguments import disagreeing, failed_elsewhere, failed_in_mpi, refused
from gmpi.host.status import HostStatus
from gmpi.value_words import rank_text, tag_text
from host_proxy.compiled.headers import BAD_LENGTH
from host_proxy.reference.failure import (
    BrokenCommunicator,
    Disagreement,
    Failure,
    PeerFailure,
    RequestFailure,
    error_class,
)
from host_proxy.reference.flows import NO_FLOWS, Flows
from host_proxy.reference.protocol import Outcome, Step

if TYPE_CHECKING:
    from gmpi.host.buffer import HostBuffer
    from gmpi.lifetime.synchronization import Synchronization


class Operation(NamedTuple):
    """What a call of the host asks for, for reports and errors.

    Attributes:
        kind: ``send``, ``receive``, ``collective``, or ``buffered``: a send that is complete,
            though its message may not have gone.
        peer: rank in the communicator; of a broadcast the root; None: there is none.
        comm: handle.
        element: ``HostBuffer.element``.
        flows: of a collective with counts.
    """

    name: str
    kind: str
    comm: int
    peer: int | None = None
    tag: int | None = None
    element: Any = None
    count: int = 0  # type: ignore[assignment]  # MPI's word; hides tuple.count
    nbytes: int = 0
    reduction: str = ""
    flows: Flows = NO_FLOWS

    def __str__(self) -> str:
        words = []
        if self.peer is not None:
            words.append(f"peer {rank_text(self.peer)}")
        if self.tag is not None:
            words.append(f"tag {tag_text(self.tag)}")
        return ", ".join([*words, f"communicator {self.comm}, {self.nbytes} bytes"])


class Prepared(NamedTuple):
    """An operation whose arguments have been checked, and of which MPI knows nothing yet."""

    operation: Operation
    steps: Step
    buffer: HostBuffer


def nothing(outcome: Outcome) -> Step:
    """The steps of what is complete at once."""
    return outcome
    yield


def type_name(element: Any) -> str:
    """The name of what one element is, for reports."""
    for handle, (_, datatype, dtype) in zip(DATATYPE_NAMES, DATATYPES):
        if element == (dtype if isinstance(element, np.dtype) else datatype):
            return DATATYPE_NAMES[handle]
    return f"elements of {element}" if isinstance(element, np.dtype) else "a derived datatype"


class Progress:
    """The operations of one context's host that are under way.

    MPI promises progress to all of them while the process waits for any: without it two ranks that
    each post a receive, then send something long and wait for that, would wait for ever.

    Attributes:
        closed: why nothing can go on: what operations go on with is gone.
        moved: changes whenever an operation begins, goes on or ends.
    """

    def __init__(self, waits: Synchronization) -> None:
        self.closed = ""
        self.moved = 0
        self.transfers = 0  # numbers drawn so far
        self.numbers: set[int] = set()  # of messages that are under way
        self.lock = threading.Lock()  # several threads may wait; a generator has one caller
        self.open: list[HostRequest] = []
        self.collectives: dict[int, HostRequest] = {}  # the last one on each communicator
        self.begun: list[Callable[[HostRequest], object]] = []  # are told of each that begins,
        self.ended: list[Callable[[HostRequest], object]] = []  # and of each that has ended
        self._waits = waits

    def require(self) -> None:
        """Raises what ends all waits, if anything does."""
        if self.closed:
            raise ContextError(self.closed)
        if self._waits.aborted:
            raise self._waits.aborted_error()

    def transfer_number(self, tag_ub: int) -> int:
        """A number that no message of the host has that is under way.

        Those of the host are in the upper half, those of kernels (``rules.transfer_number``) in the
        lower one.
        """
        half = tag_ub >> 2
        with self.lock:
            if len(self.numbers) == half:
                raise ContextError(
                    f"{half} sends of the host are under way, as many as MPI_TAG_UB ({tag_ub}) has "
                    "room for: wait for some"
                )
            while True:
                self.transfers += 1
                number = half + self.transfers % half
                if number not in self.numbers:
                    self.numbers.add(number)
                    return number

    def numbered(self, number: int, steps: Step) -> Step:
        """The steps, and then the number is free."""
        try:
            return (yield from steps)
        finally:
            self.numbers.discard(number)

    def start(self, request: HostRequest) -> None:
        with self.lock:
            self.moved += 1
            _tell(self.begun, request)
            request.advance(None)
            if not request.is_complete:
                self.open.append(request)
            else:
                _tell(self.ended, request)

    def step(self) -> None:
        self.require()
        self.go_on()

    def go_on(self, only: Sequence[HostRequest] | None = None) -> None:
        """As far as MPI has come, with all of them, or with some."""
        with self.lock:
            for request in self.open if only is None else only:
                if request.is_complete:
                    continue
                self.moved += request.step()
                if request.is_complete:
                    _tell(self.ended, request)
            self.open = [request for request in self.open if not request.is_complete]

    def open_on(self, comm: int) -> int:
        """How many use a communicator."""
        return sum(request.operation.comm == comm for request in list(self.open))


def _tell(whom: list[Callable[[HostRequest], object]], request: HostRequest) -> None:
    for each in whom:
        each(request)


class HostRequest:
    """An operation of the host that is under way.

    It progresses while any operation of the host is tested or waited for.

    Attributes:
        operation: what was asked for.
        is_complete: whether it has ended, well or not.
        is_active: whether nobody has been told so yet.
        matched: its message has begun to come.
        began: when, of ``time.monotonic``.
    """

    def __init__(
        self, progress: Progress, operation: Operation, steps: Step, itemsize: int, keep: Any
    ) -> None:
        self.operation = operation
        self.is_complete = False
        self.is_active = True
        self.matched = False
        self.began = time.monotonic()
        self._progress = progress
        self._steps = steps
        self._itemsize = itemsize
        self._keep = keep  # the buffer, which MPI uses
        self._waits_for: MPI.Request | None = None
        self._status = HostStatus(Outcome(0), itemsize)
        self._failure: GMPIError | None = None
        progress.start(self)

    @property
    def outcome(self) -> HostStatus:
        """How it ended, once it is complete."""
        return self._status

    # --- the operation, which the progress lock protects ------------------------------------------

    def advance(self, value: Any) -> None:
        """Runs the operation until it waits for MPI."""
        self.matched = value is not None and self.operation.kind == "receive"
        try:
            if isinstance(value, RequestFailure):
                self._waits_for = self._steps.throw(value)
            else:
                self._waits_for = self._steps.send(value)
        except StopIteration as stop:
            self._end(stop.value)
        except (MPI.Exception, Failure) as exc:
            self._fail(exc)
        except BaseException:  # Ctrl-C: nobody can go on where it was
            self._failure = ContextError(f"{self.operation.name} was interrupted")
            self.is_complete = True
            raise

    def step(self) -> int:
        """Goes on as far as MPI has come; by how many steps."""
        steps = 0
        while not self.is_complete:
            assert self._waits_for is not None
            status = MPI.Status()
            try:
                if not self._waits_for.Test(status):
                    break
            except MPI.Exception as exc:
                self.advance(RequestFailure(exc, status))
                steps += 1
                continue
            steps += 1
            if not self.matched and status.Is_cancelled():
                self._steps.close()
                self._end(Outcome(0, tag=NO_MESSAGE))
            else:
                self.advance(status)
        return steps

    def _end(self, outcome: Outcome) -> None:
        self._status = HostStatus(outcome, self._itemsize)
        if outcome.error == ERR_TRUNCATE:
            self._failure = TruncationError(self._truncation(outcome))
        if outcome.flaw:
            name, source, tag = self.operation.name, outcome.source, outcome.tag
            self._failure = CallError(flawed_message(name, outcome.flaw, source, tag))
        self.is_complete = True

    def _fail(self, exc: MPI.Exception | Failure) -> None:
        name, what = self.operation.name, str(self.operation)
        self._status.error = error_class(exc)
        cause = exc.cause if isinstance(exc, RequestFailure) else exc
        if isinstance(cause, MPI.Exception):
            self._failure = failed_in_mpi(name, what, cause)
            self._failure.__cause__ = cause
        elif isinstance(cause, PeerFailure):
            self._failure = failed_elsewhere(name, what, cause.rank, cause.error)
        elif isinstance(cause, BrokenCommunicator):
            self._failure = refused(name, what, self.operation.comm, cause.error)
        elif isinstance(cause, Disagreement):
            self._failure = disagreeing(name, cause)
        else:
            peer, tag = self.operation.peer or 0, self.operation.tag or 0
            self._failure = CallError(flawed_message(name, BAD_LENGTH, peer, tag))
        self.is_complete = True

    def _truncation(self, outcome: Outcome) -> Fault:
        allowed = f"at most {outcome.nbytes} bytes"
        name, length = self.operation.name, "message length"
        text = (
            f"{name} in host: {length} is {outcome.total}, allowed is {allowed}; receive with a "
            f"larger buffer [the message from rank {rank_text(outcome.source)} with tag "
            f"{tag_text(outcome.tag)} is longer than the buffer; {outcome.nbytes} bytes were "
            "delivered]"
        )
        return Fault(text, name, length, outcome.total, allowed, -1, ERR_TRUNCATE, TruncationError)

    # --- for the user -----------------------------------------------------------------------------

    def Test(self, status: MPI.Status | None = None) -> bool:
        """Whether the operation is complete; raises as ``Wait`` (MPI 4.1 section 3.7.3)."""
        if not self.poll():
            return False
        self.result(status)
        return True

    def Wait(self, status: MPI.Status | None = None) -> HostStatus:
        """Waits for the operation (MPI 4.1 section 3.7.3).

        Args:
            status: mpi4py's object, which is filled in.

        Raises:
            TruncationError: the message was longer than the buffer.
            MPICallError: MPI has failed.
            AbortedError, RequestTimeoutError: as ``Context.synchronize``; the operation is left
                as it is.
        """
        wait_until(self.poll)
        return self.result(status)

    def Get_status(self, status: MPI.Status | None = None) -> bool:
        """Whether the operation is complete, for ``Wait`` to end (MPI 4.1 section 3.7.6)."""
        if self.poll():
            self._status.copy_to(status)
        return self.is_complete

    def Cancel(self) -> None:
        """Cancels a receive whose message has not come; it ends all the same, by ``Wait``
        (MPI 4.1 section 3.8.4). Anything else goes on."""
        with self._progress.lock:
            if self.operation.kind == "receive" and not (self.is_complete or self.matched):
                assert self._waits_for is not None
                self._waits_for.Cancel()

    # --- for calls that wait for several ----------------------------------------------------------

    def poll(self) -> bool:
        """Makes progress; whether the operation has ended, well or not."""
        if not self.is_complete:
            self._progress.step()
        return self.is_complete

    def result(self, status: MPI.Status | None = None) -> HostStatus:
        """How it has ended; raises what it ended with, unless that is success."""
        self.is_active = False
        self._status.copy_to(status)
        if self._failure is not None:
            raise self._failure
        return self._status

    @property
    def failed(self) -> bool:
        return self._failure is not None


def wait_until(done: Any) -> None:
    """Calls ``done`` until it returns a true value."""
    started = time.monotonic()
    while not done():
        if time.monotonic() - started < 0.002:
            os.sched_yield()
        else:
            time.sleep(50e-6)


class AnyRequest(Protocol):
    """What calls that wait for several take: ``HostRequest``, or ``HostPersistent``."""

    @property
    def is_active(self) -> bool: ...

    def poll(self) -> bool: ...

    def result(self, status: MPI.Status | None = None) -> HostStatus: ...


def results(requests: Sequence[AnyRequest], statuses: list[MPI.Status] | None) -> list[HostStatus]:
    """How requests that are complete have ended.

    Args:
        statuses: filled in, one for each request; those that are missing are appended.

    Raises:
        GMPIError: what the first one that failed ended with, after all were taken note of.
    """
    found, failures = [], []
    for i, request in enumerate(requests):
        if statuses is not None and i >= len(statuses):
            statuses.append(MPI.Status())
        try:
            found.append(request.result(None if statuses is None else statuses[i]))
        except GMPIError as exc:
            failures.append(exc)
    if failures:
        raise failures[0]
    return found
