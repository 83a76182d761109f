"""Sends and receives of the compiled engine, and the protocol between proxies.

A message is one MPI message ``header | payload`` on the communicator's first duplicate, where user
tags are matched. Above ``eager_bytes`` its payload is the first fragment only; the header gives the
chunk size and a transfer number, and the chunks follow in order on the second duplicate, the
transfer number as their tag. So matching happens once a message, whatever its size; the receiver
always knows the true length; and a receive posts at most ``eager_bytes``.

    send      fragment ───────────────▶ receive    (user's tag, first duplicate)
              chunk 0, 1, 2, ... ─────▶ receive    (transfer number, second duplicate)

Chunk k travels through chunk buffer ``k % LARGE_BUFFERS`` on both sides. Sender: the calling
threads filled the first buffers; when MPI has sent one, it is ordered full again. Receiver: a
buffer that MPI has filled is ordered to be unpacked, then receives the next chunk.

``host_proxy/protocol.py`` is the same protocol in plain mpi4py.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np

from gmpi.constants import ANY_SOURCE, ANY_TAG, ERR_INTERN, ERR_TRUNCATE, PROC_NULL, SUCCESS
from gmpi.wire import (
    CHUNK_DIRECTION_SHIFT,
    CHUNK_POSITION_SHIFT,
    FRAGMENT,
    LARGE_BUFFERS,
    MESSAGE_HEADER,
    PACK,
    POSITION_MASK,
    TAG_MASK,
    UNPACK,
    chunk_bytes_of,
)
from host_proxy import operations as ops
from host_proxy import pending
from host_proxy.checks import is_large, log_request
from host_proxy.completion import complete, order, order_done, staging
from host_proxy.native import jit, load, store
from host_proxy.ring import R_DONE, has_payload, payload_to
from host_proxy.state import (
    DRAIN,
    G_CHUNK,
    G_DRAIN,
    G_EAGER,
    G_LARGE,
    G_REQUEST_SLOTS,
    G_TAG_UB,
    G_TRANSFERS,
    RECEIVE,
    RECEIVE_CHUNK,
    S_BUFFERS,
    S_BYTES,
    S_CHUNK,
    S_CHUNKS,
    S_COMM,
    S_FINISHED,
    S_FRAGMENT,
    S_HANDLE,
    S_NEXT,
    S_ORDERS,
    S_PEER,
    S_SOURCE,
    S_SOURCE_TAG,
    S_TAG,
    S_TOTAL,
    S_TRANSFER,
    SEND,
    SEND_CHUNK,
    T_CHUNKS,
    T_COMMUNICATORS,
    T_HANDLE,
)

_chunk_bytes_of = jit(chunk_bytes_of)
_ALL_BUFFERS = (1 << LARGE_BUFFERS) - 1


@jit
def messages(t, comm):
    return t[T_COMMUNICATORS + comm, T_HANDLE]


@jit
def chunks(t, comm):
    return t[T_COMMUNICATORS + comm, T_CHUNKS]


@jit
def chunk_buffer(g, slot, chunk):
    number = (slot - g[G_REQUEST_SLOTS]) * LARGE_BUFFERS + chunk % LARGE_BUFFERS
    return g[G_LARGE] + number * g[G_CHUNK]


# --- calls ----------------------------------------------------------------------------------------


@jit
def start_send(g, s, a, t, r, e, slot):
    """GMPI_Isend: MPI_Isend from the slot's staging (MPI 4.1 section 3.7.2)."""
    nbytes = s[slot, S_BYTES]
    if s[slot, S_PEER] == PROC_NULL:
        complete(g, s, t, slot, 0, SUCCESS, ANY_SOURCE, ANY_TAG)
        return
    payload = staging(g, slot)
    if has_payload(r):
        payload_to(r, payload, nbytes)
    chunk = np.int64(0)
    transfer = np.int64(0)
    if nbytes > g[G_EAGER]:
        chunk = _chunk_bytes_of(nbytes, g[G_EAGER], g[G_CHUNK])
        g[G_TRANSFERS] += 1
        transfer = g[G_TRANSFERS] % min(g[G_TAG_UB], 0x7FFFFFFE) + 1
        s[slot, S_CHUNKS] = (nbytes - g[G_EAGER] + chunk - 1) // chunk
    s[slot, S_TOTAL] = nbytes
    s[slot, S_CHUNK] = chunk
    s[slot, S_TRANSFER] = transfer
    store(payload - 16, nbytes)
    store(payload - 8, chunk | transfer << 32)
    length = MESSAGE_HEADER + min(nbytes, g[G_EAGER])
    comm = messages(t, s[slot, S_COMM])
    code = pending.isend(
        g,
        s,
        a,
        payload - MESSAGE_HEADER,
        length,
        s[slot, S_PEER],
        s[slot, S_TAG],
        comm,
        slot,
        SEND,
        0,
    )
    if code != 0:
        pending.fail(g, s, t, e, slot, code)


