"""What is in words of the error log, whose rows have room for numbers only."""

from __future__ import annotations

from typing import Any


class Notes:
    """Words by number: the first ones and the last ``most``, as in the log."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[int, Any] = {}
        self._count = 0

    def keep(self, words: Any) -> int:
        """Their number."""
        number = self._count
        self._kept[number] = words
        self._count += 1
        if number > self._most:
            del self._kept[number - self._most]
        return number

    def __getitem__(self, number: int) -> Any:
        return self._kept[number]
