"""Whose turn it is between jobs that measure one after the other on the same machine.

A directory holds what they tell each other. ``turn`` is the number of the present turn, or ``over``
and why; only who has the turn writes it. ``ended-NAME`` is there once the job NAME has ended,
whatever its end was: who started it writes that (``compare.sh``).

Turns go in rounds. Round 0 gets ready what needs the GPUs for itself; each later round is a run of
every job: a b, b a, a b, and so on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

_POLL_S = 0.05


class Over(Exception):
    """There is no further turn.

    Attributes:
        failed: because a job ended early or hangs, not because there is no time left.
    """

    def __init__(self, why: str, failed: bool) -> None:
        super().__init__(why)
        self.failed = failed


def write(path: Path, text: str) -> None:
    """Whole or not at all, for who reads it meanwhile and when the writer dies."""
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(text)
    fresh.replace(path)


class Turns:
    """One job's view, for one process of it; calls block.

    Args:
        directory: shared by the jobs, empty at first.
        name: of this job, one of ``names``: all jobs, in the order of round 0.
        until: when no turn is begun any more, in seconds as ``time.time()`` counts.
        limit_s: how long another job's turn of a run may take.
    """

    def __init__(
        self, directory: Path, name: str, names: Sequence[str], until: float, limit_s: float = 60
    ) -> None:
        if name not in names:
            raise ValueError(f"{name} has no turns: they are of {', '.join(names)}")
        self.directory, self.name, self.names = directory, name, list(names)
        self.until, self.limit_s = until, limit_s
        self.turn, self.began, self.longest = 0, 0.0, 0.0

    def number(self, round_: int) -> int:
        """This job's turn of a round; turns count from 0."""
        count = len(self.names)
        first = max(0, round_ - 1)  # who began round 0 begins round 1 as well
        place = (self.names.index(self.name) - first) % count
        return round_ * count + place

    def wait(self, round_: int) -> None:
        """Until it is this job's turn; raises Over when that will not be."""
        self.turn = self.number(round_)
        seen, since = -1, time.time()
        while True:
            others = [n for n in self.names if n != self.name and self._path(f"ended-{n}").exists()]
            now, present = time.time(), self._present()  # who ends has passed its turn on before
            if present != seen:
                seen, since = present, now
            if present == self.turn:
                break
            if others:
                raise Over(f"the job of {others[0]} has ended before its last turn", True)
            if now > self.until:
                raise Over(f"no time left in turn {present}, before turn {self.turn}", False)
            if present >= len(self.names) and now - since > self.limit_s:
                raise Over(f"turn {present} takes more than {self.limit_s:g} s", True)
            time.sleep(_POLL_S)
        self.began = time.time()
        if self.began + (self.longest if round_ else 0) > self.until:
            self._end(f"no time for run {round_} of {self.name}")

    def done(self) -> None:
        """Gives the turn to the next job."""
        if self.turn >= len(self.names):
            self.longest = max(self.longest, time.time() - self.began)
        write(self._path("turn"), str(self.turn + 1))

    def _path(self, name: str) -> Path:
        return self.directory / name

    def _present(self) -> int:
        path = self._path("turn")
        words = path.read_text().partition(" ") if path.exists() else ("0", "", "")
        if words[0] == "over":
            raise Over(words[2], False)
        return int(words[0])

    def _end(self, why: str) -> None:
        write(self._path("turn"), f"over {why}")
        raise Over(why, False)
