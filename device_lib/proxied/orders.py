"""Orders: how waiting threads move the chunks of large messages.

A message above ``eager_bytes`` does not fit its staging, so its chunks must be packed, or
unpacked, while it is under way. The proxy never touches device memory; it writes an order into
the completion of the request and the threads that wait carry it out:

    proxy    order (position, length, direction) in unit 2 + buffer of the completion
    waiter   claim it, copy, count it as finished, publish a CHUNK record
    proxy    the buffer is full (PACK: send it) or free (UNPACK: receive the next chunk)

The buffers are the slot's own or, in GPU staging, the sender's, of which the first one may still be
on its way to be filled (see ``opening_long``): unit 6 says. The completion of a receive is written
before its last orders have been carried out, and says how many there are in all; the wait is over
when as many are finished.

MPI promises progress to every pending operation while a process waits for any one of them. So a
thread that waits for one request also carries out orders of others; without it, two ranks that both
wait for their sends first would wait for ever. Those of requests that its own block has opened it
takes at once, those of other blocks when nobody has come for them for a while: the proxy then sets
the slot's bit of the *attention* word. Mostly somebody does, and a wait for 8 bytes is not kept
busy with half a megabyte of a stranger's.

Exactly once: an order is taken by a compare-and-swap on the claim word of its buffer, from the
value seen to (tag, number), where numbers grow within a request. The owner's tag is read between
the two: if it still is the order's, the claim seen was not newer, and the request cannot end, nor
its slot be used again, before this very order has been carried out by somebody, which would
change the claim word and fail the swap.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform.context import (
    claim_address,
    completion_address,
    ready_address,
    row_address,
    small_address,
)
from device_lib.platform.primitives import (
    add_gpu,
    ballot,
    cas_gpu,
    device,
    fence_gpu,
    fence_sys,
    first_bit,
    load_gpu,
    load_sys,
    load_unit,
    pause,
    shuffle,
)
from device_lib.proxied import ring, slots
from gmpi.contract.wire import (
    BASE_UNIT,
    CHUNK_DIRECTION_SHIFT,
    CHUNK_POSITION_SHIFT,
    CONTROL_ABORT,
    DIRECTION_SHIFT,
    LARGE_BUFFERS,
    LARGE_UNITS,
    OP_CHUNK,
    PACK,
    POSITION_MASK,
    POSITION_STEP,
    REQUEST_FINISHED,
    REQUEST_OWNER,
    REQUEST_RECV,
    REQUEST_SEND,
    STAGING_LEAD,
    STATUS_UNITS,
    TAG_MASK,
    UNIT_BYTES,
)


@device
def small_staging(ctx, slot):
    """The small staging buffer that every slot has."""
    return small_address(ctx, slot) + STAGING_LEAD


@device
def position_of(order):
    return order & POSITION_MASK


@device
def direction_of(order):
    return order >> DIRECTION_SHIFT & 1


@device
def _number_of(order):
    """What a claim word says of an order: growing within a request, from 1."""
    return (position_of(order) // POSITION_STEP << 1 | direction_of(order)) + 1


@device
def _is_open(seen, expected, number):
    """Whether a claim word leaves the order ``number`` of the request ``expected`` to be taken."""
    return seen >> 32 & TAG_MASK != expected or seen & TAG_MASK < number


@device
def is_open_order(seen, expected, order):
    """Whether a claim word leaves an order of the request ``expected`` to be taken."""
    return _is_open(seen, expected, _number_of(order))


@device
def _first_look(ctx, order, buffers, ready):
    """What the ready word of the buffers is now (one lane); the read is under way."""
    if ready != 0 and position_of(order) == 0:
        return load_sys(ready_address(ctx, buffers))
    return ready


@device
def _await_ready(ctx, buffers, ready, seen):
    """Returns once the buffers' ready word, which was ``seen``, is ``ready`` (one lane): 1.

    The threads that it waits for are packing, which waits for nobody. 0 when waits are aborted: the
    order is nobody's then, so that no wait ends well without the bytes.
    """
    polls = 0
    while seen & TAG_MASK != ready:
        polls += 1
        if polls & 63 == 0 and load_sys(ctx.mapped + CONTROL_ABORT) != 0:
            return 0
        pause(20)
        seen = load_sys(ready_address(ctx, buffers))
    return 1


# wide: words that have been read, in registers
@device
def take(ctx, slot, expected, lane, lanes, mask, unit, low, word):
    """Claims one order among the completion units that the lanes hold; all lanes of a warp.

    Args:
        expected: tag of the request whose completion it is.
        unit: which unit of the completion this lane has loaded as ``low``, ``word``.

    Returns:
        (index of the staging buffer or -1, order, length in bytes, where the chunk buffers are),
        the same in all lanes.
    """
    index = unit - STATUS_UNITS
    number = _number_of(low)
    address = claim_address(ctx, slot, index)
    seen = 0
    open_order = False
    fresh = word >> 32 & TAG_MASK == expected
    if 0 <= index and index < LARGE_BUFFERS and fresh:
        seen = load_gpu(address)
        open_order = _is_open(seen, expected, number)
    votes = ballot(mask, open_order)
    if votes == 0:
        return -1, 0, 0, 0
    chosen = first_bit(votes)
    # Where the buffers are stays the same for the whole request; it was written before any order.
    buffers = low
    known_word = word
    if lanes < LARGE_UNITS:
        buffers, known_word = load_unit(completion_address(ctx, slot) + BASE_UNIT * UNIT_BYTES)
    else:
        buffers = shuffle(mask, low, BASE_UNIT)
        known_word = shuffle(mask, word, BASE_UNIT)
    known = known_word >> 32 & TAG_MASK == expected
    won = 0
    if lane == chosen and known and slots.open_tag(ctx, slot) == expected:
        if cas_gpu(address, seen, expected << 32 | number) == seen:
            ready = known_word & TAG_MASK
            won = _await_ready(ctx, buffers, ready, _first_look(ctx, low, buffers, ready))
    if shuffle(mask, won, chosen) == 0:
        return -1, 0, 0, 0
    length = shuffle(mask, word & TAG_MASK, chosen)
    order = shuffle(mask, low, chosen)
    return shuffle(mask, index, chosen), order, length, buffers


@device
def last_claim(ctx, slot, unit):
    """Claim word of the buffer that a unit of the completion is about (any lane), for ``take_own``;
    the read is under way when this returns."""
    index = unit - STATUS_UNITS
    if 0 <= index and index < LARGE_BUFFERS:
        return load_gpu(claim_address(ctx, slot, index))
    return 0


# wide: as ``take``
@device
def take_own(ctx, slot, expected, seen, lane, mask, unit, low, word):
    """``take`` by who waits for the request, with at least LARGE_UNITS lanes.

    The request cannot end while its wait is under way, so its tag needs no look; and the claim word
    was read before the order came: one access to memory is left.

    Args:
        seen: what ``last_claim``, or this function the time before, returned in this lane.

    Returns:
        (index of the staging buffer or -1, order, length in bytes, where the chunk buffers are, and
        the lane's next ``seen``); all but the last the same in all lanes.
    """
    index = unit - STATUS_UNITS
    number = _number_of(low)
    fresh = word >> 32 & TAG_MASK == expected
    open_order = False
    if 0 <= index and index < LARGE_BUFFERS and fresh:
        open_order = _is_open(seen, expected, number)
    votes = ballot(mask, open_order)
    if votes == 0 or ballot(mask, fresh and unit == BASE_UNIT) == 0:
        return -1, 0, 0, 0, seen
    chosen = first_bit(votes)
    buffers = shuffle(mask, low, BASE_UNIT)
    ready = shuffle(mask, word & TAG_MASK, BASE_UNIT)
    won = 0
    if lane == chosen:
        claimed = expected << 32 | number
        first = _first_look(ctx, low, buffers, ready)  # both accesses are under way together
        old = cas_gpu(claim_address(ctx, slot, index), seen, claimed)
        if old == seen:
            old = claimed
            won = _await_ready(ctx, buffers, ready, first)
        seen = old
    if shuffle(mask, won, chosen) == 0:
        return -1, 0, 0, 0, seen
    length = shuffle(mask, word & TAG_MASK, chosen)
    order = shuffle(mask, low, chosen)
    return shuffle(mask, index, chosen), order, length, buffers, seen


@device
def first_claim(ctx, handle):
    """Claim word of the first buffer of a large request (any lane), for ``take_first``; the read is
    under way when this returns."""
    return load_gpu(claim_address(ctx, slots.slot_of(handle), 0))


# wide: as ``take``
@device
def take_first(ctx, handle, seen, order, buffers, ready, wanted, chosen, mask):
    """Claims an order for the first buffer that lane ``chosen`` has seen, in which ``wanted`` is
    true; by who waits for the request, all lanes of a warp. 1 in all of them if won, else 0.

    Args:
        seen: what ``first_claim`` returned before the request had an order.
    """
    won = 0
    if wanted:
        first = _first_look(ctx, order, buffers, ready)
        expected = handle & TAG_MASK
        number = _number_of(order)
        claim = claim_address(ctx, slots.slot_of(handle), 0)
        if position_of(order) != 0:  # not the first one there
            seen = load_gpu(claim)
        if _is_open(seen, expected, number):
            if cas_gpu(claim, seen, expected << 32 | number) == seen:
                won = _await_ready(ctx, buffers, ready, first)
    return shuffle(mask, won, chosen)


@device
def finished(ctx, slot):
    """How many UNPACK orders of the slot's request have been carried out (one lane)."""
    return load_gpu(row_address(ctx, slot) + REQUEST_FINISHED)


@device
def user_address(ctx, slot, order):
    """Where in the user's buffer the bytes of the order are."""
    field = REQUEST_RECV
    if direction_of(order) == PACK:
        field = REQUEST_SEND
    return load_gpu(row_address(ctx, slot) + field) + position_of(order)


@device
def answer(ctx, lane, lanes, mask, slot, index, order):
    """Tells the proxy, and who waits, that an order has been carried out; all lanes of a warp.

    An UNPACK order is counted between taking the record's ticket and writing the record. Before
    the ticket, who waits could end, and the slot's next request have a ticket before ours. After
    the record, a request that has failed could be over, and the count be the next one's.
    """
    handle = 0
    if lane == 0:
        handle = load_gpu(row_address(ctx, slot) + REQUEST_OWNER) & ~slots.CLAIMED
    handle = shuffle(mask, handle, 0)
    _release(direction_of(order))
    ticket, consumed = ring.begin_enter(ctx, lane == 0)
    # Nobody counts what was packed.
    if lane == 0 and direction_of(order) != PACK:
        # Tickets are below 2**62: adds 1, when the ticket is there.
        add_gpu(row_address(ctx, slot) + REQUEST_FINISHED, 1 + (ticket >> 62))
    done = _done(position_of(order), direction_of(order), index)
    return ring.post_with(ctx, lane, lanes, mask, ticket, consumed, OP_CHUNK, 0, handle, done)


# wide: what a record says
@device
def answer_last(ctx, lane, lanes, mask, ticket, consumed, handle, index, order):
    """The same for the last order of a receive, by who waits for it: nobody else is going to look
    at the user's buffer.

    Args:
        ticket, consumed: what ``ring.begin_enter`` has returned.
    """
    done = _done(position_of(order), direction_of(order), index)
    return ring.post_with(ctx, lane, lanes, mask, ticket, consumed, OP_CHUNK, 0, handle, done)


@device
def _done(position, direction, index):
    """Which chunk, in a CHUNK record."""
    return position << CHUNK_POSITION_SHIFT | direction << CHUNK_DIRECTION_SHIFT | index


@device
def _release(direction):
    """Before what says that a chunk has been moved.

    PACK: the proxy sends the staging. UNPACK: whoever waits for the request, perhaps in another
    block, reads the user's buffer once the completion has come.
    """
    if direction == PACK:
        fence_sys()
    else:
        fence_gpu()


@device
def report_chunk(ctx, lane, lanes, mask, handle, position, direction, index):
    """Publishes a CHUNK record, after a barrier of the threads that moved the chunk."""
    _release(direction)
    done = _done(position, direction, index)
    return ring.post(ctx, lane, lanes, mask, OP_CHUNK, 0, handle, done)
