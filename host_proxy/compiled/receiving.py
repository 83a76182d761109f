"""Receives of the compiled engine (``point_to_point.py`` says how messages travel)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract import wire
from gmpi.contract.constants import ANY_TAG, ERR_INTERN, ERR_TRUNCATE, PROC_NULL, SUCCESS
from gmpi.contract.rules import is_readable, mailbox_groups, mailed
from host_proxy.compiled import pending, streams, transfer
from host_proxy.compiled.headers import WELL, header_at, header_flaw, is_whole
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.platform.native import apart, bump, get, inlined, jit, put, store
from host_proxy.records.completion import close, command, complete, set_base, staging, tell
from host_proxy.records.fault_log import log_request
from host_proxy.records.narrow import is_narrow
from host_proxy.records.tables import communicator, is_large

_mailed = jit(mailed)
_mailbox_groups = jit(mailbox_groups)
_is_readable = jit(is_readable)

_ALL_BUFFERS = (1 << wire.LARGE_BUFFERS) - 1


@inlined
def start_receive(g, row):
    """GMPI_Irecv: MPI_Irecv to the slot's staging (MPI 4.1 section 3.7.2).

    Posts room for the longest first message there is, whatever the user's: a longer message is our
    truncation to report, with the bytes that fit, and never MPI's.
    """
    source = get(row, st.S_PEER)
    if source == PROC_NULL:
        complete(g, row, 0, SUCCESS, PROC_NULL, ANY_TAG)
        return
    header = staging(g, get(row, st.S_SLOT)) - wire.MESSAGE_HEADER
    store(header + 16, wire.NO_HEADER)
    length = wire.MESSAGE_HEADER + get(g, st.G_EAGER)
    streams.receive_first(g, row, header, length, get(row, st.S_TAG), transfer.messages(g, row))


# --- what follows ---------------------------------------------------------------------------------


@inlined
def received(g, row, source, tag, nbytes):
    """A message, or the header of a long one, is in the slot's staging: so many bytes."""
    put(row, st.S_SOURCE, source)
    put(row, st.S_SOURCE_TAG, tag)
    address = staging(g, get(row, st.S_SLOT)) - wire.MESSAGE_HEADER
    if is_whole(g, address, nbytes):
        put(row, st.S_TOTAL, header_at(address).total)
        end_receive(g, row, 0)
        close(g, row)
    else:
        _received_header(g, row, address, nbytes)


@apart
def _received_header(g, row, address, nbytes):
    """The header of a long message is there, or of none at all."""
    source = get(row, st.S_SOURCE)
    peer = transfer.peer_of(g, row, source)
    flaw = header_flaw(g, address, nbytes, peer)
    if flaw != WELL:
        # Somebody else sends on our communicator, or memory is corrupt.
        streams.fail_with(g, row, ops.MESSAGE, ERR_INTERN, 0, flaw)
        return
    header = header_at(address)
    put(row, st.S_TOTAL, header.total)
    if header.shared == wire.ABANDONED:
        streams.fail_with(g, row, ops.PEER, header.transfer, 0, source)
    elif lacks_buffers(g, row, header):  # the mpi4py engine has memory
        _hand_over(g, row)
    else:
        receive_long(g, row, header, peer)


@jit
def lacks_buffers(g, row, header):
    """Whether a long message needs buffers that the slot does not have."""
    if not is_narrow(g, row):
        return not is_large(get(row, st.S_HANDLE))
    return not _is_readable(header.shared, header.way, get(row, st.S_ADDRESS))


@jit
def _hand_over(g, row):
    """The mpi4py engine goes on with the request."""
    put(row, st.S_PYTHON, st.HANDED)
    bump(g, st.G_HANDED, 1)
    bump(g, st.G_PYTHON, 1)


@apart
def receive_failed(g, row, source, tag, nbytes, code):
    """MPI has failed to receive a message, or the header of a long one: if that is there all the
    same, its sender can be told."""
    address = staging(g, get(row, st.S_SLOT)) - wire.MESSAGE_HEADER
    header = header_at(address)
    known = source >= 0 and source < get(communicator(g, get(row, st.S_COMM)), st.C_SIZE)
    known = known and header.shared != wire.NO_HEADER and header.chunk != 0
    if known and header_flaw(g, address, nbytes, transfer.peer_of(g, row, source)) == WELL:
        put(row, st.S_SOURCE, source)
        put(row, st.S_SOURCE_TAG, tag)
        if lacks_buffers(g, row, header):
            streams.note_failure(g, row, ops.MPI_CALL, pending.error_class(g, code), code, code)
            _hand_over(g, row)
            return
        begin_chunked_receive(row, header)
    streams.fail(g, row, code)


