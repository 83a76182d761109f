"""Polling many requests at once, for Waitall and Waitany.

One read of host memory takes 0.9 us, so requests are not polled one after the other: each lane of
the leading warp polls one request, up to 32 in the same read. ``closing_all`` waits until all of
them are complete, ``closing_one`` until one is.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

from device_lib.move.copy import store_payload
from device_lib.platform.context import completion_address, large_slots, request_slots
from device_lib.platform.primitives import (
    ballot,
    device,
    fence_gpu,
    first_bit,
    lane_id,
    load_unit,
    opaque,
    relax,
    shuffle,
)
from device_lib.platform.scope import warp_lanes, warp_mask
from device_lib.proxied import completion, helping, orders, pacing, slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from gmpi.contract.constants import ERR_REQUEST
from gmpi.contract.wire import (
    BASE_UNIT,
    BYTES_MASK,
    CONTROL_ATTENTION,
    ERROR_SHIFT,
    HANDLE_ERROR_SHIFT,
    PACK,
    REQUEST_NULL,
    STATUS_UNITS,
    TAG_MASK,
    UNIT_BYTES,
    UNIT_PAYLOAD,
)


class Asked(NamedTuple):
    """What one lane of the leading warp polls.

    Attributes:
        handle: the request.
        owner: what the claim of the request found; it is the caller's where that is ``handle``.
        recv: where its payload goes.
        seen: of a large request, the claim word of its first buffer before there was an order.
    """

    handle: int
    owner: int
    recv: int
    seen: int


class Turn(NamedTuple):
    """How long to poll.

    Attributes:
        any_of: the lanes that wait, as bits: the poll ends when one of them does not any more.
            0: it ends when none does.
        polls: how many polls there have been before; every few, orders of others are looked at.
        limit: the number of polls at which this one ends; 0: there is none.
    """

    any_of: int
    polls: int
    limit: int


class Event(NamedTuple):
    """How a poll ended.

    Attributes:
        kind: ORDER or LAST: the scope must carry out an order and come back; DONE; ABORTED, with
            the class as ``order``; NOTHING: the limit was reached.
        place, order, length, buffers, own, target: what ``carry_out`` takes.
    """

    kind: int
    place: int
    order: int
    length: int
    buffers: int
    own: int
    target: int


UNLIMITED = Turn(0, 0, 0)


@device
def ask(ctx, handle, wanted):
    """Begins a wait for a request, by one lane.

    Args:
        wanted: false in lanes that have none.

    Returns:
        (what to poll, whether to, unit 0 of the completion as far as it is known, whether the
        handle may turn out to be of no open request).
    """
    owner = REQUEST_NULL
    recv = 0
    seen = 0
    waiting = False
    foreign = False
    low = COMPLETED
    if wanted:
        if handle >> HANDLE_ERROR_SHIFT == 1:
            low = (handle & 0xFF) << ERROR_SHIFT
        elif handle != REQUEST_NULL:
            low = ERR_REQUEST << ERROR_SHIFT
            foreign = True
            if slots.names_slot(ctx, handle):
                # The first look at the request does not wait for these.
                owner, recv = slots.begin_claim(ctx, handle, True)
                if slots.is_large(handle):
                    seen = orders.first_claim(ctx, handle)
                waiting = True
    return Asked(handle, owner, recv, seen), waiting, low, foreign


@device
def _store_payload(asked, address, nbytes, low, word):
    """Stores a payload that came with the completion; its first unit is (``low``, ``word``).

    Returns:
        Whether all its units were there. They are stored before unit 0, which has been seen; but
        the first one was read before that.
    """
    expected = asked.handle & TAG_MASK
    units = slots.units_of(asked.handle)
    if word >> 32 & TAG_MASK != expected:
        low, word = load_unit(address + STATUS_UNITS * UNIT_BYTES)
    unit = STATUS_UNITS
    while unit < units:
        if word >> 32 & TAG_MASK != expected:
            return False
        at = (unit - STATUS_UNITS) * UNIT_PAYLOAD
        if at < nbytes:
            store_payload(asked.recv + at, low, word & TAG_MASK, nbytes - at)
        unit += opaque(1)
        if unit < units:
            low, word = load_unit(address + unit * UNIT_BYTES)
    return True


@device
def _look(ctx, asked, tried):
    """One lane looks at its own request.

    The claim of the request may still be under way: only what comes with a completion asks for it.

    A payload that came with the completion is stored at once; its first unit is part of the same
    read, so a scalar costs no second one. So is the first order of a large request.

    Args:
        tried: the order that the caller has looked at.

    Returns:
        (complete, low and high word of unit 0, low word of unit 1; whether there is an order for
        the first buffer, its two words, where the buffers are and what their ready word will be,
        whether it is the last one).
    """
    handle = asked.handle
    units = slots.units_of(handle)
    large = slots.is_large(handle)
    expected = handle & TAG_MASK
    address = completion_address(ctx, slots.slot_of(handle))
    # All under way together, and only those there are: many warps poll, and share one PCIe. Each
    # takes 0.3 us more, and the proxy may write meanwhile: the completion before the last order. So
    # the order is read first: who sees it sees that it is the last one.
    low1 = 0
    word1 = 0
    low2 = 0
    word2 = 0
    base = 0
    known = 0
    if units > STATUS_UNITS or large:
        low2, word2 = load_unit(address + 2 * UNIT_BYTES)
    if large:
        base, known = load_unit(address + BASE_UNIT * UNIT_BYTES)
    if units >= STATUS_UNITS:
        low1, word1 = load_unit(address + UNIT_BYTES)
    low0, word0 = load_unit(address)
    fresh = word0 >> 32 & TAG_MASK == expected and asked.owner == handle
    ordered = False
    if large:
        ordered = word2 >> 32 & TAG_MASK == expected and known >> 32 & TAG_MASK == expected
        # An order that was taken before this poll began is none for it.
        ordered = ordered and low2 != tried and orders.is_open_order(asked.seen, expected, low2)
    last = False
    if units >= STATUS_UNITS:
        fresh = fresh and word1 >> 32 & TAG_MASK == expected
        if fresh and large:
            last = word1 & TAG_MASK == 1
            # Not before its order has been tried: reading the count takes 0.5 us.
            if ordered:
                fresh = False
            else:
                fresh = orders.finished(ctx, slots.slot_of(handle)) >= word1 & TAG_MASK
    else:
        low1 = NO_ORIGIN
    if fresh and units > STATUS_UNITS and large == 0:
        fresh = _store_payload(asked, address, low0 & BYTES_MASK, low2, word2)
    return fresh, low0, word0, low1, ordered, low2, word2, base, known & TAG_MASK, last


@device
def _own_orders(ctx, ordered, handle, waiting, mask):
    """The large slots of ``ordered`` (bits) whose requests the lanes wait for."""
    found = 0
    large = slots.slot_of(handle) - request_slots(ctx)
    own = waiting and large >= 0 and large < large_slots(ctx) and ordered >> (large & 63) & 1 != 0
    votes = ballot(mask, own)
    while votes != 0:
        found |= 1 << shuffle(mask, large & 63, first_bit(votes))
        votes &= votes - 1
    return found


# long: one loop, whose state is in registers
@device
def await_batch(ctx, asked, turn, waiting, low, word, origin):
    """Polls one request a lane; the leading warp.

    Args:
        waiting: whether the lane's request is one that is waited for.
        low, word, origin: what is known of its completion: both words of unit 0, low word of
            unit 1.

    Returns:
        (event, waiting, low, word, origin): of the event all lanes have the same.
    """
    handle = asked.handle
    recv = asked.recv
    lane = lane_id()
    mask = warp_mask()
    polls = turn.polls
    tried = -1  # the order of the lane's request that has been looked at
    counted = pacing.NOT_COUNTED
    rest = 0
    while True:
        calls = False
        last = False
        first = 0
        first_word = 0
        base = 0
        ready = 0
        helped = False
        if waiting:
            fresh, count, status, whence, calls, first, first_word, base, ready, last = _look(
                ctx, asked, tried
            )
            if asked.owner == handle:
                low, word, origin = count, status, whence
            waiting = not fresh and asked.owner == handle
            calls = calls and waiting
            helped = fresh and slots.is_large(handle) and recv != 0
        if ballot(mask, helped) != 0:
            fence_gpu()  # acquire: threads of other blocks may have stored chunks
        votes = ballot(mask, calls)
        if votes != 0:
            chosen = first_bit(votes)
            if lane == chosen:
                tried = first
            mine = lane == chosen
            if orders.take_first(ctx, handle, asked.seen, first, base, ready, mine, chosen, mask):
                own = shuffle(mask, handle if last else 0, chosen)
                # A reduction has another buffer from which is packed.
                target = 0 if orders.direction_of(first) == PACK else recv
                event = Event(
                    completion.LAST if own != 0 else completion.ORDER,
                    shuffle(mask, slots.slot_of(handle) << 8, chosen),
                    shuffle(mask, first, chosen),
                    shuffle(mask, first_word & TAG_MASK, chosen),
                    shuffle(mask, base, chosen),
                    own,
                    shuffle(mask, target, chosen),
                )
                if last and lane == chosen:
                    waiting = False  # when it has been carried out
                return event, waiting, low, word, origin
        left = ballot(mask, waiting)
        if left == 0 or (turn.any_of != 0 and left != turn.any_of):
            return Event(completion.DONE, 0, 0, 0, 0, 0, 0), waiting, low, word, origin
        polls += 1
        # Orders for other buffers than the first are only found here.
        if polls & 3 == 0:
            lanes = warp_lanes()
            attention, aborted, ordered, blocks = completion.look_at_control(ctx, lane, lanes, mask)
            if aborted != 0:
                event = Event(completion.ABORTED, 0, aborted, 0, 0, 0, 0)
                return event, waiting, low, word, origin
            attention = completion.to_carry_out(ctx, attention, ordered, blocks, lane, lanes, mask)
            attention |= _own_orders(ctx, ordered, handle, waiting, mask)
            if attention != 0 or completion.names_block(blocks):
                slot, index, order, length, buffers = helping.take_other(
                    ctx, attention, blocks, lane, lanes, mask
                )
                if index >= 0:
                    event = Event(completion.ORDER, slot << 8 | index, order, length, buffers, 0, 0)
                    return event, waiting, low, word, origin
        if polls & (completion.CONTROL_EVERY - 1) == 0:
            counted, rest = pacing.count(ctx, counted, lane, mask)
        relax(ctx.mapped + CONTROL_ATTENTION)
        pacing.rest(rest)
        if polls == turn.limit:
            return Event(completion.NOTHING, 0, 0, 0, 0, 0, 0), waiting, low, word, origin
