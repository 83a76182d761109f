"""A context: the memory, the proxy and the communicators behind one GPU's kernels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI

from device_lib.platform.context import AnyContext
from device_lib.platform.primitives import SIMULATOR
from gmpi import faults
from gmpi.committed import Datatypes
from gmpi.communicators import Communicators
from gmpi.config import Config
from gmpi.contract.constants import GMPI_ERR_ABORTED
from gmpi.contract.sizes import Layout
from gmpi.errors import ContextError, Fault
from gmpi.handles import Handles
from gmpi.host.calls import Host
from gmpi.host.partitioned import Partitioned
from gmpi.host.requests import Progress
from gmpi.host.window_calls import WindowCalls
from gmpi.launch import launch
from gmpi.launch.kernels import LaunchedKernels
from gmpi.lifetime import ending, finalize, shutdown, unfinished
from gmpi.lifetime.farewell import words_of
from gmpi.lifetime.opening import require_intracomm, require_mpi
from gmpi.lifetime.opening_steps import open_context
from gmpi.lifetime.synchronization import Synchronization
from gmpi.lifetime.termination import Termination
from gmpi.lifetime.watchdog import Watchdog
from gmpi.memory.peers import Peers
from gmpi.memory.regions import Memory
from gmpi.observe.door import Door
from gmpi.observe.pending import PendingRequest
from gmpi.observe.ranges import Ranges
from gmpi.observe.report import Report
from gmpi.trace.recorder import Recorder
from host_proxy.platform import trace
from host_proxy.platform.state import OPEN, S_STATE, State, fault_rows
from host_proxy.proxy import Proxy


class Context(Handles, WindowCalls):
    """Lets the kernels of this process call MPI.

    Opening is collective over ``comm``, and so is closing without an exception. One context may be
    open at a time.

    Args:
        comm: intracommunicator; ``gmpi.COMM_WORLD`` in kernels. It is duplicated, so messages of
            the user's own on it are never mixed up with those of kernels.
        gpu: False for a rank without kernels, which takes part through ``host`` only. Otherwise the
            context is on the GPU that is current or, before any use of CUDA, on the one that
            ``gmpi.select_gpu`` would take.
        no_any_tag: True: no receive on ``comm`` uses ``ANY_TAG`` (any that does gets ``ERR_TAG``),
            so that MPI matches faster; the same on all ranks. None: as ``mpi_assert_no_any_tag``
            says in its info (MPI 4.1 section 7.4.4), if the MPI library returns that.
        wildcards: False: no receive on ``comm`` uses ``ANY_SOURCE`` or ``ANY_TAG``, so messages
            between GPUs that map each other's memory need no proxy (docs/direct.md); the same on
            all ranks. None: False where the communicator's info has both
            ``mpi_assert_no_any_source`` and ``mpi_assert_no_any_tag``.
        **settings: see ``gmpi.config.Config``; for example ``engine="mpi4py"``.

    Raises:
        ContextError: MPI is not ready, there is no GPU, another context is open, or the ranks do
            not agree on the sizes or on ``no_any_tag``; on all ranks.
        ConfigError: a setting is wrong.
    """

    # Made by ``gmpi/lifetime/opening_steps.py``.
    rank: int
    size: int
    config: Config
    layout: Layout
    _has_kernels: bool
    _device: AnyContext
    _memory: Memory
    _peers: Peers
    _state: State
    _kernels: LaunchedKernels
    _waits: Synchronization
    _host_progress: Progress
    _buffered: Any  # ``gmpi/host/buffered.py``
    _datatypes: Datatypes
    _communicators: Communicators
    _partitioned: Partitioned
    _proxy: Proxy
    _watchdog: Watchdog
    _termination: Termination
    _door: Door
    _recorder: Recorder | None = None
    _ranges: Ranges

    def __init__(
        self,
        comm: MPI.Comm | None = None,
        *,
        gpu: bool = True,
        no_any_tag: bool | None = None,
        wildcards: bool | None = None,
        **settings: Any,
    ) -> None:
        self._closed = shutdown.CLOSED  # why it cannot be used
        self._origins: dict[str, str] = {}
        self._gpu = gpu and not SIMULATOR
        require_mpi()
        unfinished.settle()
        finalize.watch()
        comm = MPI.COMM_WORLD if comm is None else comm
        require_intracomm(comm)
        open_context(self, comm, gpu, no_any_tag, wildcards, settings)

    def __repr__(self) -> str:
        if self._closed:
            return "<gmpi.Context, closed>"
        state = "aborted" if self._waits.aborted else "open"
        where = "simulator" if SIMULATOR else "GPU" if self._gpu else "host only"
        return (
            f"<gmpi.Context, {state}, rank {self.rank} of {self.size}, {where}, "
            f"engine {self._proxy.engine}, {len(self.pending)} requests pending>"
        )

    # --- what kernels get ----------------------------------------------------------------------

    @property
    def device(self) -> AnyContext:
        """First argument of every ``GMPI_*`` call; pass it to the kernel by value."""
        self._require_open()
        if not self._has_kernels:
            raise ContextError(
                "this context was opened with gpu=False: use Context.host, or open it with a GPU"
            )
        return self._device

    def max_blocks(
        self,
        kernel: Any,
        threads: int | tuple[int, ...],
        args: tuple[Any, ...] = (),
        shared_bytes: int = 0,
        lean: bool = False,
        keep_registers: bool = False,
    ) -> int:
        """The largest grid of blocks of ``threads`` that is resident as a whole, beside grids as
        large of the other ranks that share the GPU.

        Args:
            kernel: a ``cuda.jit`` kernel, compiled or launched before, unless ``args`` are given.
            threads: threads per block: one number, or a tuple as in the launch.
            args: example arguments to compile it for.
            shared_bytes: dynamic shared memory of a block, as in the launch.
            lean: for a kernel that hardly calls GMPI: a thread of it, and of the functions that it
                calls, has at most 40 registers in place of 64. More blocks are resident, calls take
                longer.
            keep_registers: only grids whose launch leaves the kernel's own code the registers that
                it was compiled with. Otherwise code that takes more than 64 is held to 64 where
                that lets more blocks be resident, and the rest spills to memory.

        Raises:
            ValueError: the kernel has not been compiled, and there are no ``args``; or both
                ``lean`` and ``keep_registers``.
        """
        if args and not SIMULATOR:
            kernel.compile(tuple(kernel.typeof_pyval(arg) for arg in args))
        return (
            launch.max_blocks(kernel, threads, shared_bytes, lean, keep_registers)
            // self._peers.sharers
        )

    # --- what is going on ----------------------------------------------------------------------

    @property
    def pending(self) -> list[PendingRequest]:
        """Requests that are open now: the proxy has them and they are not complete."""
        rows = self._state.slots
        users = self._partitioned.as_users
        return [PendingRequest(users(row)) for row in rows[rows[:, S_STATE] == OPEN]]

    @property
    def errors(self) -> list[Fault]:
        """What went wrong so far, oldest first: the first call that failed, and the last 255."""
        return self._faults(0)

    @property
    def first_error(self) -> Fault | None:
        """The first call that failed, with its arguments; None: none has."""
        return next(iter(self._faults(0)), None)

    def _faults(self, since: int) -> list[Fault]:
        known = len(self._state.communicators)
        rows = fault_rows(self._state, since)
        plans, notes = self._datatypes.plans, self._state.notes
        return [faults.describe(row, known, plans, notes) for row in rows]

    def report(self) -> Report:
        """What every rank has pending, and the likely cause if nothing moves.

        Not collective, may be called by any thread at any time; takes up to a second. A rank that
        does not answer, or whose watchdog is off (``watchdog_s`` and ``timeout_s`` 0), is silent.
        ``kill -USR1`` prints the same report.
        """
        self._require_open()
        return self._watchdog.report("on demand")

    @property
    def kernels_running(self) -> bool:
        """Whether a kernel that was launched with this context has not ended."""
        return not self._waits.wait_for_kernels(0)

    @property
    def proxy_cores(self) -> frozenset[int]:
        """Cores that the proxy thread is bound to; empty: wherever the process may run."""
        return self._proxy.cores

    @property
    def proxy_cpu_seconds(self) -> float:
        """Processor time that the proxy thread has used."""
        return self._proxy.cpu_seconds

    @property
    def paths(self) -> dict[str, list[int]]:
        """How long messages of our kernels travel: ``"direct road"`` or ``"GPU staging"``, within
        the node, or ``"MPI"``, each with the ranks of the context's communicator to which they go
        that way. Shorter ones, up to ``eager_bytes``, travel by MPI, or also by the direct road.
        """
        return self._peers.paths(self._state.communicators[0])

    @property
    def trace(self) -> np.ndarray:
        """Stamps of the last requests, with ``trace=n``: DTYPE of host_proxy/platform/trace.py."""
        if not self.config.trace:
            raise ContextError("open the context with trace=n to keep time stamps of n requests")
        return trace.read(self._state)

    @property
    def host(self) -> Host:
        """Calls of the host in the same matching space (``gmpi/host/calls.py``)."""
        return Host(self, self._host_progress)

    # --- waiting ----------------------------------------------------------------------------------

    def synchronize(self, timeout: float | None = None) -> None:
        """Waits for kernels that were launched with this context and for open requests.

        Ctrl-C arrives while it waits.

        Args:
            timeout: seconds to wait for the requests of kernels that have ended; default
                ``sync_timeout_s``.

        Raises:
            CallError: the first call of a kernel that failed since the last time (unless
                ``on_error="return"``; with ``"abort"`` this and everything below ends the job).
            PendingError: requests are still open after the timeout, or a receive was not
                waited for.
            AbortedError: the context has been aborted.
            RequestTimeoutError: nothing moved for ``timeout_s``.
            KernelError: a kernel died.
            ProxyError: the proxy thread has died.
        """
        self._require_open()
        with self._ranges.during("synchronize"), self._ending_the_job():
            self._waits.synchronize(self.config.sync_timeout_s if timeout is None else timeout)

    @contextmanager
    def _ending_the_job(self) -> Iterator[None]:
        """Where what is raised ends all ranks, with ``on_error="abort"``."""
        try:
            yield
        except ending.FATAL as exc:
            if self.config.on_error == "abort":
                ending.abort_job(self, exc)
            raise

    # --- the end ----------------------------------------------------------------------------------

    def abort(self) -> None:
        """Releases every kernel that waits: its calls return ``GMPI_ERR_ABORTED``.

        For good: all later calls end the same way. Any thread may call it. ``synchronize`` raises
        ``AbortedError`` from then on, and ``close`` if nothing else has said so before.
        """
        self._waits.abort(GMPI_ERR_ABORTED)

    def close(self) -> None:
        """Waits for kernels, ends the proxy, reports what was left open. Idempotent.

        Warns (LeakWarning) of requests that were never waited for, partitioned requests and
        datatypes that were never freed, and messages that have come and were never received; on
        the direct road also of those that came after their receiver had closed.

        Raises:
            PendingError: kernels ended without completing these requests, or without taking
                what they have received.
            CallError, AbortedError, KernelError, ProxyError: as ``synchronize``.
        """
        if self._closed:
            return
        try:
            with self._ranges.during("close context"), self._ending_the_job():
                shutdown.close(self)
        except BaseException:
            self._surely_closed()
            raise

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.close()
            elif not self._closed:
                assert value is not None
                self._watchdog.farewells.say(words_of(value), failed=True)
                if self.config.on_error == "abort" and ending.is_failure(value):
                    ending.abort_job(self, value)
                # Something failed while kernels may wait: release them, then let it through.
                self._release()
        except BaseException:
            self._surely_closed()
            raise

    def _release(self) -> None:
        if not shutdown.release(self):
            warnings.warn(
                f"a kernel did not end within {shutdown.ABORT_S} s of being aborted: it waits for "
                "something else than GMPI; its memory stays allocated",
                RuntimeWarning,
                stacklevel=3,
            )

    def _surely_closed(self) -> None:
        """Ctrl-C may have come before anything was done to close it."""
        if not self._closed:
            shutdown.release(self)

    def _at_exit(self) -> None:
        """The interpreter is going: a loop that calls MPI after MPI_Finalize is a crash."""
        if not self._closed:
            self._watchdog.farewells.say("has ended without closing its context", failed=True)
            shutdown.release(self)

    # --- internals --------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._closed:
            raise ContextError(self._closed)
