"""What starts tests and their programs: nothing is left behind, and ranks get time of their own."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import launcher
import pytest
import run


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


def test_beside_the_ranks_means_on_time_that_is_left_over() -> None:
    code = "import os, sys; print(os.sched_getscheduler(0)); sys.exit(3)"
    with run.Beside(left_over=True) as beside:
        waits = f"import time; time.sleep(0.5); {code}"  # its class is set when it has begun
        made = beside.submit(beside.call, [sys.executable, "-c", waits]).result()
    assert made.status == 3 and made.text.splitlines()[-1] == str(os.SCHED_IDLE), made


def test_what_runs_beside_ends_with_the_rest() -> None:
    began = time.monotonic()
    with pytest.raises(LookupError), run.Beside(left_over=True) as beside:
        running = beside.submit(beside.call, ["sleep", "60"])
        never = beside.submit(beside.call, ["sleep", "60"])
        while beside._running is None:
            time.sleep(0.01)
        raise LookupError
    assert running.result().status != 0 and never.cancelled()
    assert time.monotonic() - began < 40 * launcher.TIME_FACTOR
