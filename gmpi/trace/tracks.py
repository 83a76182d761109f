"""The tracks of a rank's trace: a number and a name for each block and warp that calls."""

from __future__ import annotations

import numpy as np

from gmpi.trace.events import Launch

HOST, PROXY, WINDOWS, MORE_HOST, FIRST_BLOCK = 1, 2, 3, 10, 1000


class Tracks:
    """Numbers and names of tracks: of the blocks and warps that call."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {HOST: "host", PROXY: "proxy"}
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._ends: list[int] = []  # of the last launch on each lane

    def lane(self, launch: Launch, events: np.ndarray) -> int:
        """Launches that run at the same time get lanes of their own: each has a block 0."""
        begin = min(launch.at, int(events["begin"].min()))
        end = int(events["end"].max())
        for lane, before in enumerate(self._ends):
            if before <= begin:
                self._ends[lane] = end
                return lane
        self._ends.append(end)
        return len(self._ends) - 1

    def of(self, lane: int, block: int, warp: int) -> int:
        """``warp``: -1 for calls of the whole block."""
        key = lane, block, warp
        if key not in self._numbers:
            self._numbers[key] = number = FIRST_BLOCK + len(self._numbers)
            name = f"block {block}" + (f" warp {warp}" if warp >= 0 else "")
            self.names[number] = name + (f" (launch {lane + 1} at a time)" if lane else "")
        return self._numbers[key]
