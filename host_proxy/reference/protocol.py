"""The protocol between proxies in plain mpi4py (see ``point_to_point.py`` for what it is).

Each operation is a generator that says what it waits for: it yields an MPI request (or what can be
tested like one), and is resumed with that request's status, or yields a key, and is resumed when
the kernel has executed the order of that name. Whoever runs it (the mpi4py engine for kernels,
``gmpi.host`` for the host) decides how to wait, and throws a ``RequestFailure`` where that fails.
What ends a message with an error is an ``MPI.Exception`` or a ``Failure``.

A *port* is where the bytes are: a kernel's buffer behind the staging of its request, or a host
array. It has

    message(nbytes)                memory for a header and a short payload; filled in when the
                                   port sends
    deliver(nbytes)                a short payload has come into that memory
    shared(comm, dest)             (the large slot whose buffers ``dest`` can read, or NOT_SHARED;
                                   way and sequence number of the header)
    pack(k, position, length)      generator: memory that holds chunk k
    use_buffers_of(peer, header)   generator: the chunks are in another rank's buffers, or have
                                   come to a mailbox
    free(k)                        memory to receive chunk k into
    unpack(k, position, length)    generator: moves a chunk that has come to the user
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.contract import wire
from gmpi.contract.constants import ANY_SOURCE, ANY_TAG, ERR_INTERN, ERR_TRUNCATE, SUCCESS
from gmpi.contract.rules import chunk_bytes_of
from host_proxy.compiled import headers
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.state import C_BROKEN, RECEIVES_AHEAD
from host_proxy.reference.failure import (
    BrokenCommunicator,
    Failure,
    PeerFailure,
    RequestFailure,
    error_class,
)

Step = Generator[Any, Any, Any]
_WORDS = struct.Struct("<q")
_NOTHING = np.empty(0, np.uint8)


class Outcome(NamedTuple):
    """How a request ended."""

    nbytes: int
    error: int = SUCCESS
    source: int = ANY_SOURCE
    tag: int = ANY_TAG
    total: int = 0  # length of the message that came
    flaw: int = headers.WELL  # what is wrong with it (headers.py)


def chunks_of(nbytes: int, chunk: int) -> list[tuple[int, int]]:
    """(position, length) of each chunk of a long message."""
    return [(at, min(chunk, nbytes - at)) for at in range(0, nbytes, chunk)]


class Streams:
    """What follows a header, on one side: ``streams.py`` says how both streams end.

    Attributes:
        sent, ours: our messages that are sent, and how many there are.
        posted, arrived, theirs: the receives posted for the other one's, how many have come, in
            their order, and how many there are.
        under_way: the header and the chunks that we have sent.
    """

    def __init__(self, comm: Communicator, other: int, header: headers.Header, sends: bool) -> None:
        self.comm = comm.chunks
        self.other = other
        self.header = header
        self.sends = sends
        self.shared = header.shared != wire.NOT_SHARED  # chunks are not messages
        self.tags = 2 * header.transfer + (not sends), 2 * header.transfer + sends  # ours, theirs
        self.count = headers.chunk_count(header)
        back = self.count if self.shared else 1
        self.ours, self.theirs = (self.count, back) if sends else (back, self.count)
        self.sent = self.arrived = 0
        self.posted: list[tuple[MPI.Request, np.ndarray]] = []
        self.under_way: list[MPI.Request] = []
        if self.shared and not sends:  # the header says that the first chunk is there
            self.posted.append((MPI.REQUEST_NULL, np.zeros(0, np.uint8)))
            self.arrived = 1

    def send(self, memory: np.ndarray) -> None:
        """Sends the next message of our stream, a chunk."""
        self.under_way.append(self.comm.Isend([memory, MPI.BYTE], self.other, self.tags[0]))
        self.sent += 1

    def say(self, content: bytes = b"") -> None:
        """Sends the next message of our stream, which is no chunk and which nobody waits for."""
        message = np.frombuffer(content, np.uint8) if content else _NOTHING
        request = self.comm.Isend([message, len(content), MPI.BYTE], self.other, self.tags[0])
        self.sent += 1
        if content:
            self.under_way.append(request)
        else:
            request.Free()

    def expect(self, memory: np.ndarray | None = None) -> None:
        """Posts the receive for the next message of the other one's stream, by default no chunk."""
        if memory is None:
            memory = np.zeros(wire.LAST_WORD, np.uint8)
        request = self.comm.Irecv([memory, MPI.BYTE], self.other, self.tags[1])
        self.posted.append((request, memory))

    def take(self) -> Step:
        """Waits for the next message of the other one's stream."""
        index = self.arrived
        request, memory = self.posted[index]
        self.arrived += 1
        status = yield request
        length = status.Get_count(MPI.BYTE)
        if length == (0 if self.shared or self.sends else headers.piece(self.header, index)[1]):
            return
        words = 0
        if length in (wire.LAST_WORD, 2 * wire.LAST_WORD):
            (words,) = _WORDS.unpack_from(memory.data, 0)
        error, end = words & 0xFF, words >> 8
        if error == 0 or not index < end <= self.theirs:
            raise Failure(ERR_INTERN)  # no words of a proxy
        self.theirs = end
        raise PeerFailure(error, self.other)

    def wind_down(self, error: int, room: Callable[[int], np.ndarray]) -> Step:
        """Takes both streams to their ends, because our part of the message has failed.

        ``room`` gives memory for a chunk that nobody wants.
        """
        first, end = self.sent, min(self.sent + wire.LAST_WORDS, self.ours)
        words = _WORDS.pack(error & 0xFF | end << 8)
        for index in range(first, end):
            length = headers.piece(self.header, index)[1]
            as_long = self.sends and not self.shared and length == wire.LAST_WORD
            _try(lambda: self.say(words + words if as_long else words))  # noqa: B023
        while self.arrived < self.theirs:
            if len(self.posted) == self.arrived:
                chunks = not (self.shared or self.sends)
                memory = room(self.arrived)[: self.header.chunk] if chunks else None
                if not _try(lambda: self.expect(memory)):  # noqa: B023
                    break
            with suppress(Failure):
                yield from self.take()
        for request in self.under_way:
            with suppress(Failure):
                yield request


