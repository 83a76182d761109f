"""Sends of the compiled engine (``point_to_point.py`` says how messages travel)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.constants import ANY_SOURCE, ANY_TAG, PROC_NULL, SUCCESS
from gmpi.wire import (
    FLAG_INLINE,
    LANDED,
    LARGE_BUFFERS,
    MESSAGE_HEADER,
    NEAR,
    NOT_SHARED,
    PACK,
    TAG_MASK,
    chunk_bytes_of,
    lands,
)
from host_proxy import pending
from host_proxy.checks import is_large, no_payload
from host_proxy.completion import complete, order, set_base, staging
from host_proxy.native import bump, get, jit, put, store
from host_proxy.ring import payload_to
from host_proxy.state import (
    G_CHUNK,
    G_DRAIN,
    G_EAGER,
    G_LARGE,
    G_LARGE_DEVICE,
    G_STAGING,
    G_TAG_UB,
    G_TRANSFERS,
    P_READS,
    R_DONE,
    R_FLAGS,
    S_BUFFERS,
    S_BYTES,
    S_CHUNK,
    S_CHUNKS,
    S_FAILED,
    S_FINISHED,
    S_HANDLE,
    S_NEXT,
    S_PEER,
    S_SHARED,
    S_SLOT,
    S_STARTED,
    S_TAG,
    S_TOTAL,
    S_TRANSFER,
    SEND,
    SEND_CHUNK,
)
from host_proxy.transfer import (
    buffer_offset,
    chunks,
    is_near,
    length_of,
    messages,
    peer_field,
    peer_of,
    position_of,
    reset_transfer,
)

_chunk_bytes_of = jit(chunk_bytes_of)
_lands = jit(lands)


@jit
def start_send(g, r, row):
    """GMPI_Isend: MPI_Isend from the slot's staging (MPI 4.1 section 3.7.2)."""
    nbytes = get(row, S_BYTES)
    dest = get(row, S_PEER)
    if dest == PROC_NULL:
        complete(g, row, 0, SUCCESS, ANY_SOURCE, ANY_TAG)
        return
    payload = staging(g, get(row, S_SLOT))
    if get(r, R_FLAGS) & FLAG_INLINE and not payload_to(g, r, payload, nbytes):
        complete(g, row, 0, no_payload(g, r, row), ANY_SOURCE, ANY_TAG)
        return
    header = payload - MESSAGE_HEADER
    tag = get(row, S_TAG)
    comm = messages(g, row)
    store(header, nbytes)
    if nbytes <= get(g, G_EAGER):
        store(header + 8, 0)
        store(header + 16, NOT_SHARED)
        if pending.isend_short(g, row, header, MESSAGE_HEADER + nbytes, dest, tag, comm, SEND):
            sent(g, row)
        return
    shared = start_chunked_send(g, row, dest, nbytes)
    store(header + 8, get(row, S_CHUNK) | get(row, S_TRANSFER) << 32)
    store(header + 16, shared)
    store(header + 24, 0)
    near = is_near(g, row, dest)
    if near:
        if near & LANDED and not _lands(nbytes, get(r, R_DONE), get(g, G_CHUNK)):
            near = NEAR
        store(header + 24, near | (get(row, S_HANDLE) & TAG_MASK) << 32)
    pending.isend(g, row, header, MESSAGE_HEADER, dest, tag, comm, SEND, 0)
    if get(row, S_FAILED) == 0:
        packed_chunk(g, row, 0)


@jit
def start_chunked_send(g, row, dest, nbytes):
    """Prepares the chunks of a long message: the slot they are shared in, or NOT_SHARED."""
    chunk = _chunk_bytes_of(nbytes, get(g, G_CHUNK))
    reset_transfer(row)
    bump(g, G_TRANSFERS, 1)
    put(row, S_TOTAL, nbytes)
    put(row, S_CHUNK, chunk)
    put(row, S_CHUNKS, (nbytes + chunk - 1) // chunk)
    # Tags 2n and 2n + 1 within MPI_TAG_UB; the host has the upper half of the numbers.
    put(row, S_TRANSFER, get(g, G_TRANSFERS) % (get(g, G_TAG_UB) >> 2))
    peer = peer_of(g, row, dest)
    shared = NOT_SHARED
    staging = G_LARGE_DEVICE
    if is_near(g, row, dest):
        shared = get(row, S_SLOT)
        staging = G_STAGING
    elif peer >= 0 and peer_field(g, peer, P_READS):
        shared = get(row, S_SLOT)
    put(row, S_SHARED, shared)
    set_base(g, row, get(g, staging) + buffer_offset(g, get(row, S_SLOT), 0), 0)
    return shared


# --- what follows ---------------------------------------------------------------------------------


@jit
def sent(g, row):
    """The message, or the header of a long one, is on its way."""
    if is_large(get(row, S_HANDLE)):
        put(row, S_STARTED, 1)
        finish_send(g, row)
    else:
        complete(g, row, get(row, S_BYTES), SUCCESS, ANY_SOURCE, ANY_TAG)


@jit
def finish_send(g, row):
    if get(row, S_STARTED) and get(row, S_FINISHED) == get(row, S_CHUNKS):
        complete(g, row, get(row, S_BYTES), SUCCESS, ANY_SOURCE, ANY_TAG)


@jit
def packed_chunk(g, row, chunk):
    """A chunk is in its buffer. Passes on all that are next, strictly in order: that is how the
    receiver tells them apart."""
    put(row, S_BUFFERS, get(row, S_BUFFERS) | 1 << chunk % LARGE_BUFFERS)
    while get(row, S_NEXT) < get(row, S_CHUNKS):
        following = get(row, S_NEXT)
        bit = 1 << following % LARGE_BUFFERS
        if get(row, S_BUFFERS) & bit == 0 or get(row, S_FAILED) != 0:
            return
        put(row, S_BUFFERS, get(row, S_BUFFERS) & ~bit)
        put(row, S_NEXT, following + 1)
        pass_on(g, row, following)


@jit
def pass_on(g, row, chunk):
    """Sends a chunk, or, where the receiver reads our buffers, the notice that it is there."""
    dest = get(row, S_PEER)
    tag = get(row, S_TRANSFER) * 2
    comm = chunks(g, row)
    if get(row, S_SHARED) == NOT_SHARED:
        data = get(g, G_LARGE) + buffer_offset(g, get(row, S_SLOT), chunk)
        length = length_of(row, chunk)
        pending.isend(g, row, data, length, dest, tag, comm, SEND_CHUNK, chunk)
    else:
        pending.irecv(g, row, get(g, G_DRAIN), 0, dest, tag + 1, comm, SEND_CHUNK, chunk)
        if chunk > 0:  # the header says that the first one is there
            pending.notify(g, row, dest, tag, comm)


@jit
def sent_chunk(g, row, chunk):
    """A chunk's buffer is free: MPI has sent it, or the receiver has read it."""
    bump(row, S_FINISHED, 1)
    following = chunk + LARGE_BUFFERS
    if following < get(row, S_CHUNKS):
        position = position_of(row, following)
        length = length_of(row, following)
        order(g, row, following % LARGE_BUFFERS, position, length, PACK)
    finish_send(g, row)