@jit
def start_receive(g, s, a, t, e, slot):
    """GMPI_Irecv: MPI_Irecv to the slot's staging (MPI 4.1 section 3.7.2).

    Posts the longest first fragment there is, whatever the room: a longer message is our
    truncation to report, with the bytes that fit, and never MPI's.
    """
    if s[slot, S_PEER] == PROC_NULL:
        complete(g, s, t, slot, 0, SUCCESS, PROC_NULL, ANY_TAG)
        return
    code = pending.irecv(
        g, s, a, staging(g, slot) - MESSAGE_HEADER, MESSAGE_HEADER + g[G_EAGER], s[slot, S_PEER],
        s[slot, S_TAG], messages(t, s[slot, S_COMM]), slot, RECEIVE, 0,
    )  # fmt: skip
    if code != 0:
        pending.fail(g, s, t, e, slot, code)


# --- MPI has finished something -----------------------------------------------------------------


@jit
def sent(g, s, t, slot):
    """The message, or its first fragment, is on its way."""
    s[slot, S_FRAGMENT] = 1
    finish_send(g, s, t, slot)


@jit
def sent_chunk(g, s, t, slot, chunk):
    s[slot, S_FINISHED] += 1
    following = chunk + LARGE_BUFFERS
    if following < s[slot, S_CHUNKS]:
        position = g[G_EAGER] + following * s[slot, S_CHUNK]
        length = min(s[slot, S_CHUNK], s[slot, S_TOTAL] - position)
        order(g, s, slot, following % LARGE_BUFFERS, position, length, PACK)
    finish_send(g, s, t, slot)


@jit
def finish_send(g, s, t, slot):
    if s[slot, S_FRAGMENT] and s[slot, S_FINISHED] == s[slot, S_CHUNKS]:
        complete(g, s, t, slot, s[slot, S_TOTAL], SUCCESS, ANY_SOURCE, ANY_TAG)


@jit
def received(g, s, a, t, e, slot, source, tag):
    """A message, or its first fragment, is in the slot's staging."""
    payload = staging(g, slot)
    total = load(payload - 16)
    word = load(payload - 8)
    chunk = word & TAG_MASK
    room = s[slot, S_BYTES]
    s[slot, S_SOURCE] = source
    s[slot, S_SOURCE_TAG] = tag
    s[slot, S_TOTAL] = total
    if chunk == 0:
        end_receive(g, s, t, e, slot)
        return
    if chunk > g[G_CHUNK] or total > POSITION_MASK:
        # Not a header: somebody else sends on our communicator, or memory is corrupt.
        log_request(g, s, e, slot, ops.MESSAGE, ERR_INTERN, 0, chunk, g[G_CHUNK])
        complete(g, s, t, slot, 0, ERR_INTERN, source, tag)
        return
    s[slot, S_CHUNK] = chunk
    s[slot, S_TRANSFER] = (word >> 32) & TAG_MASK
    s[slot, S_CHUNKS] = (total - g[G_EAGER] + chunk - 1) // chunk
    if is_large(s[slot, S_HANDLE]):
        s[slot, S_BUFFERS] = _ALL_BUFFERS
        order(g, s, slot, FRAGMENT, 0, min(g[G_EAGER], room), UNPACK)
        receive_chunks(g, s, a, t, e, slot)
    else:
        # All that fits is in the first fragment. The chunks must be received all the same.
        drain(g, s, a, t, e, slot, 0)


@jit
def receive_chunks(g, s, a, t, e, slot):
    """Posts receives for the next chunks as long as their buffers are free."""
    while s[slot, S_NEXT] < s[slot, S_CHUNKS]:
        chunk = s[slot, S_NEXT]
        bit = 1 << chunk % LARGE_BUFFERS
        if s[slot, S_BUFFERS] & bit == 0:
            return
        s[slot, S_BUFFERS] &= ~bit
        s[slot, S_NEXT] += 1
        code = pending.irecv(
            g, s, a, chunk_buffer(g, slot, chunk), s[slot, S_CHUNK], s[slot, S_SOURCE],
            s[slot, S_TRANSFER], chunks(t, s[slot, S_COMM]), slot, RECEIVE_CHUNK, chunk,
        )  # fmt: skip
        if code != 0:
            pending.fail(g, s, t, e, slot, code)
            return