def collective(row: np.ndarray, steps: Step) -> Step:
    """The steps of a collective, unless one has failed on its communicator before.

    Args:
        row: of the table of communicators (``collectives.collective_failed`` says why).
    """
    if row[C_BROKEN]:
        raise BrokenCommunicator
    try:
        return (yield from steps)
    except (MPI.Exception, RequestFailure):
        row[C_BROKEN] = 1
        raise


def _try(call: Callable[[], None]) -> bool:
    """Makes a call of MPI, and once again if it fails: whether it could."""
    for _ in range(2):
        with suppress(MPI.Exception):
            call()
            return True
    return False


def _send_first(
    comm: Communicator, message: np.ndarray, dest: int, tag: int, synchronous: bool
) -> Step:
    """Sends a message, or the header of a long one: its request.

    One that cannot be sent is followed by a header that says so.
    """
    duplicate = comm.messages_of(tag)
    try:
        start = duplicate.Issend if synchronous else duplicate.Isend
        return start([message, MPI.BYTE], dest, tag)
    except MPI.Exception as exc:
        header = message[: wire.MESSAGE_HEADER]
        headers.write_header(
            header, headers.Header(0, 0, exc.Get_error_class(), wire.ABANDONED, 0, 0)
        )
        with suppress(MPI.Exception, Failure):
            yield duplicate.Isend([header, MPI.BYTE], dest, tag)
        raise


def send_message(
    port, comm: Communicator, dest: int, tag: int, nbytes: int, sizes: tuple[int, int],
    number: int, synchronous: bool = False,
) -> Step:  # fmt: skip
    """Sends ``nbytes`` of the port. ``sizes`` is (eager, chunk) of the context, ``number`` the
    transfer number, unique among this rank's messages that are under way.
    ``synchronous``: done when it is received; one that is long is in any case."""
    eager, largest = sizes
    if nbytes <= eager:
        message = port.message(nbytes)
        headers.write_header(message, headers.Header(nbytes, 0, 0, wire.NOT_SHARED, 0, 0))
        yield (yield from _send_first(comm, message, dest, tag, synchronous))
        return Outcome(nbytes)
    shared, way, seq = port.shared(comm, dest)
    message = port.message(0)
    header = headers.Header(nbytes, chunk_bytes_of(nbytes, largest), number, shared, way, seq)
    headers.write_header(message, header)
    streams = Streams(comm, dest, header, sends=True)
    # Before anything is waited for: a message sent after this one must not overtake it.
    streams.under_way.append((yield from _send_first(comm, message, dest, tag, synchronous)))
    try:
        yield from _send_chunks(port, streams)
    except (MPI.Exception, Failure) as exc:
        yield from streams.wind_down(error_class(exc), port.free)
        raise
    return Outcome(nbytes)


