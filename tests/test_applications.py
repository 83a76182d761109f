"""The applications in ``examples``, small: each checks its own result. And their twins."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import launcher
import page_code
import pytest

EXAMPLES = launcher.ROOT / "examples"
TWINS = launcher.ROOT / "benchmarks" / "twins"
APPLICATIONS = (
    "bfs.py",
    "cg.py",
    "hacc.py",
    "halo26.py",
    "heat.py",
    "mg.py",
    "particles.py",
    "reshape.py",
    "spin_glass.py",
    "stencil9.py",
    "workers.py",
)
WITHOUT_TWIN = ("workers.py",)
POWERS_OF_TWO = ("mg.py", "mg_cuda_mpi.py")  # are the numbers of ranks that these run on
OF_TWINS = tuple(
    name.replace(".py", "_cuda_mpi.py") for name in APPLICATIONS if name not in WITHOUT_TWIN
)
# One start of MPI for all of them.
IN_TURN = """
import runpy, sys
from mpi4py import MPI
commands = [line.split() for line in sys.argv[1:]]
for path, *arguments in commands:
    status, sys.argv = None, [path, *arguments]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        status = end.code
    found = MPI.COMM_WORLD.gather(status)
    if found:
        print(path.rpartition("/")[2], "ended with", found, flush=True)
"""

# Graph500's rules, one broken at a time: a tree of five vertices, and a vertex apart. And whether
# NumPy's multigrid finds the official norm.
CHECKS = """
import numpy as np
import bfs
edges = np.array([[0, 1, 1, 3, 2], [1, 2, 3, 4, 2]])
long = np.array([[0, 1, 1, 3, 0], [1, 2, 3, 4, 4]])
print(bfs.validate(edges, 0, np.array([0, 0, 1, 1, 3, -1])))
for edges, *parents in (
    (edges, 1, 0, 1, 1, 3, -1),  # the root has a parent
    (edges, 0, 0, 1, 4, 3, -1),  # a circle
    (long, 0, 0, 1, 1, 3, -1),  # an edge that joins the first level and the fourth
    (edges, 0, 0, 1, 1, -1, -1),  # a vertex was not reached
    (edges, 0, 0, 1, 1, 1, -1),  # no edge leads to a parent
    (edges, 0, 0, 1, 1, 3, 4),  # a vertex of another component
):
    print(bfs.validate(edges, 0, np.array(parents))[0])
import mg
points, cycles, smooth, norm = mg.CLASSES["S"]
print(abs(mg.with_numpy(mg.charges(points), smooth, cycles) / norm - 1) < 1e-10)
"""


def test_each_application_is_known() -> None:
    assert {path.name for path in TWINS.glob("*.py")} == set(OF_TWINS)


def test_lines_in_the_page_are_those_of_the_program() -> None:
    shown = [block for block in page_code.blocks("docs/applications.md") if block.skipped]
    assert shown
    for block in shown:
        path = launcher.ROOT / block.skipped.removeprefix("lines of ")
        text = path.read_text()
        assert any(textwrap.indent(block.text, depth * " ") in text for depth in range(0, 20, 4)), (
            block.name
        )


def test_the_table_says_how_long_each_program_is() -> None:
    page = (launcher.ROOT / "docs" / "applications.md").read_text()
    for name in APPLICATIONS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| [{name}](")]
        lines = len((EXAMPLES / name).read_text().splitlines())
        assert f" | {lines} | " in row, f"{name} has {lines} lines"


def test_figures_beside_twins_are_those_of_the_measurements(tmp_path: Path) -> None:
    """All that they say; how Matplotlib writes paths differs between its releases."""

    def words(path: Path) -> list[str]:
        return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text())

    program = launcher.ROOT / "docs" / "figures" / "twins.py"
    status, text = launcher.python(str(program), "--to", str(tmp_path))
    assert status == 0, text
    page = (launcher.ROOT / "docs" / "applications.md").read_text()
    drawn = sorted(tmp_path.iterdir())
    assert [path.name for path in drawn] == ["cg.svg", "halo26.svg", "mg.svg", "stencil9.svg"]
    for path in drawn:
        assert words(path) == words(program.parent / path.name), f"{path.name}: run {program}"
        assert f"](figures/{path.name})" in page
        assert len([word for word in words(path) if word.endswith(" x")]) >= 2


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "twins"),
    [
        pytest.param(2, False, marks=pytest.mark.mpich),
        pytest.param(2, True, marks=pytest.mark.full),
        pytest.param(3, False, marks=pytest.mark.full),
        pytest.param(4, False, marks=pytest.mark.full),
        pytest.param(3, True, marks=pytest.mark.full),
    ],
)
def test_applications_are_right(ranks: int, twins: bool) -> None:
    names = OF_TWINS if twins else APPLICATIONS
    names = tuple(name for name in names if ranks != 3 or name not in POWERS_OF_TWO)
    lines = [f"{(TWINS if twins else EXAMPLES) / name} --small" for name in names]
    status, text = launcher.mpi(ranks, "-c", IN_TURN, *lines)
    assert status == 0, text
    for name in names:
        assert f"{name} ended with {[0] * ranks}" in text, text
    assert "WRONG" not in text and "LeakWarning" not in text, text
    assert text.count("right") >= len(names), text


@pytest.mark.sm90
@pytest.mark.full
def test_kernels_of_applications_compile() -> None:
    program = "tests/compile_applications_for_sm90.py"
    status, text = launcher.python(program, NUMBA_ENABLE_CUDASIM="0")
    assert status == 0, text
    for name in (*APPLICATIONS, *OF_TWINS):
        assert f"{name.removesuffix('.py')}." in text, name


#: What they refuse, on two ranks, and how that ends.
REFUSED = {
    "bfs.py --roots 0": "argument --roots: invalid choice: 0",
    "bfs.py --scale 0": "argument --scale: invalid choice: 0",
    "hacc.py --rounds 0": "--particles is 4096, --rounds is 0: at least 2 and 1 are needed",
    "halo26.py --steps 0": "--points is 256, --steps is 0: at least 3, the width of the halo",
    "heat.py --limit 0": "--limit is 0: at least 1 step is needed",
    "heat.py --size 3,4": "(3, 4) is too small for [2, 1] ranks: each needs a point",
    "reshape.py --rounds 0": "--rounds is 0: at least 1 is needed",
    "spin_glass.py --length 7": "--length is 7: an even number is needed",
    "spin_glass.py --sweeps 0": "--sweeps is 0, --temperature is 1.1: at least 1",
    "stencil9.py --iterations 3": "--iterations 3: even, at least 2",
    "workers.py --items 0": "--items is 0: at least 1 is needed",
}


@pytest.mark.mpi
@pytest.mark.mpich
def test_numbers_that_do_not_fit_are_refused() -> None:
    status, text = launcher.mpi(2, "-c", IN_TURN, *[f"{EXAMPLES}/{line}" for line in REFUSED])
    assert status == 0, text
    for words in REFUSED.values():
        assert words in text, f"{words}\n{text}"
    assert "Traceback" not in text, text


@pytest.mark.mpi
@pytest.mark.mpich
def test_what_applications_compare_with_is_right() -> None:
    status, text = launcher.python("-c", CHECKS, PYTHONPATH=str(EXAMPLES))
    assert status == 0, text
    assert text.split("\n")[:-1] == ["(True, 5)", *["False"] * 6, "True"], text
