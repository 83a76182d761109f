"""Long messages for short receives, where the bytes that fit are in GPU memory.

A receive for at most ``eager_bytes`` has no chunk buffers: what fits of a longer message is in its
first chunk, from where the proxy copies it to the slot's staging. Compiled code cannot copy from
GPU memory; so where the sender packs into its GPU staging, Python does it.
"""

from __future__ import annotations

import ctypes
import time

import numpy as np

from gmpi.wire import CONTROL_ABORT, LARGE_BUFFERS, MESSAGE_HEADER, STAGING_LEAD, TAG_MASK
from host_proxy.receiving import fetched
from host_proxy.state import (
    FETCH,
    G_CONTROL,
    G_SMALL,
    G_SMALL_STRIDE,
    G_STOP,
    P_STAGING,
    S_BYTES,
    S_COMM,
    S_PYTHON,
    S_SHARED,
    S_SOURCE,
    State,
)


def fetch_first(state: State, base: int, near: int, nbytes: int) -> np.ndarray:
    """The first bytes of the buffers at ``base`` in GPU staging, once they are ready.

    Args:
        near: word 3 of the message's header.
    """
    wait_until_ready(state, base, near)
    return state.fetch(base, nbytes)


def wait_until_ready(state: State, base: int, near: int) -> None:
    """Returns when the sender's threads have packed the first chunk, which they are at since before
    the message was sent; or when waits are aborted, or the proxy is told to stop."""
    ready = near >> 32 & TAG_MASK
    address = base + LARGE_BUFFERS * state.layout.chunk_bytes
    abort = ctypes.c_int64.from_address(int(state.globals[G_CONTROL]) + CONTROL_ABORT)
    while int(state.fetch(address, 8).view(np.int64)[0]) != ready:
        if state.globals[G_STOP] or abort.value:
            return
        time.sleep(0)


def fetch_first_chunks(state: State) -> None:
    """Goes on with all requests that wait for it; on the proxy's thread."""
    for slot in np.flatnonzero(state.slots[:, S_PYTHON] == FETCH):
        row = state.slots[slot]
        comm = state.communicators[row[S_COMM]]
        theirs = int(state.peers[comm.peers[row[S_SOURCE]], P_STAGING])
        address = theirs + state.layout.chunk_buffers(int(row[S_SHARED]))
        nbytes = min(int(row[S_BYTES]), state.layout.chunk_bytes)
        g = state.globals
        payload = int(g[G_SMALL] + slot * g[G_SMALL_STRIDE]) + STAGING_LEAD
        near = ctypes.c_int64.from_address(payload - MESSAGE_HEADER + 24).value
        first = fetch_first(state, address, near, nbytes)
        ctypes.memmove(payload, first.ctypes.data, nbytes)
        fetched(state.address, state.row(int(slot)))
