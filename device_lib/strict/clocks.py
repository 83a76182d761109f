"""What happens before what, among the lanes of one launch.

Each lane counts its own *clock* up at every synchronisation. It knows how far it has seen each
other lane: its *base*, a list of clocks that lanes share after they have met, and never change. An
access is named by an *epoch*, the lane that made it and that lane's clock then. It happened before
all that a lane does now if the lane's base has got as far.

* Lanes that meet (syncthreads, syncwarp, a grid barrier, a GMPI call of their scope) have all seen
  what all of them have done.
* A value that goes through an atomic orders nothing by itself. ``threadfence`` before it publishes
  what the lane has seen and done up to the fence; ``threadfence`` after it takes over what the
  lanes had published whose atomics on that word came before (CUDA C++ Programming Guide, memory
  fence functions).
"""

from __future__ import annotations

from collections.abc import Iterable

#: Of an epoch as one number: ``clock << LANE_BITS | lane + 1``; 0 is none.
LANE_BITS = 24
LANE_MASK = (1 << LANE_BITS) - 1


class Clock:
    """What strict mode knows of one lane."""

    __slots__ = ("acquired", "base", "index", "now", "released")

    def __init__(self, index: int, base: list[int]) -> None:
        self.index = index  # of the lane, in its launch
        self.now = 1
        self.base = base
        self.released: list[int] | None = None  # at the last fence
        self.acquired: list[int] | None = None  # by atomics since the last fence

    def epoch(self) -> int:
        return self.now << LANE_BITS | self.index + 1

    def has_seen(self, epoch: int) -> bool:
        lane = (epoch & LANE_MASK) - 1
        return lane == self.index or epoch >> LANE_BITS <= self.base[lane]


def latest(clocks: list[list[int]]) -> list[int]:
    """The clock that has seen what any of them has; a new list."""
    return list(map(max, *clocks)) if len(clocks) > 1 else list(clocks[0])


def meet(lanes: Iterable[Clock]) -> list[int]:
    """All these lanes have met: what all of them have seen from now on."""
    members = list(lanes)
    base = latest(list({id(each.base): each.base for each in members}.values()))
    for each in members:
        base[each.index] = each.now
    for each in members:
        each.base = base
        each.now += 1
    return base


def fence(me: Clock) -> None:
    """The lane has called ``threadfence``."""
    if me.acquired is not None:
        me.base = latest([me.base, me.acquired])
        me.acquired = None
    me.released = list(me.base)
    me.released[me.index] = me.now
    me.now += 1


def atomic(me: Clock, published: list[int] | None) -> list[int] | None:
    """The lane has made an atomic access to a word.

    Args:
        published: by the atomics on this word before.

    Returns:
        What is published by all atomics on it until now.
    """
    if published is not None:
        before = [published] if me.acquired is None else [published, me.acquired]
        me.acquired = latest(before)
    if me.released is None:
        return published
    return me.released if published is None else latest([published, me.released])
