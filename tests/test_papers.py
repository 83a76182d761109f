"""``tests/gpu/papers.sh`` and what it runs, in the simulator: each program checks its own data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import launcher
import pytest
from test_applications import APPLICATIONS, OF_TWINS

BENCHMARKS = launcher.ROOT / "benchmarks"
GPU = launcher.ROOT / "tests" / "gpu"
PROGRAMS = ("layouts.py", "pack_papers.py")


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("papers.sh", "layouts pack_papers pack_bench himeno-cut-1,2,1 himeno-cut-2,2,1 tune"),
        ("packing.sh", "tests datatypes pack_bench"),
        ("direct.sh", "roads partitioned cold collectives counts collectives_long onesided late"),
        ("applications.sh", " ".join(name.removesuffix(".py") for name in APPLICATIONS)),
        ("applications.sh", " ".join(name.removesuffix(".py") for name in OF_TWINS)),
        ("applications.sh", "halo26_neighbours Bcg Bcg_cuda_mpi"),
    ],
)
def test_scripts_run_all_that_is_to_be_measured(script: str, wanted: str, tmp_path: Path) -> None:
    env = {**os.environ, "LIST": "1"}
    command = [str(GPU / script), str(tmp_path / "out")]
    text = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in text.splitlines()]
    assert {name for name, *_ in lines} >= set(wanted.split())
    for _, _, program, *arguments in lines:
        paths = [word for word in (program, *arguments) if word.endswith(".py")]
        assert program == "-m" or paths
        assert all((launcher.ROOT / path).exists() for path in paths)
    assert not (tmp_path / "out").exists()


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.mpich
def test_applications_sh_in_the_simulator(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "SIMULATOR": "1", "LIMIT": "200", "BUDGET": "900"}
    command = [str(GPU / "applications.sh"), str(tmp_path), "halo26", "spin_glass", "cg", "workers"]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "applications-1gpu.json").read_text())["rows"]
    ways = {(row["name"], row["case"]): len(row["runs"]) for row in rows}
    assert ways == {
        ("halo26", "small"): 2, ("halo26", "neighbours"): 1, ("spin_glass", "small"): 2,
        ("cg", "small"): 2, ("workers", "small"): 1,
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.mpich
def test_pictures_of_applications(tmp_path: Path) -> None:
    program = launcher.ROOT / "docs" / "figures" / "applications.py"
    status, text = launcher.mpi(4, str(program), "--to", str(tmp_path))
    assert status == 0, text
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert drawn == {path.name for path in program.parent.glob("*.png")} - {"heat.png", "trace.png"}


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.mpich
def test_papers_sh_in_the_simulator(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "SIMULATOR": "1", "LIMIT": "250"}
    command = [str(GPU / "papers.sh"), str(tmp_path)]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in PROGRAMS:
        assert json.loads((tmp_path / name).with_suffix(".json").read_text())["machine"]
    found = json.loads((tmp_path / "layouts.json").read_text())
    names = {row["name"] for row in found["matrices"]}
    assert names == {"contiguous", "sub-matrix", "triangle", "stair", "transpose"}
    assert {row["staging"] for row in found["pipelines"]} == {"GPU staging", "host memory"}
    found = json.loads((tmp_path / "pack_papers.json").read_text())
    assert {"layouts", "components", "to_host", "beside"} <= set(found)
    faces = [row for row in found["layouts"] if row["name"].startswith("face")]
    assert all(row["pack_copy_us"] > 0 and row["pack_kernel_us"] > 0 for row in faces)


@pytest.mark.mpi
@pytest.mark.parametrize(
    "ranks",
    [pytest.param(2, marks=pytest.mark.openmpi), pytest.param(3, marks=pytest.mark.full)],
)
def test_a_halo_as_one_collective(ranks: int) -> None:
    """Its graph is made of a Cartesian communicator. Open MPI takes it for one, too, and ends the
    job with a signal if it is asked about its dimensions."""
    status, text = launcher.mpi(ranks, str(BENCHMARKS / "halo26_neighbours.py"), "--small")
    assert status == 0 and ": right" in text and "LeakWarning" not in text, text
