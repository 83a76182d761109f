"""Sends and receives of the compiled engine, and the protocol between proxies.

A message is one MPI message ``header | payload`` on the communicator's first duplicate, where user
tags are matched. Above ``eager_bytes`` there is no payload in it; the header gives the chunk size,
a transfer number, and how the chunks come. So matching happens once a message, whatever its size;
the receiver always knows the true length; and a receive posts at most ``eager_bytes``.

    send      header ──────────────────▶ receive   user's tag, first duplicate
    elsewhere chunk 0, 1, 2, ... ──────▶           transfer number, second duplicate
    same node notice 1, 2, ... ────────▶           the same, empty: the receiver's threads read the
              ◀────── buffer free 0, 1, 2, ...     sender's buffers, which are shared memory

Chunk k is packed into chunk buffer ``k % LARGE_BUFFERS`` of the sender; the calling threads fill
the first ones, later ones are ordered when their buffer is free: sent by MPI, or read by the other
side. From elsewhere, chunk k is received into the same buffer of the receiver's slot. Either way
the receiver orders it to be unpacked. The completion is written as soon as everything is in reach;
it says how many orders must be carried out before the request is complete.

``host_proxy/protocol.py`` is the same protocol in plain mpi4py.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.constants import ANY_SOURCE, ANY_TAG, ERR_INTERN, ERR_TRUNCATE, PROC_NULL, SUCCESS
from gmpi.wire import (
    CHUNK_DIRECTION_SHIFT,
    CHUNK_POSITION_SHIFT,
    FLAG_INLINE,
    LARGE_BUFFERS,
    MESSAGE_HEADER,
    NEAR,
    NOT_SHARED,
    OP_IRECV,
    OP_ISEND,
    PACK,
    POSITION_MASK,
    READY_BYTES,
    TAG_MASK,
    UNPACK,
    chunk_bytes_of,
)
from host_proxy import operations as ops
from host_proxy import pending
from host_proxy.checks import communicator, is_large, log_request, no_payload
from host_proxy.completion import close, complete, order, order_done, set_base, staging, tell
from host_proxy.native import bump, entry, get, jit, load, put, store
from host_proxy.ring import payload_to
from host_proxy.state import (
    C_CHUNKS,
    C_HANDLE,
    C_NEAR,
    C_PEERS,
    DRAIN,
    FETCH,
    G_CHUNK,
    G_DRAIN,
    G_EAGER,
    G_FETCHES,
    G_LARGE,
    G_LARGE_DEVICE,
    G_PEERS,
    G_PYTHON,
    G_REQUEST_SLOTS,
    G_SLOTS,
    G_STAGING,
    G_TAG_UB,
    G_TRANSFERS,
    P_COUNT,
    P_DEVICE,
    P_HOST,
    P_READS,
    P_STAGING,
    R_DONE,
    R_FLAGS,
    RECEIVE,
    RECEIVE_CHUNK,
    RECEIVES_AHEAD,
    S_ARRIVED,
    S_BUFFERS,
    S_BYTES,
    S_CHUNK,
    S_CHUNKS,
    S_COMM,
    S_COUNT,
    S_FAILED,
    S_FINISHED,
    S_HANDLE,
    S_NEXT,
    S_OP,
    S_ORDERS,
    S_PEER,
    S_PYTHON,
    S_READ,
    S_RETURNED,
    S_SHARED,
    S_SLOT,
    S_SOURCE,
    S_SOURCE_TAG,
    S_STARTED,
    S_TAG,
    S_TOLD,
    S_TOTAL,
    S_TRANSFER,
    SEND,
    SEND_CHUNK,
)

_chunk_bytes_of = jit(chunk_bytes_of)
_ALL_BUFFERS = (1 << LARGE_BUFFERS) - 1


@jit
def messages(g, row):
    """MPI handle of the communicator on which the request's first message travels."""
    return get(communicator(g, get(row, S_COMM)), C_HANDLE)


