"""What starts tests and their programs: nothing is left behind, and ranks get time of their own."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from pathlib import Path

import launcher
import pytest
import run
from gpu import ranks
from quick_python import quickest


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_program_that_is_late_is_ended_with_what_it_has_started() -> None:
    code = "sleep 60 & echo pid $!; wait"
    with pytest.raises(pytest.fail.Exception, match="did not end within") as late:
        launcher.start(["sh", "-c", code], timeout=2)
    (pid,) = re.findall(r"^pid (\d+)$", str(late.value), re.M)
    deadline = time.monotonic() + 10 * launcher.TIME_FACTOR
    while alive(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(int(pid))


def test_ranks_are_for_tests_that_get_time_of_their_own() -> None:
    with pytest.raises(pytest.fail.Exception, match="must be marked mpi"):
        launcher.mpi(1, "-c", "")


def test_the_quickest_python_of_this_version_is_taken(tmp_path: Path) -> None:
    own, other = "{} {}".format(*sys.version_info), f"{sys.version_info[0]} 99"

    def python(folder: str, says: str) -> str:
        path = tmp_path / folder / "python3"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{says}\n")
        path.chmod(0o755)
        return str(path)

    def found(*pythons: str) -> str:
        return quickest(os.pathsep.join(str(Path(path).parent) for path in pythons))

    slow = python("slow", f"echo {own} 1e9 $0")
    newer = python("newer", f"echo {other} 1e-9 $0")
    broken = python("broken", "exit 1")
    quick = python("quick", f"echo {own} 1e-9 $0")
    assert found(slow, newer, broken, "/nowhere/python3") == sys.executable
    assert found(slow, newer, quick, broken) == quick


def test_a_step_that_fails_keeps_none_from_running() -> None:
    with run.Lane() as lane:
        steps = [
            lane.submit(lane.call, [sys.executable, "-c", f"print({n}); raise SystemExit({n})"])
            for n in (3, 0)
        ]
        steps.insert(1, lane.submit(lane.call, ["/nowhere/at/all"]))
        steps.append(lane.submit(run.test, Path(sys.executable).parent, "--help", call=lane.call))
        done = [step.result() for step in steps]
    assert [result.status for result in done[:1] + done[2:]] == [3, 0, 0]
    assert done[1].status != 0 and "/nowhere/at/all" in done[1].text


def test_what_runs_beside_ends_with_the_rest() -> None:
    began = time.monotonic()
    with pytest.raises(LookupError), run.Lane() as beside:
        running = beside.submit(beside.call, ["sleep", "60"])
        never = beside.submit(beside.call, ["sleep", "60"])
        while beside._running is None:
            time.sleep(0.01)
        raise LookupError
    assert running.result().status != 0 and never.cancelled()
    assert time.monotonic() - began < 40 * launcher.TIME_FACTOR


def test_a_lane_that_is_through_takes_what_the_other_has_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began: dict[str, str] = {}  # step -> lane
    ignored: list[str] = []
    through = threading.Event()  # the first lane, with all that it finds

    def step(programs: Path, *arguments: str, lanes: int, call: run.Call = run.call) -> run.Result:
        assert lanes == 3
        name = arguments[1].rpartition("/")[2]
        assert name not in began, "a step ran twice"
        beside = call is not run.call
        began[name] = "beside" if beside else "first"
        ignored.extend(word for word in arguments if word.startswith("--ignore="))
        if beside:
            through.wait(60)
        elif name == "ranks":
            through.set()
        else:
            while len(began) < 3:  # until the other lanes have begun one each
                time.sleep(0.01)
        return run.Result(0, 0.0)

    monkeypatch.setattr(run, "test", step)
    monkeypatch.setattr(run, "set_up", lambda *families: None)
    assert len(run.run(["mpich", "openmpi"], "default", (), [])) == len(began) + 1
    assert began == {
        "mpich": "first", "models": "first", "ranks": "first", "openmpi": "beside",
        "sm_90": "beside", "examples": "beside",
    }  # fmt: skip
    apart = [*run.LATER, *run.MODELS]
    assert ignored == [f"--ignore={path}" for path in apart]
    assert all((run.ROOT / path).exists() for path in apart)


OUTCOMES = """
import pytest
def test_right(): pass
def test_wrong(): assert False
@pytest.fixture
def broken(): raise LookupError
def test_never_begun(broken): pass
@pytest.mark.skip(reason="of the test")
def test_skipped(): pass
"""


def test_outcomes_are_written_with_commit_and_machine(tmp_path: Path) -> None:
    program, path = tmp_path / "test_it.py", tmp_path / "found.json"
    program.write_text(OUTCOMES)
    code = (
        "import pytest, outcomes; "
        f"pytest.main([{str(program)!r}], [outcomes.Outcomes({str(path)!r})])"
    )
    tests = os.pathsep.join(map(str, (launcher.ROOT, launcher.ROOT / "tests")))
    status, text = launcher.python("-c", code, PYTHONPATH=tests, GMPI_COMMIT="c0ffee")
    assert status == 0, text
    found = json.loads(path.read_text())
    outcomes = {name.partition("::")[2]: test["outcome"] for name, test in found["tests"].items()}
    assert outcomes == {
        "test_right": "passed",
        "test_wrong": "failed",
        "test_never_begun": "failed",
        "test_skipped": "skipped",
    }
    assert found["counts"] == {"failed": 2, "passed": 1, "skipped": 1} and not found["passed"]
    assert found["machine"]["commit"] == "c0ffee" and found["machine"]["cores"] > 0


REST = """
import os, pytest, sys, outcomes
again = "AGAIN" in os.environ
sys.exit(pytest.main(["PROGRAM"], [outcomes.Outcomes("FOUND", rest=again)]))
"""


def test_the_rest_of_a_run_is_what_has_not_passed(tmp_path: Path) -> None:
    program, path = tmp_path / "test_it.py", tmp_path / "found.json"
    program.write_text(
        "import os\n"
        "def test_one(): assert 'AGAIN' not in os.environ\n"
        "def test_two(): assert 'AGAIN' in os.environ\n"
    )
    code = REST.replace("PROGRAM", str(program)).replace("FOUND", str(path))
    tests = os.pathsep.join(map(str, (launcher.ROOT, launcher.ROOT / "tests")))
    status, text = launcher.python("-c", code, PYTHONPATH=tests, GMPI_COMMIT="c0ffee")
    assert status == 1, text
    again = {"PYTHONPATH": tests, "AGAIN": "1"}
    status, text = launcher.python("-c", code, **again, GMPI_COMMIT="beef")
    assert status != 0 and "is of commit c0ffee, and this is beef" in text, text
    status, text = launcher.python("-c", code, **again, GMPI_COMMIT="c0ffee")
    assert status == 0 and "1 passed, 1 deselected" in text, text
    found = json.loads(path.read_text())
    assert found["passed"] and found["counts"] == {"passed": 2}
    assert found["begun_on"]["commit"] == "c0ffee"


CUT = """
import outcomes, pytest
class Cut:
    def pytest_configure(self, config):
        config.pluginmanager.register(outcomes.Outcomes("FOUND"), "outcomes")
    @pytest.hookimpl
    def pytest_runtest_teardown(self, item):
        if item.name == "LAST":
            item.session.shouldfail = "its time is over"
