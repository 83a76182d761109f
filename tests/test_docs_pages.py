"""What pages of the documentation show runs."""

from __future__ import annotations

import re
from pathlib import Path

import launcher
import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.mpich]


@pytest.mark.parametrize("name", ["datatypes.md", "grids.md"])
def test_the_python_in_the_page_runs(name: str, tmp_path: Path) -> None:
    page = (launcher.ROOT / "docs" / name).read_text()
    (source,) = re.findall(r"```python\n(.*?)```", page, re.S)
    (tmp_path / "page.py").write_text(source)
    status, text = launcher.mpi(2, str(tmp_path / "page.py"))
    assert status == 0, text
