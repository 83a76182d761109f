"""What a context says at its end, and what a failed call does to the job."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi

START = """
import sys, time, warnings
import numpy as np
from mpi4py import MPI
from numba import cuda
import gmpi

@cuda.jit
def receive(ctx, buf, source, tag):
    gmpi.GMPI_Recv(ctx, buf, 8, gmpi.BYTE, source, tag, gmpi.COMM_WORLD)

@cuda.jit
def leave_open(ctx, buf):
    gmpi.GMPI_Isend(ctx, buf, 8, gmpi.BYTE, 1, 3, gmpi.COMM_WORLD)
    gmpi.GMPI_Isend(ctx, buf, 8, gmpi.BYTE, 1, 3, gmpi.COMM_WORLD)

@cuda.jit
def fail(ctx, buf, times, errors):
    for i in range(times):
        status = gmpi.GMPI_Send(ctx, buf, 8, gmpi.BYTE, 5 + i, 3, gmpi.COMM_WORLD)
        errors[i] = status.error

buf = np.zeros(8, np.uint8)
errors = np.zeros(400, np.int64)

def close(g):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        g.close()
    return [str(w.message) for w in caught if w.category is gmpi.LeakWarning]
"""

SILENT = """
g = gmpi.Context()
if g.rank == 0:
    g.host.Send(np.arange(8, dtype=np.uint8), 1, 3)
else:
    receive[1, 32](g.device, buf, 0, 3)
g.free(g.commit(MPI.DOUBLE.Create_vector(2, 3, 7)))
assert close(g) == []
print("silent")
"""

LEFT = """
g = gmpi.Context()
other = g.comm(MPI.COMM_WORLD)
if g.rank == 0:
    leave_open[1, 32](g.device, buf)
    g.synchronize()
    handle = g.commit(MPI.DOUBLE.Create_vector(2, 3, 7))
    g.free(g.commit(MPI.DOUBLE.Create_vector(2, 3, 8)))
    g.host.Send(np.zeros(20, np.uint8), 1, 4, other)
MPI.COMM_WORLD.Barrier()
time.sleep(0.3)
(told,) = close(g)
lines = told.splitlines()
if g.rank == 0:
    assert lines[0].startswith("rank 0: 2 requests completed but were never waited for"), told
    assert lines[1] == f"1 datatypes were committed but never freed: {handle:#x}", told
else:
    assert lines[0].startswith("rank 1: 3 messages came but were never received: "), told
    assert "8 bytes from 0 tag 3 on COMM_WORLD (2 times)" in lines[0], told
    assert "20 bytes from 0 tag 4 on " in lines[0], told
print("told")
"""

DROPPED = """
nobody = gmpi.PROC_NULL  # where sends complete at once

@cuda.jit
def drop(ctx, buf, sends, errors):
    for i in range(sends):
        request = gmpi.GMPI_Isend(ctx, buf, 8, gmpi.BYTE, nobody, 4, gmpi.COMM_WORLD)
        errors[i] = 0
        if i >= 32:
            errors[i] = gmpi.GMPI_Wait(ctx, request).error
    if sends == 0:
        gmpi.GMPI_Irecv(ctx, buf, 8, gmpi.BYTE, 0, 3, gmpi.COMM_WORLD)

for where in ("synchronize", "close"):
    g = gmpi.Context()
    g.host.Isend(buf, 0, 3)
    drop[1, 32](g.device, buf, 0, errors)
    try:
        if where == "synchronize":
            g.synchronize()
        else:
            g.close()
    except gmpi.PendingError as exc:
        print(f"{where}: {exc}")
    g.close()  # which has been told, or was closed

g = gmpi.Context(request_slots=32, resource_timeout_s=2.0)
began = time.monotonic()
drop[1, 32](g.device, buf, 132, errors)
assert time.monotonic() - began < 100, "each call has waited"
assert set(errors[32:132]) == {gmpi.GMPI_ERR_NO_RESOURCE}
try:
    g.synchronize()
except gmpi.ResourceError as exc:
    print(f"{exc.more + 1} refused")
g.close()
"""

KEPT = """
with gmpi.Context(on_error="return") as g:
    assert g.first_error is None
    fail[1, 32](g.device, buf, 400, errors)
    g.synchronize()
    assert g.first_error.value == 5 and g.first_error.block == 0
    assert "dest is 5, allowed is 0..0" in str(g.first_error)
    values = [fault.value for fault in g.errors]
    assert values == [5, *range(404 - 254, 405)], values