@jit
def begin_chunked_receive(row, header):
    transfer.begin_transfer(row, header.total, header.chunk, header.shared)
    put(row, st.S_TRANSFER, header.transfer)
    if header.shared != wire.NOT_SHARED:  # the first chunk is there
        put(row, st.S_POSTED, 1)
        put(row, st.S_ARRIVED, 1)


@jit
def receive_long(g, row, header, peer):
    """Begins with what follows the header of a long message."""
    begin_chunked_receive(row, header)
    if header.shared == wire.NOT_SHARED:
        put(row, st.S_BUFFERS, _ALL_BUFFERS)
        set_base(
            g, row, get(g, st.G_LARGE_DEVICE) + transfer.buffer_offset(g, get(row, st.S_SLOT), 0), 0
        )
        receive_chunks(g, row)
        return
    put(row, st.S_BUFFERS, _ALL_BUFFERS & ~1)
    if header.way & wire.MAILED:
        place = transfer.mailbox_of(g, peer, header.shared)
        set_base(g, row, _mailed(place, _mailbox_groups(header.total), header.seq), 0)
    else:
        base = transfer.peer_field(g, peer, st.P_STAGING) + transfer.buffer_offset(
            g, header.shared, 0
        )
        set_base(g, row, base, header.seq)
    received_chunk(g, row, 0)


@jit
def receive_chunks(g, row):
    """Posts receives for the next chunks, or their notices, as long as buffers are free; gives the
    receipt with the last one, where chunks are messages."""
    while get(row, st.S_POSTED) < get(row, st.S_CHUNKS):
        chunk = get(row, st.S_POSTED)
        bit = 1 << chunk % wire.LARGE_BUFFERS
        ahead = chunk - get(row, st.S_ARRIVED)
        if get(row, st.S_BUFFERS) & bit == 0 or ahead >= st.RECEIVES_AHEAD:
            return
        put(row, st.S_BUFFERS, get(row, st.S_BUFFERS) & ~bit)
        if not streams.expect(g, row):
            return
        if get(row, st.S_SHARED) == wire.NOT_SHARED and get(row, st.S_POSTED) == get(
            row, st.S_CHUNKS
        ):
            streams.say(g, row)


@jit
def received_chunk(g, row, chunk):
    """A chunk is in reach: have it unpacked, as far as the user's buffer goes."""
    position = transfer.position_of(row, chunk)
    wanted = min(transfer.length_of(row, chunk), get(row, st.S_BYTES) - position)
    if get(row, st.S_ARRIVED) == get(row, st.S_CHUNKS):
        # Before the last command: who sees that has no need to look again when it is executed.
        # Commands are only given for what the user's buffer has room for.
        size = get(row, st.S_CHUNK)
        end_receive(g, row, min(get(row, st.S_CHUNKS), (get(row, st.S_BYTES) + size - 1) // size))
    if wanted > 0:
        command(g, row, chunk % wire.LARGE_BUFFERS, position, wanted, wire.UNPACK)
        receive_chunks(g, row)
    else:
        unpacked_chunk(g, row, chunk)


@jit
def unpacked_chunk(g, row, chunk):
    """A chunk's buffer has been read."""
    bump(row, st.S_FINISHED, 1)
    bit = 1 << chunk % wire.LARGE_BUFFERS
    put(row, st.S_BUFFERS, get(row, st.S_BUFFERS) | bit)
    if get(row, st.S_SHARED) != wire.NOT_SHARED:
        put(row, st.S_READ, get(row, st.S_READ) | bit)
        if not return_buffers(g, row):
            return
    receive_chunks(g, row)
    close_chunked_receive(g, row)


@jit
def return_buffers(g, row):
    """Tells the sender which of its buffers are free: in order of the chunks, since the messages
    say nothing else, whatever the order in which threads have read them. Whether the request goes
    on."""
    while get(row, st.S_READ) & 1 << get(row, st.S_SENT) % wire.LARGE_BUFFERS:
        put(row, st.S_READ, get(row, st.S_READ) & ~(1 << get(row, st.S_SENT) % wire.LARGE_BUFFERS))
        if not streams.say(g, row):
            return False
    return True


@jit
def close_chunked_receive(g, row):
    if get(row, st.S_FINISHED) == get(row, st.S_CHUNKS) and get(row, st.S_TOLD):
        close(g, row)


@inlined
def end_receive(g, row, commands):
    """Writes the completion; ``commands`` must have been executed before it counts."""
    total = get(row, st.S_TOTAL)
    room = get(row, st.S_BYTES)
    error = SUCCESS
    if total > room:
        error = ERR_TRUNCATE
        log_request(g, row, ops.LENGTH, error, 0, total, room)
    source, tag = get(row, st.S_SOURCE), get(row, st.S_SOURCE_TAG)
    tell(g, row, min(total, room), error, source, tag, commands)