@jit
def chunks(g, row):
    """MPI handle of the communicator for everything behind the first message."""
    return get(communicator(g, get(row, S_COMM)), C_CHUNKS)


@jit
def peer_of(g, row, rank):
    """Which process of this node a rank is, -1 for one elsewhere."""
    return get(get(communicator(g, get(row, S_COMM)), C_PEERS), rank)


@jit
def is_near(g, row, rank):
    """Whether kernels pack what they send to a rank into GPU staging: as they were told."""
    return get(get(communicator(g, get(row, S_COMM)), C_NEAR), rank)


@jit
def peer_field(g, peer, which):
    return get(get(g, G_PEERS), peer * P_COUNT + which)


@jit
def buffer_offset(g, slot, chunk):
    """Where in large staging the chunk's buffer of a large slot is."""
    size = get(g, G_CHUNK)
    stride = LARGE_BUFFERS * size + READY_BYTES
    return (slot - get(g, G_REQUEST_SLOTS)) * stride + chunk % LARGE_BUFFERS * size


@jit
def position_of(row, chunk):
    return chunk * get(row, S_CHUNK)


@jit
def length_of(row, chunk):
    return min(get(row, S_CHUNK), get(row, S_TOTAL) - position_of(row, chunk))


@jit
def reset_transfer(row):
    """Begins the chunked part of a message."""
    for field in range(S_NEXT, S_COUNT):
        put(row, field, 0)


# --- calls ----------------------------------------------------------------------------------------


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
    if is_near(g, row, dest):
        store(header + 24, NEAR | (get(row, S_HANDLE) & TAG_MASK) << 32)
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


@jit
def start_receive(g, row):
    """GMPI_Irecv: MPI_Irecv to the slot's staging (MPI 4.1 section 3.7.2).

    Posts room for the longest first message there is, whatever the user's: a longer message is our
    truncation to report, with the bytes that fit, and never MPI's.
    """
    source = get(row, S_PEER)
    if source == PROC_NULL:
        complete(g, row, 0, SUCCESS, PROC_NULL, ANY_TAG)
        return
    header = staging(g, get(row, S_SLOT)) - MESSAGE_HEADER
    length = MESSAGE_HEADER + get(g, G_EAGER)
    pending.irecv(g, row, header, length, source, get(row, S_TAG), messages(g, row), RECEIVE, 0)


# --- the sending side goes on ---------------------------------------------------------------------


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


# --- the receiving side goes on -------------------------------------------------------------------


