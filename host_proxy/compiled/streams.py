"""What follows the header of a long message: two streams, and how they end when a call fails.

Behind a header each of the two proxies sends the other as many messages as both know:

    sender    ──▶ chunks; where the receiver reads our buffers, notices, the header being the first
    receiver  ──▶ credits, one a buffer that has been read; where chunks are messages, one receipt,
                  when receives for all of them are posted

Each side sends its stream to the end and receives the other one to the end, *whatever happens*. So
no receive has to be cancelled, nothing is left in MPI for the next message, and the number of a
transfer is free when its send has completed.

**When something fails** on one side, its request is to end with an error, and the other rank must
be told, which waits for a chunk, a notice or a credit. In place of the next message of its stream,
it sends *last words*: the error class, and where the stream ends now; four times, or as often as
messages are left, because so many receives may be posted. Whoever hears them fails with the same
class, and ends its own stream in the same way. A request completes when both streams are at their
ends, no MPI request of it is pending and no command open: nobody touches its buffers any more, and
its slot may be used again.

* Both fail at once: both send last words, and both hear them.
* The other one is through: its stream has ended, ours too where it has had all that it waits for;
  only our request fails.
* A receive says that it has failed when its commands have been executed: until then the sender's
  buffers are read, and their ready word, or the packets of a message in a mailbox, is waited
  for.
* A receive whose completion has been written has all its bytes. What fails then is logged, and the
  credit sent again.
* A first message that cannot be sent is followed by a header that says so (``ABANDONED``), which
  the same receive matches. A receive that cannot be posted has matched nothing: the message waits
  for the next one.
* Calls that the other one waits for are made again once. Where MPI fails for these as well, nobody
  is told; what waits then ends as all waits do, by ``timeout_s`` or an abort.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract import wire
from gmpi.contract.constants import ERR_INTERN
from host_proxy.compiled import pending
from host_proxy.compiled.headers import BAD_LENGTH
from host_proxy.compiled.transfer import buffer_offset, chunks, length_of, sends
from host_proxy.platform import flight
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.platform.native import apart, bump, call, get, inlined, jit, load, put, store
from host_proxy.records.completion import close, complete
from host_proxy.records.fault_log import log_request

_SYNCHRONOUS = wire.SYNCHRONOUS >> wire.CALL_SHIFT  # and above
_TRIES = 2  # of a call that must not fail, because the other one waits for it
_CLASS_MASK = 0xFF
_END_SHIFT = 8


@jit
def other(row):
    """The other rank of a transfer."""
    return get(row, st.S_PEER) if sends(row) else get(row, st.S_SOURCE)


@jit
def _tag(row, ours):
    """The tag of our stream, or of the other one's."""
    return get(row, st.S_TRANSFER) * 2 + (sends(row) != ours)


@jit
def _has_chunks(row):
    """Whether the chunks of the transfer are messages."""
    return get(row, st.S_SHARED) == wire.NOT_SHARED


@jit
def _note(g, row, index):
    """Where a message of the other one's stream goes, if it is no chunk."""
    return (
        get(g, st.G_NOTES)
        + get(row, st.S_SLOT) * st.NOTE_BYTES
        + index % wire.LARGE_BUFFERS * wire.LAST_WORD
    )


@jit
def _out(g, row):
    """Where messages of ours are that are no chunks: behind those of the other one."""
    return (
        get(g, st.G_NOTES)
        + get(row, st.S_SLOT) * st.NOTE_BYTES
        + wire.LARGE_BUFFERS * wire.LAST_WORD
    )


@jit
def _chunk_place(g, row, index):
    """Where a chunk that is a message goes, or comes from."""
    return get(g, st.G_LARGE) + buffer_offset(g, get(row, st.S_SLOT), index)


@apart
def _log(g, row, code):
    log_request(g, row, ops.MPI_CALL, pending.error_class(g, code), code, code, 0)


# --- our stream -----------------------------------------------------------------------------------


