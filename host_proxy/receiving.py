"""Receives of the compiled engine (``point_to_point.py`` says how messages travel)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.constants import ANY_TAG, ERR_TRUNCATE, PROC_NULL, SUCCESS
from gmpi.wire import (
    LANDED,
    LARGE_BUFFERS,
    MESSAGE_HEADER,
    NOT_SHARED,
    UNPACK,
    landed,
    landing_groups,
)
from host_proxy import operations as ops
from host_proxy import pending
from host_proxy.checks import is_large, log_request
from host_proxy.completion import close, complete, order, set_base, staging, tell
from host_proxy.headers import BAD_LENGTH, WELL, header_at, header_flaw
from host_proxy.native import bump, get, jit, put
from host_proxy.state import (
    G_DRAIN,
    G_EAGER,
    G_HANDED,
    G_LARGE,
    G_LARGE_DEVICE,
    G_PYTHON,
    HANDED,
    P_DEVICE,
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
def received(g, row, source, tag, nbytes):
    """A message, or the header of a long one, is in the slot's staging: so many bytes."""
    put(row, S_SOURCE, source)
    put(row, S_SOURCE_TAG, tag)
    address = staging(g, get(row, S_SLOT)) - MESSAGE_HEADER
    peer = peer_of(g, row, source)
    flaw = header_flaw(g, address, nbytes, peer)
    if flaw != WELL:
        # Somebody else sends on our communicator, or memory is corrupt.
        pending.refuse(g, row, flaw)
        return
    header = header_at(address)
    put(row, S_TOTAL, header.total)
    if header.chunk == 0:
        end_receive(g, row, 0)
        close(g, row)
    elif is_large(get(row, S_HANDLE)):
        receive_long(g, row, header, peer)
    else:  # there are no chunk buffers: the mpi4py engine gets what fits
        put(row, S_PYTHON, HANDED)
        bump(g, G_HANDED, 1)
        bump(g, G_PYTHON, 1)


@jit
def receive_long(g, row, header, peer):
    """Begins with what follows the header of a long message."""
    reset_transfer(row)
    put(row, S_CHUNK, header.chunk)
    put(row, S_CHUNKS, (header.total + header.chunk - 1) // header.chunk)
    put(row, S_TRANSFER, header.transfer)
    put(row, S_SHARED, header.shared)
    put(row, S_BUFFERS, _ALL_BUFFERS)
    if header.shared == NOT_SHARED:
        set_base(g, row, get(g, G_LARGE_DEVICE) + buffer_offset(g, get(row, S_SLOT), 0), 0)
        receive_chunks(g, row)
        return
    if header.way & LANDED:
        place = landing_place(g, peer, header.shared)
        set_base(g, row, _landed(place, _landing_groups(header.total), header.mark), 0)
    else:
        theirs = P_STAGING if header.way else P_DEVICE
        base = peer_field(g, peer, theirs) + buffer_offset(g, header.shared, 0)
        set_base(g, row, base, header.mark)
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
def received_message(g, row, chunk, nbytes):
    """A chunk, or the notice that it is in reach, has come: so many bytes."""
    expected = length_of(row, chunk) if get(row, S_SHARED) == NOT_SHARED else 0
    if nbytes != expected:
        pending.refuse(g, row, BAD_LENGTH)
    else:
        received_chunk(g, row, chunk)


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
