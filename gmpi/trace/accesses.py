"""One-sided calls: what a rank did to the memory of others, and when that was complete.

The target calls nothing. What is stored there is complete at the end of the origin's next call that
completes it (MPI 4.1 section 12.5): a flush of this target, or of all, the end of the epoch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import Any

from gmpi.trace.operation import Operation


def _told(*calls: str) -> frozenset[str]:
    """These, and those that also tell the target."""
    return frozenset(calls) | frozenset(f"{call}_notify" for call in calls)


STORES = _told("put", "rput", "accumulate", "raccumulate")
LOADS = _told("get", "rget")
UPDATES = _told("get_accumulate", "rget_accumulate") | {"fetch_and_op", "compare_and_swap"}
CALLS = STORES | LOADS | UPDATES
COMPLETING = frozenset(("win_fence", "win_flush", "win_flush_all", "win_unlock_all"))


def kind_of(op: Operation) -> str:
    """``store``, ``load`` or ``update``, which also brings back what was there."""
    call = op.name.removeprefix("GMPI_").removesuffix("_warp").lower()
    return "store" if call in STORES else "load" if call in LOADS else "update"


_Completing = tuple[int, int | None, dict[str, Any]]  # its begin, the target or all, the call


class Accesses:
    """Those of one rank; joined when all its events were taken."""

    def __init__(self) -> None:
        self._stored: dict[int, list[tuple[int, Operation]]] = defaultdict(list)  # by window
        self._completing: dict[int, list[_Completing]] = defaultdict(list)

    def take(self, call: str, op: Operation, window: int, target: int) -> None:
        if call in STORES:
            self._stored[window].append((target, op))
        else:
            op.waited, op.end, op.end_track = op.begin, op.returned, op.track

    def complete(self, window: int, target: int | None, call: dict[str, Any]) -> None:
        """Args: target: of a flush of one rank; None: of all."""
        self._completing[window].append((call["begin"], target, call))

    def close(self) -> None:
        for window, stored in self._stored.items():
            calls = sorted(self._completing[window], key=lambda each: each[0])
            begins = [begin for begin, _, _ in calls]
            for target, op in stored:
                for _, only, call in calls[bisect_left(begins, op.returned) :]:
                    if only is None or only == target:
                        op.waited, op.end, op.end_track = call["begin"], call["end"], call["track"]
                        break
