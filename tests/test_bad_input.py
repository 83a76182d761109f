"""Wrong arguments in kernels: ``ranks/bad_input.py``, both engines."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("engine", ["compiled", "mpi4py"])
def test_wrong_calls_are_refused_and_harm_nothing(engine: str) -> None:
    launcher.check(2, "bad_input", GMPI_ENGINE=engine)


def test_on_a_single_rank() -> None:
    launcher.check(1, "bad_input")
