"""The compiled engine's loop: poll, dispatch, progress, idle, without the GIL.

It returns to Python only when it is told to stop or when Python must do something: a record for
the mpi4py engine is at the head of the ring, or Python has requests of its own to look after.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract.wire import OP_NULL
from host_proxy.compiled.dispatch import count_null, dispatch, wants_python
from host_proxy.compiled.progress import progress, release_synchronizes
from host_proxy.platform import state as st
from host_proxy.platform.idle import TURNS_PER_CLOCK, naps, naps_soon, now_ns, wait_a_little
from host_proxy.platform.native import apart, bump, entry, get, jit, put
from host_proxy.records.completion import find_overdue
from host_proxy.records.ring import (
    arrived,
    element_count,
    opcode,
    place_of,
    read,
    record_at,
    return_slots,
    take_to,
)

STOPPED = 0
RECORD = 1  # the record at the head, decoded, is for the mpi4py engine
TICK = 2  # Python should look after its requests

BATCH = 64  # records between two looks at MPI; also how often slots are returned to producers
_TICK_TURNS = 4  # of idle turns
_BUSY_TICK_TURNS = 64  # however much there is to do: nobody starves
_NAP_TURNS = 4  # between two looks at the clock
_TICK_NS = 50_000  # a channel is opened once, and then never again
_PYTHON_WANTED = -1


@apart
def serve(g):
    """Takes up to BATCH records: how many, or _PYTHON_WANTED for the one that is now decoded."""
    r = get(g, st.G_RECORD)
    place = place_of(g)
    head = get(g, st.G_HEAD)
    taken = 0
    while taken < BATCH:
        if not arrived(place, head):
            break
        address = record_at(place, head)
        if opcode(address) == OP_NULL:
            count_null(g, element_count(address))
        elif not read(g, head, address):
            break
        elif wants_python(g, r):
            return_slots(g)
            return _PYTHON_WANTED
        else:
            dispatch(g, r)
        head = take_to(g, head)
        taken += 1
    if taken:
        return_slots(g)
        if get(g, st.G_SYNCS):
            put(g, st.G_SYNC_SEEN, -1)
    return taken


@jit
def is_due(g):
    """Whether Python should look for control messages of the direct road, or for buffered sends."""
    if get(g, st.G_CHANNELS) | get(g, st.G_OPENING) | get(g, st.G_BUFFERED) == 0:
        return False
    if get(g, st.G_NOW) - get(g, st.G_TICKED) < _TICK_NS:
        return False
    put(g, st.G_TICKED, get(g, st.G_NOW))
    return True


@entry
def run(g):
    """Serves the ring until there is a reason to return: STOPPED, RECORD or TICK."""
    turns = 0  # since the last work, or since Python's turn
    idle_ns = 0  # since the last work
    while get(g, st.G_STOP) == 0:
        bump(g, st.G_TURNS, 1)
        taken = serve(g)
        if taken == _PYTHON_WANTED:
            return RECORD
        done = progress(g) if get(g, st.G_ACTIVE) else 0
        if get(g, st.G_SYNCS):
            release_synchronizes(g)
        if taken or done:
            put(g, st.G_NOW, now_ns(g))
            find_overdue(g)
            turns = 0
            put(g, st.G_IDLE_SINCE, 0)
            if get(g, st.G_PYTHON) and get(g, st.G_TURNS) % _BUSY_TICK_TURNS == 0:
                return TICK
            if is_due(g):
                return TICK
            continue
        # Neither a command nor what Python looks for must wait for as many turns as that where they
        # are naps.
        alone = get(g, st.G_COMMANDED) & ~get(g, st.G_DOORBELL) | get(g, st.G_NARROW_BLOCKS) != 0
        often = alone or naps(g, idle_ns) or naps_soon(g, turns)
        if turns % TURNS_PER_CLOCK == 0 or (often and turns % _NAP_TURNS == 0):
            now = now_ns(g)
            put(g, st.G_NOW, now)
            find_overdue(g)
            if get(g, st.G_IDLE_SINCE) == 0:
                put(g, st.G_IDLE_SINCE, now)
            idle_ns = now - get(g, st.G_IDLE_SINCE)
            if is_due(g):
                return TICK
        turns += 1
        if get(g, st.G_PYTHON) and turns % _TICK_TURNS == 0:
            return TICK
        wait_a_little(g, turns, idle_ns)
    return STOPPED
