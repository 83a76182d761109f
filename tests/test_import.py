"""``import gmpi`` imports names when they are asked for."""

from __future__ import annotations

import ast
import importlib
import re
import resource
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import launcher
import pytest

import gmpi
from gmpi.cache.loading import with_room

IMPORT_S = 0.3
PACKAGES = ("gmpi", "host_proxy", "device_lib")
HEAVY = {"numpy", "numba", "mpi4py.MPI", "cuda", "cupy", "pydantic"}


def run(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, cwd=launcher.ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_the_contract_needs_neither_cuda_nor_mpi() -> None:
    text = run(
        "import time; t = time.perf_counter(); import gmpi; t = time.perf_counter() - t\n"
        f"import sys, gmpi.contract.wire; print(t, *(sys.modules.keys() & {HEAVY}))"
    )
    seconds, *heavy = text.split()
    assert not heavy
    assert float(seconds) < IMPORT_S * launcher.TIME_FACTOR


def test_every_name_is_where_the_stub_says() -> None:
    for name, home in gmpi._HOME.items():
        assert getattr(gmpi, name) is getattr(importlib.import_module(home), name)
    assert dir(gmpi) == gmpi.__all__ == sorted([*gmpi._HOME, "__version__"])


def test_other_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="GMPI_Isent"):
        gmpi.GMPI_Isent  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        exec("from gmpi import GMPI_Isent")


def imported(path: Path) -> set[str]:
    """The modules of the project that a module imports before anything in it runs."""
    found: set[str] = set()
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Import):
            found |= {name.name for name in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            found |= {statement.module}
            found |= {f"{statement.module}.{name.name}" for name in statement.names}
    return found


def distributions(path: Path) -> set[str]:
    """Which packages bring what a module imports, anywhere in it, beside Python and the project."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{name.name}" for name in node.names}
    known = {*sys.stdlib_module_names, *PACKAGES}
    tops = {tuple(name.split(".")) for name in found if name.partition(".")[0] not in known}
    # Of these two names several packages bring parts: cuda.bindings, cuda.pathfinder, numba.cuda.
    return {
        "-".join(top[:2]) if top[0] == "cuda" or top[:2] == ("numba", "cuda") else top[0]
        for top in tops
    }


def test_what_is_imported_is_declared() -> None:
    """Else it is there as long as another package happens to bring it."""
    text = (launcher.ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    declared = {re.split(r"[^\w-]", entry)[0] for entry in project["dependencies"]}
    declared.add("cupy")  # of the extra cu13: imported where the user's arrays are CuPy's
    declared.add("nvtx")  # of the extra of that name: imported where a profiler listens
    paths = [path for name in PACKAGES for path in (launcher.ROOT / name).rglob("*.py")]
    found = set().union(*map(distributions, paths))
    assert len(found) > 9 and found <= declared, found - declared


def graph() -> dict[str, set[str]]:
    """Which module imports which."""
    modules = {
        ".".join(path.relative_to(launcher.ROOT).with_suffix("").parts): path
        for package in PACKAGES
        for path in (launcher.ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }
    return {name: imported(path) & modules.keys() for name, path in modules.items()}


def test_there_are_no_import_circles() -> None:
    TopologicalSorter(graph()).prepare()


def room(module: str) -> str:
    """The folder of a module; one that lies in none is a room of its own."""
    return module.rpartition(".")[0] if module.count(".") > 1 else module


def test_rooms_import_each_other_one_way() -> None:
    rooms: dict[str, set[str]] = {}
    for module, others in graph().items():
        rooms.setdefault(room(module), set()).update(map(room, others))
    for name, others in rooms.items():
        others.discard(name)
    TopologicalSorter(rooms).prepare()
    assert not rooms["gmpi.contract"]
    for name, others in rooms.items():
        if name.startswith("device_lib"):
            assert not any(other.startswith("host_proxy") for other in others), name
        if name.startswith("host_proxy"):
            assert not any(other.startswith("device_lib") for other in others), name


def leaf() -> None:
    pass


def faults_at(depth: int) -> int:
    """Page faults of 1000 calls that are made so many frames deep."""
    if depth:
        return faults_at(depth - 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(1000):
        leaf()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def worst() -> int:
    return max(map(faults_at, range(300)))


def test_calls_with_room_map_no_memory() -> None:
    """CPython maps a piece for each call where the frames of the last one are full."""
    assert worst() > 500 and with_room(worst) < 100
