"""Odd orders, all of which CUDA and MPI allow; the same seed gives the same choices.

* Which lane runs next is drawn, and lanes give way between two accesses of an array.
* A send waits now and then before it is made, so that messages of different ranks overtake each
  other where a receive takes any source. Calls of one block keep their order.
* Sends are synchronous: a send that MPI may or may not buffer is not buffered.
* A test says "not yet" once or a few times although the request may be complete.
* ``GMPI_Waitany`` looks at its requests in an order that is drawn.

What is not drawn here, such as when a message of another process arrives, does not repeat.
"""

from __future__ import annotations

import random
import time
from collections import deque
from typing import TYPE_CHECKING

from device_lib.simulator import lanes

if TYPE_CHECKING:
    from device_lib.simulator.lanes import Grid, Lane

_MOST_ACCESSES = 60  # of a lane, until it gives way
_SENDS_AT_ONCE = 0.75  # share of those that are not delayed
_LONGEST_DELAY_S = 3e-3
_MOST_HOLDS = 4  # of one request, by tests
_MOST_HELD = 10_000  # requests remembered


class Queue(deque):  # type: ignore[type-arg]
    """A run queue whose next lane is drawn, of those that have something to do."""

    def __init__(self, grid: Grid, random: random.Random) -> None:
        super().__init__(grid.ready)
        self._grid = grid
        self._random = random.random

    def popleft(self) -> Lane:
        number = len(self) - self._grid.paused
        if number > 1:
            k = int(self._random() * number)
            self[0], self[k] = self[k], self[0]
        return super().popleft()  # type: ignore[no-any-return]


class Schedule:
    """The choices of one launch after the other.

    Args:
        seed: of ``GMPI_SIM``.
        rank: ranks draw differently.
    """

    def __init__(self, seed: int, rank: int) -> None:
        self.random = random.Random(f"{seed} {rank}")
        self._until = _MOST_ACCESSES
        self._holds: dict[tuple[int, ...], int] = {}

    def begin(self, grid: Grid) -> None:
        grid.ready = Queue(grid, self.random)

    def step(self, lane: Lane) -> None:
        """After an access: others may run now."""
        self._until -= 1
        if self._until == 0:
            self._until = self.random.randrange(1, _MOST_ACCESSES)
            lane.grid.ready.append(lane)
            lane.grid.switch()

    def delay_s(self) -> float:
        """How long a send waits before it is made."""
        if self.random.random() < _SENDS_AT_ONCE:
            return 0.0
        return self.random.random() * _LONGEST_DELAY_S

    def holds(self, handles: tuple[int, ...]) -> bool:
        """Whether a test of these requests says "not yet", whatever there is."""
        if len(self._holds) > _MOST_HELD:
            self._holds.clear()
        left = self._holds.get(handles)
        if left is None:
            left = self.random.randrange(_MOST_HOLDS) + 1
        self._holds[handles] = max(0, left - 1)
        return left > 0

    def order(self, count: int) -> list[int]:
        """The order in which to look at so many requests."""
        return self.random.sample(range(count), count)


def wait(seconds: float) -> None:
    """The calling lane lets others run for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        lanes.pause()
