"""NVTX ranges reach a tool that listens, in a domain of their own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import launcher
import pytest

SOURCE = Path(__file__).parent / "nvtx_recorder.c"


@pytest.mark.mpi
@pytest.mark.mpich
def test_a_tool_hears_the_ranges(tmp_path: Path) -> None:
    pytest.importorskip("nvtx", reason="needs the package nvtx: pip install nvtx")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    recorder = tmp_path / "recorder.so"
    how = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *how, "-o", str(recorder), str(SOURCE)], check=True)
    launcher.check(2, "nvtx_ranges", NVTX_INJECTION64_PATH=str(recorder))
