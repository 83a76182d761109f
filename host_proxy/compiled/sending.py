"""Sends of the compiled engine (``point_to_point.py`` says how messages travel)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract import wire
from gmpi.contract.constants import ANY_SOURCE, ANY_TAG, PROC_NULL, SUCCESS
from gmpi.contract.rules import chunk_bytes_of, fits_mailbox, transfer_number
from host_proxy.compiled import streams
from host_proxy.compiled.transfer import (
    begin_transfer,
    buffer_offset,
    is_p2p,
    length_of,
    messages,
    position_of,
)
from host_proxy.platform import state as st
from host_proxy.platform.native import apart, bump, get, inlined, jit, put, store
from host_proxy.records.completion import command, complete, end, set_base, staging
from host_proxy.records.fault_log import no_payload
from host_proxy.records.ring import payload_to
from host_proxy.records.tables import is_large

_chunk_bytes_of = jit(chunk_bytes_of)
_fits_mailbox = jit(fits_mailbox)
_transfer_number = jit(transfer_number)


@inlined
def start_send(g, r, row):
    """GMPI_Isend: MPI_Isend from the slot's staging (MPI 4.1 section 3.7.2)."""
    nbytes = get(row, st.S_BYTES)
    if get(row, st.S_PEER) == PROC_NULL:
        complete(g, row, 0, SUCCESS, ANY_SOURCE, ANY_TAG)
        return
    payload = staging(g, get(row, st.S_SLOT))
    if get(r, st.R_FLAGS) & wire.FLAG_INLINE and not payload_to(g, r, payload, nbytes):
        _lacks_payload(g, r, row)
        return
    header = payload - wire.MESSAGE_HEADER
    store(header, nbytes)
    if nbytes > get(g, st.G_EAGER):
        _start_long_send(g, r, row, header)
        return
    store(header + 8, 0)
    store(header + 16, wire.NOT_SHARED)
    comm = messages(g, row)
    length = wire.MESSAGE_HEADER + nbytes
    if streams.send_short(g, row, header, length, get(row, st.S_TAG), comm):
        sent(g, row)


@apart
def _lacks_payload(g, r, row):
    """What the record announces is not in it."""
    complete(g, row, 0, no_payload(g, r, row), ANY_SOURCE, ANY_TAG)


@apart
def _start_long_send(g, r, row, header):
    """Sends the header of a message whose payload is not in it."""
    nbytes = get(row, st.S_BYTES)
    p2p = is_p2p(g, row, get(row, st.S_PEER))
    begin_chunked_send(g, row, nbytes, p2p)
    shared = get(row, st.S_SHARED)
    store(header + 8, get(row, st.S_CHUNK) | get(row, st.S_TRANSFER) << 32)
    store(header + 16, shared)
    store(header + 24, 0)
    if p2p:
        if p2p & wire.MAILED and not _fits_mailbox(nbytes, get(r, st.R_DONE), get(g, st.G_CHUNK)):
            p2p = wire.P2P
        store(header + 24, p2p | (get(row, st.S_HANDLE) & wire.LOW_32) << 32)
    tag = get(row, st.S_TAG)
    if not streams.send_first(g, row, header, wire.MESSAGE_HEADER, tag, messages(g, row)):
        return
    if shared != wire.NOT_SHARED:
        put(row, st.S_SENT, 1)  # the header says that the first chunk is there
    # Its credit, or the receipt.
    if streams.expect(g, row) and shared == wire.NOT_SHARED:
        packed_chunk(g, row, 0)


@jit
def begin_chunked_send(g, row, nbytes, p2p):
    """Prepares the chunks of a long message."""
    shared = wire.NOT_SHARED
    staging = st.G_LARGE_DEVICE
    if p2p:
        shared = get(row, st.S_SLOT)
        staging = st.G_STAGING
    begin_transfer(row, nbytes, _chunk_bytes_of(nbytes, get(g, st.G_CHUNK)), shared)
    bump(g, st.G_TRANSFERS, 1)
    first = get(g, st.G_REQUEST_SLOTS)
    place = get(row, st.S_SLOT) - first
    places = get(g, st.G_SLOTS) - first
    number = _transfer_number(get(g, st.G_TRANSFERS), place, places, get(g, st.G_TAG_UB))
    put(row, st.S_TRANSFER, number)
    set_base(g, row, get(g, staging) + buffer_offset(g, get(row, st.S_SLOT), 0), 0)


# --- what follows ---------------------------------------------------------------------------------


@inlined
def sent(g, row):
    """The message, or the header of a long one, is on its way."""
    if is_large(get(row, st.S_HANDLE)):
        _sent_header(g, row)
    else:
        end(g, row, get(row, st.S_BYTES))


@apart
def _sent_header(g, row):
    put(row, st.S_STARTED, 1)
    finish_send(g, row)


@jit
def finish_send(g, row):
    finished = get(row, st.S_FINISHED) == get(row, st.S_CHUNKS)
    if get(row, st.S_STARTED) and finished and get(row, st.S_ARRIVED) == get(row, st.S_THEIRS):
        complete(g, row, get(row, st.S_BYTES), SUCCESS, ANY_SOURCE, ANY_TAG)


@jit
def packed_chunk(g, row, chunk):
    """A chunk is in its buffer. Passes on all that are next, strictly in order: that is how the
    receiver tells them apart."""
    put(row, st.S_BUFFERS, get(row, st.S_BUFFERS) | 1 << chunk % wire.LARGE_BUFFERS)
    while get(row, st.S_SENT) < get(row, st.S_CHUNKS):
        bit = 1 << get(row, st.S_SENT) % wire.LARGE_BUFFERS
        if get(row, st.S_BUFFERS) & bit == 0 or not pass_on(g, row):
            return
        put(row, st.S_BUFFERS, get(row, st.S_BUFFERS) & ~bit)


@jit
def pass_on(g, row):
    """Sends the next chunk, or, where the receiver reads our buffers, the notice that it is there:
    whether the request goes on."""
    if get(row, st.S_SHARED) == wire.NOT_SHARED:
        return streams.send_chunk(g, row)
    return streams.say(g, row) and streams.expect(g, row)


@jit
def sent_chunk(g, row, chunk):
    """A chunk's buffer is free: MPI has sent it, or the receiver has read it."""
    bump(row, st.S_FINISHED, 1)
    following = chunk + wire.LARGE_BUFFERS
    if following < get(row, st.S_CHUNKS):
        position = position_of(row, following)
        length = length_of(row, following)
        command(g, row, following % wire.LARGE_BUFFERS, position, length, wire.PACK)
    finish_send(g, row)


@jit
def credited(g, row, chunk):
    """The receiver has read a chunk's buffer, or is ready for all that comes."""
    if get(row, st.S_SHARED) == wire.NOT_SHARED:
        finish_send(g, row)
    else:
        sent_chunk(g, row, chunk)
