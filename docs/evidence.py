"""What has been seen on GPUs of each call of kernels, by the files of docs/measurements.

Everything has run in the simulator with MPICH and Open MPI, and is compiled for sm_90: that is the
rule for what is not here.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import gmpi

ROOT = Path(__file__).resolve().parents[1]
RANKS, MEASUREMENTS = ROOT / "tests" / "ranks", ROOT / "docs" / "measurements"

#: Calls whose figures a file has. Whoever commits such a file adds a row.
MEASURED = {
    "pingpong-2gpu.json": "Isend Recv Send Wait",
    "rates-2gpu.json": "Irecv Waitall",
    "partitioned-2gpu.json": "Start Pready Parrived",
    "collectives-2gpu.json": "Allreduce Barrier Bcast Reduce Allgather Alltoall Scan Exscan",
    "collectives_nonblocking-2gpu.json": "Iallreduce Ibarrier",
    "counts_halves-2gpu.json": "Alltoallv Neighbor_alltoallv Neighbor_alltoallw",
    "counts_today-2gpu.json": "Reduce_scatter",
    "onesided-2gpu.json": "Put Get Fetch_and_op Win_flush",
}
#: Outcomes of tests on two GPUs, and on one that two ranks share.
TESTED = "gpu_tests-2gpu.json", "gpu_tests-1gpu.json"
#: Programs in which calls are refused, and a call that is refused in another one: that they are
#: named there says nothing of them.
REFUSING = ("bad_input", "onesided_refused", "partitioned_refused")
REFUSED = "Abort"


@cache
def names_of(program: str) -> frozenset[str]:
    """The calls, without GMPI_, that a rank program names, or a module of its folder that it
    imports: as users do, or where it has ``block_calls``, by attributes or strings of these."""
    tree = ast.parse((RANKS / f"{program}.py").read_text())
    used, bound, modules = set(), set(), {program}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
            bound.add(node.attr)
        elif isinstance(node, ast.Constant):
            bound |= {str(node.value), f"i{node.value}"}
        elif isinstance(node, ast.GeneratorExp) and "GMPI_{" in ast.unparse(node):
            # getattr(gmpi, f"GMPI_{name}") for name in ("Put", "Get")
            used |= {f"GMPI_{n.value}" for n in ast.walk(node) if isinstance(n, ast.Constant)}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module))
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    found = (re.fullmatch(r"GMPI_([A-Z]\w*?)(_warp|_grid)?", name) for name in used)
    names = {match[1] for match in found if match}
    if "device_lib.api.binding" in modules:
        names |= {name.capitalize() for name in bound if name.islower()}
    for module in modules - {program}:
        if (RANKS / f"{module}.py").exists():
            names |= names_of(module)
    return frozenset(name for name in names if hasattr(gmpi, f"GMPI_{name}"))


@cache
def passed(file: str) -> tuple[str, ...]:
    """The rank programs that have passed, those that name few calls first."""
    tests = json.loads((MEASUREMENTS / file).read_text())["tests"]
    lines = [
        re.split(r"[\[\]]", name)[1].split()
        for name, found in tests.items()
        if "::test_program" in name and found["outcome"] == "passed"
    ]
    programs = {next(word for word in line if not word[0].isupper()) for line in lines}
    return tuple(sorted(programs - {*REFUSING}, key=lambda name: (len(names_of(name)), name)))


def of(call: str) -> str:
    """What is known of a call, without GMPI_: a cell of a table."""
    for file, calls in MEASURED.items():
        if call in calls.split():
            return f"measured: [{file}](measurements/{file})"
    for file in TESTED:
        for program in passed(file):
            if call in names_of(program) and call != REFUSED:
                return f"tested on GPUs: [{file}](measurements/{file}), `{program}`"
    return "simulator"
