"""Rank programs that share one start of MPI: ``ranks/in_turn.py``, as pytest sees it.

Each program is a test of its own. The first one starts a series of those with as many ranks, forty
at most, and each waits for its part. A program that fails, or that is late, ends its ranks; the
next test starts a series of what is left.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import launcher
import pytest

_POLL_S = 0.02
#: Programs of one start. Contexts that have been aborted keep MPI's communicators, of which MPICH
#: has 2048 in a process: 59 programs with two ranks have used them up.
_MOST = 40


class Program(NamedTuple):
    """A program in ``ranks``, and how it is run."""

    ranks: int
    name: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    limit_s: float = 200

    @property
    def seconds(self) -> float:
        return self.limit_s * launcher.TIME_FACTOR

    def __str__(self) -> str:
        settings = [f"{name}={value}" for name, value in self.environment]
        return " ".join([*settings, self.name, *self.arguments, f"on {self.ranks} ranks"])


class _Job(launcher.Job):
    """Ranks that carry out programs in turn."""

    def __init__(self, programs: list[Program]) -> None:
        self.programs = programs
        self.next = 0
        self._directory = tempfile.TemporaryDirectory(prefix="gmpi-series-")
        self._path = Path(self._directory.name)
        content = [
            {
                "path": str(launcher.RANKS / f"{p.name}.py"),
                "arguments": p.arguments,
                "environment": dict(p.environment),
                "limit_s": p.seconds,
            }
            for p in programs
        ]
        (self._path / "programs.json").write_text(json.dumps(content))
        driver = str(launcher.RANKS / "in_turn.py")
        command = launcher.mpi_command(programs[0].ranks, driver, str(self._path))
        super().__init__(command, programs[0].seconds, {})

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._directory.cleanup()

    def carry_out_next(self) -> tuple[str, str]:
        """Waits for the end of the next program: what is wrong, if anything, and its output."""
        number, program = self.next, self.programs[self.next]
        self.next += 1
        outputs = [self._path / f"{number}.{rank}" for rank in range(program.ranks)]
        deadline = time.monotonic() + program.seconds
        is_last = self.next == len(self.programs)
        wrong = ""
        while True:
            status = self.wait(_POLL_S)  # before the look at the outputs: the next one may fail
            done = all(path.exists() for path in outputs)
            if status is not None:
                passed = done and (status == 0 or not is_last)
                wrong = "" if passed else f"exit {status}"
                break
            if done and not is_last:
                break
            if time.monotonic() > deadline:
                wrong = f"not done within {program.seconds:.0f} s"
                break
        text = ""
        for path in outputs:
            for found in (path, path.with_suffix(f"{path.suffix}.running")):
                text += found.read_text(errors="replace") if found.exists() else ""
        return wrong, text


class Series:
    """Carries out programs, those of the same number of ranks with one start of MPI."""

    def __init__(self, programs: Iterable[Program]) -> None:
        self._left = list(programs)
        self._job: _Job | None = None

    def __enter__(self) -> Series:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def check(self, program: Program) -> None:
        """The test fails unless the program passes on all ranks."""
        job = self._job
        if job is None or job.programs[job.next] != program:
            self._end()
            later = self._left[self._left.index(program) :]
            job = self._job = _Job([p for p in later if p.ranks == program.ranks][:_MOST])
        self._left.remove(program)
        try:
            wrong, text = job.carry_out_next()
        except BaseException:
            self._end()
            raise
        if wrong or job.next == len(job.programs):
            text += self._end()
        if wrong:
            pytest.fail(f"{program}: {wrong}\n{text}", pytrace=False)
        ended = text.count("all passed")
        assert ended == program.ranks, f"{program}: some rank ended early:\n{text}"

    def _end(self) -> str:
        """Ends what runs: what the launcher had to say."""
        job, self._job = self._job, None
        if job is None:
            return ""
        with job:
            pass
        return job.text()
