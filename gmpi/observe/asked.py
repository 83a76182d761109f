"""Kernels that ask again and again for what does not come: they wait, though no call says so."""

from __future__ import annotations

from collections.abc import Mapping

ASKED_S = 1.0  # so long a kernel that has asked in vain is one that asks


class Asked:
    """How often kernels have asked in vain, and when that last rose, by what they ask for."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}

    def of(self, counts: Mapping[int, int], now: float) -> set[int]:
        """Which are asked for.

        Args:
            counts: of all that there is now; what is not among them is forgotten.
        """
        seen = {}
        for key, count in counts.items():
            before, since = self._seen.get(key, (0, -ASKED_S))
            seen[key] = count, now if count != before else since
        self._seen = seen
        return {key for key, (_, since) in seen.items() if now - since < ASKED_S}
