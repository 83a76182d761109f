"""Waiting for what the kernels of a context have under way, and saying what went wrong.

Everything here belongs to the host: it asks for events and reads the proxy's arrays, so Ctrl-C
arrives while it waits.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING

from gmpi.contract.constants import GMPI_ERR_ABORTED
from gmpi.contract.wire import PRIVATE_COMMUNICATOR
from gmpi.errors import (
    AbortedError,
    KernelError,
    PeerError,
    PendingError,
    ProxyError,
    RequestTimeoutError,
)
from gmpi.lifetime import ending, freed, opening
from gmpi.observe.report import Report
from host_proxy.platform.state import G_FAULTS, G_SERIAL, OPEN, S_COMM, S_STATE
from host_proxy.records.ring import has_record

if TYPE_CHECKING:
    from gmpi.context import Context

_POLL_S = 20e-6
_SETTLE_S = 1.0  # how long requests of ended kernels may take when the context closes


class Synchronization:
    """What the host of one context waits for.

    Attributes:
        aborted: every call of its kernels ends with an error from now on.
        timeout: why, where it is because nothing moved.
        lost: why, where it is because another rank has gone.
    """

    def __init__(self, context: Context) -> None:
        self.aborted = False
        self.timeout: Report | None = None
        self.lost: PeerError | None = None
        self._context: Context = weakref.proxy(context)  # whose part we are
        self._lock = threading.RLock()  # a handler of a signal may abort what is being aborted
        self._told = False  # somebody has been told that it was aborted
        self._faults_seen = 0
        self._looked_at = 0

    # --- waiting ----------------------------------------------------------------------------------

    def synchronize(self, timeout: float) -> None:
        """``Context.synchronize``, with ``timeout`` s for the requests of ended kernels."""
        self.wait_for_kernels(None)
        if not self.aborted:
            freed.close(self._context, timeout)
        if self.aborted:
            raise self.aborted_error()
        if not self._wait_for_requests(timeout):
            listing = "; ".join(map(str, self._context.pending))
            raise PendingError(f"all kernels have ended but requests are still open: {listing}")
        self.raise_faults()
        if (untaken := self.untaken()) is not None:
            raise untaken

    def untaken(self) -> PendingError | None:
        """What is raised for receives that no kernel has waited for, once; none may run."""
        opened = int(self._context._state.globals[G_SERIAL])
        if opened == self._looked_at:
            return None
        self._looked_at = opened
        requests = ending.never_taken(self._context)
        if not requests:
            return None
        return PendingError(
            f"kernels ended without waiting for {len(requests)} requests whose data have come, and "
            f"are in no buffer: {ending.listed(requests)}; wait for every request before the "
            "kernel returns"
        )

    def settle(self) -> None:
        """Before closing: gives what kernels have left behind a moment to complete."""
        if not self.aborted:
            freed.close(self._context, self._context.config.sync_timeout_s)
            self._wait_for_requests(_SETTLE_S)
            self._wait_for_buffered(self._context.config.sync_timeout_s)

    def _wait_for_requests(self, timeout: float) -> bool:
        """Whether none is open, after ``timeout`` s at most; true without a proxy, too."""
        deadline = time.monotonic() + timeout
        while self._context._proxy.alive and not self._is_quiet():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _wait_for_buffered(self, timeout: float) -> None:
        """As long as buffered sends have not gone: nobody waits for them, and they must come."""
        deadline = time.monotonic() + timeout
        while self._context._buffered.left and self._context._proxy.alive and not self.aborted:
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)

    def _is_quiet(self) -> bool:
        """No record in the ring, no request open. Only sure while no kernel runs."""
        state = self._context._state
        if has_record(state.address):
            return False
        # Those of partitioned requests are nobody's: a later kernel may wait for them.
        users = state.slots[:, S_COMM] != PRIVATE_COMMUNICATOR
        return not bool(((state.slots[:, S_STATE] == OPEN) & users).any())

    def wait_for_kernels(self, timeout: float | None) -> bool:
        """Whether all kernels have ended within ``timeout`` seconds.

        Raises:
            KernelError: one died; the context is aborted.
        """
        try:
            return self._context._kernels.wait(timeout)
        except KernelError as exc:
            opening.kernel_died = True
            self.abort(GMPI_ERR_ABORTED)
            self._told = True
            raise KernelError(f"{exc}{self._pending_text()}") from exc.__cause__

    # --- ending waits -----------------------------------------------------------------------------

    def abort(self, error_class: int) -> None:
        """Ends every wait of every kernel with ``error_class``, for good; any thread."""
        with self._lock:
            self.aborted = True
            if not self._context._closed:
                self._context._proxy.abort(error_class)

    def fork(self, why: str) -> None:
        """``close`` in a child: another thread may have held the lock, and is not there."""
        self._lock = threading.RLock()
        self.close(why)

    def close(self, why: str) -> None:
        """The context cannot be used any more: its memory goes, nothing is left to be aborted.

        Args:
            why: what ``ContextError`` says from now on.
        """
        with self._lock:
            self._context._closed = self._context._host_progress.closed = why

    def time_out(self, report: Report, error_class: int) -> None:
        """The same, because nothing moves (the watchdog's thread)."""
        self.timeout = report
        self.abort(error_class)

    def lose(self, error: PeerError) -> None:
        """The same, because another rank has gone (the watchdog's thread)."""
        self.lost = error
        self.abort(GMPI_ERR_ABORTED)

    @property
    def told(self) -> Report | None:
        """The report with which the watchdog has ended the waits."""
        return self.timeout if self.lost is None else self.lost.report

    # --- what went wrong --------------------------------------------------------------------------

    def failure(self) -> Exception | None:
        """What a host that does not wait should know at once (the watchdog's thread)."""
        failure = self._context._proxy.failure
        if failure is not None:
            return ProxyError(f"the proxy thread ended with {failure!r}")
        first = self._context.first_error
        return None if first is None else first.kind(first)

    def raise_faults(self) -> None:
        """Raises the first call that failed since the last time, or what ended the proxy."""
        self._context._partitioned.raise_problem()
        failure = self._context._proxy.failure
        if failure is not None:
            raise ProxyError(
                f"the proxy thread ended with {failure!r}; kernels were released with "
                "GMPI_ERR_PROXY"
            ) from failure
        faults = self._context._faults(self._faults_seen)
        self._faults_seen = int(self._context._state.globals[G_FAULTS])
        if faults and self._context.config.on_error != "return":
            raise faults[0].kind(faults[0], len(faults) - 1)

    def aborted_error(self) -> AbortedError | PeerError | RequestTimeoutError:
        """What is raised when the context has been aborted; counts as told."""
        self._told = True
        if self.lost is not None:
            return self.lost
        if self.timeout is not None:
            return RequestTimeoutError(self.timeout)
        return AbortedError(
            "the context was aborted: calls of its kernels have returned GMPI_ERR_ABORTED, and "
            f"what they compute is not to be trusted{self._pending_text()}"
        )

    def untold_abort(self) -> AbortedError | PeerError | RequestTimeoutError | None:
        """The same, if nobody has been told yet."""
        return None if self._told else self.aborted_error()

    def _pending_text(self) -> str:
        pending = self._context.pending
        if not pending:
            return ""
        some = "; ".join(map(str, pending[:5])) + ("; ..." if len(pending) > 5 else "")
        return f"; {len(pending)} requests were open: {some}"
