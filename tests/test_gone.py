"""Ranks that fail, leave or never call: whoever waits for them is told, and the job ends."""

from __future__ import annotations

import threading

import launcher
import pytest

from gmpi.lifetime.farewell import Farewells

pytestmark = pytest.mark.mpi

START = """
import sys, time
import numpy as np
from mpi4py import MPI
from numba import cuda
import gmpi
from gmpi.lifetime import watchdog

watchdog.ANSWER_S = 5.0

@cuda.jit
def receive(ctx, buf, source, tag):
    gmpi.GMPI_Recv(ctx, buf, 8, gmpi.BYTE, source, tag, gmpi.COMM_WORLD)

@cuda.jit
def meet(ctx):
    gmpi.GMPI_Barrier(ctx, gmpi.COMM_WORLD)

rank = MPI.COMM_WORLD.rank
buf = np.zeros(8, np.uint8)
"""


def run(ranks: int, code: str, **environment: str) -> tuple[int, str]:
    return launcher.mpi(ranks, "-c", START + code, **environment)


@pytest.mark.openmpi
def test_waits_for_ranks_that_have_gone_end_with_what_they_said() -> None:
    """One start: a failure, a failure in a chain, a close, and a broadcast that is only late."""
    status, text = run(
        3,
        """
def told(play, words):
    began = time.monotonic()
    try:
        with gmpi.Context() as g:
            play(g)
    except gmpi.PeerError as exc:
        assert words in str(exc).partition("\\n")[0], exc
        assert exc.report.causes, exc.report.text
        print(f"rank {rank} told after {time.monotonic() - began:.1f} s")
        return True
    except ValueError:
        pass
    MPI.COMM_WORLD.Barrier()
    return False

def fails(g):
    if rank == 1:
        raise ValueError("no such file: mesh.dat\\nmore")
    if rank == 0:
        receive[1, 32](g.device, buf, 1, 3)
    else:
        receive[1, 32](g.device, buf, 0, 3)  # of one that is told
    g.synchronize()

words = "rank 1 has ended with ValueError: no such file: mesh.dat", "", "0 has ended with PeerError"
one = told(fails, words[rank])
if one:
    MPI.COMM_WORLD.Barrier()
assert one == (rank != 1)

def leaves(g):
    if rank != 2:
        meet[1, 32](g.device)
        g.synchronize()

two = told(leaves, "rank 2 has closed its context")
if two:
    MPI.COMM_WORLD.Barrier()
assert two == (rank != 2)

def sends_and_leaves(g):
    \"\"\"What was sent before is received, late as it is.\"\"\"
    if rank == 0:
        g.host.Send(np.arange(8, dtype=np.uint8), 1, 3)
    elif rank == 1:
        time.sleep(1.0)
        receive[1, 32](g.device, buf, 0, 3)
        g.synchronize()
        assert (buf == np.arange(8)).all()

assert not told(sends_and_leaves, "")
print("all told")
""",
    )
    assert status == 0 and text.count("all told") == 3, text
    assert text.count("rank 0 told after") == 2 and text.count("rank 1 told after") == 1, text


@pytest.mark.mpich
def test_who_waits_for_ranks_that_open_no_context_says_so() -> None:
    status, text = run(
        3,
        """
from gmpi.lifetime import opening
gmpi.Context(gpu=False).close()  # all come at once
opening.SILENT_S = 1.0
MPI.COMM_WORLD.Barrier()
if rank < 2:  # not the one that would speak first
    time.sleep(6)
gmpi.Context(gpu=False).close()
""",
    )
    assert status == 0, text
    words = "GMPI: rank 2: has waited for 2 s in gmpi.Context for the other ranks: all 3 ranks"
    assert text.count(words) == text.count("has waited") == 1, text


@pytest.mark.mpich
def test_who_waits_for_a_process_that_compiles_says_so() -> None:
    """Each job with an empty cache would take half a minute: here another one has the turn."""
    status, text = run(
        1,
        """
import fcntl, os, threading
from gmpi.lifetime import opening
from host_proxy.platform import engine_cache, native
opening.SILENT_S = 0.5
directory = native._entries[0]._cache.cache_path
lock = open(os.path.join(directory, "engine.lock"), "ab")
fcntl.flock(lock, fcntl.LOCK_EX)
load = engine_cache.EngineCache._loaded
engine_cache.EngineCache._loaded = lambda *a: None if not lock.closed else load(*a)
threading.Timer(2, lock.close).start()
gmpi.Context(gpu=False).close()
print("opened")
""",
    )
    assert status == 0 and "opened" in text, text
    assert text.count("has waited for 0.5 s in gmpi.Context for the proxy's engine") == 1, text


