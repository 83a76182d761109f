"""Writes what became of each test, with the machine and the commit, as JSON: for the record."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import launcher
import pytest

sys.path.append(str(launcher.ROOT / "benchmarks"))


class Outcomes:
    """A plugin: ``--outcomes FILE``. The file is there from the first test on, for a run that is
    ended from outside: it says then that not all have passed.

    Args:
        rest: ``--rest``: the file is of a run of the same commit whose time was over; what has
            passed there is not run again, and stays in it.
    """

    def __init__(self, path: str, rest: bool = False) -> None:
        self._path = path
        self._rest = rest
        self._tests: dict[str, dict[str, Any]] = {}
        self._collected: set[str] = set()
        self._machine: dict[str, Any] = {}
        self._begun_on: dict[str, Any] = {}

    @pytest.hookimpl(trylast=True)  # of those that other options have left
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if not self._rest:
            return
        found = json.loads(Path(self._path).read_text())
        commit, ours = found["machine"]["commit"], self._this_machine()["commit"]
        if commit != ours:
            raise pytest.UsageError(
                f"--rest: {self._path} is of commit {commit}, and this is {ours}: run all tests"
            )
        self._begun_on = found.get("begun_on", found["machine"])
        passed = {n: test for n, test in found["tests"].items() if test["outcome"] == "passed"}
        self._tests |= passed
        self._collected |= set(passed)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected |= {item.nodeid for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test that is skipped or fails before it begins has no call; the worst one counts.
        found = self._tests.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        found["seconds"] = round(found["seconds"] + report.duration, 2)
        if report.outcome != "passed" and found["outcome"] != "failed":
            found["outcome"] = report.outcome
        if report.when == "teardown":
            self._write(False)

    def add(self, test: str, error: BaseException | None) -> None:
        """Of a test that pytest may not come to any more, though what it waits for has ended."""
        found: dict[str, Any] = {"outcome": "failed" if error else "passed", "seconds": 0.0}
        if error:
            found["text"] = str(error)[-4000:]
        self._tests.setdefault(test, found)

    @pytest.hookimpl(trylast=True)  # the fixtures of a run that is cut off end in this hook, too
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        # The time of the session may be over when the last test has ended: that fails none.
        good = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if exitstatus != pytest.ExitCode.USAGE_ERROR:
            self._write(good and self._collected == set(self._tests))

    def _this_machine(self) -> dict[str, Any]:
        if not self._machine:
            from _bench import machine  # needs MPI, which not every test run does

            self._machine = machine()
        return self._machine

    def _write(self, all_ran: bool) -> None:
        outcomes = [test["outcome"] for test in self._tests.values()]
        results = {
            "machine": self._this_machine(),
            "passed": all_ran and "passed" in outcomes and "failed" not in outcomes,
            "counts": {name: outcomes.count(name) for name in sorted(set(outcomes))},
            "tests": self._tests,
        }
        if self._begun_on:
            results["begun_on"] = self._begun_on
        Path(self._path).write_text(json.dumps(results, indent=1) + "\n")
