"""Long messages for short receives, where the bytes that fit are in GPU memory.

A receive for at most ``eager_bytes`` has no chunk buffers: what fits of a longer message is in its
first chunk, from where the proxy copies it to the slot's staging. Compiled code cannot copy from
GPU memory; so where the sender packs into its GPU staging, Python does it.
"""

from __future__ import annotations

import ctypes

import numpy as np

from gmpi.wire import STAGING_LEAD
from host_proxy.point_to_point import fetched
from host_proxy.state import (
    FETCH,
    G_SMALL,
    G_SMALL_STRIDE,
    P_STAGING,
    S_BYTES,
    S_COMM,
    S_PYTHON,
    S_SHARED,
    S_SOURCE,
    State,
)


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
        ctypes.memmove(payload, state.fetch(address, nbytes).ctypes.data, nbytes)
        fetched(state.address, state.row(int(slot)))
