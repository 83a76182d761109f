"""Runs a program of ``examples`` or ``benchmarks/twins`` with several options in one start of MPI.

    mpiexec -n N python3 tests/gpu/cases.py DIRECTORY NAME,WAY PROGRAM RUNS CASE=OPTIONS...

A start, and the compilation of the kernels, take longer than most cases. What rank 0 prints goes to
DIRECTORY/NAME,CASE,WAY,RUN; a case that fails says so, and the next one runs.

TURN=PATH: it first compiles all kernels, by a small run of each kind of case, makes the file
PATH-ready, and begins to measure when there is a file PATH-go. So many programs compile at the same
time, and each has the GPUs for itself when it measures.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
import os
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

from mpi4py import MPI


def load(path: Path) -> ModuleType:
    """The program as a module, which does not run."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, path
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def once(module: ModuleType, path: Path, options: str) -> tuple[bool, str]:
    """Whether it ended well on this rank, and what it printed."""
    text, status = io.StringIO(), 0
    sys.argv = [str(path), *options.split()]
    try:
        with contextlib.redirect_stdout(text):
            status = module.main()
    except SystemExit as end:
        if end.code:
            print(end.code, file=text)
            status = 1
    except Exception:
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)  # the others may wait for this rank
    gc.collect()  # now: memory that is freed while the next kernel runs waits for its end
    return not status, text.getvalue()


def kinds(cases: tuple[str, ...]) -> list[str]:
    """Options of the cases, small, one for each set of kernels: numbers make no others."""
    found: dict[tuple[str, ...], str] = {}
    for case in cases:
        options = case.partition("=")[2]
        words = tuple(word for word in options.split() if not word.replace(",", "").isdigit())
        found.setdefault(words, f"{options} --small")
    return list(found.values())


def await_turn(turn: Path) -> None:
    """Blocks until others let this program measure; nobody spins meanwhile."""
    comm = MPI.COMM_WORLD
    comm.Barrier()
    if comm.rank == 0:
        turn.with_name(f"{turn.name}-ready").touch()
        while not turn.with_name(f"{turn.name}-go").exists():
            time.sleep(0.05)
    told = comm.Ibarrier()
    while not told.Test():
        time.sleep(0.02)


def main(directory: str, key: str, program: str, runs: str, *cases: str) -> int:
    comm, path = MPI.COMM_WORLD, Path(program).resolve()
    name, way = key.split(",")
    module, bad = load(path), 0
    if turn := os.environ.get("TURN"):
        for options in kinds(cases):
            once(module, path, options)
        await_turn(Path(turn))
    for run in range(int(runs)):
        for case in cases:
            label, _, options = case.partition("=")
            began = time.perf_counter()
            well, text = once(module, path, options)
            well = comm.allreduce(well, MPI.LAND)
            bad += not well
            if comm.rank == 0:
                (Path(directory) / f"{name},{label},{way},{run}").write_text(text)
                words = "done" if well else f"FAILED\n{text}"
                seconds = time.perf_counter() - began
                print(f"{name} {label} {way}: {words} after {seconds:.1f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
