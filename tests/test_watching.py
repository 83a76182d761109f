"""``gmpi hang`` and ``gmpi top``: a job that stands still is asked from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import launcher
import pytest
from click.testing import CliRunner

from gmpi.__main__ import main
from gmpi.commands import watching
from gmpi.observe import asking

#: Rank 0's kernel waits for a message with another tag than that which rank 1 sends; both go on
#: when the file is there.
STUCK = """
import sys, threading, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
from numba import cuda
import gmpi

@cuda.jit
def receive(ctx, buf):
    gmpi.GMPI_Recv(ctx, buf, 8, gmpi.BYTE, 1, 7, gmpi.COMM_WORLD)

def later(g):
    while not Path(sys.argv[1]).exists():
        time.sleep(0.05)
    g.host.Send(np.zeros(8, np.uint8), 0, 7)

buf = np.zeros(8, np.uint8)
with gmpi.Context(watchdog_s=100) as g:
    if g.rank == 0:
        receive[1, 32](g.device, buf)
        g.host.Recv(buf, 1, 8)
    else:
        request = g.host.Isend(buf, 0, 8)
        later(g)
        request.Wait()
print("went on")
"""


def until(what: str, found: object, limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s * launcher.TIME_FACTOR
    while not found():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.1)


@pytest.mark.mpi
@pytest.mark.mpich
def test_a_job_is_asked_from_outside(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    go_on = tmp_path / "go on"
    command = launcher.mpi_command(2, str(tmp_path / "stuck.py"), str(go_on))
    with launcher.Job(command, 200 * launcher.TIME_FACTOR, {}) as job:
        mpiexec = job._process.pid

        def state(rank: int) -> dict[str, object]:
            mine = [s for s in watching.states() if s["pid"] in asking.below(mpiexec)]
            return next((s for s in mine if s.get("rank") == rank), {})

        until("context", lambda: state(0) and state(1))
        until("kernel that waits", lambda: state(0).get("pending") == 1)
        zero = state(0)
        assert zero["kernels"] == "running" and zero["program"] == "stuck.py"
        assert zero["size"] == 2 and zero["proxy"] == "runs"
        until("age", lambda: state(0)["oldest_s"] > zero["oldest_s"])

        done = CliRunner().invoke(main, ["hang", str(mpiexec)])
        assert done.exit_code == 0, done.output
        assert done.output.startswith("GMPI report of rank 0: on demand")
        assert "rank 0 waits in GMPI_Recv from 1 tag 7" in done.output, done.output
        assert "rank 1 has sent" in done.output, done.output
        answer = json.loads(CliRunner().invoke(main, ["hang", str(zero["pid"]), "--json"]).output)
        assert sorted(answer["ranks"]) == ["0", "1"] and answer["causes"]

        done = CliRunner().invoke(main, ["top", "--count", "1", "--interval", "0.1"])
        line = next(t for t in done.output.splitlines() if str(zero["pid"]) in t)
        assert re.search(r"0 of 2 +stuck\.py +running +\d+ +\d+ +1 +\d+\.\d s +0 +compiled", line)
        go_on.write_text("")
        assert job.wait(60 * launcher.TIME_FACTOR) == 0
    assert job.text().count("went on") == 2
    assert asking.below(mpiexec) == [] and not (asking.folder() / f"{zero['pid']}.sock").exists()


#: Rank 1 has left its context, and rank 0 is somewhere else until the file is there.
LEFT = """
import sys, time
from pathlib import Path
import gmpi

g = gmpi.Context(watchdog_s=100)
while g.rank == 0 and not Path(sys.argv[1]).exists():
    time.sleep(0.05)
g.close()
print("went on")
"""


@pytest.mark.mpi
@pytest.mark.mpich
def test_a_rank_that_has_left_its_context_is_named_where_nothing_is_pending(tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text(LEFT)
    go_on = tmp_path / "go on"
    command = launcher.mpi_command(2, str(tmp_path / "left.py"), str(go_on))
    with launcher.Job(command, 200 * launcher.TIME_FACTOR, {}) as job:
        mpiexec = job._process.pid

        def answer() -> str:
            return CliRunner().invoke(main, ["hang", str(mpiexec)]).output

        until("rank that has left", lambda: "rank 1 has closed" in answer())
        cause = next(line for line in answer().splitlines() if line.startswith("likely cause"))
        go_on.write_text("")
        assert job.wait(60 * launcher.TIME_FACTOR) == 0
    begin = (
        "likely cause (left): rank 1 has closed its context; nothing is pending on rank 0; the host"
    )
    assert cause.startswith(f"{begin} of rank 0 is at "), cause
    assert "left.py:8" in cause, cause
    assert job.text().count("went on") == 2


def test_processes_without_a_context_are_named() -> None:
    """Not process 1: all programs that run beside this test are below it."""
    with subprocess.Popen(["sleep", "60"]) as process:
        done = CliRunner().invoke(main, ["hang", str(process.pid)])
        with pytest.raises(asking.NoAnswerError) as caught:
            asking.ask(process.pid, asking.STATE)
        process.kill()
    assert done.exit_code == 1
    assert f"no context is open in process {process.pid} or below it; " in done.output
    assert str(caught.value).endswith(f"no context is open in process {process.pid}")


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own = tmp_path / "gmpi"
    own.mkdir(mode=0o700)
    monkeypatch.setattr(asking, "folder", lambda: own)
    return own


def test_a_socket_of_a_process_that_was_killed_is_taken_away(own_folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    path = own_folder / f"{process.pid}.sock"
    path.write_text("")
    (own_folder / "notes.sock").write_text("")
    assert asking.processes() == []
    assert not path.exists() and (own_folder / "notes.sock").exists()


def test_a_folder_that_others_can_enter_is_not_trusted(own_folder: Path) -> None:
    (own_folder / f"{os.getpid()}.sock").write_text("")
    assert asking.processes() == [os.getpid()]
    own_folder.chmod(0o770)
    assert asking.processes() == []
    link = own_folder.parent / "link"
    link.symlink_to(own_folder)
    own_folder.chmod(0o700)
    assert not asking.is_safe(link) and asking.is_safe(own_folder)


def test_a_process_that_does_not_answer_is_named(own_folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(own_folder / f"{os.getpid()}.sock"))
        line.listen()
        with pytest.raises(asking.NoAnswerError, match="does not answer within 0 s"):
            asking.ask(os.getpid(), asking.STATE, 0.1)


def test_rates_are_those_since_the_time_before() -> None:
    before = {"pid": 1, "records": 100, "completed": 10, "now": 50.0, "open_s": 20.0}
    now = {**before, "records": 300, "completed": 10, "now": 52.0}
    assert watching.rates(now, before)["records_per_s"] == 100
    assert watching.rates(now, before)["completed_per_s"] == 0
    assert watching.rates(before, None)["records_per_s"] == 5
    gone = {"pid": 2, "error": "no answer"}
    assert watching.rates(gone, None) == gone
    text = click.unstyle(watching.describe([gone]))
    assert text.splitlines()[-1].split() == ["2", "no", "answer"]
    assert "no context" in watching.describe([])


def test_top_ends_with_ctrl_c() -> None:
    # Where a shell runs the tests in the background, they ignore it, and so would the child.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "gmpi", "top", "--interval", "0.1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=30 * launcher.TIME_FACTOR)[0]
    assert process.returncode == 130 and "Traceback" not in rest, rest
