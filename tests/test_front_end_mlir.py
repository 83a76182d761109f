"""What docs/front_ends.md says of numba-cuda-mlir, where that is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata

import launcher
import pytest

pytestmark = pytest.mark.quick

PAGE = (launcher.ROOT / "docs/front_ends.md").read_text()


def said() -> dict[str, str]:
    """The page's table: each piece, and what is raised."""
    rows = re.findall(r"^\| (.+?) +\| (.+?) +\|$", PAGE, re.M)
    return {name: "" if what == "yes" else what.strip("`") for name, what in rows[1:]}


def test_the_page_lists_what_is_tried() -> None:
    text = (launcher.ROOT / "tests/mlir_pieces.py").read_text()
    tried = re.findall(r'^    "(.+)": \(', text, re.M)
    assert len(tried) > 8 and list(said()) == tried


def test_what_the_page_says_of_it_is_so() -> None:
    pytest.importorskip("numba_cuda_mlir")
    if (version := metadata.version("numba-cuda-mlir")) not in PAGE:
        pytest.skip(f"the page is about another version than {version}")
    command = [sys.executable, str(launcher.ROOT / "tests/mlir_pieces.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert found == said()
