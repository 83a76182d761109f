"""Receives of the compiled engine (``point_to_point.py`` says how messages travel)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.constants import ANY_TAG, ERR_INTERN, ERR_TRUNCATE, PROC_NULL, SUCCESS
from gmpi.wire import (
    LANDED,
    LANDING_BYTES,
    LARGE_BUFFERS,
    MESSAGE_HEADER,
    NOT_SHARED,
    POSITION_MASK,
    TAG_MASK,
    UNPACK,
    landed,
    landing_groups,
)
from host_proxy import operations as ops
from host_proxy import pending
from host_proxy.checks import is_large, log_request
from host_proxy.completion import close, complete, order, set_base, staging, tell
from host_proxy.native import bump, entry, get, jit, load, put, store
from host_proxy.state import (
    DRAIN,
    FETCH,
    G_CHUNK,
    G_DRAIN,
    G_EAGER,
    G_FETCHES,
    G_LANDING,
    G_LARGE,
    G_LARGE_DEVICE,
    G_PYTHON,
    G_REQUEST_SLOTS,
    G_SLOTS,
    P_DEVICE,
    P_HOST,
    P_STAGING,
    RECEIVE,
    RECEIVE_CHUNK,
    RECEIVES_AHEAD,
    S_ARRIVED,
    S_BUFFERS,
    S_BYTES,
    S_CHUNK,
    S_CHUNKS,
    S_FAILED,
    S_FINISHED,
    S_HANDLE,
    S_NEXT,
    S_PEER,
    S_PYTHON,
    S_READ,
    S_RETURNED,
    S_SHARED,
    S_SLOT,
    S_SOURCE,
    S_SOURCE_TAG,
    S_TAG,
    S_TOLD,
    S_TOTAL,
    S_TRANSFER,
)
from host_proxy.transfer import (
    buffer_offset,
    chunks,
    landing_place,
    length_of,
    messages,
    peer_field,
    peer_of,
    position_of,
    reset_transfer,
)

_landed = jit(landed)
_landing_groups = jit(landing_groups)

_ALL_BUFFERS = (1 << LARGE_BUFFERS) - 1


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


# --- what follows ---------------------------------------------------------------------------------


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
        if near & LANDED:
            out_of_reach |= get(g, G_LANDING) == 0 or total > min(chunk, LANDING_BYTES)
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
        mark = near >> 32 & TAG_MASK
        if near & LANDED:
            place = landing_place(g, peer, shared)
            set_base(g, row, _landed(place, _landing_groups(total), mark), 0)
        else:
            set_base(g, row, peer_field(g, peer, theirs) + buffer_offset(g, shared, 0), mark)
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
