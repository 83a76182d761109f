"""Sets GMPI up and runs the ping-pong between two kernels: on the GPU if there is one.

    python3 tests/quickstart.py [--simulator] [options of benchmarks/pingpong.py]

Needs Python 3.11 or newer with pip and venv, and the network the first time; nothing else: no GPU,
no MPI. Everything is installed into .venv/quickstart, which is used again and can be deleted.

MPI: the one whose mpiexec is on the PATH, where two processes of it find each other through mpi4py;
otherwise the MPICH of PyPI, in the same environment. Without a GPU that works, kernels run in the
simulator: everything is real but the speed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv" / "quickstart"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.json"  # what has been installed, for which pyproject.toml

# Processes that an mpiexec of another MPI has started are each alone, rank 0 of 1.
_ARE_TWO = "import sys; from mpi4py import MPI; sys.exit(MPI.COMM_WORLD.size != 2)"

_SHARED_GPU = """\
One GPU for two ranks, and no MPS daemon: the GPU switches between the two kernels instead of
running both, and a message takes time slices. The times below are those of the switching; few are
taken. To let the ranks share the GPU, start the daemon and run this again:

    nvidia-cuda-mps-control -d          (and to stop it: echo quit | nvidia-cuda-mps-control)
"""


#: While nothing else is printed, so often: how long it has taken.
_BEAT_S = float(os.environ.get("QUICKSTART_BEAT_S", "3"))
#: Compiles the proxy for all ranks. Each of them would do so by itself, at the same time.
_COMPILE = "import gmpi; gmpi.Context(gpu=False).close()"
_NEXT = """\
quickstart: it works: two kernels have exchanged messages without leaving the {where}.{times}
Try next:
    {gmpi} run -n 2 examples/hello.py     the smallest program
    {gmpi} run -n 2 examples/heat.py{small}a whole simulation in one kernel
    {gmpi} doctor                         what is there on this machine, and what could be better
    docs/api.md, docs/tools.md            all calls; the commands
"""
_TIMES = """
The times above mean nothing: the simulator runs kernels in Python, a thousand times slower."""


def say(text: str) -> None:
    print(f"quickstart: {text}", flush=True)


class Beat:
    """Says how long something takes, while it prints nothing itself."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)

    def __enter__(self) -> Beat:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """There is something to see now."""
        self._done.set()
        self._thread.join()

    def _main(self) -> None:
        shown = False
        while not self._done.wait(_BEAT_S):
            text = f"quickstart: {self._what} ({time.monotonic() - self._began:.0f} s)"
            on_a_terminal = sys.stdout.isatty()
            print(text, end="\r" if on_a_terminal else "\n", flush=True)
            shown = shown or on_a_terminal
        if shown:
            print(" " * 79, end="\r", flush=True)


def run(*words: object, **options: object) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in words], check=False, **options)  # type: ignore