pytest.main(["PROGRAM"], [Cut()])
"""


@pytest.mark.parametrize("last", ["test_one", "test_two"])
def test_a_session_that_ends_too_early_has_passed_if_all_tests_have(
    tmp_path: Path, last: str
) -> None:
    program, path = tmp_path / "test_it.py", tmp_path / "found.json"
    program.write_text("def test_one(): pass\ndef test_two(): pass\n")
    code = CUT.replace("LAST", last).replace("PROGRAM", str(program)).replace("FOUND", str(path))
    tests = os.pathsep.join(map(str, (launcher.ROOT, launcher.ROOT / "tests")))
    status, text = launcher.python("-c", code, PYTHONPATH=tests)
    assert status == 0, text
    found = json.loads(path.read_text())
    assert found["counts"] == {"passed": 1 + (last == "test_two")}
    assert found["passed"] == (last == "test_two")


SIDE_BY_SIDE = """
import pytest, test_gpu
from test_gpu import outcome_of
def check(line):
    assert line != "wrong", "for a reason"
test_gpu.PROGRAMS, test_gpu._check = ["right", "wrong", "last"], check
@pytest.mark.parametrize("program", test_gpu.PROGRAMS[::-1])
def test_program(program, outcome_of):
    outcome_of(program)
"""


def test_what_has_ended_counts_where_a_session_is_cut_off(tmp_path: Path) -> None:
    program, path = tmp_path / "test_it.py", tmp_path / "found.json"
    program.write_text(SIDE_BY_SIDE)
    code = CUT.replace("LAST", "test_program[last]").replace("PROGRAM", str(program))
    code = code.replace("FOUND", str(path))
    tests = os.pathsep.join(map(str, (launcher.ROOT, launcher.ROOT / "tests")))
    status, text = launcher.python("-c", code, PYTHONPATH=tests)
    assert status == 0, text
    found = json.loads(path.read_text())
    by_program = {name.partition("[")[2][:-1]: test for name, test in found["tests"].items()}
    assert {name: test["outcome"] for name, test in by_program.items()} == {
        "last": "passed", "wrong": "failed", "right": "passed",
    }  # fmt: skip
    assert "for a reason" in by_program["wrong"]["text"] and not found["passed"]


def test_processor_time_includes_what_tests_start(tmp_path: Path) -> None:
    burns = "import time\nwhile time.process_time() < 1.5: pass"
    program = (
        f"import subprocess, sys\ndef test_it(): subprocess.run([sys.executable, '-c', {burns!r}])"
    )
    (tmp_path / "test_it.py").write_text(program)
    path = tmp_path / "found.json"
    code = (
        "import pytest, cpu_time; "
        f"pytest.main([{str(tmp_path)!r}], [cpu_time.CpuTime({str(path)!r})])"
    )
    status, text = launcher.python("-c", code, PYTHONPATH=str(launcher.ROOT / "tests"))
    assert status == 0, text
    ((_, seconds),) = json.loads(path.read_text())["tests"].items()
    assert 1.4 < seconds < 4, text


@pytest.mark.mpi
@pytest.mark.mpich
def test_all_time_limits_of_a_program_on_ranks_grow_with_the_factor() -> None:
    code = (
        "import faulthandler, os, sys; sys.path.append('tests/ranks'); "
        "os.environ.pop('TEST_LIMIT_S') if len(sys.argv) == 1 else 0; "
        "faulthandler.dump_traceback_later = lambda s, exit: print('limit', s, exit); "
        "import common"
    )
    for factor, own, limit in (("1", [], 55.0), ("3", [], 175.0), ("3", ["said"], 95.0)):
        settings = {"TEST_TIME_FACTOR": factor, "TEST_LIMIT_S": "100"}
        status, text = launcher.python("-c", code, *own, **settings)
        assert status == 0 and f"limit {limit} True" in text, text


def test_a_program_of_many_that_is_late_or_fails_is_told_from_one_that_passes() -> None:
    said = "print('all passed\\n' * 2); raise SystemExit({})"
    for code, limit_s, outcome in (
        (said.format(0), 20, "passed"),
        (said.format(3), 20, "failed"),
        ("print('all passed')", 20, "failed"),
        ("print('Timeout (0:00:55)!'); raise SystemExit(1)", 20, "late"),
        ("print('here'); import time; time.sleep(60)", 2, "late"),
    ):
        command = [sys.executable, "-c", code]
        found = ranks.carry_out(command, 2, limit_s * launcher.TIME_FACTOR, {})
        assert found["outcome"] == outcome, found
    assert found["before"] == ["here"] and found["seconds"] < 20 * launcher.TIME_FACTOR


@pytest.mark.mpi
@pytest.mark.mpich
def test_programs_for_gpus_run_side_by_side_and_leave_a_record(tmp_path: Path) -> None:
    lines = ["arrays no_such_scenario", "RANKS=3 DEBUG=1 arrays slices --some"]
    settings = {"SIMULATOR": "1", "OUT": str(tmp_path), "JOBS": "2", "LIMIT": "150"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(launcher.ROOT / "tests" / "gpu" / "ranks.sh"), *lines]
    status, text = launcher.start(command, PATH=path, **settings)
    found = json.loads((tmp_path / "ranks-1gpu.json").read_text())
    assert status == 1 and not found["passed"] and found["machine"]["cores"] > 0, text
    assert found["counts"] == {"passed": 1, "failed": 1}, text
    assert [found["programs"][line]["outcome"] for line in lines] == ["failed", "passed"], text
    for line in lines:
        assert re.search(rf"^{line} +(passed|failed) +[\d.]+ s$", text, re.M), text
    settings["LIMIT"] = "0"  # what no time is left for is not begun
    status, text = launcher.start(command, PATH=path, **settings)
    assert status == 1 and text.count("not begun") == 3, text


def test_what_runs_on_gpus_when_nothing_is_named() -> None:
    names = {line.split()[0] for line in ranks.usual()}
    assert {"direct", "grid", "random_blocks", "onesided", "partitioned"} <= names
    assert not names & {"traced", "arrays", "lifecycle"}
