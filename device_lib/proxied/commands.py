"""Copy commands: how waiting threads move the chunks of large messages.

A message above ``eager_bytes`` does not fit its staging, so its chunks must be packed, or
unpacked, while it is under way. The proxy never touches device memory; it writes a command into
the completion of the request and the threads that wait execute it:

    proxy    command (position, length, direction) in packet 2 + buffer of the completion
    waiter   claim it, copy, count it as finished, publish a CHUNK record
    proxy    the buffer is full (PACK: send it) or free (UNPACK: receive the next chunk)

The buffers are the slot's own or, in GPU staging, the sender's, of which the first one may still be
on its way to be filled (see ``opening_long``): packet 6 says. The completion of a receive is
written before its last commands have been executed, and says how many there are in all; the wait
is over when as many are finished.

MPI promises progress to every pending operation while a process waits for any one of them. So a
thread that waits for one request also executes commands of others; without it, two ranks that both
wait for their sends first would wait for ever. Those of requests that its own block has opened it
takes at once, those of other blocks when nobody has come for them for a while: the proxy then sets
the slot's bit of the *doorbell* word. Mostly somebody does, and a wait for 8 bytes is not kept
busy with half a megabyte of a stranger's.

Exactly once: a command is taken by a compare-and-swap on the claim word of its buffer, from the
value seen to (sequence number, number), where numbers grow within a request. The owner's sequence
number is read between the two: if it still is the command's, the claim seen was not newer, and the
request cannot end, nor its slot be used again, before somebody has executed this very command,
which would change the claim word and fail the swap.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives as gpu
from device_lib.platform.context import (
    claim_address,
    completion_address,
    ready_address,
    row_address,
    small_address,
)
from device_lib.platform.primitives import device
from device_lib.proxied import ring, slots
from gmpi.contract import wire


@device
def small_staging(ctx, slot):
    """The small staging buffer that every slot has."""
    return small_address(ctx, slot) + wire.STAGING_LEAD


@device
def position_of(command):
    return command & wire.POSITION_MASK


@device
def direction_of(command):
    return command >> wire.DIRECTION_SHIFT & 1


@device
def _number_of(command):
    """What a claim word says of a command: growing within a request, from 1."""
    return (position_of(command) // wire.POSITION_STEP << 1 | direction_of(command)) + 1


@device
def is_open_command(seen, expected, command):
    """Whether a claim word leaves a command of the request ``expected`` to be taken."""
    return seen >> 32 & wire.LOW_32 != expected or seen & wire.LOW_32 < _number_of(command)


@device
def _claim(ctx, address, seen, expected, command, buffers, ready):
    """Claims a command, whose claim word was ``seen`` and leaves it to be taken; one lane.

    Args:
        buffers, ready: packet 6: where the chunk buffers are, and what their ready word will be; 0:
            nobody is on the way to fill them.

    Returns:
        (1 if it is the caller's to execute, else 0; the claim word as far as it is known now).
    """
    claimed = expected << 32 | _number_of(command)
    waits = ready != 0 and position_of(command) == 0
    found = ready
    if waits:  # this read and the swap are under way together
        found = gpu.load_sys(ready_address(ctx, buffers))
    old = gpu.cas_gpu(address, seen, claimed)
    if old != seen:
        return 0, old
    # The threads that it waits for are packing, which waits for nobody.
    polls = 0
    while found & wire.LOW_32 != ready:
        polls += 1
        if polls & 63 == 0 and gpu.load_sys(ctx.mapped + wire.CONTROL_ABORT) != 0:
            return 0, claimed  # it is nobody's: no wait ends well without the bytes
        gpu.pause(20)
        found = gpu.load_sys(ready_address(ctx, buffers))
    return 1, claimed


# wide: words that have been read, in registers
@device
def claim_any(ctx, slot, expected, lane, lanes, mask, packet, low, word):
    """Claims one command among the completion packets that the lanes hold, for whoever comes first;
    all lanes of a warp.

    Args:
        expected: sequence number of the request whose completion it is.
        packet: which packet of the completion this lane has loaded as ``low``, ``word``.

    Returns:
        (index of the staging buffer or -1, command, length in bytes, where the chunk buffers are),
        the same in all lanes.
    """
    index = packet - wire.STATUS_PACKETS
    address = claim_address(ctx, slot, index)
    seen = 0
    open_command = False
    fresh = word >> 32 & wire.LOW_32 == expected
    if 0 <= index and index < wire.LARGE_BUFFERS and fresh:
        seen = gpu.load_gpu(address)
        open_command = is_open_command(seen, expected, low)
    votes = gpu.ballot(mask, open_command)
    if votes == 0:
        return -1, 0, 0, 0
    chosen = gpu.first_bit(votes)
    # Where the buffers are stays the same for the whole request; it was written before any command.
    buffers = low
    known_word = word
    if lanes < wire.LARGE_PACKETS:
        buffers, known_word = gpu.read_packet(
            completion_address(ctx, slot) + wire.BASE_PACKET * wire.PACKET_BYTES
        )
    else:
        buffers = gpu.shuffle(mask, low, wire.BASE_PACKET)
        known_word = gpu.shuffle(mask, word, wire.BASE_PACKET)
    known = known_word >> 32 & wire.LOW_32 == expected
    won = 0
    if lane == chosen and known and slots.open_seq(ctx, slot) == expected:
        ready = known_word & wire.LOW_32
        won, seen = _claim(ctx, address, seen, expected, low, buffers, ready)
    if gpu.shuffle(mask, won, chosen) == 0:
        return -1, 0, 0, 0
    length = gpu.shuffle(mask, word & wire.LOW_32, chosen)
    command = gpu.shuffle(mask, low, chosen)
    return gpu.shuffle(mask, index, chosen), command, length, buffers


@device
def last_owner(ctx, slot, packet):
    """Claim word of the buffer that a packet of the completion is about (any lane), for
    ``claim_own``; the read is under way when this returns."""
    index = packet - wire.STATUS_PACKETS
    if 0 <= index and index < wire.LARGE_BUFFERS:
        return gpu.load_gpu(claim_address(ctx, slot, index))
    return 0


# wide: as ``claim_any``
@device
def claim_own(ctx, slot, expected, seen, lane, mask, packet, low, word):
    """``claim_any`` by who waits for the request, with at least LARGE_PACKETS lanes.

    The request cannot end while its wait is under way, so whose slot it is need not be read again;
    and the claim word was read before the command came: one access to memory is left.

    Args:
        seen: what ``last_owner``, or this function the time before, returned in this lane.

    Returns:
        (index of the staging buffer or -1, command, length in bytes, where the chunk buffers are,
        and the lane's next ``seen``); all but the last the same in all lanes.
    """
    index = packet - wire.STATUS_PACKETS
    fresh = word >> 32 & wire.LOW_32 == expected
    open_command = False
    if 0 <= index and index < wire.LARGE_BUFFERS and fresh:
        open_command = is_open_command(seen, expected, low)
    votes = gpu.ballot(mask, open_command)
    if votes == 0 or gpu.ballot(mask, fresh and packet == wire.BASE_PACKET) == 0:
        return -1, 0, 0, 0, seen
    chosen = gpu.first_bit(votes)
    buffers = gpu.shuffle(mask, low, wire.BASE_PACKET)
    ready = gpu.shuffle(mask, word & wire.LOW_32, wire.BASE_PACKET)
    won = 0
    if lane == chosen:
        address = claim_address(ctx, slot, index)
        won, seen = _claim(ctx, address, seen, expected, low, buffers, ready)
    if gpu.shuffle(mask, won, chosen) == 0:
        return -1, 0, 0, 0, seen
    length = gpu.shuffle(mask, word & wire.LOW_32, chosen)
    command = gpu.shuffle(mask, low, chosen)
    return gpu.shuffle(mask, index, chosen), command, length, buffers, seen


@device
def first_owner(ctx, handle):
    """Claim word of the first buffer of a large request (any lane), for ``claim_first``; the read
    is under way when this returns."""
    return gpu.load_gpu(claim_address(ctx, slots.slot_of(handle), 0))


# wide: as ``claim_any``
@device
def claim_first(ctx, handle, seen, command, buffers, ready, wanted, chosen, mask):
    """Claims a command for the first buffer that lane ``chosen`` has seen, in which ``wanted`` is
    true; by who waits for the request, all lanes of a warp. 1 in all of them if won, else 0.

    Args:
        seen: what ``first_owner`` returned before the request had a command.
    """
    won = 0
    if wanted:
        expected = handle & wire.LOW_32
        address = claim_address(ctx, slots.slot_of(handle), 0)
        if position_of(command) != 0:  # not the first one there
            seen = gpu.load_gpu(address)
        if is_open_command(seen, expected, command):
            won, seen = _claim(ctx, address, seen, expected, command, buffers, ready)
    return gpu.shuffle(mask, won, chosen)


@device
def finished(ctx, slot):
    """How many UNPACK commands of the slot's request have been executed (one lane)."""
    return gpu.load_gpu(row_address(ctx, slot) + wire.REQUEST_FINISHED)


@device
def user_address(ctx, slot, command):
    """Where in the user's buffer the bytes of the command are."""
    field = wire.REQUEST_RECV
    if direction_of(command) == wire.PACK:
        field = wire.REQUEST_SEND
    return gpu.load_gpu(row_address(ctx, slot) + field) + position_of(command)


@device
def answer(ctx, lane, lanes, mask, slot, index, command):
    """Tells the proxy, and who waits, that a command has been executed; all lanes of a warp.

    An UNPACK command is counted between taking the record's ticket and writing the record. Before
    the ticket, who waits could end, and the slot's next request have a ticket before ours. After
    the record, a request that has failed could be over, and the count be the next one's.
    """
    handle = 0
    if lane == 0:
        handle = gpu.load_gpu(row_address(ctx, slot) + wire.REQUEST_OWNER) & ~slots.CLAIMED
    handle = gpu.shuffle(mask, handle, 0)
    _release(direction_of(command))
    ticket, consumed = ring.begin_enter(ctx, lane == 0)
    # Nobody counts what was packed.
    if lane == 0 and direction_of(command) != wire.PACK:
        # Tickets are below 2**62: adds 1, when the ticket is there.
        gpu.count_gpu(row_address(ctx, slot) + wire.REQUEST_FINISHED, 1 + (ticket >> 62))
    done = _done(position_of(command), direction_of(command), index)
    return ring.post_with(ctx, lane, lanes, mask, ticket, consumed, wire.OP_CHUNK, 0, handle, done)


# wide: what a record says
@device
def answer_last(ctx, lane, lanes, mask, ticket, consumed, handle, index, command):
    """The same for the last command of a receive, by who waits for it: nobody else is going to look
    at the user's buffer.

    Args:
        ticket, consumed: what ``ring.begin_enter`` has returned.
    """
    done = _done(position_of(command), direction_of(command), index)
    return ring.post_with(ctx, lane, lanes, mask, ticket, consumed, wire.OP_CHUNK, 0, handle, done)


@device
def _done(position, direction, index):
    """Which chunk, in a CHUNK record."""
    return position << wire.CHUNK_POSITION_SHIFT | direction << wire.CHUNK_DIRECTION_SHIFT | index


@device
def _release(direction):
    """Before what says that a chunk has been moved.

    PACK: the proxy sends the staging. UNPACK: whoever waits for the request, perhaps in another
    block, reads the user's buffer once the completion has come.
    """
    if direction == wire.PACK:
        gpu.fence_sys()
    else:
        gpu.fence_gpu()


@device
def report_chunk(ctx, lane, lanes, mask, handle, position, direction, index):
    """Publishes a CHUNK record, after a barrier of the threads that moved the chunk."""
    _release(direction)
    done = _done(position, direction, index)
    return ring.post(ctx, lane, lanes, mask, wire.OP_CHUNK, 0, handle, done)