def _send_chunks(port, streams: Streams) -> Step:
    if streams.shared:
        streams.sent = 1  # the header says that the first chunk is there
    streams.expect()  # its credit, or the receipt
    for k in range(streams.count):
        if k >= wire.LARGE_BUFFERS:
            if streams.shared:
                yield from streams.take()
            else:
                yield streams.under_way[1 + k - wire.LARGE_BUFFERS]
        memory = yield from port.pack(k, *headers.piece(streams.header, k))
        if not streams.shared:
            streams.send(memory)
        elif k > 0:
            streams.say()
            streams.expect()
    for request in [streams.under_way[0], *streams.under_way[-wire.LARGE_BUFFERS :]]:  # noqa: UP028
        yield request  # (a list has no send())
    while streams.arrived < streams.theirs:
        yield from streams.take()


def receive_message(
    g: int, port, comm: Communicator, source: int, tag: int, room: int, eager: int
) -> Step:  # fmt: skip
    """Receives one message of any length; the bytes beyond ``room`` are received and dropped.

    Args:
        g: address of the state's globals.
        eager: longest message that comes with its header.
    """
    message = port.message(eager)
    headers.write_header(message, headers.Header(0, 0, 0, wire.NO_HEADER, 0, 0))
    request = comm.messages_of(tag).receive(message, source, tag)
    return (yield from receive_rest(g, port, comm, message, request, room))


def receive_rest(
    g: int, port, comm: Communicator, message: np.ndarray, request: Any, room: int
) -> Step:
    """``receive_message`` from where its first message, or header, is asked for.

    Args:
        message: where that comes to.
        request: of that.
    """
    failure: RequestFailure | None = None
    try:
        status = yield request
    except RequestFailure as exc:
        failure, status = exc, exc.status
    source, tag = status.Get_source(), status.Get_tag()
    if failure and not 0 <= source < comm.size:
        raise failure
    nbytes = status.Get_count(MPI.BYTE)
    flaw = headers.header_flaw(g, message.ctypes.data, nbytes, int(comm.peers[source]))
    header = headers.header_in(message)
    if failure and (flaw or header.chunk == 0):
        raise failure  # its sender, if it waits for us, cannot be told
    if flaw:
        return Outcome(0, ERR_INTERN, source, tag, flaw=flaw)
    if header.shared == wire.ABANDONED:
        raise PeerFailure(header.transfer, source)
    if header.chunk:
        return (yield from receive_chunks(port, comm, source, tag, header, room, failure))
    port.deliver(min(header.total, room))
    return _received(header, source, tag, room)


def receive_chunks(
    port, comm: Communicator, source: int, tag: int, header: headers.Header, room: int,
    failure: Failure | None = None,
) -> Step:  # fmt: skip
    """Receives what follows the header of a long message; after a failure, to tell its sender."""
    streams = Streams(comm, source, header, sends=False)
    try:
        if failure:
            raise failure
        if streams.shared:
            yield from port.use_buffers_of(int(comm.peers[source]), header)
        yield from _take_chunks(port, streams, room)
    except (MPI.Exception, Failure) as exc:
        yield from streams.wind_down(error_class(exc), port.free)
        raise
    return _received(header, source, tag, room)


def _take_chunks(port, streams: Streams, room: int) -> Step:
    header, count = streams.header, streams.count
    for k in range(count):
        while len(streams.posted) < min(count, k + RECEIVES_AHEAD):
            place = None if streams.shared else port.free(len(streams.posted))[: header.chunk]
            streams.expect(place)
            if not streams.shared and len(streams.posted) == count:
                streams.say()  # the receipt
        if streams.arrived == k:
            yield from streams.take()
        position, length = headers.piece(header, k)
        yield from port.unpack(k, position, min(length, room - position))
        if streams.shared:
            streams.say()


def _received(header: headers.Header, source: int, tag: int, room: int) -> Outcome:
    error = ERR_TRUNCATE if header.total > room else SUCCESS
    return Outcome(min(header.total, room), error, source, tag, header.total)
