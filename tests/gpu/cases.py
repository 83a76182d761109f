"""Runs a program of ``examples`` or ``benchmarks/twins`` with several options in one start of MPI.

    mpiexec -n N python3 tests/gpu/cases.py DIRECTORY NAME,WAY PROGRAM RUNS CASE=OPTIONS...

A start, and the compilation of the kernels, take longer than most cases. What rank 0 prints goes to
DIRECTORY/NAME,CASE,WAY,RUN; a case that fails says so, and the next one runs.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
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


def main(directory: str, key: str, program: str, runs: str, *cases: str) -> int:
    comm, path = MPI.COMM_WORLD, Path(program).resolve()
    name, way = key.split(",")
    module, bad = load(path), 0
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
