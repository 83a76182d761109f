"""Collectives that fail in MPI on one rank: the others are told, and wait no longer for it.

    mpiexec -n 2 python3 tests/ranks/collective_errors.py [SCENARIO ...]

Rank 0 has the fault. Its call ends with MPI's error class, and later collectives on the
communicator are refused there: they would meet the call that the other rank is still in, and it
would get a wrong result. The other rank's wait ends within about a second with a PeerError.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import inject
import numpy as np
from common import RANK, TIME_FACTOR, WORLD, barrier, end, run
from play import BYTE, after, compile_kernels
from script import Call, Script

import gmpi
from host_proxy.platform.state import F_IALLREDUCE, F_IBARRIER, F_IBCAST

EAGER, CHUNK = 256, 1024
LONG = 4 * CHUNK
SAID = "but rank 0 has failed in a collective on "


class Play:
    """A context whose rank 0 has a fault, and one kernel on each rank."""

    def __init__(self, which: int, n: int = 1, python: bool = False, comm: int = 0) -> None:
        """
        Args:
            which: the call of MPI that fails, its n-th time; 0: the first completion.
            python: the collective is the mpi4py engine's, or the host's.
        """
        self.g = gmpi.Context(
            WORLD, watchdog_s=60, timeout_s=0, eager_bytes=EAGER, chunk_bytes=CHUNK
        )
        if comm:
            assert self.g.comm(WORLD) == comm
        self.error: Exception | None = None
        self.fault: Any = None
        if RANK == 0:
            python = python or self.g.config.engine == "mpi4py"
            if not which:
                fail = inject.FirstTest if python else inject.fail_completion
                self.fault = fail(self.g)
            else:
                fail = inject.fail_call_mpi4py if python else inject.fail_call
                self.fault = fail(self.g, which, n, comm=comm)
        self.s = Script()
        barrier()

    def run(self, host: Callable[[], None] | None = None) -> None:
        """The kernel, or instead of it something that the host does."""
        self.began = time.monotonic()
        try:
            if host is not None:
                host()
            else:
                self.s.launch(self.g)
                self.g.synchronize()
        except gmpi.GMPIError as exc:
            self.error = exc
        self.ended = time.monotonic()
        if host is None:
            self.s.read_back()

    def end(self) -> None:
        assert RANK != 0 or self.fault.harmed, "the fault was not injected"
        if RANK == 0:
            assert isinstance(self.error, gmpi.MPICallError), repr(self.error)
        else:
            assert isinstance(self.error, gmpi.PeerError), repr(self.error)
            assert SAID in str(self.error), self.error
        barrier()
        ends = WORLD.allgather(self.ended)  # one clock for all of a machine
        took = ends[1] - max(ends[0], WORLD.bcast(self.began, 1))  # rank 0 may have come late
        assert took < 1.5 * TIME_FACTOR, f"told after {took:.1f} s"
        with contextlib.suppress(gmpi.GMPIError):
            self.g.close()
        barrier()
        after()


def _fails(which: int, make: Callable[[Script], Call], n: int = 1, python: bool = False) -> None:
    """In a kernel on both ranks, with a barrier behind it."""
    play = Play(which, n, python)
    call = make(play.s)
    later = play.s.barrier()
    play.run()
    errors = call.error, later.error
    if RANK == 0:
        assert errors == (gmpi.ERR_OTHER, gmpi.ERR_COMM), errors
        assert "on which no collective has failed" in play.g.errors[1].text, play.g.errors[1]
    else:  # where it got what it needs, it waits in the next one
        assert errors[0] in (gmpi.SUCCESS, gmpi.GMPI_ERR_ABORTED), errors
        assert errors[1] == gmpi.GMPI_ERR_ABORTED, errors
    play.end()


def _sum(s: Script, nbytes: int, comm: int = 0) -> Call:
    n = nbytes // 8
    return s.allreduce(s.data(np.arange(n)), s.room(nbytes), n, gmpi.INT64_T, gmpi.SUM, comm)


def allreduce() -> None:
    _fails(F_IALLREDUCE, lambda s: _sum(s, 16))


def second_chunk() -> None:
    _fails(F_IALLREDUCE, lambda s: _sum(s, LONG), n=2, python=True)


def bcast_root() -> None:
    _fails(F_IBCAST, lambda s: s.bcast(s.room(16), 16, BYTE, 0))


def bcast_leaf() -> None:
    _fails(F_IBCAST, lambda s: s.bcast(s.room(16), 16, BYTE, 1))


def barriers() -> None:
    _fails(F_IBARRIER, lambda s: s.barrier())


def many_at_once() -> None:
    """Behind the one that fails others have been started, or wait for their turn."""
    play = Play(F_IALLREDUCE, 2, python=True)
    s = play.s
    requests = [
        s.iallreduce(s.data(np.arange(n)), s.room(8 * n), n, gmpi.INT64_T, gmpi.SUM)
        for n in (LONG // 8, 2, LONG // 8, 2)
    ]
    done = s.waitall(requests)
    play.run()
    errors = [status.error for status in done.statuses]
    if RANK == 0:
        assert errors == [gmpi.ERR_OTHER] + 3 * [gmpi.ERR_COMM], errors
    else:
        assert set(errors) == {gmpi.GMPI_ERR_ABORTED}, errors
    play.end()


def in_its_end() -> None:
    """MPI completes it with an error, on one rank only."""
    play = Play(0)
    call = _sum(play.s, 16)
    later = play.s.barrier()
    play.run()
    if RANK == 0:
        assert (call.error, later.error) == (gmpi.ERR_OTHER, gmpi.ERR_COMM)
    else:
        assert (call.error, later.error) == (gmpi.SUCCESS, gmpi.GMPI_ERR_ABORTED)
    play.end()


def of_the_host() -> None:
    """The host's call fails; the other one is in a kernel."""
    play = Play(F_IALLREDUCE, python=True)
    host = play.g.host
    if RANK == 0:
        play.run(lambda: host.Allreduce(np.arange(2), np.zeros(2, np.int64)))
        try:
            host.Barrier()
        except gmpi.MPICallError as exc:
            assert "on which no collective has failed" in str(exc), exc
            assert exc.error_class == gmpi.ERR_COMM
        else:
            raise AssertionError("a collective that would meet another one was begun")
    else:
        _sum(play.s, 16)
        play.run()
    play.end()


