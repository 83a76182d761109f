"""Messages with an MPI that fails, at each call and at each completion in turn.

    mpiexec -n 2 python3 tests/ranks/each_call.py [WAY ...]

Rank 0 sends, rank 1 receives, and one of them has a fault. Both ends end within a second, with
the error class of the failed call or well, and then with all bytes; the messages behind it, in the
same slots, arrive. With ``--some`` a call fails on one of the ranks, in turns of two.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import numpy as np
from common import (
    RANK,
    TIME_FACTOR,
    WORLD,
    barrier,
    end,
    pattern,
    run,
    same,
    take_large_slots,
)
from inject import EveryCall
from mpi4py import MPI
from play import BYTE, PEER, compile_kernels, exchange
from script import Script

import gmpi

TAG = 7
EAGER, CHUNK = 256, 512
LONG = 5 * CHUNK + 8
FOLLOWING = (8, LONG)
FINE = (gmpi.SUCCESS, gmpi.ERR_OTHER)


class Way:
    """One context, and what is tried in it."""

    def __init__(self, hosts: tuple[bool, bool] = (False, False), **settings: Any) -> None:
        self.hosts = hosts
        self.following: tuple[int, ...] = FOLLOWING
        self.g = gmpi.Context(WORLD, watchdog_s=0, eager_bytes=EAGER, chunk_bytes=CHUNK, **settings)
        self.faults = EveryCall(self.g)

    def host_call(self, nbytes: int, unposted: bool) -> int:
        """This end of the message, by the host: its error class."""
        error = int(gmpi.SUCCESS)
        place = np.zeros(nbytes, np.uint8)
        for _ in range(1 + unposted):
            try:
                if RANK == 0:
                    data = pattern(nbytes, 3)
                    try:
                        self.g.host.Send(data, PEER, TAG)
                    finally:
                        same(data, pattern(nbytes, 3), "what the host has sent")
                else:
                    self.g.host.Recv(place, PEER, TAG)
                    same(place, pattern(nbytes, 3), "the message, to the host")
                error = int(gmpi.SUCCESS)
            except MPI.Exception as exc:
                error = int(exc.Get_error_class())
            except gmpi.MPICallError as exc:
                error = exc.error_class
        return error

    def once(self, nbytes: int, room: int, faulty: int, step: int) -> int:
        """One message, of which a step fails on one rank, and those behind it: how many steps it
        had."""
        unposted = faulty == 1 and step == 1
        barrier()
        if RANK == 0:
            print(f"{nbytes} bytes, step {step} on rank {faulty}", flush=True)
        self.faults.arm(step if faulty == RANK else 0)
        began = time.monotonic()
        s = Script()
        error, steps = int(gmpi.SUCCESS), 0
        what = f"{nbytes} bytes, step {step} on rank {faulty}"
        content = pattern(nbytes, 3)
        if self.hosts[RANK]:
            error = self.host_call(nbytes, unposted and RANK == 1)
        else:
            if RANK == 0:
                calls = [s.send(s.data(content), nbytes, BYTE, PEER, TAG)]
            else:
                places = [s.room(room) for _ in range(1 + unposted)]
                calls = [s.recv(place, room, BYTE, PEER, TAG) for place in places]
            s.launch(self.g)
            with contextlib.suppress(gmpi.CallError):
                self.g.synchronize()
            s.read_back()
            error = calls[-1].error
            if RANK == 1 and error in (gmpi.SUCCESS, gmpi.ERR_TRUNCATE):
                assert (error == gmpi.ERR_TRUNCATE) == (nbytes > room), what
                s.expect(places[-1], content[:room], what)
                error = gmpi.SUCCESS
            if unposted and RANK == 1:
                assert calls[0].error == gmpi.ERR_OTHER and error == gmpi.SUCCESS, what
        took = time.monotonic() - began
        steps = self.faults.steps
        self.faults.arm(0)
        assert error in FINE, f"{what}: rank {RANK} ended with {error}"
        assert took < 1.0 * TIME_FACTOR, f"{what}: rank {RANK} took {took:.1f} s"
        # What is still to be told comes within this time, too.
        errors = WORLD.allgather(error)
        if step:
            self.follow(f"{what}: {errors}", self.following[step % 2 :])
        return steps

    def follow(self, what: str, lengths: tuple[int, ...]) -> None:
        """Messages behind it arrive."""
        s = Script()
        check = exchange(s, s, lengths, TAG)
        s.run(self.g)
        try:
            check()
        except AssertionError as exc:
            raise AssertionError(f"after {what}") from exc

    def each(self, nbytes: int, room: int) -> None:
        """Every step of a message fails, on either rank, or on one."""
        steps = WORLD.allgather(self.once(nbytes, room, 0, 0))
        for faulty in (0, 1):
            assert steps[faulty] >= 2, steps
            for step in range(1, steps[faulty] + 1):
                if "--some" in sys.argv and (step // 2 + faulty) % 2 == 0:
                    continue
                self.once(nbytes, room, faulty, step)

    def close(self) -> None:
        with contextlib.suppress(gmpi.CallError):
            self.g.close()
        barrier()


def _way(
    sizes: list[tuple[int, int]], narrow: tuple[bool, bool] = (False, False), **settings: Any
) -> None:
    way = Way(**settings)
    if narrow[RANK]:
        take_large_slots(way.g)
    if any(narrow):
        way.following = (8, 2 * CHUNK)  # in the simulator, a narrow send takes long
    for nbytes, room in sizes:
        way.each(nbytes, room)
    way.close()


def near() -> None:
    """Inline, small, landing and through GPU staging; truncated, too."""
    _way([(2 * CHUNK, 100), (8, 8), (400, 400), (LONG, LONG)])


def messages() -> None:
    """Chunks are messages of MPI."""
    _way([(LONG, LONG), (2 * CHUNK, 100), (LONG, 2 * CHUNK)], gpu_staging=False)


def narrow() -> None:
    """Requests that have found no large slot."""
    two = 2 * CHUNK
    _way([(two, two)], narrow=(True, True))
    _way([(LONG, LONG)], narrow=(False, True))
    _way([(two, two)], narrow=(False, True), gpu_staging=False)


def from_host() -> None:
    _way([(8, 8), (LONG, LONG)], hosts=(True, False))


def to_host() -> None:
    _way([(400, 400), (LONG, LONG)], hosts=(False, True))


def main() -> None:
    assert WORLD.size == 2, "two ranks"
    compile_kernels()
    run([near, messages, narrow, from_host, to_host])
    end()


if __name__ == "__main__":
    main()
