"""Buffers as users have them: ``ranks/arrays.py``."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2])
def test_kinds_of_arrays(ranks: int) -> None:
    launcher.check(ranks, "arrays")