def to_the_host() -> None:
    """The kernel's call fails; the other one is the host's."""
    play = Play(F_IALLREDUCE)
    host = play.g.host
    if RANK == 0:
        _sum(play.s, 16)
        play.run()
    else:
        play.run(lambda: host.Allreduce(np.arange(2), np.zeros(2, np.int64)))
    play.end()


def on_another_communicator() -> None:
    """What has failed on one communicator is no reason to give up calls on another one."""
    play = Play(F_IALLREDUCE, comm=1)
    s = play.s
    if RANK == 0:
        failed = _sum(s, 16, comm=1)
        s.pause(1_500_000_000)
    meet, total = s.barrier(), _sum(s, 16)
    wait = s.barrier(comm=1)
    play.run()
    assert (meet.error, total.error) == (gmpi.SUCCESS, gmpi.SUCCESS), (meet.error, total.error)
    if RANK == 0:
        assert (failed.error, wait.error) == (gmpi.ERR_OTHER, gmpi.ERR_COMM)
    else:
        assert wait.error == gmpi.GMPI_ERR_ABORTED
    play.end()


def main() -> None:
    assert WORLD.size == 2, "two ranks"
    compile_kernels()
    run([
        allreduce, second_chunk, bcast_root, bcast_leaf, barriers, many_at_once, in_its_end,
        of_the_host, to_the_host, on_another_communicator,
    ])  # fmt: skip
    end()


if __name__ == "__main__":
    main()
