"""What a context with ``trace_file`` records, until it closes and the file is written."""

from __future__ import annotations

import secrets
import time
import warnings
import weakref
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from device_lib.api.traced import CALLS
from device_lib.platform.context import TracedContext
from device_lib.platform.primitives import SIMULATOR
from gmpi.contract.trace import EVENT_BYTES
from gmpi.errors import ConfigError
from gmpi.host.requests import HostRequest
from gmpi.launch import launch
from gmpi.memory.node import of_this_node
from gmpi.trace import chrome, clock, cycles, operations
from gmpi.trace.events import Launch, read, rows_for
from gmpi.trace.started import Partitioned
from host_proxy.platform import trace

if TYPE_CHECKING:
    from gmpi.context import Context
    from gmpi.host.partitioned_rows import End

#: Requests and events that are kept where the setting ``trace`` does not say it.
DEFAULT_ROWS = 1 << 14
_FEW = 64  # events of a ring, for which a launch takes what there is
_files: dict[str, int] = {}  # how many contexts of this process have written to each


def path_of(trace_file: str, rank: int) -> Path:
    """``run.0.json`` of rank 0 for ``run`` and ``run.json``; ``run-2.0.json`` of the second context
    of a process."""
    number = _files[trace_file] = _files.get(trace_file, 0) + 1
    stem = trace_file.removesuffix(".json") + (f"-{number}" if number > 1 else "")
    return Path(f"{stem}.{rank}.json")


