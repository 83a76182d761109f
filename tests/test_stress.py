"""Many warps and blocks at once, in the simulator: ``ranks/stress.py`` on a small scale."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


def test_small_scale() -> None:
    launcher.check(2, "stress")
