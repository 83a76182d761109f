"""Faults in the middle of operations: each ends in time, with its error, and nothing is lost."""

from __future__ import annotations

import launcher
import pytest
from mpi4py import MPI

pytestmark = pytest.mark.mpi

FAULTS = [
    "proxy_killed", "mpi_error", "mpi_error_later", "testsome_fails", "kernel_exits_early",
    "interrupted", "slots_exhausted", "staging_exhausted", "ring_full", "slow_peer",
]  # fmt: skip
OPERATIONS = ["send", "recv", "wait", "allreduce"]
# One operation for each fault: together all of both.
SOME = [f"{fault}.{OPERATIONS[i % 4]}" for i, fault in enumerate(FAULTS)]
SOME += ["mpi_error_later.send", "mpi_error.wait"]
IS_MPICH = "MPICH" in MPI.Get_library_version()


@pytest.mark.sample
def test_some_faults() -> None:
    launcher.check(2, "faults", *SOME, timeout=250)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATIONS)
def test_all_faults(op: str) -> None:
    launcher.check(2, "faults", op, timeout=250)


@pytest.mark.slow
def test_faults_with_the_mpi4py_engine() -> None:
    faults = ["proxy_killed", "mpi_error", "mpi_error_later", "slots_exhausted"]
    launcher.check(2, "faults", *faults, timeout=250, GMPI_ENGINE="mpi4py")


def kill(op: str, *options: str) -> tuple[int, str]:
    program = str(launcher.RANKS / "faults.py")
    return launcher.mpi(2, program, f"peer_killed.{op}", options=options)


@pytest.mark.parametrize("op", ["recv", *(pytest.param(o, marks=pytest.mark.slow) for o in
                                          ("send", "wait", "allreduce"))])  # fmt: skip
def test_a_killed_rank_ends_the_job(op: str) -> None:
    """By the launcher, on both MPI families."""
    status, text = kill(op)
    assert status != 0 and "rank 1 lives" not in text, text


@pytest.mark.skipif(IS_MPICH, reason="MPICH's launcher cannot keep the survivors")
@pytest.mark.parametrize("op", ["recv", "allreduce"])
def test_a_killed_rank_is_an_error_where_others_live_on(op: str) -> None:
    _status, text = kill(op, "--enable-recovery")
    assert f"ok peer_killed.{op}: survived with " in text, text
