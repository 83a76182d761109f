"""Lines of the user's program, each with a number: accesses are kept by the thousand."""

from __future__ import annotations

from pathlib import Path
from types import CodeType, FrameType

_OURS = str(Path(__file__).resolve().parents[1])  # device_lib


class Sites:
    """All lines from which something was accessed or called."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[CodeType, int, str], int] = {}
        self._words: list[tuple[str, int, str]] = [("", 0, "")]

    def of(self, code: CodeType, line: int, call: str = "") -> int:
        """The number of a line.

        Args:
            call: the GMPI call that is made there; empty: an access of an array.
        """
        key = code, line, call
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._words)
            self._words.append((code.co_filename, line, call))
        return found

    def here(self, frame: FrameType) -> int:
        """The number of the line that a frame is at, or of the one that has called our own code."""
        at: FrameType | None = frame
        while at is not None and at.f_code.co_filename.startswith(_OURS):
            at = at.f_back
        at = at or frame
        return self.of(at.f_code, at.f_lineno)

    def place(self, number: int) -> str:
        name, line, _ = self._words[number]
        return f"{name}:{line}"

    def call(self, number: int) -> str:
        """The name of the GMPI call; empty: an access."""
        return self._words[number][2]
