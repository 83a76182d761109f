"""Files, functions and signatures of a size that a reader can hold, or a reason beside them.

A reason is a comment right above a function or within its signature: ``# long: ...`` or
``# wide: ...``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import launcher
import pytest

FOLDERS = ("gmpi", "host_proxy", "device_lib", "examples", "benchmarks")
MOST_LINES = 400
LONGEST = 60  # lines of a function, without those of functions and classes in it
WIDEST = 8  # arguments besides ``self``
ON_THE_WAY = 55, 13  # functions and files of device_lib that a message of 8 bytes runs through

FILES = sorted(
    path.relative_to(launcher.ROOT)
    for folder in FOLDERS
    for path in (launcher.ROOT / folder).rglob("*.py")
)


def first_line(definition: ast.stmt) -> int:
    decorators = getattr(definition, "decorator_list", [])
    return min([definition.lineno, *(d.lineno for d in decorators)])


def definitions_in(node: ast.AST) -> Iterator[ast.stmt]:
    """The functions and classes in a function, but not those in these."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
        else:
            yield from definitions_in(child)


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    inside = sum((d.end_lineno or 0) - first_line(d) + 1 for d in definitions_in(function))
    return (function.end_lineno or 0) - function.lineno + 1 - inside


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    found = function.args
    names = [a.arg for a in (*found.posonlyargs, *found.args, *found.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def too_large(text: str) -> list[str]:
    """What in a file is too long or too wide, without a reason."""
    lines = text.splitlines()
    problems = []
    if len(lines) > MOST_LINES:
        problems.append(f"{len(lines)} lines: look for the second subject in it")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        begin = first_line(node) - 1
        while begin > 0 and lines[begin - 1].lstrip().startswith("#"):
            begin -= 1
        signature = [node, *ast.walk(node.args)]
        end = max(getattr(part, "lineno", 0) for part in signature)
        head = "\n".join(lines[begin:end])
        for much, most, reason, what in (
            (own_lines(node), LONGEST, "# long: ", "lines"),
            (arguments(node), WIDEST, "# wide: ", "arguments"),
        ):
            if much > most and reason not in head:
                problems.append(f"{node.name} has {much} {what}, and no comment '{reason}...'")
            elif much <= most and reason in head:
                problems.append(f"{node.name} has only {much} {what}: its reason is not needed")
    return problems


@pytest.mark.parametrize("path", FILES, ids=str)
def test_sizes(path: Path) -> None:
    assert not too_large((launcher.ROOT / path).read_text())


def test_what_is_too_large() -> None:
    body = "    x = 1\n" * LONGEST
    wide = ", ".join("abcdefghi")
    assert not too_large("def f(self, a, b, c, d, e, f, g, h):\n    pass\n")
    assert too_large(f"def f({wide}):\n    pass\n")
    assert too_large(f"def f():\n{body}")
    assert too_large("x = 1\n" * (MOST_LINES + 1))
    assert not too_large(f"def f({wide}):  # wide: as MPI's\n    pass\n")
    assert not too_large(f"# long: a table\n@cache\ndef f():\n{body}")
    assert not too_large(
        f"def make():\n    def f():\n        pass\n\n{body[: -len('    x = 1') * 2]}"
    )
    inner = dedent(f"def f():\n{body}").replace("\n", "\n    ").rstrip()
    factory = f"def make():\n    # long: one loop\n    {inner}\n    return f\n"
    assert not too_large(factory)
    assert too_large(factory.replace("# long", "# not"))
    assert too_large("def f():  # long: no\n    pass\n")


def test_files_of_tests() -> None:
    paths = (launcher.ROOT / "tests").rglob("*.py")
    long = {path.name for path in paths if len(path.read_text().splitlines()) > MOST_LINES}
    assert not long, f"{sorted(long)} have more than {MOST_LINES} lines"


WAY = """
import sys, threading
import numpy as np
from mpi4py import MPI
from numba import cuda
import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait

found, on = set(), [False]

def note(frame, event, _):
    name = frame.f_code.co_filename
    if on[0] and event == "call" and "/device_lib/" in name:
        found.add(name.rpartition("/device_lib/")[2] + " " + frame.f_code.co_name)

@cuda.jit
def kernel(ctx, send, recv, notes):
    cuda.syncthreads()
    on[0] = notes
    r = GMPI_Irecv(ctx, recv, 8, gmpi.BYTE, 0, 7, gmpi.COMM_WORLD)
    s = GMPI_Isend(ctx, send, 8, gmpi.BYTE, 0, 7, gmpi.COMM_WORLD)
    GMPI_Wait(ctx, s)
    GMPI_Wait(ctx, r)
    on[0] = False

threading.setprofile(note)
sys.setprofile(note)
with gmpi.Context(MPI.COMM_SELF) as g:
    send, recv = (cuda.to_device(np.zeros(8, np.uint8)) for _ in range(2))
    for notes in (False, True):
        kernel[1, 64](g.device, send, recv, notes)
        g.synchronize()
sys.setprofile(None)
print("", *sorted(found), sep="\\n- ")
"""
#: What there is of the simulator only, and what runs where a wait takes long.
OFF_THE_WAY = ("simulator/", "strict/", "proxied/pacing.py", "proxied/completion.py")


@pytest.mark.mpi
@pytest.mark.mpich
def test_the_way_of_a_short_message_is_no_longer_than_it_was() -> None:
    """Who follows one in the source reads them all (docs/design.md)."""
    status, text = launcher.python("-c", WAY, NUMBA_ENABLE_CUDASIM="1")
    assert status == 0, text
    lines = [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]
    way = [line for line in lines if not line.startswith(OFF_THE_WAY) and "_sim.py" not in line]
    files = {line.split()[0] for line in way}
    most_functions, most_files = ON_THE_WAY
    assert len(way) <= most_functions and len(files) <= most_files, "\n".join(way)
    assert {"proxied/opening.py publish_inline", "proxied/closing.py collect"} <= set(way)
