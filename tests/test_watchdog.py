"""Jobs that stand still: each is told why, and released."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi

START = """
import os, signal, sys, threading, time
import numpy as np
from mpi4py import MPI
from numba import cuda
import gmpi

@cuda.jit
def receive(ctx, buf, source, tag):
    gmpi.GMPI_Recv(ctx, buf, 8, gmpi.BYTE, source, tag, gmpi.COMM_WORLD)

buf = np.zeros(8, np.uint8)
data = np.arange(8, dtype=np.uint8)
"""


def run(ranks: int, code: str, **environment: str) -> str:
    status, text = launcher.mpi(ranks, "-c", START + code, **environment)
    assert status == 0, text
    return text


@pytest.mark.quick
@pytest.mark.mpich
def test_a_report_in_time_and_only_one() -> None:
    text = run(
        1,
        """
with gmpi.Context(watchdog_s=0.5) as g:
    threading.Timer(3.0, lambda: g.host.Isend(data, 0, 3)).start()
    receive[1, 32](g.device, buf, 0, 3)
assert (buf == data).all()
""",
    )
    assert text.count("GMPI report of rank 0: no progress for") == 1, text
    assert "rank 0 waits in GMPI_Recv from 0 tag 3, 8 BYTE on COMM_WORLD" in text, text


@pytest.mark.mpich
def test_no_report_while_things_move_or_when_it_is_off() -> None:
    text = run(
        1,
        """
for watchdog_s in (0, 60):
    with gmpi.Context(watchdog_s=watchdog_s) as g:
        threading.Timer(1.5, lambda: g.host.Isend(data, 0, 3)).start()
        receive[1, 32](g.device, buf, 0, 3)
        time.sleep(1.5)
""",
    )
    assert "GMPI report" not in text


@pytest.mark.openmpi
def test_a_report_on_demand() -> None:
    text = run(
        2,
        """
with gmpi.Context() as g:
    MPI.COMM_WORLD.Barrier()
    if g.rank == 0:
        request = g.host.Irecv(buf, 1, 5)
        report = g.report()
        assert report.reason == "on demand" and sorted(report.ranks) == [0, 1]
        assert all(report.ranks.values()), report.text
        assert report.ranks[0].table.pending[0].operation == "Context.host.Irecv"
        print(report.text)
    MPI.COMM_WORLD.Barrier()
    if g.rank == 1:
        g.host.Send(data, 0, 5)
    else:
        request.Wait()
try:
    g.report()
except gmpi.ContextError as exc:
    print(f"refused: {exc}")
""",
    )
    assert "rank 1: 0 pending, kernels: none launched, proxy: looks for work" in text, text
    assert text.count("refused: the context is closed") == 2, text


@pytest.mark.mpich
def test_a_report_on_a_signal_and_the_handler_as_it_was() -> None:
    text = run(
        1,
        """
with gmpi.Context() as g:
    os.kill(os.getpid(), signal.SIGUSR1)
    while g._watchdog.last is None:
        time.sleep(0.01)
    time.sleep(1.0)  # a second one would be seen
assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
signal.signal(signal.SIGUSR1, lambda *_: print("handler of the user"))
with gmpi.Context() as g:
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(1.0)
""",
    )
    assert text.count("GMPI report of rank 0: SIGUSR1") == 1, text
    assert text.count("handler of the user") == 1, text


@pytest.mark.quick
@pytest.mark.mpich
def test_a_timeout_releases_the_kernel_and_raises() -> None:
    text = run(
        1,
        """
@cuda.jit
def receive_error(ctx, buf, error):
    status = gmpi.GMPI_Recv(ctx, buf, 8, gmpi.BYTE, 0, 3, gmpi.COMM_WORLD)
    error[0] = status.error

error = np.zeros(1, np.int64)
began = time.monotonic()
try:
    with gmpi.Context(timeout_s=1.0, watchdog_s=0) as g:
        receive_error[1, 32](g.device, buf, error)
        g.synchronize()
except TimeoutError as exc:
    assert isinstance(exc, gmpi.RequestTimeoutError)
    assert exc.report.causes, exc.report.text
    assert "calls of kernels have returned GMPI_ERR_TIMEOUT" in str(exc)
    print("raised")
assert error[0] == gmpi.GMPI_ERR_TIMEOUT, error
with gmpi.Context() as g:
    request = g.host.Isend(data, 0, 5)
    receive[1, 32](g.device, buf, 0, 5)
    request.Wait()
print("a new context works")
""",
    )
    assert "raised" in text and "a new context works" in text, text


@pytest.mark.mpich
def test_the_flight_recorder_has_the_last_events() -> None:
    text = run(
        1,
        """
import json

def record(**settings):
    with gmpi.Context(**settings) as g:
        for k in range(30):
            request = g.host.Isend(data, 0, 5)
            receive[1, 32](g.device, buf, 0, 5)
            request.Wait()
        before = time.monotonic()
        kept = []

        def look_and_release():
            while not g.pending:
                time.sleep(0.01)
            time.sleep(0.5)  # until the kernel waits
            kept.append(g.report())
            g.host.Isend(data, 0, 9)

        thread = threading.Thread(target=look_and_release)
        thread.start()
        receive[1, 32](g.device, buf, 0, 9)
        thread.join()
    (report,) = kept
    check(report, before)

def check(report, before):
    own = report.ranks[0]
    events = own.events
    print(f"kinds {len(events)} {[e.kind for e in events[-4:]]}")
    if events:
        taken, called = events[-3:-1]
        assert taken.operation == "GMPI_Recv" and (taken.peer, taken.tag) == (0, 9), taken
        assert taken.nbytes == 8 and called.operation in ("MPI_Irecv", "MPI"), events[-3:]
        assert all(a.time_s <= b.time_s for a, b in zip(events, events[1:]))
        assert before - 0.5 < taken.time_s <= own.time_s, (before, taken, own.time_s)
        assert {e.ticket for e in events} > {29, 30}
        assert "GMPI_Recv, peer 0 tag 9 communicator 0, 8 bytes" in report.text
        last = json.loads(report.json())["ranks"]["0"]["events"][-2]
        assert last == called._asdict()

record(flight_events=64, engine="compiled")
record(flight_events=64, engine="mpi4py")
record(flight_events=0)
""",
    )
    assert text.count("kinds 63 ['completed', 'taken', 'called', 'returned']") == 2, text
    assert text.count("kinds 0 []") == 1, text


@pytest.mark.mpich
def test_the_answer_for_a_channel_is_no_number_of_bytes() -> None:
    text = run(
        2,
        """
@cuda.jit
def swap(ctx, a, b, peer):
    gmpi.GMPI_Sendrecv(ctx, a, 8, gmpi.BYTE, peer, 5, b, 8, gmpi.BYTE, peer, 5, gmpi.COMM_WORLD)

with gmpi.Context(wildcards=False) as g:
    swap[1, 32](g.device, data, buf, 1 - g.rank)
    g.synchronize()
    events = g.report().ranks[g.rank].events
    MPI.COMM_WORLD.Barrier()
answers = [e for e in events if e.kind == "completed" and e.operation.startswith("channel of")]
print(f"answers {len(answers)} of {sum(e.nbytes for e in answers)} bytes", flush=True)
""",
    )
    assert text.count("answers 2 of 0 bytes") == 2, text
