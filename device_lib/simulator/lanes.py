"""CUDA threads as greenlets: *lanes*, and who of them runs.

* Every CUDA thread is a greenlet of the launching OS thread, and all blocks of the grid are alive
  at once (what a cooperative launch guarantees on a GPU).
* A barrier or vote is one *rendezvous* (``meetings``): lanes leave a value, the last one to arrive
  resumes the others with all values.
* A waiting loop calls ``pause()``, which lets the other lanes run and, when nobody has anything
  to do, gives the processor to the proxy.
* Lanes stuck at a barrier that others can no longer reach raise ``BarrierError`` instead of
  hanging, and so does a GMPI call that not all threads of its scope make (its barriers are
  *strict*): on a GPU that is undefined behaviour, so it is a bug in the kernel.

``kernels.py`` makes them of a launch.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable
from types import CodeType
from typing import Any, cast

from greenlet import getcurrent, greenlet

from device_lib.simulator.meetings import WARP, BarrierError, Rendezvous, Shuffles
from device_lib.simulator.shared_words import SharedWord

# While nobody has anything to do the processor is the proxy's. Naps get longer the longer it takes:
# a kernel that waits for a time-out leaves most of a core to others.
_NAP_S = 20e-6
_LONGEST_NAP_S = 500e-6
_LONGER = 1.02


class Warp:
    """The lanes of one warp; one meeting point and one row of shuffles for each mask in use."""

    def __init__(self, lanes: int) -> None:
        self.threads = lanes
        self.mask = (1 << lanes) - 1
        self.said: dict[int, list[Any]] = {}  # as of a block
        self.alive = self.mask
        self.gone = 0
        self.points: dict[int, Rendezvous] = {}
        self.shuffles: dict[int, Shuffles] = {}

    def meet(
        self,
        lane: Lane,
        mask: int,
        value: Any = None,
        combine: Callable[..., Any] | None = None,
        strict: bool = False,
    ) -> Any:
        point = self.points.get(mask) or self.new_point(mask)
        return point.meet(lane, lane.lane_id, value, combine, strict)

    def new_point(self, mask: int) -> Rendezvous:
        point = self.points[mask] = Rendezvous((mask & self.alive).bit_count(), WARP)
        point.left = mask & self.gone != 0
        return point

    def new_shuffles(self, mask: int) -> Shuffles:
        found = self.shuffles[mask] = Shuffles((mask & self.alive).bit_count())
        return found

    def leave(self, lane: Lane) -> None:
        self.alive &= ~(1 << lane.lane_id)
        self.gone |= 1 << lane.lane_id
        for mask, point in self.points.items():
            if mask >> lane.lane_id & 1:
                point.leave(lane.grid)


class Block:
    """The lanes of one block: where they meet, and what is theirs together."""

    def __init__(self, number: int, index: tuple[int, int, int], threads: int, shared: Any) -> None:
        self.number = number
        self.index = index
        self.threads = threads
        self.barrier = Rendezvous(threads, threads)
        self.warps = [Warp(min(WARP, threads - w)) for w in range(0, threads, WARP)]
        self.shared = shared
        self.rows: dict[int, SharedWord] = defaultdict(SharedWord)  # primitives.put_block_row
        self.put = SharedWord()  # primitives.put_block_4
        self.told = False  # whether there is no barrier since the last broadcast
        self.notes: dict[int, int] = defaultdict(int)  # primitives.put_block_note
        self.trace_notes: dict[int, int] = defaultdict(int)  # tracing_sim.put
        self.said: dict[int, list[Any]] = {}  # arguments_sim: calls that not all have made yet


class Lane(greenlet):  # type: ignore[misc]
    """One CUDA thread."""

    def __init__(
        self,
        run: Callable[[], None],
        grid: Grid,
        block: Block,
        rank: int,
        index: tuple[int, int, int],
    ) -> None:
        super().__init__(run, grid.hub)
        self.grid = grid
        self.block = block
        self.thread_id = rank
        self.lane_id = rank % WARP
        self.warp = block.warps[rank // WARP]
        self.blockIdx = block.index
        self.threadIdx = index
        self.inbox: Any = None
        self.stack: Any = None  # primitives.buffer_of
        # The GMPI call that the user has made last: its name, the caller's code and line.
        self.call: tuple[str, CodeType, int] | None = None
        self.made: dict[str, int] = {}  # how many calls, by scope
        # The last packets that the lane has seen: primitives.relax.
        self.seen: deque[tuple[int, int]] = deque(maxlen=3)

    def pause(self) -> None:
        """Goes to the end of the run queue."""
        grid = self.grid
        grid.ready.append(self)
        grid.paused += 1
        grid.switch()

    def sync_block(self, value: Any = None, strict: bool = False) -> Any:
        self.block.told = False
        return self.block.barrier.meet(self, self.thread_id, value, strict=strict)

    def retire(self) -> None:
        self.block.barrier.leave(self.grid)
        self.grid.barrier.leave(self.grid)
        self.warp.leave(self)


class Grid:
    """All lanes of one launch and the queue of those that can run.

    Args:
        grid_dim, block_dim: three extents each.
        checker: of strict mode, which is on; None: it is off.
    """

    def __init__(
        self,
        grid_dim: tuple[int, int, int] = (1, 1, 1),
        block_dim: tuple[int, int, int] = (1, 1, 1),
        checker: Any = None,
    ) -> None:
        self.grid_dim = grid_dim
        self.block_dim = block_dim
        self.checker = checker
        self.hub = getcurrent()
        self.blocks = 0
        self.threads = 0
        self.said: dict[int, list[Any]] = {}  # as of a block
        self.ready: deque[Lane] = deque()
        self.barrier = Rendezvous(0, 1)
        self.paused = 0
        self.nap_s = _NAP_S
        self.alive = 0
        self.returned: list[Lane] = []
        # primitives.buffer_of: the buffer, what it found, bytes of an element
        self.buffers: dict[int, tuple[Any, tuple[int, int, int], int]] = {}

    def add(
        self,
        block: Block,
        kernel: Callable[..., Any],
        given: tuple[Any, ...],
        indices: list[tuple[int, int, int]],
    ) -> None:
        """Begins the threads of a block, which call the kernel, with the ``threadIdx`` of each."""

        def run() -> None:
            self.hub.switch()
            kernel(*given)
            self.returned.append(lane())

        for rank, index in enumerate(indices):
            self.ready.append(Lane(run, self, block, rank, index))
            # Begun by the hub: one that another lane begins would inherit the depth of its stack.
            self.ready[-1].switch()
        self.alive += len(indices)
        self.blocks += 1
        self.threads += len(indices)
        self.barrier.size = self.alive

    def wake(self) -> None:
        """Something has happened that lanes wait for: naps are short again."""
        self.nap_s = _NAP_S

    def switch(self) -> None:
        """From a lane that waits to the next one that can run, without the way round by ``run``."""
        if self.paused < len(self.ready):
            self.ready.popleft().switch()
        else:
            self.hub.switch()

    def run(self) -> None:
        """Resumed when a lane has returned from the kernel, and when none has anything to do."""
        while self.ready:
            if self.paused >= len(self.ready):
                # Every lane that can run has looked once at what it waits for. A sleep, not a
                # yield: with fewer cores than threads the scheduler may answer a yield by
                # letting the same thread run on for milliseconds.
                self.paused = 0
                time.sleep(self.nap_s)
                self.nap_s = min(self.nap_s * _LONGER, _LONGEST_NAP_S)
            self.ready.popleft().switch()
            while self.returned:
                self.alive -= 1
                self.returned.pop().retire()
        if self.alive:
            raise BarrierError(
                f"{self.alive} threads of the kernel wait at a barrier that the other threads "
                "never reach; every thread of the scope must make the same GMPI and sync calls"
            )


def lane() -> Lane:
    """The calling CUDA thread."""
    return cast(Lane, getcurrent())


def pause() -> None:
    """One turn of a waiting loop. Every spin in simulated code must call this."""
    lane().pause()


def meet(mask: int, value: Any, combine: Callable[..., Any] | None = None) -> Any:
    me = getcurrent()
    return me.warp.meet(me, mask, value, combine)


def shuffle(mask: int, value: Any, source: int) -> Any:
    values = meet(mask, value)
    return values[source] if 0 <= source < WARP and mask >> source & 1 else value


def vote_all(mask: int, predicate: Any) -> bool:
    """Whether the predicate holds in all lanes of the mask."""
    me = getcurrent()
    return me.warp.meet(me, mask, not predicate, _none)  # type: ignore[no-any-return]


def ballot(mask: int, predicate: Any) -> int:
    """Bit i is set when lane i of the warp is in ``mask`` and its predicate holds."""
    return meet(mask, predicate, _bits)  # type: ignore[no-any-return]


def _none(votes: list[Any]) -> bool:
    return not any(votes)


def _bits(votes: list[Any]) -> int:
    return sum(1 << i for i, vote in enumerate(votes) if vote)
