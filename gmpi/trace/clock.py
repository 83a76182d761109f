"""One clock for all stamps: the host's CLOCK_MONOTONIC, of the node of rank 0.

The GPU's timer is tied to it by pings, kernel to proxy and back: the proxy's stamp lies in the
middle of the shortest of them, give or take half of it. Two such points, when a context opens and
when it closes, also tell how much faster one clock goes. Clocks of other nodes are tied to that of
rank 0 in the same way, by messages (Cristian, Probabilistic clock synchronization, 1989).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from device_lib.platform.primitives import SIMULATOR
from gmpi.trace.cycles import Rate, rate_of

if TYPE_CHECKING:
    from gmpi.context import Context

_PINGS = 100
_MESSAGES = 50


class Point(NamedTuple):
    """One clock at one moment of another: ``there`` was ``here``, give or take ``error``, ns."""

    there: int
    here: int
    error: int


class Line(NamedTuple):
    """What one clock says by another one, through one point or two."""

    first: Point
    last: Point

    @property
    def error(self) -> int:
        """Of a stamp between the points, at most, ns; clocks that go evenly are assumed."""
        return max(self.first.error, self.last.error)

    def here(self, there: np.ndarray) -> np.ndarray:
        """int64 ns of our clock."""
        span = self.last.there - self.first.there
        since = there - self.first.there
        if span <= 0:
            return since + self.first.here
        drift = (self.last.here - self.first.here) - span
        return since + self.first.here + np.int64(since * (drift / span))


def same() -> Line:
    """Of two clocks that are one."""
    return Line(Point(0, 0, 0), Point(0, 0, 0))


@functools.cache
def _kernel() -> Any:
    from numba import cuda

    from device_lib.api.binding import warp_calls
    from device_lib.platform.primitives import clock, timer_ns

    ping = warp_calls.ping

    @cuda.jit
    def ping_the_proxy(ctx, stamps):
        for i in range(stamps.shape[0]):
            before = timer_ns()
            status = ping(ctx)
            after = timer_ns()
            cycles = clock()
            if cuda.threadIdx.x == 0:
                stamps[i, 0] = before
                stamps[i, 1] = status.nbytes  # the proxy's clock
                stamps[i, 2] = after
                stamps[i, 3] = cycles

    return ping_the_proxy


def gpu_point(context: Context) -> tuple[Point, Rate]:
    """The GPU's timer by the host's clock, and its multiprocessors' clocks by its timer; while no
    kernel of the context runs.

    In the simulator they are one.
    """
    if SIMULATOR:
        return Point(0, 0, 0), Rate(1.0, 0.0, 1)
    from numba import cuda

    stamps = cuda.to_device(np.zeros((_PINGS, 4), np.int64))
    _kernel()[1, 32](context._device, stamps)
    context._waits.wait_for_kernels(None)
    found = stamps.copy_to_host()
    return best(found[:, [0, 2, 1]]), rate_of(found[:, 3], found[:, 2])


def best(trips: np.ndarray) -> Point:
    """The best of some round trips.

    Args:
        trips: int64[n, 3]: before and after, by one clock, and between them by ours.
    """
    before, after, here = trips[np.argmin(trips[:, 1] - trips[:, 0])]
    return Point(int(before + after) // 2, int(here), int(after - before + 1) // 2)


def node_point(comm: MPI.Comm, nodes: list[int]) -> Point:
    """Our node's clock by that of rank 0's; collective.

    Args:
        nodes: which node each rank is on.
    """
    own = comm.Dup()
    point = Point(0, 0, 0)
    for rank in range(1, own.size):
        if nodes[rank] == nodes[0]:
            continue
        if own.rank == 0:
            for _ in range(_MESSAGES):
                own.recv(source=rank)
                own.send(time.monotonic_ns(), dest=rank)
        elif own.rank == rank:
            trips = []
            for _ in range(_MESSAGES):
                before = time.monotonic_ns()
                own.send(None, dest=0)
                here = own.recv(source=0)
                trips.append((before, time.monotonic_ns(), here))
            point = best(np.array(trips, np.int64))
    own.Free()
    return point
