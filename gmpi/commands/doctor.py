"""``gmpi doctor``: what must be right before ranks can exchange anything, check by check.

The checks ask processes of their own, so that this one starts ranks with any MPI library.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

import click

from gmpi.commands import launching
from gmpi.commands.show import as_json, bad, emit, examples, good, odd

PASSED, FAILED, WAIVED = "Passed", "Failed", "Waived"
RANKS = 2
_LEAST_SHM_MIB = 64
_PROBE_S = 120


class Verdict(NamedTuple):
    """What a check has found.

    Attributes:
        verdict: PASSED, FAILED, or WAIVED: not needed here, or not as good as it could be.
        found: what was seen.
        cure: what to do, where something is to be done.
    """

    verdict: str
    found: str
    cure: str = ""


class Patient:
    """What the checks have in common: the facts of ``gmpi info``, and where kernels run."""

    def __init__(self, simulator: bool | None, mpiexec: str | None, limit_s: float) -> None:
        self.gpus = launching.gpus()
        said = os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip()
        self.asked = simulator is not None or bool(said)
        if simulator is None:
            simulator = said != "0" if said else self.gpus == 0
        self.simulator = simulator
        self.mpiexec = mpiexec
        self.limit_s = limit_s
        self.env = {**os.environ, "NUMBA_ENABLE_CUDASIM": str(int(simulator))}
        self.facts: dict[str, Any] = {}
        self.problem = ""  # why there are none
        self.hopeless = ""  # which check that the exchange depends on has failed

    def ask(self) -> None:
        """Has ``gmpi info`` look."""
        status, text, told = self.run(sys.executable, "-m", "gmpi", "info", "--json")
        try:
            self.facts = json.loads(text)
        except ValueError:
            self.problem = (told or text or f"exit {status}").strip().splitlines()[-1]

    def run(self, *words: str, limit_s: float = _PROBE_S) -> tuple[int, str, str]:
        """Exit status, what it prints, and what it says on stderr."""
        try:
            done = subprocess.run(
                words, env=self.env, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            return -1, "", f"{words[0]} did not end within {limit_s:.0f} s"
        return done.returncode, done.stdout, done.stderr


def packages(patient: Patient) -> Verdict:
    """Everything that GMPI needs is installed, in versions that fit."""
    problems = []
    for line in metadata.requires("gmpi") or []:
        spec, _, marker = line.partition(";")
        if "extra" in marker:
            continue
        name = re.split(r"[\s\[<>=!~]", spec.strip(), maxsplit=1)[0]
        try:
            have = metadata.version(name)
        except metadata.PackageNotFoundError:
            problems.append(f"{name} is missing")
            continue
        for sign, bound in re.findall(r"(>=|<)\s*([\d.]+)", spec):
            if (_numbers(have) >= _numbers(bound)) != (sign == ">="):
                problems.append(f"{name} is {have}, needed is {sign}{bound}")
    if problems:
        return Verdict(FAILED, "; ".join(problems), "pip install --upgrade gmpi")
    if patient.problem:
        return Verdict(FAILED, patient.problem, "gmpi info shows the whole message")
    return Verdict(PASSED, f"Python {sys.version.split()[0]}, all packages fit")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]


def library(patient: Patient) -> Verdict:
    """mpi4py loads an MPI library, with THREAD_MULTIPLE."""
    from gmpi.missing import HOW_TO_INSTALL

    mpi = patient.facts.get("mpi", {"loaded": False, "problem": patient.problem})
    if not mpi["loaded"]:
        reason = mpi["problem"].removesuffix(f"; {HOW_TO_INSTALL}")
        return Verdict(FAILED, reason, HOW_TO_INSTALL)
    if mpi["thread_level"] != "MULTIPLE":
        return Verdict(
            FAILED,
            f"{mpi['library']} gives only THREAD_{mpi['thread_level']}",
            "use an MPI library that is built with THREAD_MULTIPLE, and do not set "
            "mpi4py.rc.thread_level",
        )
    return Verdict(PASSED, f"{mpi['library']}, THREAD_MULTIPLE")


def launcher(patient: Patient) -> Verdict:
    """There is an mpiexec of that library."""
    try:
        return Verdict(PASSED, launching.find_mpiexec(patient.mpiexec))
    except click.ClickException as exc:
        found, _, cure = exc.format_message().partition("; ")
        return Verdict(FAILED, found, cure)


def gpu(patient: Patient) -> Verdict:
    """CUDA can use a GPU."""
    cuda = patient.facts.get("cuda", {})
    if patient.simulator:
        reason = "the simulator is asked for" if patient.asked else "no GPU: nvidia-smi sees none"
        return Verdict(WAIVED, f"{reason}; kernels run in the simulator")
    if not cuda.get("gpus"):
        return Verdict(
            FAILED,
            " ".join(str(cuda.get("problem", patient.problem or "no GPU")).split()),
            "install a driver for CUDA 13, or run in the simulator: NUMBA_ENABLE_CUDASIM=1",
        )
    old = [g["name"] for g in cuda["gpus"] if _numbers(g["compute_capability"]) < [7, 5]]
    if old:
        return Verdict(FAILED, f"{', '.join(old)}: older than compute capability 7.5", "")
    names = ", ".join(f"{g['name']} ({g['compute_capability']})" for g in cuda["gpus"])
    return Verdict(PASSED, f"{names}, driver for CUDA {cuda['driver']}")


def compilers(patient: Patient) -> Verdict:
    """CUDA's compilers are there."""
    if patient.simulator:
        return Verdict(WAIVED, "the simulator compiles nothing")
    program = "from gmpi.launch import precompile; print(precompile.why_nothing_compiles() or '')"
    status, text, told = patient.run(sys.executable, "-c", program)
    reason = text.strip() if status == 0 else (told.strip().splitlines() or ["no reason"])[-1]
    if reason:
        return Verdict(FAILED, reason, 'pip install "gmpi[cu13]"')
    return Verdict(PASSED, "NVVM and ptxas")


