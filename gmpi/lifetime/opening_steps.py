"""How a context opens: step by step, and each step on all ranks or on none.

What a rank does alone can fail there alone: memory, a setting, the compiler, Ctrl-C. If it then
left, the others would wait for it in the next collective call. So after each step all ranks tell
each other how it went, and if it has failed anywhere, all undo what they have done and raise. In a
step, collective calls come before anything that can fail on one rank.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from device_lib.platform.context import DeviceContext, TracedContext
from gmpi import affinity, config
from gmpi.committed import Datatypes
from gmpi.communicators import Communicators
from gmpi.contract.sizes import IDENTITY_SIZE_SHIFT, Layout
from gmpi.contract.wire import CONTROL_RESOURCE_NS, DEVICE_WATCHED, HANDLE_CONTEXT_MASK
from gmpi.host.buffered import Buffered
from gmpi.host.partitioned import Partitioned
from gmpi.host.requests import Progress
from gmpi.host.windows import Windows
from gmpi.launch import checking, launch
from gmpi.launch.kernels import LaunchedKernels
from gmpi.lifetime import process, shutdown
from gmpi.lifetime.interrupts import Held
from gmpi.lifetime.opening import (
    agree,
    agree_on_tags,
    agree_on_wildcards,
    allocate,
    first_ticket,
    waiting_for_compiler,
    waiting_for_others,
)
from gmpi.lifetime.synchronization import Synchronization
from gmpi.lifetime.termination import Termination
from gmpi.lifetime.watchdog import Watchdog
from gmpi.memory.peers import Peers
from gmpi.memory.registered import Registered
from gmpi.observe.door import Door
from gmpi.observe.ranges import Ranges, domain_of
from gmpi.trace.recorder import DEFAULT_ROWS, Recorder
from gmpi.tuning import kept
from host_proxy.platform.make_state import Habits, make_state
from host_proxy.platform.native import compile_entries
from host_proxy.platform.state import P_DIRECT
from host_proxy.proxy import Proxy

if TYPE_CHECKING:
    from gmpi.context import Context

_contexts = 0  # opened so far in this process


def open_context(
    context: Context,
    comm: MPI.Comm,
    gpu: bool,
    no_any_tag: bool | None,
    wildcards: bool | None,
    settings: dict[str, Any],
) -> None:
    """``Context.__init__``: all parts of it, or none; collective."""
    steps: _Steps | None = None
    try:
        with Held() as held:
            steps = _Steps(context, comm, held)
            try:
                steps.run(gpu, no_any_tag, wildcards, settings)
            except BaseException:
                steps.undo()
                raise
    except BaseException:  # Ctrl-C at the last moment: nobody gets this context
        if steps is not None:
            steps.undo()
        raise


def _traced(settings: config.Config) -> int:
    """How many requests the proxy keeps time stamps of."""
    return settings.trace or (DEFAULT_ROWS if settings.trace_file else 0)


class _AllRanks:
    """What they have agreed on: whether all give up, after the same step."""

    give_up = False


def _free(ranks: _AllRanks, free: Callable[[], None]) -> None:
    """Frees communicators, which all ranks do or none."""
    if ranks.give_up:
        free()


class _Steps:
    """The steps of one context. Nothing in it refers to it: it goes when the context has opened.

    Args:
        held: Ctrl-C, which counts as a failure of the step in which it comes.
    """

    def __init__(self, context: Context, comm: MPI.Comm, held: Held) -> None:
        self._context = context
        self._comm = comm
        self._held = held
        self._undo = ExitStack()
        self._all = _AllRanks()
        self._no_any_tag = False
        self._direct = False
        self._opening: Any = None
        self._first = first_ticket(_contexts)

    def run(
        self, gpu: bool, no_any_tag: bool | None, wildcards: bool | None, settings: dict[str, Any]
    ) -> None:
        context = self._context
        with waiting_for_others(self._comm):
            node = affinity.on_node(self._comm)
        self._step(lambda: self._prepare(gpu, settings, node))
        self._step(lambda: self._ask_for_wildcards(no_any_tag, wildcards))
        self._step(self._map_peers)
        self._step(lambda: self._make_parts(gpu, affinity.crowded(len(node.processes))))
        self._step(lambda: context._register(self._comm, self._no_any_tag, self._direct))
        self._step(self._prepare_partitioned)
        self._step(self._watch)
        if self._context.config.trace_file:
            self._step(self._record)
        self._step(self._start)
        if self._context._recorder is not None:
            self._context._recorder.opened()
        context._ranges.end(self._opening)

    def undo(self) -> None:
        """Gives back all parts there are, the last one first; once."""
        if not self._all.give_up and not self._context._closed:  # the other ranks have opened it
            self._context._watchdog.farewells.say("did not get its context", failed=True)
        self._undo.close()

    def _step(self, do: Callable[[], object]) -> None:
        problem = None
        try:
            do()
            self._held.deliver()
        except BaseException as exc:
            problem = exc
        shared: dict[str, object] = {}
        if problem is None:  # debug mode: all ranks compare collectives, or none
            shared = {**self._context.layout._asdict(), "debug": self._context.config.debug}
            shared["road"] = self._context.config.road
            shared["trace_file"] = bool(self._context.config.trace_file)
        failure = agree(self._comm, problem, shared)
        if failure is not None:
            self._all.give_up = True
            raise failure

    # --- the steps --------------------------------------------------------------------------------

    def _prepare(self, gpu: bool, settings: dict[str, Any], node: affinity.OnNode) -> None:
        """Settings and memory."""
        context = self._context
        tuned = kept.settings_of_rank_0(self._comm, gpu)
        process.require_none()
        context.config = checking.settings(config.load(tuned, **settings), gpu)
        context._ranges = Ranges(domain_of(context.config.nvtx))
        self._opening = context._ranges.begin("open context")
        self._undo.callback(context._ranges.end, self._opening)
        context._origins = config.origins(context.config, tuned, **settings)
        context.layout = Layout(
            context.config.ring_slots,
            context.config.request_slots,
            context.config.large_slots,
            context.config.eager_bytes,
            context.config.chunk_bytes,
        )
        direct = context.config.road == "direct"
        # Debug mode looks at staging all the time: where the host can. It has direct memory only.
        staging = context.config.gpu_staging and (direct or not context.config.debug)
        context._memory = allocate(context.layout, gpu, staging, node, self._first, direct)
        if gpu and context.config.debug:
            context._memory.write_device(DEVICE_WATCHED, np.ones(1, np.int64))
        self._undo.callback(context._memory.give_back)

    def _ask_for_wildcards(self, no_any_tag: bool | None, wildcards: bool | None) -> None:
        self._direct = not agree_on_wildcards(self._comm, wildcards)
        self._no_any_tag = agree_on_tags(self._comm, no_any_tag) or self._direct

    def _map_peers(self) -> None:
        """The memory of the other ranks of this node."""
        context = self._context
        staged = not context.config.debug
        context._peers = Peers(self._comm, context.layout, context._memory, staged)
        self._undo.callback(context._peers.give_back)

    def _make_parts(self, gpu: bool, crowded: bool) -> None:
        """What kernels get, and the proxy; nothing runs yet."""
        global _contexts
        context, memory = self._context, self._context._memory
        _contexts += 1
        identity = _contexts & HANDLE_CONTEXT_MASK
        context.rank = self._comm.Get_rank()
        context.size = self._comm.Get_size()
        config = context.config
        idle = int(config.spin_ms * 1e6), int(config.yield_ms * 1e6), int(config.sleep_us * 1e3)
        context._state = make_state(
            context.layout,
            memory.host,
            (memory.mapped, memory.staging_address, memory.mailbox),
            context._peers.table,
            identity,
            Habits(_traced(config), config.flight_events, idle, crowded),
            memory.fetch,
        )
        words = (
            memory.mapped,
            memory.device,
            context.layout.shape(identity, context._peers.p2p),
            context.rank | context.size << IDENTITY_SIZE_SHIFT,
        )
        traced = bool(config.trace_file)
        context._device = TracedContext(*words, 0, 0, 0) if traced else DeviceContext(*words)
        patience = int(context.config.resource_timeout_s * 1e9)
        ctypes.memmove(memory.host + CONTROL_RESOURCE_NS, patience.to_bytes(8, "little"), 8)
        context._state.begin_at(self._first)
        context._state.node_rank = context._peers.me
        context._has_kernels = gpu
        context._kernels = LaunchedKernels(gpu, context.config.check_grid)
        context._waits = Synchronization(context)
        context._host_progress = Progress(context._waits)
        context._ranges.follow(context._host_progress)
        context._buffered = Buffered(context, context._host_progress)
        context._state.buffered = context._buffered
        context._datatypes = Datatypes(context.layout, memory, context._state, gpu)
        context._communicators = Communicators(
            context._state, memory, context._peers, context.config.debug
        )
        free = partial(context._communicators.free_all, used=False)  # no kernel has run
        self._undo.callback(_free, self._all, free)
        cores = affinity.cores(context.config.cores, context._gpu)
        read = memory.read_user if context.config.debug else None
        context._proxy = Proxy(context._state, context.config.engine, cores, read)
        with waiting_for_compiler(self._comm):
            self._held.let_through(compile_entries)

    def _record(self) -> None:
        self._context._recorder = Recorder(self._context, self._comm)

    def _prepare_partitioned(self) -> None:
        context = self._context
        context._partitioned = Partitioned(context, self._comm)
        if context._memory.direct:
            directs = context._peers.table[:, P_DIRECT]
            exported = context._partitioned.exported
            context._state.registered = Registered(context._memory, directs, exported)
        context._windows = Windows(context)
        self._undo.callback(_free, self._all, context._partitioned.free_control)

    def _watch(self) -> None:
        context = self._context
        context._watchdog = Watchdog(context, context._state.communicators[0].messages)
        self._undo.callback(_free, self._all, context._watchdog.free)

    def _start(self) -> None:
        """The threads, and what finds the context in its process."""
        context = self._context
        self._undo.callback(context._proxy.stop, shutdown.ABORT_S)
        context._proxy.start()
        launch.install(process.before_launch, process.after_launch, context._peers.sharers)
        self._undo.callback(checking.stop)
        checking.start(context)
        self._undo.callback(context._waits.close, shutdown.CLOSED)
        context._closed = ""
        self._undo.callback(process.closed, context)
        process.opened(context)
        self._undo.callback(atexit.unregister, context._at_exit)
        atexit.register(context._at_exit)
        self._undo.callback(context._watchdog.stop)
        context._watchdog.start()
        context._door = Door(context)
        self._undo.callback(context._door.stop)
        context._door.start()
        context._termination = Termination(context)
        self._undo.callback(context._termination.stop)
        context._termination.start()