class Recorder:
    """Of one context. Opening is collective over ``comm``.

    Attributes:
        untraced: launches for which there was no room.
    """

    def __init__(self, context: Context, comm: MPI.Comm) -> None:
        self.path = path_of(context.config.trace_file, context.rank)
        self.nodes = _nodes(comm)
        self.node = clock.node_point(comm, self.nodes)
        self.untraced = 0
        self._context: Context = weakref.proxy(context)  # whose part we are
        self._rows = context.config.trace or DEFAULT_ROWS
        self._free = 0  # the first row that no launch has
        self._launches: list[Launch] = []
        self._count = 0
        self._events: list[tuple[Launch, np.ndarray]] = []
        self._lost = 0
        self._partitioned: dict[int, Partitioned] = {}
        self._order: Counter[tuple[object, ...]] = Counter()
        self._windows: dict[int, operations.Group] = {}
        self._host: list[tuple[HostRequest, int]] = []
        self._points: list[clock.Point] = []
        self._rate = cycles.Rate(1.0, 1.0, 1)
        self._stamps_error = 0
        try:
            self.path.write_text("")
        except OSError as exc:
            raise ConfigError(
                f"trace_file {context.config.trace_file!r}: {self.path} cannot be written "
                f"({exc.strerror}); name a file in a folder that exists"
            ) from None
        self._memory: Any = None
        self._address = 0
        if context._has_kernels:
            self._allocate()

    def _allocate(self) -> None:
        nbytes = self._rows * EVENT_BYTES
        if SIMULATOR:
            self._memory = np.zeros(nbytes, np.uint8)
            self._address = int(self._memory.ctypes.data)
        else:
            from numba import cuda

            self._memory = cuda.device_array(nbytes, np.uint8)
            self._address = int(self._memory.device_ctypes_pointer.value or 0)
        self._context._memory.clear(self._address, nbytes)

    def opened(self) -> None:
        """The context is open."""
        self._context._host_progress.ended.append(self._host_ended)
        if self._context._has_kernels:
            point, self._rate = clock.gpu_point(self._context)
            self._points.append(point)

    def before_launch(self, given: TracedContext, what: launch.Launch, idle: bool) -> TracedContext:
        """What a kernel gets that is about to be launched: the same, with a place for events.

        ``idle``: no other kernel runs, whose events would not be complete.
        """
        rings = what.blocks * (-(-what.threads // 32))
        rows = rows_for(rings, self._rows - self._free)
        if rows < _FEW and idle:
            self._drain()
            rows = rows_for(rings, self._rows)
        self._count += 1
        if rows == 0:
            self.untraced += 1
            return given._replace(trace=0, rows=0)
        now = time.monotonic_ns()
        made = Launch(
            self._count, what.name, what.blocks, what.threads, now, self._free, rings, rows
        )
        self._launches.append(made)
        place, self._free = self._free, self._free + rings * (rows + 1)
        return given._replace(
            trace=self._address + place * EVENT_BYTES,
            rows=rows,
            launch=secrets.randbits(62) + 1,  # other processes' kernels may leave notes as well
        )

    def _drain(self) -> None:
        """Takes the events of all launches, none of which runs."""
        if self._free == 0:
            return
        memory, nbytes = self._context._memory, self._free * EVENT_BYTES
        raw = memory.fetch(self._address, nbytes)
        memory.clear(self._address, nbytes)
        for made in self._launches:
            events, lost, error = read(raw, made, self._rate)
            self._events.append((made, events))
            self._lost += lost
            self._stamps_error = max(self._stamps_error, error)
        self._launches, self._free = [], 0

    def _host_ended(self, request: HostRequest) -> None:
        if not request.operation.name.startswith("GMPI_"):  # what a kernel sends is its own
            self._host.append((request, time.monotonic_ns()))

    def partitioned_made(self, end: End) -> None:
        """One end of a partitioned request was made."""
        shape = end.shape
        group = self._context._communicators.groups[shape.comm]
        key = shape.sends, group.identity, shape.peer, shape.tag
        self._partitioned[end.handle] = Partitioned(
            shape.sends, group.identity, end.world if end.world >= 0 else None, shape.tag,
            self._order[key], shape.total, bool(end.groups),
        )  # fmt: skip
        self._order[key] += 1

    def window_made(self, handle: int, comm: int) -> None:
        group = self._context._communicators.groups[comm]
        self._windows[handle] = (group.identity, list(group.members))

    def closing(self) -> None:
        """No kernel runs any more, and the proxy still answers."""
        if self._context._has_kernels and self._points:
            try:
                point, rate = clock.gpu_point(self._context)
            except Exception:  # nothing to tie the clock to: the first point must do
                return
            self._points.append(point)
            self._rate = cycles.both(self._rate, rate)

    def finish(self) -> None:
        """Writes the file; the threads have ended, and memory is still there."""
        try:
            if self._memory is not None:
                self._drain()
            self.path.write_text(chrome.text_of(self._facts()))
        except Exception as exc:
            warnings.warn(
                f"no trace is written to {self.path}: {exc!r}", RuntimeWarning, stacklevel=2
            )

    def _facts(self) -> dict[str, Any]:
        context = self._context
        line = clock.same()
        if self._points:
            line = clock.Line(self._points[0], self._points[-1])
        groups = operations.Groups(
            context.rank,
            [(g.identity, g.members) for g in context._communicators.groups],
            self._windows,
        )
        taken = operations.Taken(
            [(made, _on(line, events)) for made, events in self._events],
            trace.read(context._state),
            self._host,
            list(CALLS),
            self._partitioned,
        )
        return {
            "version": 1,
            "rank": context.rank,
            "size": context.size,
            "host": MPI.Get_processor_name(),
            "simulator": SIMULATOR,
            "offset_ns": self.node.here - self.node.there,
            "clock_error_ns": line.error + self.node.error + self._stamps_error,
            "lost": {
                "events": self._lost,
                "requests": trace.lost(context._state),
                "launches": self.untraced,
            },
            **operations.join(groups, taken),
        }


def _on(line: clock.Line, events: np.ndarray) -> np.ndarray:
    events["begin"] = line.here(events["begin"])
    events["end"] = line.here(events["end"])
    return events


def _nodes(comm: MPI.Comm) -> list[int]:
    """Which node each rank is on: the number of its first rank."""
    local = of_this_node(comm)
    first = local.bcast(comm.Get_rank())
    local.Free()
    return list(comm.allgather(first))
