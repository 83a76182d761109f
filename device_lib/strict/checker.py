"""Strict mode, as the simulator sees it: told of launches, barriers, accesses and calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from greenlet import getcurrent

from device_lib.simulator.lanes import Block, Grid
from device_lib.strict import calls, clocks, words
from device_lib.strict.clocks import Clock
from device_lib.strict.findings import Findings
from device_lib.strict.regions import Region, Runs, address_of, array_of
from device_lib.strict.requests import Requests
from device_lib.strict.schedule import Schedule
from device_lib.strict.shadow import Access, Shadow
from device_lib.strict.sites import Sites
from device_lib.strict.watched import ATOMIC, READ, SAME, WRITE, Watched, WatchedShared


class World(NamedTuple):
    """What the host knows of the context.

    Attributes:
        rank: in the context's communicator.
        seed: of the schedule.
        runs: of a committed datatype (``regions.Runs``).
        members: of a communicator: this rank, and how many; None: it does not exist.
    """

    rank: int
    seed: int
    runs: Runs
    members: Callable[[int], tuple[int, int] | None]


class Checker:
    """One for each context."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sites = Sites()
        self.requests = Requests()
        self.schedule = Schedule(world.seed, world.rank)
        self.calls = calls.Calls(self)
        self._reset()

    def _reset(self) -> None:
        self.findings = Findings(self.world.rank)
        self.names: list[tuple[str, np.ndarray]] = []
        self.shadows: dict[int, Shadow] = {}
        self.lanes: list[Clock] = []
        self.block_lanes: dict[int, list[Clock]] = {}
        self.threads = 1
        self.kernel = ""

    # --- of the simulator -------------------------------------------------------------------------

    def arguments(self, function: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a kernel, its arrays watched."""
        names = function.__code__.co_varnames
        found = []
        for name, value in zip(names, given):
            found.append(self._argument(name, value))
        return (*found, *given[len(found) :])

    def _argument(self, name: str, value: Any) -> Any:
        if type(value) is tuple:
            return tuple(self._argument(f"{name}[{k}]", part) for k, part in enumerate(value))
        array = array_of(value)
        if array is None:
            return value
        self.names.append((name, array))
        return self.watch(array)

    def watch_shared(self, array: np.ndarray) -> Watched:
        """An array in shared memory."""
        return self.watch(array, WatchedShared)

    def watch(self, array: np.ndarray, kind: type[Watched] = Watched) -> Watched:
        """An array of a kernel, watched from now on."""
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        first = address_of(root)
        known = self.shadows.get(first)
        if known is None or known.end < first + root.nbytes:
            self.shadows[first] = Shadow(first, root.nbytes, array.itemsize, self._race)
        return kind(array, self)

    def begin(self, grid: Grid, kernel: str) -> None:
        """All lanes of a launch are there, and none has run."""
        self.kernel = kernel
        base = [0] * grid.threads
        self.threads = grid.threads // grid.blocks
        for lane in grid.ready:
            lane.clock = Clock(lane.block.number * self.threads + lane.thread_id, base)
            lane.inside = 0
            self.lanes.append(lane.clock)
            self.block_lanes.setdefault(lane.block.number, []).append(lane.clock)
        self.schedule.begin(grid)

    def end(self) -> None:
        """The kernel has ended.

        Raises:
            StrictError: it has made mistakes.
        """
        self.calls.end()
        findings = self.findings
        kernel = self.kernel
        self._reset()
        if len(findings):
            raise findings.error(kernel)

    def failed(self, why: BaseException) -> None:
        """The kernel has ended by an exception, which also says what was found before."""
        if len(self.findings):
            why.add_note(str(self.findings.error(self.kernel)))
        self.calls.forget()
        self._reset()

    def call(self, name: str, scope: str, functions: Any, given: tuple[Any, ...]) -> Any:
        """One thread's part of a GMPI call."""
        return self.calls.make(getcurrent(), name, scope, functions, given)

    # --- of a kernel ------------------------------------------------------------------------------

    def access(self, how: int, address: int, size: int, frame: Any) -> None:
        """The running lane reads an element, is about to write it, or has updated it; SAME: it is
        about to store what is there already."""
        lane = getcurrent()
        if lane.inside:
            return
        me, sites = lane.clock, self.sites
        site = sites.here(frame)
        if self.requests.busy:
            busy = self.requests.touched(address, address + size, how != READ)
            if busy is not None and busy.request.returns:  # else it is a race of two blocks
                self.calls.broken(me, busy, how, address, site)
                return
        shadow = self.shadow_at(address)
        if shadow is not None:
            if how == READ:
                shadow.read(me, address, size, site)
            elif how == WRITE:
                shadow.write(me, address, size, site)
            elif how == SAME:
                shadow.agree(me, address, size)
            elif how == ATOMIC:
                word = shadow.atomic(me, address, size, site)
                published = clocks.atomic(me, shadow.published.get(word))
                if published is not None:
                    shadow.published[word] = published

    def step(self) -> None:
        """Behind an access: others may run."""
        lane = getcurrent()
        if not lane.inside:
            self.schedule.step(lane)

    def shadow_at(self, address: int) -> Shadow | None:
        for shadow in self.shadows.values():
            if shadow.first <= address < shadow.end:
                return shadow
        return None

    def shadows_of(self, region: Region) -> list[Shadow]:
        return [s for s in self.shadows.values() if s.first < region.high and region.low < s.end]

    def fence(self) -> None:
        """``cuda.threadfence()``, also those of a block and of the system."""
        clocks.fence(getcurrent().clock)

    def sync_block(self, value: Any = None) -> list[Any]:
        """``cuda.syncthreads()``: every thread's value."""
        lane = getcurrent()
        site = self.sites.here(sys._getframe(1))
        found = lane.block.barrier.meet(lane, lane.thread_id, (site, value))
        threads = lane.block.threads
        calls.require_barriers(found, f"cuda.syncthreads() at {self.sites.place(site)}")
        if len(found) == threads:  # the first one to go on
            found.append(None)
            clocks.meet(self.block_lanes[lane.block.number])
            self._one_barrier(lane.block, found[:threads])
        return [entry[1] for entry in found[:threads] if isinstance(entry, tuple)]

    def _one_barrier(self, block: Block, entries: list[Any]) -> None:
        """All threads have come to the same barrier."""
        at: dict[int, list[int]] = {}
        for thread, entry in enumerate(entries):
            if isinstance(entry, tuple):
                at.setdefault(entry[0], []).append(thread)
        if len(at) > 1:
            (a, first), (b, second) = list(at.items())[:2]
            self.findings.add(
                "divergent barrier",
                (a, b),
                f"cuda.syncthreads() of block {block.number} at {self.sites.place(a)} in thread "
                f"{first[0]}",
                f"and at {self.sites.place(b)} in thread {second[0]}: they took different branches",
                "call one cuda.syncthreads() where all threads of the block come, behind the "
                "branches",
            )

    def sync_warp(self, mask: int) -> None:
        """``cuda.syncwarp()``."""
        lane = getcurrent()
        found = lane.warp.meet(lane, mask, lane.clock)
        place = self.sites.place(self.sites.here(sys._getframe(1)))
        calls.require_barriers(found, f"cuda.syncwarp() at {place}")
        if len(found) == 32:  # the first one to go on
            found.append(None)
            clocks.meet(each for each in found if each is not None)

    def sync_grid(self) -> None:
        """A grid barrier."""
        lane = getcurrent()
        found = lane.grid.barrier.meet(lane, 0, None)
        place = self.sites.place(self.sites.here(sys._getframe(1)))
        calls.require_barriers(found, f"a grid barrier at {place}")
        if len(found) == 1:
            found.append(None)
            clocks.meet(self.lanes)

    # --- what is found ----------------------------------------------------------------------------

    def where(self, lane: int) -> str:
        """A lane, in words."""
        return words.thread(lane, self.threads)

    def element(self, address: int) -> str:
        """What lies at an address, in words."""
        return words.element(address, self.names)

    def _race(self, address: int, before: Access, now: Access) -> None:
        self.findings.add("race", (before.site, now.site), *words.race(self, address, before, now))
