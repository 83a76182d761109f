"""``tests/gpu/papers.sh`` and what it runs, in the simulator: each program checks its own data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import launcher
import pytest

BENCHMARKS = launcher.ROOT / "benchmarks"
PROGRAMS = ("layouts.py", "pack_papers.py")


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.mpich
def test_papers_sh_in_the_simulator(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "SIMULATOR": "1", "LIMIT": "250"}
    command = [str(launcher.ROOT / "tests" / "gpu" / "papers.sh"), str(tmp_path)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in PROGRAMS:
        assert json.loads((tmp_path / name).with_suffix(".json").read_text())["machine"]
    found = json.loads((tmp_path / "layouts.json").read_text())
    names = {row["name"] for row in found["matrices"]}
    assert names == {"contiguous", "sub-matrix", "triangle", "stair", "transpose"}
    assert {row["staging"] for row in found["pipelines"]} == {"GPU staging", "host memory"}
    found = json.loads((tmp_path / "pack_papers.json").read_text())
    assert {"layouts", "components", "to_host", "beside"} <= set(found)
    faces = [row for row in found["layouts"] if row["name"].startswith("face")]
    assert all(row["pack_copy_us"] > 0 and row["pack_kernel_us"] > 0 for row in faces)


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_halo_as_one_collective(ranks: int) -> None:
    status, text = launcher.mpi(ranks, str(BENCHMARKS / "halo26_neighbours.py"), "--small")
    assert status == 0 and ": right" in text and "LeakWarning" not in text, text
