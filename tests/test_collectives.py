"""Collectives of kernels: ``ranks/collectives.py`` on 1 to 4 ranks, both engines."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_compiled_engine(ranks: int) -> None:
    launcher.check(ranks, "collectives")


@pytest.mark.slow
def test_mpi4py_engine() -> None:
    launcher.check(2, "collectives", GMPI_ENGINE="mpi4py")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "mpi4py"])
def test_many_chunks(engine: str) -> None:
    launcher.check(2, "collectives", "--small", GMPI_ENGINE=engine)
