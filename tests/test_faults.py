"""A rank that is killed in the middle of an operation; all other faults: test_rank_programs.py."""

from __future__ import annotations

import launcher
import pytest
from mpi4py import MPI

pytestmark = pytest.mark.mpi

IS_MPICH = "MPICH" in MPI.Get_library_version()


DIRECT = ["long_receive", "partition", "collective"]  # of direct_faults.py
DIRECT_TOO = ["short", "long_send", "long_collective"]  # with --full only


def kill(op: str, *options: str) -> tuple[int, str]:
    program = "direct_faults.py" if op in DIRECT + DIRECT_TOO else "faults.py"
    return launcher.mpi(2, str(launcher.RANKS / program), f"peer_killed.{op}", options=options)


@pytest.mark.parametrize(
    "op",
    [
        pytest.param("recv", marks=pytest.mark.mpich),
        pytest.param("send", marks=pytest.mark.openmpi),
        pytest.param("wait", marks=pytest.mark.mpich),
        pytest.param("allreduce", marks=pytest.mark.full),
        pytest.param("long_receive", marks=pytest.mark.mpich),
        *(pytest.param(op, marks=pytest.mark.full) for op in DIRECT_TOO),
    ],
)
def test_a_killed_rank_ends_the_job(op: str) -> None:
    """By the launcher, on both MPI families."""
    status, text = kill(op)
    assert status != 0 and "rank 1 lives" not in text, text


@pytest.mark.skipif(IS_MPICH, reason="MPICH's launcher cannot keep the survivors")
@pytest.mark.parametrize(
    "op",
    [
        *("recv", "allreduce", *DIRECT),
        *(pytest.param(op, marks=pytest.mark.full) for op in DIRECT_TOO),
    ],
)
def test_a_killed_rank_is_an_error_where_others_live_on(op: str) -> None:
    _status, text = kill(op, "--enable-recovery")
    assert f"ok peer_killed.{op}: survived with " in text, text
