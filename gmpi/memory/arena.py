"""The arena: memory that is given out piece by piece (``contract/partitions``)."""

from __future__ import annotations

import threading

from gmpi.contract.sizes import align

ARENA_STEP = 128


class Arena:
    """Which pieces of it are free; offsets count from its begin. Any thread."""

    def __init__(self, nbytes: int) -> None:
        self._free = [(0, nbytes)]
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> int | None:
        """Offset of a piece of so many bytes; None: there is no room."""
        size = align(max(nbytes, 1), ARENA_STEP)
        with self._lock:
            for i, (begin, room) in enumerate(self._free):
                if room >= size:
                    self._free[i : i + 1] = [(begin + size, room - size)] if room > size else []
                    self._sizes[begin] = size
                    return begin
        return None

    def give_back(self, offset: int) -> None:
        """A piece is free again."""
        merged: list[tuple[int, int]] = []
        with self._lock:
            for begin, size in sorted([*self._free, (offset, self._sizes.pop(offset))]):
                if merged and merged[-1][0] + merged[-1][1] == begin:
                    merged[-1] = merged[-1][0], merged[-1][1] + size
                else:
                    merged.append((begin, size))
            self._free = merged
