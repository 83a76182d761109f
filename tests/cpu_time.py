"""How much processor time each test takes, with all that it starts: says so at the end.

Seconds on the clock depend on what else a machine does; these hardly do.
"""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import launcher
import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_SHOWN = 15
_LEAST_S = 1.0  # what takes less is not shown


def _of_those_that_run() -> float:
    """Seconds of the processes below this one that have not been waited for."""
    total = 0.0
    for pid in launcher.descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / _TICKS  # with their own children that have ended
    return total


def seconds() -> float:
    """Of this process and of all that it has started so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used) + _of_those_that_run()


class CpuTime:
    """A plugin; ``path``: where the figures go as JSON, if anywhere."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._seconds: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = seconds()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] += max(0.0, seconds() - before)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        files: dict[str, float] = defaultdict(float)
        for test, spent in self._seconds.items():
            files[test.partition("::")[0]] += spent
        write = terminalreporter.write_line
        terminalreporter.section("processor time")
        for table in (files, self._seconds):
            for name, spent in sorted(table.items(), key=lambda pair: -pair[1])[:_SHOWN]:
                if spent >= _LEAST_S:
                    write(f"{spent:7.1f} s  {name}")
        write(f"{seconds():7.1f} s  altogether")
        if self._path:
            found = {"seconds": seconds(), "tests": dict(self._seconds)}
            Path(self._path).write_text(json.dumps(found, indent=1) + "\n")
