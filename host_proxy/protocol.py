"""The protocol between proxies in plain mpi4py (see ``point_to_point.py`` for what it is).

Each operation is a generator that says what it waits for: it yields an MPI request (or what can be
tested like one), and is resumed with that request's status, or yields a key, and is resumed when
the kernel has carried out the order of that name. Whoever runs it (the mpi4py engine for kernels,
``gmpi.host`` for the host) decides how to wait.

A *port* is where the bytes are: a kernel's buffer behind the staging of its request, or a host
array. It has

    message(nbytes)                memory for a header and a short payload; filled in when the
                                   port sends
    deliver(nbytes)                a short payload has come into that memory
    shared(comm, dest)             (the large slot whose buffers ``dest`` can read, or NOT_SHARED;
                                   way and mark of the header)
    pack(k, position, length)      generator: memory that holds chunk k
    use_buffers_of(peer, header)   generator: the chunks are in another rank's buffers, or have
                                   landed
    free(k)                        memory to receive chunk k into
    unpack(k, position, length)    generator: moves a chunk that has come to the user
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.constants import ANY_SOURCE, ANY_TAG, ERR_INTERN, ERR_TRUNCATE, SUCCESS
from gmpi.wire import LARGE_BUFFERS, NOT_SHARED, chunk_bytes_of
from host_proxy.communicator import Communicator
from host_proxy.headers import (
    WELL,
    Header,
    chunk_count,
    header_flaw,
    header_in,
    piece,
    write_header,
)
from host_proxy.state import RECEIVES_AHEAD

Step = Generator[Any, Any, Any]
_NOTHING = [np.empty(0, np.uint8), 0, MPI.BYTE]


class Outcome(NamedTuple):
    """How a request ended."""

    nbytes: int
    error: int = SUCCESS
    source: int = ANY_SOURCE
    tag: int = ANY_TAG
    total: int = 0  # length of the message that came
    flaw: int = WELL  # what is wrong with it (headers.py)


def chunks_of(nbytes: int, chunk: int) -> list[tuple[int, int]]:
    """(position, length) of each chunk of a long message."""
    return [(at, min(chunk, nbytes - at)) for at in range(0, nbytes, chunk)]


def send_message(
    port, comm: Communicator, dest: int, tag: int, nbytes: int, sizes: tuple[int, int], number: int
) -> Step:
    """Sends ``nbytes`` of the port. ``sizes`` is (eager, chunk) of the context, ``number`` the
    transfer number, unique among this rank's messages that are under way."""
    eager, largest = sizes
    if nbytes <= eager:
        message = port.message(nbytes)
        write_header(message, Header(nbytes, 0, 0, NOT_SHARED, 0, 0))
        yield comm.messages_of(tag).Isend([message, MPI.BYTE], dest, tag)
        return Outcome(nbytes)
    chunk = chunk_bytes_of(nbytes, largest)
    shared, way, mark = port.shared(comm, dest)
    message = port.message(0)
    write_header(message, Header(nbytes, chunk, number, shared, way, mark))
    header = None
    freed: list[MPI.Request] = []  # completes when chunk k's buffer is free again
    for k, (position, length) in enumerate(chunks_of(nbytes, chunk)):
        if k >= LARGE_BUFFERS:
            yield freed[k - LARGE_BUFFERS]
        memory = yield from port.pack(k, position, length)
        if header is None:  # it says that the first chunk is there
            header = comm.messages_of(tag).Isend([message, MPI.BYTE], dest, tag)
        if shared == NOT_SHARED:
            freed.append(comm.chunks.Isend([memory, MPI.BYTE], dest, 2 * number))
        else:
            freed.append(comm.chunks.Irecv(_NOTHING, dest, 2 * number + 1))
            if k > 0:
                comm.chunks.Isend(_NOTHING, dest, 2 * number).Free()
    for request in [header, *freed[-LARGE_BUFFERS:]]:  # noqa: UP028 (a list has no send())
        yield request
    return Outcome(nbytes)


def receive_message(
    g: int, port, comm: Communicator, source: int, tag: int, room: int, eager: int
) -> Step:  # fmt: skip
    """Receives one message of any length; the bytes beyond ``room`` are received and dropped.

    Args:
        g: address of the state's globals.
        eager: longest message that comes with its header.
    """
    message = port.message(eager)
    status = yield comm.messages_of(tag).Irecv([message, MPI.BYTE], source, tag)
    source, tag = status.Get_source(), status.Get_tag()
    nbytes = status.Get_count(MPI.BYTE)
    flaw = header_flaw(g, message.ctypes.data, nbytes, int(comm.peers[source]))
    if flaw:
        return Outcome(0, ERR_INTERN, source, tag, flaw=flaw)
    header = header_in(message)
    if header.chunk:
        return (yield from receive_chunks(port, comm, source, tag, header, room))
    port.deliver(min(header.total, room))
    return _received(header, source, tag, room)


def receive_chunks(
    port, comm: Communicator, source: int, tag: int, header: Header, room: int
) -> Step:  # fmt: skip
    """Receives what follows the header of a long message."""
    shared = header.shared != NOT_SHARED
    count = chunk_count(header)
    tags = 2 * header.transfer, 2 * header.transfer + 1
    posted: list[MPI.Request] = []
    if shared:
        yield from port.use_buffers_of(int(comm.peers[source]), header)
        posted.append(MPI.REQUEST_NULL)  # the first one is there
    for k in range(count):
        while len(posted) < min(count, k + RECEIVES_AHEAD):
            place = _NOTHING if shared else [port.free(len(posted))[: header.chunk], MPI.BYTE]
            posted.append(comm.chunks.Irecv(place, source, tags[0]))
        status = yield posted[k]
        position, length = piece(header, k)
        if status.Get_count(MPI.BYTE) != (0 if shared else length):
            raise MPI.Exception(MPI.ERR_INTERN)  # it ends as after an error of MPI
        yield from port.unpack(k, position, min(length, room - position))
        if shared:
            comm.chunks.Isend(_NOTHING, source, tags[1]).Free()
    return _received(header, source, tag, room)


def _received(header: Header, source: int, tag: int, room: int) -> Outcome:
    error = ERR_TRUNCATE if header.total > room else SUCCESS
    return Outcome(min(header.total, room), error, source, tag, header.total)