@pytest.mark.mpich
def test_a_failure_of_the_program_aborts_with_on_error_abort() -> None:
    status, text = run(
        2,
        """
with gmpi.Context(on_error="abort") as g:
    if rank == 1:
        raise ValueError("no such file")
    receive[1, 32](g.device, buf, 1, 3)
    g.synchronize()
print("still there")
""",
    )
    assert status != 0 and "still there" not in text, text
    assert "ValueError: no such file" in text and "MPI_Abort" in text, text


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("before the context", marks=pytest.mark.openmpi),
        pytest.param("in it", marks=pytest.mark.mpich),
    ],
)
def test_an_exception_that_nobody_catches_ends_the_job(where: str) -> None:
    status, text = run(
        2,
        f"""
if rank == 1 and {where!r} == "before the context":
    raise ValueError("no such file")
with gmpi.Context() as g:
    if rank == 1:
        raise ValueError("no such file")
    MPI.COMM_WORLD.Recv(buf, 1)
print("still there")
""",
    )
    assert status != 0 and "still there" not in text, text
    assert "ValueError: no such file" in text, text
    assert "GMPI: rank 1: nobody caught this ValueError: MPI_Abort ends all ranks" in text, text


class _TwoRanks:
    """A communicator whose sends take a while: so long that another thread can listen meanwhile."""

    rank, size = 0, 2

    def __init__(self, farewells: Farewells) -> None:
        self.farewells = farewells
        self.sent: list[_Sent] = []
        self.listener = threading.Thread(target=farewells.listen)

    def isend(self, message: object, dest: int, tag: int) -> _Sent:
        self.listener.start()
        self.listener.join(0.3)
        self.sent.append(_Sent())
        return self.sent[-1]

    def improbe(self, *_: object) -> None:
        return None


class _Sent:
    def Test(self) -> bool:
        return False


def test_a_farewell_that_is_on_its_way_is_kept_while_the_watchdog_listens() -> None:
    """Its memory went when nobody had the request: the others read what was there instead."""
    from mpi4py import MPI

    farewells = Farewells(MPI.COMM_SELF)
    kept = farewells._kept
    kept.comm = comm = _TwoRanks(farewells)  # type: ignore[assignment]
    try:
        farewells.say("has closed its context", failed=False)
        comm.listener.join()
        assert kept.sends == comm.sent
    finally:
        from gmpi.lifetime import farewell

        farewell._kept.remove(kept)


@pytest.mark.mpich
def test_who_tests_again_and_again_on_the_direct_road_is_told_of_a_rank_that_has_gone() -> None:
    """Nothing of such requests travels by the proxy: it is told of one that takes long."""
    status, text = run(
        2,
        """
from numba import int64

@cuda.jit
def ask(ctx, buf, how, errors):
    requests = cuda.local.array(2, int64)
    for k in range(2):
        requests[k] = gmpi.GMPI_Irecv(ctx, buf, 8, gmpi.BYTE, 1, k, gmpi.COMM_WORLD)
    if how == 0:
        index, status = gmpi.GMPI_Waitany(ctx, 2, requests)
        error = status.error
    else:
        done = False
        while not done:
            done, status = gmpi.GMPI_Test(ctx, requests[1])
        error = max(status.error, gmpi.GMPI_Wait(ctx, requests[0]).error)
    if cuda.threadIdx.x == 0:
        errors[0] = error

@cuda.jit
def late(ctx, buf):
    begin = gmpi.timer_ns()
    while cuda.threadIdx.x == 0 and gmpi.timer_ns() - begin < 300_000_000:
        cuda.nanosleep(1000)
    gmpi.GMPI_Send(ctx, buf, 8, gmpi.BYTE, 0, 1, gmpi.COMM_WORLD)
    gmpi.GMPI_Send(ctx, buf, 8, gmpi.BYTE, 0, 0, gmpi.COMM_WORLD)

errors = np.zeros(1, np.int64)
with gmpi.Context(wildcards=False) as g:  # what was told of is over in time
    if rank == 0:
        ask[1, 32](g.device, buf, 1, errors)
        g.synchronize()
        assert errors[0] == gmpi.SUCCESS, errors
    else:
        late[1, 32](g.device, buf)
        g.synchronize()
    assert not g.pending, g.pending
for how in range(2):
    try:
        with gmpi.Context(wildcards=False) as g:
            if rank == 1:
                raise KeyboardInterrupt
            ask[1, 32](g.device, buf, how, errors)
            g.synchronize()
    except gmpi.PeerError as exc:
        print(f"{how}: told; {errors[0] == gmpi.GMPI_ERR_ABORTED}; {exc}".partition("\\n")[0])
    except KeyboardInterrupt:
        pass
    MPI.COMM_WORLD.Barrier()
""",
    )
    assert status == 0, text
    assert text.count(": told; True;") == 2, text
