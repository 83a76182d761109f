"""Sends and receives of the compiled engine, and the protocol between proxies.

A message is one MPI message ``header | payload`` on the communicator's first duplicate, where user
tags are matched. Above ``eager_bytes`` there is no payload in it; the header gives the chunk size,
a transfer number, and how the chunks come. So matching happens once a message, whatever its size;
the receiver always knows the true length; and a receive posts at most ``eager_bytes``.

    send      header ──────────────────▶ receive   user's tag, first duplicate
    elsewhere chunk 0, 1, 2, ... ──────▶           transfer number, second duplicate
              ◀───────────────── receipt           when receives for all chunks are posted
    same node notice 1, 2, ... ────────▶           the same, empty: the receiver's threads read the
              ◀────── buffer free 0, 1, 2, ...     sender's buffers, which are shared memory

Chunk k is packed into chunk buffer ``k % LARGE_BUFFERS`` of the sender; the calling threads fill
the first ones, later ones are asked for when their buffer is free: sent by MPI, or read by the
other side. From elsewhere, chunk k is received into the same buffer of the receiver's slot. Either
way the receiver asks for it to be unpacked. The completion is written as soon as everything is in
reach; it says how many commands must be executed before the request is complete.

How both ends learn that a call of MPI has failed is in ``streams.py``;
``host_proxy/reference/protocol.py`` is the same protocol in plain mpi4py.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract import wire
from gmpi.contract.rules import is_commanded
from host_proxy.compiled.receiving import unpacked_chunk
from host_proxy.compiled.sending import packed_chunk
from host_proxy.compiled.streams import settle
from host_proxy.compiled.transfer import position_of
from host_proxy.platform import state as st
from host_proxy.platform.native import get, jit
from host_proxy.records.completion import command_done
from host_proxy.records.tables import is_large

_is_commanded = jit(is_commanded)


@jit
def chunk_done(g, r, row):
    """A CHUNK record for a point-to-point request; False when it fits no command we gave."""
    done = get(r, st.R_DONE)
    position = (done >> wire.CHUNK_POSITION_SHIFT) & wire.POSITION_MASK
    direction = (done >> wire.CHUNK_DIRECTION_SHIFT) & 1
    index = done & 0x7F
    size = get(row, st.S_CHUNK)
    if size == 0 or not is_large(get(row, st.S_HANDLE)):
        return False
    if get(row, st.S_OP) != (wire.OP_IRECV if direction == wire.UNPACK else wire.OP_ISEND):
        return False
    chunk = position // size
    if position != position_of(row, chunk) or chunk >= get(row, st.S_CHUNKS):
        return False
    bit = 1 << index
    if chunk % wire.LARGE_BUFFERS != index or get(row, st.S_BUFFERS) & bit:
        return False
    if direction == wire.UNPACK:
        if chunk >= get(row, st.S_POSTED) or get(row, st.S_COMMANDS) <= 0:
            return False
        command_done(g, row)
        unpacked_chunk(g, row, chunk)
        return True
    if chunk < get(row, st.S_SENT) or chunk >= get(row, st.S_SENT) + wire.LARGE_BUFFERS:
        return False
    if _is_commanded(done, size):
        if get(row, st.S_COMMANDS) <= 0:
            return False
        command_done(g, row)
    packed_chunk(g, row, chunk)
    return True


@jit
def failed_chunk_done(g, r, row):
    """A CHUNK record for a request that has failed."""
    if _is_commanded(get(r, st.R_DONE), get(row, st.S_CHUNK)) and get(row, st.S_COMMANDS) > 0:
        command_done(g, row)
    settle(g, row)
