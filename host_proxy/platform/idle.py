"""Waiting for work: spin, then yield, then nap.

A proxy that never sleeps costs a core; one that sleeps at once costs latency. So it spins while
traffic may come back soon, then hands the core to whoever wants it, then naps, ever on the look
between naps. Where there are fewer cores than spinning threads, a spin only keeps the thread that
has the answer from running: then it yields from the start, and soon takes short naps, because a
yield between two threads that both yield may go on for a whole time slice.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from host_proxy.platform import state as st
from host_proxy.platform.native import (
    apart,
    bump,
    call,
    entry_inlined,
    get,
    jit,
    load,
    pause,
    put,
    store,
)

_MONOTONIC = 1  # CLOCK_MONOTONIC on Linux
_CROWDED_YIELDS = 20
# Long enough to be a real sleep: naps of 1 ns by one thread made a spinning thread on the other
# core lose whole time slices (MPICH ping-pong 4 ms instead of 2 us, Linux 6.18, 2 cores).
_CROWDED_NAP_NS = 20_000
TURNS_PER_CLOCK = 64  # idle turns between two looks at the clock


@entry_inlined
def now_ns(g):
    """CLOCK_MONOTONIC in nanoseconds."""
    call(get(g, st.F_CLOCK_GETTIME), (_MONOTONIC, get(g, st.G_CLOCK)))
    return load(get(g, st.G_CLOCK)) * 1_000_000_000 + load(get(g, st.G_CLOCK) + 8)


@apart
def nap(g, ns):
    store(get(g, st.G_CLOCK), 0)
    store(get(g, st.G_CLOCK) + 8, ns)
    call(get(g, st.F_NANOSLEEP), (get(g, st.G_CLOCK), 0))
    put(g, st.G_FOUND, st.FOUND_MUCH)  # where turns are rare, each looks at as much as it can
    bump(g, st.G_SLEEPS, 1)


@jit
def naps(g, idle_ns):
    """Whether the proxy naps after so long without work."""
    return idle_ns > get(g, st.G_SPIN_NS) + get(g, st.G_YIELD_NS)


@jit
def naps_soon(g, turns):
    """Whether the proxy takes short naps, since there are fewer cores than spinning threads."""
    return get(g, st.G_CROWDED) and turns > _CROWDED_YIELDS


@jit
def wait_a_little(g, turns, idle_ns):
    """One idle turn: the ``turns``-th since the last work, which was ``idle_ns`` ago."""
    if naps(g, idle_ns):
        nap(g, get(g, st.G_SLEEP_NS))
    elif naps_soon(g, turns):
        nap(g, _CROWDED_NAP_NS)
    elif idle_ns > get(g, st.G_SPIN_NS) or get(g, st.G_CROWDED):
        call(get(g, st.F_YIELD), (0,))
    elif get(g, st.G_ACTIVE) == 0:
        pause()  # while MPI is asked at every turn, the asking is pause enough
