"""Where lanes meet: barriers and votes, which all must reach, and shuffles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from device_lib.simulator.lanes import Grid, Lane

WARP = 32


class BarrierError(RuntimeError):
    """Some lanes wait at a barrier that the others have left for good."""


_INCOMPLETE = (
    "a GMPI call is made by some threads of its scope only: others have left the kernel, or a "
    "branch keeps them from it; all threads of the block (of the warp for GMPI_..._warp) must make "
    "it"
)


def _incomplete(waiting: list[Lane]) -> str:
    """The same with the call and its line, as far as the user has made it (``arguments_sim``)."""
    calls = [lane.call for lane in waiting if lane.call is not None]
    if not calls:
        return _INCOMPLETE
    name, code, line = calls[0]
    threads = sorted(lane.thread_id for lane in waiting)
    some = ", ".join(map(str, threads[:4])) + (", ..." if len(threads) > 4 else "")
    where = f"{name} at {code.co_filename}:{line}"
    return f"{_INCOMPLETE} ({where}: threads {some} of block {waiting[0].block.number} are in it)"


class Rendezvous:
    """Where ``size`` lanes meet; reusable. Each lane has a place of its own, below ``places``."""

    __slots__ = (
        "arrived", "left", "opened", "places", "plain", "size", "strict", "values", "waiting",
    )  # fmt: skip

    def __init__(self, size: int, places: int) -> None:
        self.size = size
        self.places = places
        self.arrived = 0
        self.opened = 0  # how often all have met
        self.values: list[Any] = [None] * places
        self.waiting: list[Lane] = []
        self.left = False  # a lane has returned from the kernel
        self.strict = False  # none may while the others wait here
        self.plain = True  # nobody who waits here has brought a value

    def meet(
        self,
        lane: Lane,
        place: int,
        value: Any = None,
        combine: Callable[..., Any] | None = None,
        strict: bool = False,
    ) -> Any:
        """Blocks the lane until all have met.

        Args:
            strict: all means those that have left the kernel, too: BarrierError.

        Returns:
            Every lane's value by its place, or what ``combine`` makes of them, once for all.
        """
        if strict and self.left:
            raise BarrierError(_incomplete([lane]))
        self.strict = strict
        self.plain = False
        self.values[place] = value
        self.arrived += 1
        if self.arrived < self.size:
            self.waiting.append(lane)
            grid = lane.grid  # Grid.switch, in place: this is the simulator's innermost step
            ready = grid.ready
            (ready.popleft() if grid.paused < len(ready) else grid.hub).switch()
            return lane.inbox
        return self.release(lane.grid, combine)

    def sync(self, lane: Lane) -> None:
        """``meet`` without values, where all threads must come."""
        if self.left:
            raise BarrierError(_incomplete([lane]))
        self.strict = True
        arrived = self.arrived = self.arrived + 1
        if arrived < self.size:
            self.waiting.append(lane)
            grid = lane.grid
            ready = grid.ready
            (ready.popleft() if grid.paused < len(ready) else grid.hub).switch()
        elif self.plain:
            self.arrived = 0
            self.opened += 1
            lane.grid.ready += self.waiting
            self.waiting.clear()
        else:
            self.release(lane.grid, None)

    def release(self, grid: Grid, combine: Callable[..., Any] | None) -> Any:
        self.plain = True
        self.opened += 1
        values, self.values = self.values, [None] * self.places
        waiting, self.waiting = self.waiting, []
        self.arrived = 0
        result = values if combine is None else combine(values)
        for other in waiting:
            other.inbox = result
        grid.ready.extend(waiting)
        return result

    def leave(self, grid: Grid) -> None:
        """A lane has returned from the kernel: the others no longer wait for it."""
        self.size -= 1
        self.left = True
        if self.waiting and self.strict:
            raise BarrierError(_incomplete(self.waiting))
        if self.waiting and self.arrived >= self.size:
            # Only barriers may lose a lane; a vote or shuffle that does is undefined on a GPU.
            self.release(grid, None)


class Shuffles:
    """Values that the lanes of one mask hand each other.

    On a GPU a shuffle orders no memory, so a lane waits for the lane whose value it wants and for
    no other: where lane 0 comes first, as it does here, nobody waits at all.
    """

    __slots__ = ("open", "size", "turns")

    def __init__(self, size: int) -> None:
        self.size = size
        self.turns = [0] * WARP  # how many shuffles each lane has taken part in
        self.open: dict[int, _Turn] = {}

    def shuffle(self, lane: Lane, value: Any, source: int) -> Any:
        """Hands out ``value``, gets that of lane ``source``."""
        me = lane.lane_id
        number = self.turns[me]
        self.turns[me] = number + 1
        turn = self.open.get(number)
        if turn is None:
            turn = self.open[number] = _Turn()
        values = turn.values
        values[me] = value
        if len(values) == self.size:
            del self.open[number]
        if turn.waiting:
            lane.grid.ready.extend(turn.waiting.pop(me, ()))
        if source not in values:
            turn.waiting.setdefault(source, []).append(lane)
            lane.grid.switch()
        return values[source]


class _Turn:
    """One shuffle of all lanes: what each has handed out, and who waits for whom."""

    __slots__ = ("values", "waiting")

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.waiting: dict[int, list[Lane]] = {}
