"""What both sides of a long message ask: where it goes, how it is cut, where its buffers are."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract.rules import duplicate_of
from gmpi.contract.wire import LARGE_BUFFERS, NOT_SHARED, OP_ISEND, READY_BYTES
from host_proxy.platform import state as st
from host_proxy.platform.native import get, inlined, jit, put
from host_proxy.records.tables import communicator

_duplicate_of = jit(duplicate_of)


@inlined
def messages(g, row):
    """MPI handle of the communicator on which the request's first message travels."""
    comm = communicator(g, get(row, st.S_COMM))
    return get(comm, st.C_HANDLE + _duplicate_of(get(row, st.S_TAG), get(comm, st.C_LAST)))


@jit
def chunks(g, row):
    """MPI handle of the communicator for everything behind the first message."""
    return get(communicator(g, get(row, st.S_COMM)), st.C_CHUNKS)


@jit
def peer_of(g, row, rank):
    """Which process of this node a rank is, -1 for one elsewhere."""
    return get(get(communicator(g, get(row, st.S_COMM)), st.C_PEERS), rank)


@jit
def is_p2p(g, row, rank):
    """P2P where kernels pack what they send to a rank into GPU staging, as they were told;
    | MAILED where short ones go to a mailbox."""
    return get(get(communicator(g, get(row, st.S_COMM)), st.C_P2P), rank)


@jit
def peer_field(g, peer, which):
    return get(get(g, st.G_PEERS), peer * st.P_COUNT + which)


@jit
def buffer_offset(g, slot, chunk):
    """Where in large or GPU staging the chunk's buffer of a large slot is."""
    size = get(g, st.G_CHUNK)
    stride = LARGE_BUFFERS * size + READY_BYTES
    return (slot - get(g, st.G_REQUEST_SLOTS)) * stride + chunk % LARGE_BUFFERS * size


@jit
def mailbox_of(g, peer, slot):
    """Which of our mailboxes belongs to a large slot of a process of this node."""
    return peer * get(g, st.G_LARGE_SLOTS) + slot - get(g, st.G_REQUEST_SLOTS)


@jit
def position_of(row, chunk):
    return chunk * get(row, st.S_CHUNK)


@jit
def length_of(row, chunk):
    return min(get(row, st.S_CHUNK), get(row, st.S_TOTAL) - position_of(row, chunk))


@jit
def begin_transfer(row, total, chunk, shared):
    """Begins the chunked part of a message."""
    for field in range(st.S_CHUNK, st.S_COUNT):
        put(row, field, 0)
    count = (total + chunk - 1) // chunk
    put(row, st.S_TOTAL, total)
    put(row, st.S_CHUNK, chunk)
    put(row, st.S_CHUNKS, count)
    put(row, st.S_SHARED, shared)
    back = 1 if shared == NOT_SHARED else count
    put(row, st.S_OURS, count if sends(row) else back)
    put(row, st.S_THEIRS, back if sends(row) else count)


@jit
def sends(row):
    """Whether the row's request is a send."""
    return get(row, st.S_OP) == OP_ISEND
