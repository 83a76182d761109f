"""The code in the pages of the documentation, as programs.

What stands right before a block, in a comment of HTML that readers do not see, says what a test
does with it:

* ``<!-- before: CODE -->``: a block that is a piece of a program. CODE is put before it, behind
  ``PRELUDE``; that of ``<!-- after: CODE -->`` right behind the block is put after it.
* ``<!-- not run: WHY -->``: it needs what a test does not have.

A Python block that imports is a program as it stands. Blocks of a shell are run where the comment
is ``<!-- run -->``; all others must say why they are not. Blocks of other languages are not run.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import launcher

#: For pieces: what every program begins with, and buffers of the usual names.
PRELUDE = """\
import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import *

comm = MPI.COMM_WORLD.Dup()
gmpi.select_gpu(comm)
"""

#: Pages whose commands are tried elsewhere, and where.
SHELL_ELSEWHERE = {
    "README.md": "tests/test_quickstart.py, tests/test_runner.py, tests/test_package.py",
    "CONTRIBUTING.md": "tests/test_runner.py",
    "docs/applications.md": "tests/test_applications.py",
    "docs/himeno.md": "tests/test_himeno.py",
    "docs/measuring.md": "tests/test_compare.py",
    "docs/strict.md": "tests/test_examples.py, tests/test_rank_programs.py",
    "docs/tools.md": "tests/test_run_command.py, tests/test_watching.py",
    "examples/README.md": "tests/test_examples.py",
    "benchmarks/README.md": "tests/test_examples.py",
    "docs/measurements/README.md": "tests/test_readme.py",
}

_BLOCK = re.compile(
    r"(?:^<!-- ((?:before|not run|run)\b.*?)-->\n+)?^```(\w+)\n(.*?)^```$"
    r"(?:\n+<!-- after:(.*?)-->)?",
    re.M | re.S,
)


class Block(NamedTuple):
    """A block of code in a page."""

    page: str
    line: int
    language: str
    text: str
    mark: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def skipped(self) -> str:
        """Why it is not run, or nothing."""
        return self.mark.partition("not run:")[2].strip()

    @property
    def program(self) -> str:
        """Of Python."""
        if re.search(r"^(?:import|from) ", self.text, re.M):
            return self.text
        return f"{PRELUDE}{self.mark.partition('before:')[2]}\n{self.text}{self.after}"


def blocks(page: str) -> list[Block]:
    text = (launcher.ROOT / page).read_text()
    return [
        Block(page, line_of(text, m.start(2)), m[2], m[3], m[1] or "", m[4] or "")
        for m in _BLOCK.finditer(text)
    ]


def line_of(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
