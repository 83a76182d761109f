"""What threads of a block tell each other in shared memory, without a barrier of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from device_lib.simulator.lanes import Lane, Warp


class SharedWord:
    """One of ``put_block_4``, or a row of ``put_block_row``.

    Two warps that store it, or one that stores and one that loads it, must meet between the two:
    AssertionError, where racecheck of Compute Sanitizer would report a race on a GPU. What lanes of
    one warp do is not looked at.
    """

    __slots__ = ("loaded", "loaded_by", "stored", "stored_by", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.stored = self.loaded = -1  # how often the block had met
        self.stored_by: Warp | None = None
        self.loaded_by: Warp | None = None  # None: several have

    def store(self, lane: Lane, value: Any) -> None:
        met, warp = _meetings_of(lane), lane.warp
        assert self.loaded < met or self.loaded_by is warp, (
            "a warp stores what another one has loaded since the last barrier of the block"
        )
        assert self.stored < met or self.stored_by is warp, (
            "two warps store the same word without a barrier of the block between them"
        )
        self.value, self.stored, self.stored_by = value, met, warp

    def load(self, lane: Lane) -> Any:
        met, warp = _meetings_of(lane), lane.warp
        assert self.stored < met or self.stored_by is warp, (
            "a warp loads what another one has stored since the last barrier of the block"
        )
        if self.loaded < met:
            self.loaded, self.loaded_by = met, warp
        elif self.loaded_by is not warp:
            self.loaded_by = None
        return self.value


def _meetings_of(lane: Lane) -> int:
    """How often all threads of a lane's block have met: then it was there, or it would not run."""
    return lane.block.barrier.opened + lane.grid.barrier.opened
