"""The README's first command, tests/quickstart.py, without what it downloads.

A copy of it and of the benchmarks gets an environment that counts as installed: its python and its
mpiexec are those of this one. The installation itself needs the network and is tried by hand.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import launcher
import numpy as np
import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.mpich]


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which quickstart has been run before."""
    shutil.copytree(launcher.ROOT / "benchmarks", tmp_path / "benchmarks")
    (tmp_path / "tests").mkdir()
    shutil.copy(launcher.ROOT / "tests" / "quickstart.py", tmp_path / "tests")
    project = (launcher.ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(project)
    venv = tmp_path / ".venv" / "quickstart"
    python = f'PYTHONPATH="{launcher.ROOT}" exec "{sys.executable}" "$@"'
    program(venv / "bin" / "python", python)
    program(venv / "bin" / "mpiexec", f'exec "{launcher.mpiexec()}" "$@"')
    stamp = {"extras": ["cu13", "mpich"], "project": project}
    (venv / "installed.json").write_text(json.dumps(stamp))
    return tmp_path


def quickstart(checkout: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, str(checkout / "tests" / "quickstart.py"), *arguments]
    return launcher.start(command, **environment)


OPTIONS = ["-m", "8:8", "-i", "2", "-x", "1"]


def test_it_runs_the_pingpong_in_the_simulator_and_says_so(checkout: Path) -> None:
    status, text = quickstart(checkout, "--simulator", *OPTIONS, QUICKSTART_BEAT_S="0.2")
    assert status == 0, text
    assert "2 ranks in the simulator: asked for" in text
    assert "# GMPI ping-pong between 2 kernels on simulator" in text
    assert "payloads checked: all right" in text
    assert "installing" not in text
    # It is not silent while the ranks start, and no longer counts when they speak.
    assert "quickstart: the ranks start; the first time on a machine" in text
    assert "quickstart: the ranks" not in text.partition("# GMPI ping-pong")[2]
    (line,) = (line for line in text.splitlines() if line.startswith("8 "))
    assert all(float(word) > 0 for word in line.split()), line  # no column of dashes
    legs = re.findall(r"[\w_]+ (-?\d+\.\d+)", text.partition("with tracing on): ")[2])
    assert len(legs) == 7 and all(float(leg) >= 0 for leg in legs), text
    assert "The times above mean nothing: the simulator" in text
    assert ".venv/quickstart/bin/gmpi run -n 2 examples/hello.py" in text
    assert "examples/heat.py --small  a" in text  # the usual size never ends there


@pytest.mark.full
def test_a_gpu_that_does_not_work_is_named(checkout: Path) -> None:
    # A driver's tool without a driver: the simulator runs, and the reason is told.
    program(checkout / "tools" / "nvidia-smi", "echo 'GPU 0: none'")
    path = f"{checkout / 'tools'}:{os.environ['PATH']}"
    status, text = quickstart(checkout, *OPTIONS, PATH=path, CUDA_VISIBLE_DEVICES="")
    assert status == 0, text
    assert "the GPU cannot be used: ContextError: no usable GPU" in text
    assert "2 ranks in the simulator: no GPU that works" in text


def test_an_mpiexec_that_starts_no_ranks_is_refused(checkout: Path) -> None:
    bin_ = checkout / ".venv" / "quickstart" / "bin"
    # What an mpiexec of another MPI does: every process is alone.
    alone = f'shift 2; PYTHONPATH="{launcher.ROOT}" exec "{sys.executable}" "-c" "$3"'
    program(bin_ / "mpiexec", alone)
    status, text = quickstart(checkout, "--simulator", *OPTIONS)
    assert status != 0
    assert "MPI does not start two ranks here" in text


def test_no_leg_of_a_message_is_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that has arrived before MPI_Isend has returned; all legs together are the total."""
    monkeypatch.syspath_prepend(str(launcher.ROOT / "benchmarks"))
    pingpong = importlib.import_module("pingpong")
    moments = [0, 1000, 900, 5000, 3000, 6000, 7000]  # ns
    found = pingpong.legs_between([np.array([ns] * 3) for ns in moments], 1)
    assert found == {
        "publish": 0.9, "pickup": 0.0, "MPI_Isend": 2.1, "MPI": 0.0, "complete": 3.0,
        "visible": 1.0, "total": 7.0,
    }  # fmt: skip