def sharing(patient: Patient) -> Verdict:
    """Two ranks can use what GPUs there are at the same time."""
    if patient.simulator:
        return Verdict(WAIVED, "no GPU is shared")
    if patient.gpus >= RANKS:
        return Verdict(PASSED, f"{patient.gpus} GPUs: one for each of {RANKS} ranks")
    if patient.facts.get("cuda", {}).get("mps"):
        return Verdict(PASSED, "one GPU, and an MPS daemon runs")
    if shutil.which("nvidia-cuda-mps-control"):
        return Verdict(
            WAIVED,
            "one GPU, and no MPS daemon runs: kernels of two ranks would take turns",
            "start ranks with gmpi run, or the daemon with nvidia-cuda-mps-control -d",
        )
    return Verdict(WAIVED, "one GPU, and no MPS is installed: kernels of two ranks take turns", "")


def settings(patient: Patient) -> Verdict:
    """The variables that begin with GMPI_ are known, and their values allowed."""
    found = patient.facts.get("settings", {"problem": "", "warnings": []})
    if found.get("problem") and "values" not in found and patient.facts["mpi"]["loaded"]:
        return Verdict(FAILED, found["problem"], "gmpi info lists all settings")
    if found["warnings"]:
        return Verdict(FAILED, "; ".join(found["warnings"]), "unset it, or correct its name")
    changed = [n for n, v in found.get("values", {}).items() if v["origin"] != "default"]
    return Verdict(PASSED, f"from the environment: {', '.join(changed)}" if changed else "defaults")


def cores(patient: Patient) -> Verdict:
    """There are cores enough for two ranks with a proxy each."""
    have = len(os.sched_getaffinity(0))
    if have >= 2 * RANKS:
        return Verdict(PASSED, f"{have} cores")
    return Verdict(
        WAIVED,
        f"{have} cores for {RANKS} ranks with two busy threads each: proxies yield, and times grow",
    )


def shared_memory(patient: Patient) -> Verdict:
    """There is room in /dev/shm, through which ranks of a node talk."""
    try:
        free = shutil.disk_usage("/dev/shm").free >> 20
    except OSError as exc:
        return Verdict(WAIVED, f"/dev/shm cannot be looked at: {exc}")
    if free < _LEAST_SHM_MIB:
        cure = "in a container: docker run --shm-size=1g; else delete what is left there"
        return Verdict(FAILED, f"/dev/shm has {free} MiB free", cure)
    return Verdict(PASSED, f"/dev/shm has {free} MiB free")


