"""Derived datatypes and views in kernels: ``ranks/datatypes.py`` on 1 to 3 ranks, both engines."""

from __future__ import annotations

import re
from pathlib import Path

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_compiled_engine(ranks: int) -> None:
    launcher.check(ranks, "datatypes")


@pytest.mark.slow
def test_mpi4py_engine() -> None:
    launcher.check(2, "datatypes", GMPI_ENGINE="mpi4py")


@pytest.mark.parametrize("engine", ["compiled", pytest.param("mpi4py", marks=pytest.mark.slow)])
def test_every_chunk_boundary(engine: str) -> None:
    launcher.check(2, "datatypes", "--small", GMPI_ENGINE=engine)


def test_without_gpu_staging() -> None:
    launcher.check(2, "datatypes", "--small", GMPI_GPU_STAGING="0")


@pytest.mark.slow
def test_without_shared_staging() -> None:
    launcher.check(2, "datatypes", "--small", GMPI_SHARED_STAGING="0")


@pytest.mark.slow
def test_the_python_in_the_page_runs(tmp_path: Path) -> None:
    page = (launcher.ROOT / "docs" / "datatypes.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", page, re.S)
    (tmp_path / "page.py").write_text(source)
    status, text = launcher.mpi(2, str(tmp_path / "page.py"))
    assert status == 0, text
