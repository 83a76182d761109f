"""The soak programs of tests/gpu, in the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import launcher
import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.mpich, pytest.mark.full]


@pytest.mark.parametrize("seconds", [3, pytest.param(120, marks=pytest.mark.timeout(3000))])
def test_soak(seconds: int, tmp_path: Path) -> None:
    program = str(launcher.ROOT / "tests" / "gpu" / "soak.py")
    path = tmp_path / "soak.json"
    options = ["--seconds", str(seconds), "--blocks", "4", "--threads", "32", "--slice", "1"]
    status, text = launcher.mpi(2, program, *options, "--json", str(path), timeout=200 + seconds)
    assert status == 0 and text.rstrip().endswith("passed"), text
    report = json.loads(path.read_text())
    assert report["passed"] and report["wrong"] == [0, 0] and report["simulator"]
    # 10 kinds, each once a block and rank at the least.
    assert report["operations"] >= 2 * 4 * 10 * 2 == 160
    assert len(report["over_time"]) >= 2


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(("program", "least"), [("soak_collectives", 3 * 10), ("soak_grid", 9 * 3)])
def test_soak_of_other_calls(program: str, least: int, ranks: int, tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    options = ["--seconds", "3", "--blocks", "3", "--threads", "64", "--slice", "1"]
    line = [str(launcher.ROOT / "tests" / "gpu" / f"{program}.py"), *options, "--json", str(path)]
    status, text = launcher.mpi(ranks, *line, timeout=200)
    assert status == 0 and text.rstrip().endswith("passed"), text
    report = json.loads(path.read_text())
    assert report["operations"] >= ranks * least * 2
