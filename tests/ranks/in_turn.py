"""Runs rank programs one after the other in one start of MPI.

    mpiexec -n N python3 tests/ranks/in_turn.py DIRECTORY

To start Python, Numba, MPI and the compiled engine takes a rank longer than most programs.
``DIRECTORY/programs.json`` lists what to run: ``path``, ``arguments``, ``environment`` and
``limit_s`` of each. What rank R prints while program K runs goes to ``DIRECTORY/K.R.running``,
which becomes ``K.R`` once the program has ended on all ranks. A program that fails ends all ranks.
"""

from __future__ import annotations

import faulthandler
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from common import RANK, barrier


def run(program: dict[str, Any], output: Path) -> None:
    to = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):  # what MPI and children print, too
        os.dup2(to, number)
    os.close(to)
    # Before the time limit of whoever waits, so that every rank says where it is.
    faulthandler.dump_traceback_later(max(5.0, program["limit_s"] - 5.0), exit=True)
    before = dict(os.environ)
    os.environ.update(program["environment"])
    sys.argv = [program["path"], *program["arguments"]]
    runpy.run_path(program["path"], run_name="__main__")
    os.environ.clear()
    os.environ.update(before)
    sys.stdout.flush()
    sys.stderr.flush()


def main(directory: Path) -> None:
    for number, program in enumerate(json.loads((directory / "programs.json").read_text())):
        output = directory / f"{number}.{RANK}.running"
        run(program, output)
        barrier()
        output.rename(output.with_suffix(""))
        barrier()  # a rank that fails in the next program ends the others, wherever they are


if __name__ == "__main__":
    main(Path(sys.argv[1]))