def exchange(patient: Patient) -> Verdict:
    """Two ranks exchange messages from inside their kernels."""
    if patient.hopeless:
        return Verdict(WAIVED, f"not tried, because check {patient.hopeless} has failed")
    words = ["-m", "gmpi.commands.two_ranks"]
    plan = launching.plan(RANKS, words, mpiexec=patient.mpiexec, simulator=patient.simulator)
    began = time.monotonic()
    try:
        with launching.mps_daemon(plan.mps) as more:
            patient.env.update({**plan.variables, **more})
            status, text, told = patient.run(*plan.command, limit_s=patient.limit_s)
    except click.ClickException as exc:
        return Verdict(FAILED, *exc.format_message().split("; ", 1))
    seconds = time.monotonic() - began
    try:
        ranks = launching.printed_json(text)
    except ValueError:
        last = [line.strip() for line in (told or text).strip().splitlines() if line.strip()]
        reason = next((line for line in reversed(last) if re.match(r"[\w.]*Error", line)), "")
        return Verdict(
            FAILED,
            reason or (last[-1] if last else f"exit {status}, and nothing was printed"),
            f"run it by hand: gmpi run -n 2 -- {' '.join(words)}",
        )
    problems = [
        f"rank {rank}, {road['road']}: {text}"
        for rank, roads in enumerate(ranks)
        for road in roads
        for text in road["problems"]
    ]
    if problems or status != 0:
        return Verdict(FAILED, "; ".join(problems) or f"exit {status}", "docs/troubleshooting.md")
    roads = list(dict.fromkeys(road["road"] for road in ranks[0]))
    return Verdict(PASSED, f"all numbers right, by {' and by '.join(roads)}, in {seconds:.1f} s")


#: In this order; the exchange needs those that ``_NEEDED`` names.
CHECKS: tuple[tuple[str, Callable[[Patient], Verdict]], ...] = (
    ("Python and packages", packages),
    ("MPI library", library),
    ("mpiexec", launcher),
    ("GPU", gpu),
    ("CUDA compilers", compilers),
    ("GPU sharing", sharing),
    ("settings", settings),
    ("cores", cores),
    ("shared memory", shared_memory),
    ("exchange of two ranks", exchange),
)
_NEEDED = (packages, library, launcher, gpu, compilers, settings)
_SLOW: dict[Callable[[Patient], Verdict], str] = {
    exchange: "(the first time on a machine, the proxy is compiled: a minute) "
}
_COLOURS = {PASSED: good, FAILED: bad, WAIVED: odd}


def line(check: dict[str, Any]) -> str:
    """One check, and below it the cure."""
    verdict = _COLOURS[check["verdict"]](check["verdict"])
    text = f"{check['number']:>2}. {check['name']:<22} {verdict}  {check['found']}"
    return f"{text}\n{'':26} -> {check['cure']}" if check["cure"] else text


@click.command(epilog=examples("gmpi doctor", "gmpi doctor --simulator --json"))
@click.option("--simulator/--gpu", default=None, help="Where kernels run; default: as gmpi run.")
@click.option("--mpiexec", metavar="PATH", help="Another one than that of this Python.")
@click.option("--limit", "limit_s", default=300.0, metavar="S", help="For the exchange [300].")
@as_json
def doctor(simulator: bool | None, mpiexec: str | None, limit_s: float, as_json: bool) -> None:
    """Checks this machine and says what to do, ending in a real exchange of two ranks.

    Each check is Passed, Failed (with the cure), or Waived: it does not apply here, or something
    works that could work better. Ends with 1 if one has failed.
    """
    patient = Patient(simulator, mpiexec, limit_s)
    patient.ask()
    found: list[dict[str, Any]] = []
    on_a_terminal = sys.stdout.isatty() and not as_json
    for number, (name, check) in enumerate(CHECKS, 1):
        if on_a_terminal:
            click.echo(f"{number:>2}. {name} {_SLOW.get(check, '')}...\r", nl=False)
        verdict = check(patient)
        if verdict.verdict == FAILED and check in _NEEDED and not patient.hopeless:
            patient.hopeless = str(number)
        found.append({"number": number, "name": name, **verdict._asdict()})
        if on_a_terminal:
            click.echo(" " * 100 + "\r", nl=False)
        if not as_json:
            click.echo(line(found[-1]))
    if as_json:
        emit(found, True, str)
    raise SystemExit(1 if any(check["verdict"] == FAILED for check in found) else 0)
