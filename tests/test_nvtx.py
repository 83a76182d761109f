"""NVTX ranges reach tools that listen, in a domain of their own."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
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


@pytest.mark.mpi
@pytest.mark.mpich
def test_nsight_systems_shows_the_ranges(tmp_path: Path) -> None:
    pytest.importorskip("nvtx", reason="needs the package nvtx: pip install nvtx")
    nsys = shutil.which("nsys")
    if nsys is None:
        pytest.skip("needs Nsight Systems: nsys on PATH")
    report = tmp_path / "hello"
    hello = [sys.executable, str(launcher.ROOT / "examples" / "hello.py")]
    profile = [nsys, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none", "-o"]
    own = launcher.mpi_command(1, *hello[1:])
    # One of two ranks is profiled: both at once take twice as long, and show the same.
    command = [*own, ":", "-n", "1", *profile, str(report), *hello]
    status, text = launcher.start(command)
    assert status == 0, text
    table = subprocess.run(
        [nsys, "stats", "--quiet", "--report", "nvtx_sum", "--format", "csv", f"{report}.nsys-rep"],
        check=True,
        capture_output=True,
        text=True,
    )
    begin = table.stdout.index("Time (%)")
    rows = list(csv.DictReader(io.StringIO(table.stdout[begin:])))
    found = {row["Range"]: int(row["Instances"]) for row in rows}
    wanted = ["open context", "launch greet", "synchronize", "close context"]
    assert found == {f"gmpi:{name}": 1 for name in wanted}
