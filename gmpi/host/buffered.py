"""Buffered sends: what they send is kept here until it has gone (MPI 4.1 section 3.6).

The call is complete when the bytes are in memory of this rank's own, so nobody waits for the
message. The proxy's thread goes on with it, and so do waits of the host. Nothing is attached by
MPI_Buffer_attach: memory is taken as it is needed. What else only that thread may do, it does here
for the host.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from gmpi.contract.constants import GMPI_ERR_NO_RESOURCE, SUCCESS
from gmpi.errors import CallError, ContextError, Fault, GMPIError, ResourceError
from gmpi.fault_words import caller
from gmpi.host.port import HostPort
from gmpi.host.requests import HostRequest, Operation, Progress
from host_proxy.platform import operations as ops
from host_proxy.platform.state import G_BUFFERED, G_TAG_UB
from host_proxy.records.fault_log import log_request
from host_proxy.reference.protocol import send_message

if TYPE_CHECKING:
    from gmpi.context import Context


class Buffered:
    """Those of one context, of its kernels and of its host; any thread."""

    def __init__(self, context: Context, progress: Progress) -> None:
        self._context: Context = weakref.proxy(context)
        self._progress = progress
        self._lock = threading.Lock()
        self._open: list[tuple[HostRequest, int]] = []
        self._errands: deque[Callable[[], None]] = deque()

    def send(
        self, call: str, data: np.ndarray, dest: int, tag: int, comm: int, block: int = -1
    ) -> None:
        """Sends bytes that nobody else has.

        Args:
            dest, tag: checked, and no PROC_NULL.
            block: who has called; -1: the host.
        """
        state, progress = self._context._state, self._progress
        layout, high = state.layout, int(state.globals[G_TAG_UB])
        number = progress.transfer_number(high)
        port = HostPort(state, data, sends=True)
        sizes = layout.eager_bytes, layout.chunk_bytes
        step = send_message(port, state.communicator(comm), dest, tag, data.nbytes, sizes, number)
        nbytes = data.nbytes
        about = Operation(call, "send", comm, dest, tag, data.dtype, nbytes, nbytes)
        request = HostRequest(progress, about, progress.numbered(number, step), 1, data)
        with self._lock:
            self._open.append((request, block))
        state.globals[G_BUFFERED] = 1

    def send_for_kernel(
        self, call: str, data: np.ndarray, dest: int, tag: int, comm: int, block: int
    ) -> int:
        """The same for the proxy's thread: an error class, of what is logged."""
        try:
            self.send(call, data, dest, tag, comm, block)
        except ContextError as exc:
            text = f"{call} in {caller(block)}: {exc}"
            self._log(Fault(text, call, "memory", "all in use", "what is there", block,
                            GMPI_ERR_NO_RESOURCE, ResourceError))  # fmt: skip
            return GMPI_ERR_NO_RESOURCE
        return int(SUCCESS)

    def have_done(self, errand: Callable[[], None]) -> None:
        """Has the proxy's thread do something, which raises nothing."""
        self._errands.append(errand)
        self._context._state.globals[G_BUFFERED] = 1

    def step(self) -> None:
        """Goes on with all of them; the proxy's thread. What has failed is logged."""
        state = self._context._state
        state.globals[G_BUFFERED] = 0  # before looking: another thread may add one meanwhile
        while self._errands:
            self._errands.popleft()()
        with self._lock:
            requests = list(self._open)
        self._progress.go_on([request for request, _ in requests if not request.is_complete])
        ended = [(request, block) for request, block in requests if request.is_complete]
        for request, block in ended:
            self._note(request, block)
        with self._lock:
            self._open = [pair for pair in self._open if pair not in ended]
            if self._open:
                state.globals[G_BUFFERED] = 1

    @property
    def left(self) -> list[str]:
        """What has not gone yet, in words."""
        with self._lock:
            requests = [(r, block) for r, block in self._open if not r.is_complete]
        return [f"{r.operation.name} {r.operation} from {caller(b)}" for r, b in requests]

    def _note(self, request: HostRequest, block: int) -> None:
        try:
            request.result()
        except GMPIError as exc:
            if isinstance(exc, CallError):
                text = exc.fault.text.replace(" in host:", f" in {caller(block)}:", 1)
                self._log(exc.fault._replace(text=text, block=block))

    def _log(self, fault: Fault) -> None:
        state = self._context._state
        number = state.notes.keep(fault)
        log_request(state.address, state.row(0), ops.WORDED, fault.error_class, 0, number, 0)
