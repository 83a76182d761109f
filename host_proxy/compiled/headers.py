"""The header of a message that has come (``gmpi/contract/wire.py`` says what is in it), read and
checked.

Another process has written it, or somebody else who sends on our communicators. So nothing of it is
used before ``header_flaw`` has looked at every word: both engines and ``gmpi/host/calls.py`` ask
that one function.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from gmpi.contract import wire
from gmpi.contract.rules import chunk_bytes_of, fits_mailbox
from host_proxy.compiled.transfer import peer_field
from host_proxy.platform import state as st
from host_proxy.platform.native import entry, get, inlined, jit, load

_chunk_bytes_of = jit(chunk_bytes_of)
_fits_mailbox = jit(fits_mailbox)
_WORDS = struct.Struct("<qqqq")

# What is wrong with a message: numbers, and the words for them.
(WELL, BAD_LENGTH, BAD_TOTAL, BAD_CHUNK, BAD_TRANSFER, BAD_SLOT, BAD_WAY) = range(7)
FLAWS = (
    "as it should be",
    "not as long as its header says",
    "one whose header has an impossible length",
    "one whose header has an impossible chunk size",
    "one whose header has an impossible transfer number",
    "one whose header names an impossible slot",
    "one whose header names memory that cannot be reached",
)


class Header(NamedTuple):
    """The words of a header.

    Attributes:
        total: bytes of the whole message.
        chunk: bytes of its chunks; 0: the payload is behind the header.
        transfer: its number, the tags of what follows; of one that was abandoned, the error class.
        shared: the sender's large slot, whose buffers the receiver reads, NOT_SHARED or ABANDONED.
        way: P2P or P2P | MAILED; 0 where nothing is shared.
        seq: what the ready word will be, or the sequence number of the packets.
    """

    total: int
    chunk: int
    transfer: int
    shared: int
    way: int
    seq: int


def _header(total, follow, shared, p2p) -> Header:
    return Header(
        total, follow & wire.LOW_32, follow >> 32 & wire.LOW_32, shared, p2p & wire.LOW_32,
        p2p >> 32 & wire.LOW_32,
    )  # fmt: skip


_header_of = jit(_header)


@jit
def header_at(address):
    """The header at an address, for compiled code."""
    return _header_of(load(address), load(address + 8), load(address + 16), load(address + 24))


def header_in(message: np.ndarray) -> Header:
    """The header that ``message`` begins with."""
    return _header(*_WORDS.unpack_from(message.data, 0))


def write_header(message: np.ndarray, header: Header) -> None:
    """Writes what ``header_in`` reads."""
    follow, p2p = header.chunk | header.transfer << 32, header.way | header.seq << 32
    if p2p >> 63:
        p2p -= 1 << 64
    _WORDS.pack_into(message.data, 0, header.total, follow, header.shared, p2p)


@inlined
def is_whole(g, address, nbytes):
    """Whether a message is as it should be and has its payload in it. Word 3 says nothing then."""
    header = header_at(address)
    there = header.total >= 0 and nbytes == wire.MESSAGE_HEADER + header.total
    short = there and header.total <= get(g, st.G_EAGER) and load(address + 8) == 0
    return short and header.shared == wire.NOT_SHARED


@entry
def header_flaw(g, address, nbytes, peer):
    """What is wrong with a message, WELL if nothing: then all its header says can be relied on.

    Args:
        address: where it is, header first.
        nbytes: how many bytes MPI says have come.
        peer: which process of this node its sender is, -1 for one elsewhere.
    """
    if nbytes < wire.MESSAGE_HEADER:
        return BAD_LENGTH
    header = header_at(address)
    eager = get(g, st.G_EAGER)
    if header.shared == wire.ABANDONED:
        known = header.total == 0 and header.chunk == 0 and load(address + 24) == 0
        known = known and 0 < header.transfer <= 0xFF
        return WELL if known and nbytes == wire.MESSAGE_HEADER else BAD_SLOT
    if is_whole(g, address, nbytes):
        return WELL
    if load(address + 8) == 0:
        if header.total < 0 or header.total > eager:
            return BAD_TOTAL
        return BAD_SLOT if nbytes == wire.MESSAGE_HEADER + header.total else BAD_LENGTH
    if header.total <= eager or header.total > wire.POSITION_MASK:
        return BAD_TOTAL
    if nbytes != wire.MESSAGE_HEADER:
        return BAD_LENGTH
    if header.chunk != _chunk_bytes_of(header.total, get(g, st.G_CHUNK)):
        return BAD_CHUNK
    if header.transfer * 2 + 1 > get(g, st.G_TAG_UB):
        return BAD_TRANSFER
    if header.shared == wire.NOT_SHARED:
        return WELL if load(address + 24) == 0 else BAD_WAY
    place = header.shared - get(g, st.G_REQUEST_SLOTS)
    if peer < 0 or place < 0 or place >= get(g, st.G_LARGE_SLOTS):
        return BAD_SLOT
    return _way_flaw(g, header, peer)


@jit
def _way_flaw(g, header, peer):
    """The same of memory that the receiver shares with the sender."""
    if peer_field(g, peer, st.P_STAGING) == 0 or header.seq & 1 == 0:
        return BAD_WAY
    if header.way == wire.P2P:
        return WELL
    if header.way != wire.P2P | wire.MAILED or get(g, st.G_MAILBOXES) == 0:
        return BAD_WAY
    return WELL if _fits_mailbox(header.total, 0, get(g, st.G_CHUNK)) else BAD_WAY


def chunk_count(header: Header) -> int:
    return -(-header.total // header.chunk)


def piece(header: Header, k: int) -> tuple[int, int]:
    """(position, length) of chunk ``k``."""
    position = k * header.chunk
    return position, min(header.chunk, header.total - position)
