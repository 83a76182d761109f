"""Random programs on 2 to 4 ranks: ``ranks/random_programs.py``."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    "ranks, seeds",
    [
        (2, "0:10"),
        (3, "10:18"),
        pytest.param(1, "0:3", marks=pytest.mark.slow),
        pytest.param(4, "18:21", marks=pytest.mark.slow),
    ],
)
def test_engines_agree_with_each_other_and_with_mpi4py(ranks: int, seeds: str) -> None:
    launcher.check(ranks, "random_programs", f"--seeds={seeds}", timeout=200)
