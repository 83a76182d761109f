"""The compiled engine's loop: poll, dispatch, progress, idle, without the GIL.

It returns to Python only when it is told to stop or when Python must do something: a record for
the mpi4py engine is at the head of the ring, or that engine has requests of its own to test.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from host_proxy.dispatch import dispatch, wants_python
from host_proxy.idle import TURNS_PER_CLOCK, now_ns, wait_a_little
from host_proxy.native import entry
from host_proxy.progress import progress, release_synchronizes
from host_proxy.ring import decode, return_slots, take
from host_proxy.state import G_PYTHON, G_STOP, G_SYNC_SEEN, G_SYNCS

STOPPED = 0
RECORD = 1  # the record at the head, decoded in ``r``, is for the mpi4py engine
TICK = 2  # the mpi4py engine should look after its requests

BATCH = 64  # records between two looks at MPI; also how often slots are returned to producers
_TICK_TURNS = 4


@entry
def run(g, s, a, t, r, e):
    """Serves the ring until there is a reason to return: STOPPED, RECORD or TICK."""
    turns = 0  # since the last work
    began = 0  # when they began, ns
    idle_ns = 0
    while g[G_STOP] == 0:
        taken = 0
        while taken < BATCH and decode(g, r):
            if wants_python(s, t, r):
                return_slots(g)
                return RECORD
            dispatch(g, s, a, t, r, e)
            take(g)
            taken += 1
        if taken:
            return_slots(g)
            if g[G_SYNCS]:
                g[G_SYNC_SEEN] = -1
        done = progress(g, s, a, t, e)
        release_synchronizes(g, s, t)
        if taken or done:
            turns = 0
            continue
        if turns % TURNS_PER_CLOCK == 0:
            now = now_ns(g)
            if turns == 0:
                began = now
            idle_ns = now - began
        turns += 1
        if g[G_PYTHON] and turns % _TICK_TURNS == 0:
            return TICK
        wait_a_little(g, turns, idle_ns)
    return STOPPED
