"""Derived datatypes and views in kernels: ``ranks/datatypes.py`` on 1 to 3 ranks, both engines."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_compiled_engine(ranks: int) -> None:
    launcher.check(ranks, "datatypes")


def test_mpi4py_engine() -> None:
    launcher.check(2, "datatypes", GMPI_ENGINE="mpi4py")


@pytest.mark.parametrize("engine", ["compiled", "mpi4py"])
def test_every_chunk_boundary(engine: str) -> None:
    launcher.check(2, "datatypes", "--small", GMPI_ENGINE=engine)


def test_without_shared_staging() -> None:
    launcher.check(2, "datatypes", "--small", GMPI_SHARED_STAGING="0")