def output(*words: object, seconds: float = 60, env: dict[str, str] | None = None) -> str | None:
    """What a program prints, None when it is not there, fails or takes too long."""
    try:
        done = run(*words, capture_output=True, text=True, timeout=seconds, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def has_gpu() -> bool:
    return "GPU" in (output("nvidia-smi", "-L") or "")


def mpi_environment() -> dict[str, str]:
    """What Open MPI needs to run here; other MPI libraries ignore it.

    Two ranks on any number of cores, not bound to one core each (a rank has two busy threads), and
    as root, in containers.
    """
    env = dict(os.environ)
    env.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")  # version 5
    env.setdefault("PRTE_MCA_hwloc_default_binding_policy", "none")
    env.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")  # version 4
    env.setdefault("OMPI_MCA_hwloc_base_binding_policy", "none")
    if os.geteuid() == 0:
        env.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
        env.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    return env


def works(mpiexec: str | None) -> bool:
    """Whether two processes that this mpiexec starts are two ranks."""
    if not mpiexec:
        return False
    return output(mpiexec, "-n", 2, PYTHON, "-c", _ARE_TWO, env=mpi_environment()) is not None


def install(*extras: str) -> bool:
    """Installs the project with extras into the environment, once for each pyproject.toml.

    Returns:
        Whether anything was installed.
    """
    wanted = {"extras": sorted(extras), "project": (ROOT / "pyproject.toml").read_text()}
    try:
        found = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        found = {}
    if found.get("project") == wanted["project"] and set(extras) <= set(found["extras"]):
        return False
    if not PYTHON.exists():
        say(f"making {VENV}")
        if run(sys.executable, "-m", "venv", VENV).returncode != 0:
            shutil.rmtree(VENV, ignore_errors=True)
            sys.exit("quickstart: no venv could be made; on Debian: apt install python3-venv")
    target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    say(f"installing the project{' with ' + ', '.join(extras) if extras else ''} (pip)")
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    with Beat("installing"):
        status = run(*pip, "--editable", target).returncode
    if status != 0:
        sys.exit("quickstart: pip could not install the project, see above")
    STAMP.write_text(json.dumps(wanted))
    return True


def set_up(gpu: bool) -> tuple[str, bool]:
    """Installs what is missing; returns the mpiexec to use, and whether anything was missing."""
    base = ["cu13"] if gpu else []
    own = str(VENV / "bin" / "mpiexec")
    theirs = None if os.path.exists(own) else shutil.which("mpiexec")
    if not theirs:
        base.append("mpich")
    new = install(*base)
    if works(theirs):
        assert theirs is not None
        return theirs, new
    if theirs:
        say(f"{theirs} does not start two ranks of an MPI that mpi4py can load; taking MPICH")
    new |= install(*{*base, "mpich"})
    if not works(own):
        command = f"{own} -n 2 {PYTHON} -c '{_ARE_TWO}'"
        sys.exit(f"quickstart: MPI does not start two ranks here; see what this says:\n{command}")
    return own, new


def choose_gpu() -> tuple[bool, bool]:
    """(whether the GPU works, whether the two ranks can really share what there is)."""
    env = dict(os.environ, NUMBA_ENABLE_CUDASIM="0")
    command = [PYTHON, "-m", "gmpi", "info", "--open", "--json"]
    done = run(*command, capture_output=True, text=True, env=env)
    try:
        facts = json.loads(done.stdout)
    except ValueError:
        say(f"gmpi info failed: {done.stderr.strip()[-500:]}")
        return False, False
    if not facts["context"]["opens"]:
        say(f"the GPU cannot be used: {facts['context']['problem']}")
        return False, False
    return True, len(facts["cuda"]["gpus"]) > 1 or facts["cuda"]["mps"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulator", action="store_true", help="do not use the GPU")
    args, rest = parser.parse_known_args()
    if sys.version_info < (3, 11):  # noqa: UP036 (this script runs before anything checks)
        sys.exit(f"quickstart: needs Python 3.11 or newer, this is {sys.version.split()[0]}")

    gpu = has_gpu() and not args.simulator
    mpiexec, new = set_up(gpu)
    if gpu:
        gpu, together = choose_gpu()
        if gpu and not together:
            print(_SHARED_GPU, flush=True)
            rest = ["-m", "0:64", "-i", "20", "-x", "2", "--no-conventional", *rest]
    if gpu:
        say("compiling the device library, once")  # what fails here would say so there, too
        run(PYTHON, "-m", "gmpi", "cache", "fill", env=dict(os.environ, NUMBA_ENABLE_CUDASIM="0"))
    reason = "" if gpu else ": asked for" if args.simulator else ": no GPU that works"
    say(f"2 ranks {'on the GPU' if gpu else 'in the simulator' + reason}, with {mpiexec}")
    env = mpi_environment()
    env["NUMBA_ENABLE_CUDASIM"] = "0" if gpu else "1"
    if new:  # what fails here would fail below, and say why
        with Beat("the proxy is compiled, the first time on a machine"):
            run(
                PYTHON,
                "-c",
                _COMPILE,
                env={**env, "NUMBA_ENABLE_CUDASIM": "1"},
                capture_output=True,
            )
    command = [mpiexec, "-n", "2", str(PYTHON), str(ROOT / "benchmarks" / "pingpong.py"), *rest]
    say(f"NUMBA_ENABLE_CUDASIM={env['NUMBA_ENABLE_CUDASIM']} {' '.join(command)}")
    status = watched(command, env)
    if status == 0:
        where, times = ("GPU", "") if gpu else ("simulator", _TIMES)
        small = " " * 6 if gpu else " --small  "  # the usual size takes very long there
        own = (VENV / "bin" / "gmpi").relative_to(ROOT)
        print(_NEXT.format(where=where, times=times, gmpi=own, small=small), flush=True)
    return status


def watched(command: list[str], env: dict[str, str]) -> int:
    """Runs a program and passes on what it prints; says how long nothing has come."""
    what = "the ranks start; the first time on a machine, their proxies are compiled, too"
    with Beat(what) as beat, subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        for line in program.stdout:
            beat.stop()
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
        return program.wait()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
