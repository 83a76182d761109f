"""The soak program of tests/gpu, for some seconds in the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import launcher
import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


def test_soak(tmp_path: Path) -> None:
    program = str(launcher.ROOT / "tests" / "gpu" / "soak.py")
    path = tmp_path / "soak.json"
    options = ["--seconds", "3", "--blocks", "4", "--threads", "32", "--slice", "1"]
    status, text = launcher.mpi(2, program, *options, "--json", str(path))
    assert status == 0 and text.rstrip().endswith("passed"), text
    report = json.loads(path.read_text())
    assert report["passed"] and report["wrong"] == [0, 0] and report["simulator"]
    # 8 kinds, each once a block and rank at the least.
    assert report["operations"] >= 2 * 4 * 8 * 2 == 128
    assert len(report["over_time"]) >= 2