assert set(errors) == {gmpi.ERR_RANK}
print("kept")
"""

RAISED = """
with gmpi.Context() as g:
    fail[1, 32](g.device, buf, 3, errors)
    try:
        g.synchronize()
    except gmpi.ArgumentError as exc:
        assert exc.value == 5 and exc.more == 2
        print("raised")
    g.synchronize()  # said once
with gmpi.Context(on_error="return") as g:
    fail[1, 32](g.device, buf, 3, errors)
    g.synchronize()
    assert len(g.errors) == 3
print("returned")
"""


def run(ranks: int, code: str, **environment: str) -> tuple[int, str]:
    return launcher.mpi(ranks, "-c", START + code, **environment)


@pytest.fixture(scope="module")
def together() -> str:
    """What two ranks print that leave nothing behind, and then much."""
    status, text = run(2, SILENT + LEFT)
    assert status == 0, text
    return text


@pytest.fixture(scope="module")
def alone() -> str:
    """What one rank prints that drops requests, and whose calls fail."""
    status, text = run(1, DROPPED + KEPT + RAISED)
    assert status == 0, text
    return text


@pytest.mark.mpich
def test_one_warning_names_all_that_was_left_behind(together: str) -> None:
    assert together.count("told") == 2, together


@pytest.mark.mpich
def test_a_receive_that_nobody_waits_for_and_sends_whose_requests_are_dropped(alone: str) -> None:
    for where in ("synchronize", "close"):
        words = "kernels ended without waiting for 1 requests whose data have come, and are in no"
        assert f"{where}: {words} buffer: GMPI_Irecv peer 0 tag 3" in alone, alone
    assert alone.count("requests completed but were never waited for: GMPI_Irecv") == 2, alone
    said = "GMPI: rank 0: 32 requests are complete but were never waited for, and hold all slots"
    assert alone.count(said) == 1, alone
    assert "opened by block 0, such as GMPI_Isend peer PROC_NULL tag 4" in alone, alone
    assert "100 refused" in alone, alone


@pytest.mark.mpich
def test_nothing_is_said_when_nothing_was_left(together: str) -> None:
    assert together.count("silent") == 2, together


@pytest.mark.mpich
def test_the_first_error_is_kept_with_its_arguments(alone: str) -> None:
    assert "kept" in alone, alone


@pytest.mark.mpich
def test_raise_and_return(alone: str) -> None:
    assert "raised" in alone and "returned" in alone, alone


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("the host waits", marks=pytest.mark.openmpi),
        pytest.param("the host computes", marks=pytest.mark.mpich),
        pytest.param("the kernel waits", marks=pytest.mark.openmpi),
    ],
)
def test_abort_ends_all_ranks(where: str) -> None:
    """Whether the host looks or not; with the error, its arguments and the report."""
    status, text = run(
        2,
        f"""
where = {where!r}
g = gmpi.Context(on_error="abort", watchdog_s=0)
if g.rank == 0:
    fail[1, 32](g.device, buf, 1, errors)
    if where == "the host waits":
        g.synchronize()
    elif where == "the kernel waits":
        receive[1, 32](g.device, buf, 1, 3)
else:
    receive[1, 32](g.device, buf, 0, 3)
time.sleep(30)
print("still there")
""",
    )
    assert status != 0 and "still there" not in text, text
    assert "GMPI: rank 0: ArgumentError: GMPI_Send in block 0: dest is 5, allowed is 0.." in text
    assert "GMPI report of rank 0: on_error is abort" in text, text


@pytest.mark.openmpi
def test_abort_at_a_timeout() -> None:
    status, text = run(
        2,
        """
g = gmpi.Context(on_error="abort", timeout_s=0.5)
if g.rank == 0:
    receive[1, 32](g.device, buf, 1, 3)
time.sleep(30)
print("still there")
""",
    )
    assert status != 0 and "still there" not in text, text
    assert "GMPI: rank 0: RequestTimeoutError: " in text and "likely cause" in text, text


@pytest.mark.mpich
def test_a_kernel_ends_the_job() -> None:
    """GMPI_Abort of one rank, while the other waits for it; whose block it was is said."""
    status, text = run(
        2,
        """
@cuda.jit
def end_all(ctx, buf, rank):
    if rank == 0:
        gmpi.GMPI_Recv(ctx, buf, 8, gmpi.BYTE, 1, 3, gmpi.COMM_WORLD)
    else:
        gmpi.GMPI_Abort(ctx, gmpi.COMM_WORLD, 37)

g = gmpi.Context()
end_all[1, 32](g.device, buf, g.rank)
g.synchronize()
print("it went on")
""",
    )
    assert status == 37, text
    assert "GMPI: rank 1: GMPI_Abort in block 0, error code 37" in text, text
    assert "it went on" not in text
