"""Runs the model checker spin on the models in ``tests/model``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import launcher
import pytest

LIMIT_S = 240 * launcher.TIME_FACTOR


def need_tools() -> None:
    for tool in ("spin", "gcc"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool} on PATH (Debian and Ubuntu: apt-get install spin gcc)")


def mutations(model: Path) -> dict[str, int]:
    """What can be taken away from a model, and the numbers that take it away."""
    text = model.read_text()
    text = text[text.index("--- mutations") : text.index("#define IF")]
    return {name: int(n) for name, n in re.findall(r"#define (\w+) (\d+)", text)}


def build(model: Path, defines: list[str], where: Path, *options: str) -> Path:
    """Compiles the program that visits every state of a model.

    Args:
        defines: the model's own settings.
        options: the compiler's. ``-O1``: half of the time, for programs that search for seconds.
            ``-DCOLLAPSE``: a third of the memory for half as much time again.
    """
    flags = [f"-D{define}" for define in defines]
    # Compiling with optimisation takes a second longer, and most searches take less.
    for command in (
        ["spin", "-a", *flags, str(model)],
        ["gcc", "-O0", "-w", "-DSAFETY", "-DMEMLIM=2000", *options, "-o", "pan", "pan.c"],
    ):
        made = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
        assert made.returncode == 0, f"{command}: {made.stdout}{made.stderr}"
    return where / "pan"


def programs(
    model: Path, bounds: Mapping[str, tuple[list[str], int]], where: Path
) -> dict[str, Path]:
    """By the names of ``bounds``: the program of each.

    Args:
        bounds: (the model's own settings, the least number of states).
    """
    need_tools()
    found = {}
    for number, (name, (defines, _)) in enumerate(bounds.items()):
        folder = where / str(number)
        folder.mkdir()
        found[name] = build(model, defines, folder)
    return found


def search(program: Path, where: Path, mutation: int = 0) -> str:
    """Visits every state: what the program has to say at its end. Leaves a trail in ``where``."""
    done = subprocess.run(
        [str(program), "-m100000", "-w20"],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={**os.environ, "MUTATION": str(mutation)},
    )
    return done.stdout


@contextmanager
def searches() -> Iterator[ThreadPoolExecutor]:
    """As many searches at once as cores; those that have not begun at the end never do."""
    need_tools()
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    yield pool
    pool.shutdown(cancel_futures=True)


def holds(text: str, least: int) -> None:
    """The search found no error in more than ``least`` states."""
    assert errors(text) == 0, text
    assert states(text) > least, f"the model does next to nothing:\n{text}"


def misses(text: str, shows: str) -> None:
    """The search found an error that shows as it should."""
    assert errors(text) > 0, f"without it the model holds as well:\n{text}"
    assert re.search(f"pan:1: ({shows})", text), text


def errors(text: str) -> int:
    """Errors that the search found; it must have been complete, or have found one."""
    found = re.search(r"errors: (\d+)", text)
    assert found, text
    assert "out of memory" not in text and "truncated" not in text, text
    return int(found[1])


def states(text: str) -> float:
    """How many different states the search has visited."""
    found = re.search(r"([\d.e+]+) states, stored", text)
    assert found, text
    return float(found[1])