@jit
def _utter(g, row, address, nbytes):
    """Sends the next message of our stream, which is no chunk and which nobody waits for: MPI's
    error code."""
    peer = other(row)
    tag = _tag(row, True)
    byte = get(g, st.G_BYTE)
    comm = chunks(g, row)
    request = pending.next_handle(g)
    flight.called(g, row, st.F_ISEND, peer, tag, nbytes)
    code = call(get(g, st.F_ISEND), (address, nbytes, byte, peer, tag, comm, request))
    flight.returned(g, code)
    if code == 0:
        bump(row, st.S_SENT, 1)
        code = pending.forget(g)
    return code


@jit
def say(g, row):
    """Sends the next message of our stream, an empty one: whether the request goes on."""
    sent = get(row, st.S_SENT)
    code = _utter(g, row, _out(g, row), 0)
    if code != 0 and get(row, st.S_TOLD):
        _log(g, row, code)
        if get(row, st.S_SENT) == sent:
            _utter(g, row, _out(g, row), 0)
        code = 0
    if code != 0:
        fail(g, row, code)
        return False
    return True


@jit
def send_chunk(g, row):
    """Sends the next message of our stream, a chunk: whether the request goes on."""
    chunk = get(row, st.S_SENT)
    data = _chunk_place(g, row, chunk)
    length = length_of(row, chunk)
    tag = _tag(row, True)
    code = pending.send(g, row, data, length, other(row), tag, chunks(g, row), st.SEND_CHUNK, chunk)
    if code != 0:
        fail(g, row, code)
        return False
    put(row, st.S_SENT, chunk + 1)
    return True


@apart
def _say_last_words(g, row):
    """Ends our stream before its time."""
    first = get(row, st.S_SENT)
    end = min(first + wire.LAST_WORDS, get(row, st.S_OURS))
    words = _out(g, row)
    store(words, (get(row, st.S_FAILED) & _CLASS_MASK) | end << _END_SHIFT)
    put(row, st.S_OURS, end)
    for index in range(first, end):
        nbytes = wire.LAST_WORD
        if sends(row) and _has_chunks(row) and length_of(row, index) == wire.LAST_WORD:
            nbytes = 2 * wire.LAST_WORD
        for _ in range(_TRIES):
            if get(row, st.S_SENT) == index:
                code = _utter(g, row, words, nbytes)
                if code != 0:
                    _log(g, row, code)
        if get(row, st.S_SENT) == index:  # nobody is told
            put(row, st.S_OURS, index)
            return


# --- the other one's ------------------------------------------------------------------------------


@jit
def _post(g, row):
    """Posts the receive for the next message of the other one's stream: MPI's error code."""
    index = get(row, st.S_POSTED)
    place = _note(g, row, index)
    nbytes = wire.LAST_WORD
    kind = st.CREDIT if sends(row) else st.RECEIVE_CHUNK
    if _has_chunks(row) and not sends(row):
        place = _chunk_place(g, row, index)
        nbytes = get(row, st.S_CHUNK)
    comm = chunks(g, row)
    code = pending.receive(g, row, place, nbytes, other(row), _tag(row, False), comm, kind, index)
    if code == 0:
        put(row, st.S_POSTED, index + 1)
    return code


@jit
def expect(g, row):
    """Posts the receive for the next message of the other one's stream: whether the request goes
    on."""
    code = _post(g, row)
    if code != 0:
        fail(g, row, code)
        return False
    return True


@apart
def hear(g, row, index, nbytes):
    """Looks whether a message of the other one's stream, of ``nbytes``, is its next one: False if
    it says that the other one has failed, and then that is dealt with."""
    place = _note(g, row, index)
    expected = 0
    if _has_chunks(row) and not sends(row):
        place = _chunk_place(g, row, index)
        expected = length_of(row, index)
    if nbytes == expected:
        return True
    end = 0
    if nbytes == wire.LAST_WORD or nbytes == 2 * wire.LAST_WORD:
        end = load(place) >> _END_SHIFT
    error = load(place) & _CLASS_MASK
    if error != 0 and end > index and end <= get(row, st.S_THEIRS):
        put(row, st.S_THEIRS, end)
        fail_with(g, row, ops.PEER, error, 0, other(row))
    else:
        fail_with(g, row, ops.MESSAGE, ERR_INTERN, 0, BAD_LENGTH)
    return False


# --- the end --------------------------------------------------------------------------------------