@jit
def received_chunk(g, s, a, t, e, slot, chunk):
    """A chunk is in its buffer: have it unpacked, as far as the user's buffer reaches."""
    position = g[G_EAGER] + chunk * s[slot, S_CHUNK]
    length = min(s[slot, S_CHUNK], s[slot, S_TOTAL] - position)
    wanted = min(length, s[slot, S_BYTES] - position)
    if wanted > 0:
        order(g, s, slot, chunk % LARGE_BUFFERS, position, wanted, UNPACK)
    else:
        unpacked_chunk(g, s, a, t, e, slot, chunk)


@jit
def unpacked_chunk(g, s, a, t, e, slot, chunk):
    s[slot, S_FINISHED] += 1
    s[slot, S_BUFFERS] |= 1 << chunk % LARGE_BUFFERS
    receive_chunks(g, s, a, t, e, slot)
    finish_chunked_receive(g, s, t, e, slot)


@jit
def finish_chunked_receive(g, s, t, e, slot):
    if s[slot, S_FRAGMENT] and s[slot, S_FINISHED] == s[slot, S_CHUNKS]:
        end_receive(g, s, t, e, slot)


@jit
def end_receive(g, s, t, e, slot):
    total = s[slot, S_TOTAL]
    room = s[slot, S_BYTES]
    error = SUCCESS
    if total > room:
        error = ERR_TRUNCATE
        log_request(g, s, e, slot, ops.LENGTH, error, 0, total, room)
    complete(g, s, t, slot, min(total, room), error, s[slot, S_SOURCE], s[slot, S_SOURCE_TAG])


@jit
def drain(g, s, a, t, e, slot, chunk):
    """Receives a chunk that nobody wants; after the last one, ends the request."""
    if chunk == s[slot, S_CHUNKS]:
        end_receive(g, s, t, e, slot)
        return
    code = pending.irecv(
        g, s, a, g[G_DRAIN], s[slot, S_CHUNK], s[slot, S_SOURCE], s[slot, S_TRANSFER],
        chunks(t, s[slot, S_COMM]), slot, DRAIN, chunk,
    )  # fmt: skip
    if code != 0:
        pending.fail(g, s, t, e, slot, code)


# --- the kernel has carried out an order --------------------------------------------------------


@jit
def chunk_done(g, s, a, t, r, e, slot):
    """A CHUNK record for a point-to-point request; False when it fits no order we gave."""
    done = r[R_DONE]
    position = (done >> CHUNK_POSITION_SHIFT) & POSITION_MASK
    direction = (done >> CHUNK_DIRECTION_SHIFT) & 1
    index = done & 0x7F
    if index == FRAGMENT and direction == UNPACK:
        if s[slot, S_FRAGMENT] or s[slot, S_ORDERS] <= 0:
            return False
        s[slot, S_FRAGMENT] = 1
        order_done(g, s, slot)
        finish_chunked_receive(g, s, t, e, slot)
        return True
    if s[slot, S_CHUNK] == 0:
        return False
    chunk = (position - g[G_EAGER]) // s[slot, S_CHUNK]
    exact = position == g[G_EAGER] + chunk * s[slot, S_CHUNK]
    if not exact or chunk < 0 or chunk >= s[slot, S_CHUNKS] or chunk % LARGE_BUFFERS != index:
        return False
    bit = 1 << index
    if direction == UNPACK:
        if s[slot, S_BUFFERS] & bit or chunk >= s[slot, S_NEXT] or s[slot, S_ORDERS] <= 0:
            return False
        order_done(g, s, slot)
        unpacked_chunk(g, s, a, t, e, slot, chunk)
        return True
    if s[slot, S_BUFFERS] & bit or chunk < s[slot, S_NEXT]:
        return False
    if chunk >= LARGE_BUFFERS:  # the first ones are packed by the call itself, without an order
        order_done(g, s, slot)
    s[slot, S_BUFFERS] |= bit
    send_chunks(g, s, a, t, e, slot)
    return True


@jit
def send_chunks(g, s, a, t, e, slot):
    """Sends the chunks that are packed, strictly in order: the receiver matches them by it."""
    while s[slot, S_NEXT] < s[slot, S_CHUNKS]:
        chunk = s[slot, S_NEXT]
        bit = 1 << chunk % LARGE_BUFFERS
        if s[slot, S_BUFFERS] & bit == 0:
            return
        s[slot, S_BUFFERS] &= ~bit
        s[slot, S_NEXT] += 1
        position = g[G_EAGER] + chunk * s[slot, S_CHUNK]
        length = min(s[slot, S_CHUNK], s[slot, S_TOTAL] - position)
        code = pending.isend(
            g, s, a, chunk_buffer(g, slot, chunk), length, s[slot, S_PEER], s[slot, S_TRANSFER],
            chunks(t, s[slot, S_COMM]), slot, SEND_CHUNK, chunk,
        )  # fmt: skip
        if code != 0:
            pending.fail(g, s, t, e, slot, code)
            return
