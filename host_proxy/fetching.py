"""Long messages for short receives, where the bytes that fit are in GPU memory.

A receive for at most ``eager_bytes`` has no chunk buffers: what fits of a longer message is in its
first chunk, from where the proxy copies it to the slot's staging. Compiled code cannot copy from
GPU memory; so where the sender packs into its GPU staging, or into our landing places, Python does
it.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np

from gmpi.wire import (
    CONTROL_ABORT,
    LANDED,
    LANDING_GROUPS,
    LANDING_STRIDE,
    LANDING_UNITS,
    LARGE_BUFFERS,
    MESSAGE_HEADER,
    STAGING_LEAD,
    TAG_MASK,
    UNIT_BYTES,
    UNIT_PAYLOAD,
    landing_groups,
)
from host_proxy.receiving import fetched
from host_proxy.state import (
    FETCH,
    G_CONTROL,
    G_LANDING,
    G_SMALL,
    G_SMALL_STRIDE,
    G_STOP,
    P_STAGING,
    S_BYTES,
    S_COMM,
    S_PYTHON,
    S_SHARED,
    S_SOURCE,
    S_TOTAL,
    State,
)


def fetch_first(
    state: State, peer: int, slot: int, near: int, total: int, nbytes: int
) -> np.ndarray:
    """The first bytes of a message, once they are there.

    Args:
        peer, slot: whose it is, and its large slot there.
        near: word 3 of the message's header.
        total: bytes of the message.
    """
    if near & LANDED:
        return _landed_bytes(state, peer, slot, near, total)[:nbytes]
    base = int(state.peers[peer, P_STAGING]) + state.layout.chunk_buffers(slot)
    wait_until_ready(state, base, near)
    return state.fetch(base, nbytes)


def _landed_bytes(state: State, peer: int, slot: int, near: int, total: int) -> np.ndarray:
    """A message from its landing place, when all of its units have come."""
    place = state.layout.landing_place(peer, slot)
    address = int(state.globals[G_LANDING]) + place * LANDING_STRIDE
    groups = landing_groups(total)
    blocks = -(-groups // LANDING_GROUPS)
    while True:
        found = state.fetch(address, blocks * LANDING_GROUPS * LANDING_UNITS * UNIT_BYTES)
        units = found.reshape(blocks, LANDING_UNITS, LANDING_GROUPS, UNIT_BYTES).swapaxes(1, 2)
        units = units.reshape(-1, UNIT_BYTES)[: groups * LANDING_UNITS]
        tags = units[:, UNIT_PAYLOAD:].copy().view(np.uint32)
        if (tags == near >> 32 & TAG_MASK).all() or _over(state):
            return units[:, :UNIT_PAYLOAD].reshape(-1)[:total]
        time.sleep(0)


def _over(state: State) -> bool:
    """Whether waits are aborted, or the proxy is told to stop."""
    abort = ctypes.c_int64.from_address(int(state.globals[G_CONTROL]) + CONTROL_ABORT)
    return bool(state.globals[G_STOP] or abort.value)


def wait_until_ready(state: State, base: int, near: int) -> None:
    """Returns when the sender's threads have packed the first chunk, which they are at since before
    the message was sent; or when waits are aborted, or the proxy is told to stop."""
    ready = near >> 32 & TAG_MASK
    address = base + LARGE_BUFFERS * state.layout.chunk_bytes
    while int(state.fetch(address, 8).view(np.int64)[0]) != ready and not _over(state):
        time.sleep(0)


def fetch_first_chunks(state: State) -> None:
    """Goes on with all requests that wait for it; on the proxy's thread."""
    for slot in np.flatnonzero(state.slots[:, S_PYTHON] == FETCH):
        row = state.slots[slot]
        comm = state.communicators[row[S_COMM]]
        peer = int(comm.peers[row[S_SOURCE]])
        total = int(row[S_TOTAL])
        nbytes = min(int(row[S_BYTES]), state.layout.chunk_bytes)
        g = state.globals
        payload = int(g[G_SMALL] + slot * g[G_SMALL_STRIDE]) + STAGING_LEAD
        near = ctypes.c_int64.from_address(payload - MESSAGE_HEADER + 24).value
        first = fetch_first(state, peer, int(row[S_SHARED]), near, total, nbytes)
        ctypes.memmove(payload, first.ctypes.data, nbytes)
        fetched(state.address, state.row(int(slot)))