@apart
def fail(g, row, code):
    """MPI has returned ``code`` for something of the slot's request."""
    fail_with(g, row, ops.MPI_CALL, pending.error_class(g, code), code, code)


@apart
def fail_with(g, row, field, error, code, value):
    """The slot's request is to end with an error; the first one counts."""
    note_failure(g, row, field, error, code, value)
    settle(g, row)


@apart
def note_failure(g, row, field, error, code, value):
    if get(row, st.S_FAILED) == 0:
        put(row, st.S_FAILED, error)
        log_request(g, row, field, error, code, value, 0)


@jit
def _wind_down(g, row):
    """Takes both streams of a failed request towards their ends: whether they are there."""
    if get(row, st.S_SENT) < get(row, st.S_OURS) and (sends(row) or get(row, st.S_COMMANDS) == 0):
        _say_last_words(g, row)
    while get(row, st.S_POSTED) < get(row, st.S_THEIRS):
        if get(row, st.S_POSTED) - get(row, st.S_ARRIVED) >= st.RECEIVES_AHEAD:
            break
        posted = get(row, st.S_POSTED)
        for _ in range(_TRIES):
            if get(row, st.S_POSTED) == posted:
                code = _post(g, row)
                if code != 0:
                    _log(g, row, code)
        if get(row, st.S_POSTED) == posted:
            put(row, st.S_THEIRS, posted)
    return get(row, st.S_SENT) == get(row, st.S_OURS) and get(row, st.S_ARRIVED) >= get(
        row, st.S_THEIRS
    )


@jit
def settle(g, row):
    """Ends a failed request once the other rank, MPI and the kernel have let go of it."""
    if get(row, st.S_CHUNK) != 0 and not _wind_down(g, row):
        return
    if get(row, st.S_PENDING) == 0 and get(row, st.S_COMMANDS) == 0:
        if get(row, st.S_TOLD):
            close(g, row)
        else:
            complete(
                g, row, 0, get(row, st.S_FAILED), get(row, st.S_SOURCE), get(row, st.S_SOURCE_TAG)
            )


# --- first messages -------------------------------------------------------------------------------


@jit
def send_first(g, row, header, nbytes, tag, comm):
    """Sends a message, or the header of a long one: whether it could."""
    dest = get(row, st.S_PEER)
    code = pending.send(g, row, header, nbytes, dest, tag, comm, st.SEND, 0)
    if code != 0:
        _abandon(g, row, header, tag, comm, code)
    return code == 0


@inlined
def send_short(g, row, header, nbytes, tag, comm):
    """``send_first`` of what MPI mostly takes at once: whether it has, and nothing is pending."""
    dest = get(row, st.S_PEER)
    byte = get(g, st.G_BYTE)
    code = ERR_INTERN
    if not pending.is_full(g):
        function = st.F_ISSEND if get(row, st.S_CALL) >= _SYNCHRONOUS else st.F_ISEND
        flight.called(g, row, function, dest, tag, nbytes)
        request = pending.next_handle(g)
        code = call(get(g, function), (header, nbytes, byte, dest, tag, comm, request))
        flight.returned(g, code)
    if code != 0:
        _abandon(g, row, header, tag, comm, code)
        return False
    taken, code = pending.test(g)
    if code != 0:
        fail(g, row, code)
        return False
    if not taken:
        pending.add(g, row, st.SEND, 0)
    return taken


@apart
def _abandon(g, row, header, tag, comm, code):
    """A first message could not be sent: tells the receive that would have matched it."""
    put(row, st.S_CHUNK, 0)  # nothing follows it
    error = pending.error_class(g, code)
    store(header, 0)
    store(header + 8, error << 32)
    store(header + 16, wire.ABANDONED)
    store(header + 24, 0)
    pending.send(g, row, header, wire.MESSAGE_HEADER, get(row, st.S_PEER), tag, comm, st.SEND, 0)
    fail(g, row, code)


@inlined
def receive_first(g, row, header, nbytes, tag, comm):
    """Posts the receive for a message, or the header of a long one."""
    code = pending.receive(g, row, header, nbytes, get(row, st.S_PEER), tag, comm, st.RECEIVE, 0)
    if code != 0:
        fail(g, row, code)