@jit
def received(g, row, source, tag):
    """A message, or the header of a long one, is in the slot's staging."""
    header = staging(g, get(row, S_SLOT)) - MESSAGE_HEADER
    total = load(header)
    follow = load(header + 8)
    chunk = follow & TAG_MASK
    put(row, S_SOURCE, source)
    put(row, S_SOURCE_TAG, tag)
    put(row, S_TOTAL, total)
    if chunk == 0:
        end_receive(g, row, 0)
        close(g, row)
        return
    shared = load(header + 16)
    peer = peer_of(g, row, source)
    near = load(header + 24)
    theirs = P_STAGING if near else P_DEVICE
    out_of_reach = False
    if shared != NOT_SHARED:
        out_of_reach = peer < 0 or peer_field(g, peer, theirs) == 0
        out_of_reach |= shared < get(g, G_REQUEST_SLOTS) or shared >= get(g, G_SLOTS)
    if chunk > get(g, G_CHUNK) or total > POSITION_MASK or out_of_reach:
        # Not a header: somebody else sends on our communicator, or memory is corrupt.
        log_request(g, row, ops.MESSAGE, ERR_INTERN, 0, chunk, get(g, G_CHUNK))
        complete(g, row, 0, ERR_INTERN, source, tag)
        return
    reset_transfer(row)
    put(row, S_CHUNK, chunk)
    put(row, S_CHUNKS, (total + chunk - 1) // chunk)
    put(row, S_TRANSFER, (follow >> 32) & TAG_MASK)
    put(row, S_SHARED, shared)
    put(row, S_BUFFERS, _ALL_BUFFERS)
    if not is_large(get(row, S_HANDLE)):
        if shared == NOT_SHARED:
            drain(g, row, 0)
        elif theirs == P_STAGING:
            put(row, S_PYTHON, FETCH)
            bump(g, G_FETCHES, 1)
            bump(g, G_PYTHON, 1)
        else:
            drained(g, row, 0)  # the header says that the first chunk is there
        return
    if shared == NOT_SHARED:
        set_base(g, row, get(g, G_LARGE_DEVICE) + buffer_offset(g, get(row, S_SLOT), 0), 0)
        receive_chunks(g, row)
    else:
        base = peer_field(g, peer, theirs) + buffer_offset(g, shared, 0)
        set_base(g, row, base, near >> 32 & TAG_MASK)
        put(row, S_BUFFERS, _ALL_BUFFERS & ~1)
        put(row, S_NEXT, 1)
        received_chunk(g, row, 0)


@jit
def receive_chunks(g, row):
    """Posts receives for the next chunks, or their notices, as long as buffers are free."""
    while get(row, S_NEXT) < get(row, S_CHUNKS):
        chunk = get(row, S_NEXT)
        bit = 1 << chunk % LARGE_BUFFERS
        ahead = chunk - get(row, S_ARRIVED)
        if get(row, S_BUFFERS) & bit == 0 or ahead >= RECEIVES_AHEAD or get(row, S_FAILED) != 0:
            return
        put(row, S_BUFFERS, get(row, S_BUFFERS) & ~bit)
        put(row, S_NEXT, chunk + 1)
        data = get(g, G_DRAIN)
        length = 0
        if get(row, S_SHARED) == NOT_SHARED:
            data = get(g, G_LARGE) + buffer_offset(g, get(row, S_SLOT), chunk)
            length = get(row, S_CHUNK)
        tag = get(row, S_TRANSFER) * 2
        source = get(row, S_SOURCE)
        pending.irecv(g, row, data, length, source, tag, chunks(g, row), RECEIVE_CHUNK, chunk)


@jit
def received_chunk(g, row, chunk):
    """A chunk is in reach: have it unpacked, as far as the user's buffer goes."""
    bump(row, S_ARRIVED, 1)
    position = position_of(row, chunk)
    wanted = min(length_of(row, chunk), get(row, S_BYTES) - position)
    if get(row, S_ARRIVED) == get(row, S_CHUNKS):
        # Before the last order: who sees that has no need to look again when it is carried out.
        # Orders are only given for what the user's buffer has room for.
        size = get(row, S_CHUNK)
        end_receive(g, row, min(get(row, S_CHUNKS), (get(row, S_BYTES) + size - 1) // size))
    if wanted > 0:
        order(g, row, chunk % LARGE_BUFFERS, position, wanted, UNPACK)
        receive_chunks(g, row)
    else:
        unpacked_chunk(g, row, chunk)


@jit
def unpacked_chunk(g, row, chunk):
    """A chunk's buffer has been read."""
    bump(row, S_FINISHED, 1)
    bit = 1 << chunk % LARGE_BUFFERS
    put(row, S_BUFFERS, get(row, S_BUFFERS) | bit)
    if get(row, S_SHARED) != NOT_SHARED:
        put(row, S_READ, get(row, S_READ) | bit)
        return_buffers(g, row)
    receive_chunks(g, row)
    close_chunked_receive(g, row)


@jit
def return_buffers(g, row):
    """Tells the sender which of its buffers are free: in order of the chunks, since the messages
    say nothing else, whatever the order in which threads have read them."""
    while get(row, S_READ) & 1 << get(row, S_RETURNED) % LARGE_BUFFERS:
        put(row, S_READ, get(row, S_READ) & ~(1 << get(row, S_RETURNED) % LARGE_BUFFERS))
        bump(row, S_RETURNED, 1)
        tag = get(row, S_TRANSFER) * 2 + 1
        pending.notify(g, row, get(row, S_SOURCE), tag, chunks(g, row))


@jit
def close_chunked_receive(g, row):
    if get(row, S_FINISHED) == get(row, S_CHUNKS) and get(row, S_TOLD):
        close(g, row)


@jit
def end_receive(g, row, orders):
    """Writes the completion; ``orders`` must have been carried out before it counts."""
    total = get(row, S_TOTAL)
    room = get(row, S_BYTES)
    error = SUCCESS
    if total > room:
        error = ERR_TRUNCATE
        log_request(g, row, ops.LENGTH, error, 0, total, room)
    tell(g, row, min(total, room), error, get(row, S_SOURCE), get(row, S_SOURCE_TAG), orders)


@jit
def drain(g, row, chunk):
    """Receives the next chunk of a message that is longer than its receive was thought for.

    The receive has no chunk buffers, but all that fits it is in the first chunk.
    """
    if chunk == get(row, S_CHUNKS):
        end_receive(g, row, 0)
        close(g, row)
        return
    tag = get(row, S_TRANSFER) * 2
    nowhere = get(g, G_DRAIN)
    length = get(row, S_CHUNK) if get(row, S_SHARED) == NOT_SHARED else 0
    source = get(row, S_SOURCE)
    pending.irecv(g, row, nowhere, length, source, tag, chunks(g, row), DRAIN, chunk)


@jit
def drained(g, row, chunk):
    """A chunk of such a message is in reach of the CPU."""
    shared = get(row, S_SHARED)
    if chunk == 0:
        source = get(g, G_DRAIN)
        if shared != NOT_SHARED:
            peer = peer_of(g, row, get(row, S_SOURCE))
            source = peer_field(g, peer, P_HOST) + buffer_offset(g, shared, 0)
        target = staging(g, get(row, S_SLOT))
        for at in range(0, get(row, S_BYTES), 8):
            store(target + at, load(source + at))
    dropped(g, row, chunk)


@jit
def dropped(g, row, chunk):
    """Nobody needs the chunk any more."""
    if get(row, S_SHARED) != NOT_SHARED:
        tag = get(row, S_TRANSFER) * 2 + 1
        pending.notify(g, row, get(row, S_SOURCE), tag, chunks(g, row))
    drain(g, row, chunk + 1)


@entry
def fetched(g, row):
    """The first chunk of such a message, which was in GPU memory, is in the slot's staging."""
    put(row, S_PYTHON, 0)
    bump(g, G_FETCHES, -1)
    bump(g, G_PYTHON, -1)
    dropped(g, row, 0)


# --- the kernel has carried out an order ----------------------------------------------------------


@jit
def chunk_done(g, r, row):
    """A CHUNK record for a point-to-point request; False when it fits no order we gave."""
    done = get(r, R_DONE)
    position = (done >> CHUNK_POSITION_SHIFT) & POSITION_MASK
    direction = (done >> CHUNK_DIRECTION_SHIFT) & 1
    index = done & 0x7F
    size = get(row, S_CHUNK)
    if size == 0 or not is_large(get(row, S_HANDLE)):
        return False
    if get(row, S_OP) != (OP_IRECV if direction == UNPACK else OP_ISEND):
        return False
    chunk = position // size
    if position != position_of(row, chunk) or chunk >= get(row, S_CHUNKS):
        return False
    bit = 1 << index
    if chunk % LARGE_BUFFERS != index or get(row, S_BUFFERS) & bit:
        return False
    if direction == UNPACK:
        if chunk >= get(row, S_NEXT) or get(row, S_ORDERS) <= 0:
            return False
        order_done(g, row)
        unpacked_chunk(g, row, chunk)
        return True
    if chunk < get(row, S_NEXT) or chunk >= get(row, S_NEXT) + LARGE_BUFFERS:
        return False
    if chunk >= LARGE_BUFFERS and get(row, S_ORDERS) <= 0:
        return False
    if chunk >= LARGE_BUFFERS:  # the first ones are packed by the call itself, without an order
        if get(row, S_ORDERS) <= 0:
            return False
        order_done(g, row)
    packed_chunk(g, row, chunk)
    return True
