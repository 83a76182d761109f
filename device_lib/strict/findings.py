"""What strict mode has found: each mistake once, told at once, raised when the kernel has ended."""

from __future__ import annotations

import sys
import textwrap
from typing import NamedTuple

from gmpi.errors import StrictError

MOST = 20  # told; the others are counted
_WRAP = textwrap.TextWrapper(
    100, initial_indent="  ", subsequent_indent="    ", break_long_words=False,
    break_on_hyphens=False,
)  # fmt: skip
_NOT_ALL = "further kinds of mistakes are counted, but not told: correct these first"


class Finding(NamedTuple):
    """One mistake.

    Attributes:
        kind: in two or three words, the same for all mistakes of the kind (docs/strict.md).
        text: what happened, where, and what to do; several lines.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}\n{self.text}"


class Findings:
    """Those of one launch.

    Args:
        rank: in the context's communicator.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.found: list[Finding] = []
        self._keys: set[tuple[int, ...]] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, kind: str, sites: tuple[int, ...], *lines: str) -> None:
        """Tells of a mistake, unless one of these lines was told before.

        Args:
            sites: the lines of the program, which may break more than one rule, or in many threads.
            lines: of what happened and where; the last one says what to do.
        """
        key = tuple(sorted(sites))
        if key in self._keys:
            return
        self._keys.add(key)
        if len(self.found) >= MOST:
            if len(self._keys) == MOST + 1:
                self._print(_NOT_ALL)
            return
        *told, cure = lines
        text = "\n".join(_WRAP.fill(line) for line in (*told, f"to do: {cure}"))
        self.found.append(Finding(kind, text))
        self._print(f"{kind}\n{text}")

    def _print(self, text: str) -> None:
        sys.stderr.write(f"GMPI strict: rank {self.rank}: {text}\n")  # at once: others write, too
        sys.stderr.flush()

    def error(self, kernel: str) -> StrictError:
        """The exception for all of them."""
        number = len(self._keys)
        what = "a mistake" if number == 1 else f"{number} mistakes"
        kinds = ", ".join(dict.fromkeys(finding.kind for finding in self.found))
        return StrictError(
            f"rank {self.rank}: strict mode has found {what} in kernel {kernel} ({kinds}); each is "
            "told on stderr where it was found, and in findings of this exception",
            tuple(self.found),
        )
