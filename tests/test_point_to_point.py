"""Messages between kernels: ``ranks/point_to_point.py`` on 1 to 4 ranks, both engines."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_compiled_engine(ranks: int) -> None:
    launcher.check(ranks, "point_to_point")


@pytest.mark.slow
def test_mpi4py_engine() -> None:
    launcher.check(2, "point_to_point", GMPI_ENGINE="mpi4py")


def test_short_ring_and_many_chunks() -> None:
    launcher.check(2, "point_to_point", "--small")


@pytest.mark.slow
def test_many_chunks_in_python() -> None:
    launcher.check(2, "point_to_point", "--small", GMPI_ENGINE="mpi4py")


@pytest.mark.parametrize("engine", ["compiled", pytest.param("mpi4py", marks=pytest.mark.slow)])
def test_without_gpu_staging(engine: str) -> None:
    launcher.check(2, "point_to_point", "--small", GMPI_GPU_STAGING="0", GMPI_ENGINE=engine)


@pytest.mark.slow
def test_without_shared_staging() -> None:
    # Chunks then travel as messages, as between nodes.
    for engine in ("compiled", "mpi4py"):
        launcher.check(2, "point_to_point", "--small", GMPI_SHARED_STAGING="0", GMPI_ENGINE=engine)
