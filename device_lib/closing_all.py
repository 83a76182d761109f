"""Closing many requests at once: the halo exchange of a step.

One read of host memory takes 0.9 us, so requests are not polled one after the other: each lane of
the leading warp polls one request, up to 32 in the same read. Payloads in staging are then moved
by all warps of the scope, small ones a warp each.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib import completion, orders, slots
from device_lib.carrying_out import make_carry_out
from device_lib.closing import COMPLETED, EVENT_SHIFT, NO_ORIGIN
from device_lib.context import completion_address, landing_places
from device_lib.copy import copy_from_staging, store_payload
from device_lib.layouts import layout_of, unpack_layout
from device_lib.primitives import (
    ballot,
    device,
    fence_gpu,
    first_bit,
    lane_id,
    load_8,
    load_unit,
    opaque,
    relax,
    shuffle,
    store_8,
)
from device_lib.ring import post
from device_lib.scope import Scope, warp_lanes, warp_mask
from gmpi.constants import ERR_REQUEST, SUCCESS
from gmpi.wire import (
    BASE_UNIT,
    BYTES_MASK,
    CONTROL_ATTENTION,
    ERROR_SHIFT,
    HANDLE_ERROR_SHIFT,
    LAYOUT_RECV,
    OP_FAULT,
    OP_WAIT,
    REQUEST_NULL,
    SCATTERED,
    STATUS_UNITS,
    TAG_MASK,
    UNIT_BYTES,
    UNIT_PAYLOAD,
)

STATUS_BYTES = 40  # error, source, tag, count, nbytes as int64: gmpi.STATUS_DTYPE
_WHOLE_SCOPE_BYTES = 4096  # staged payloads from here on are moved by all warps together


@device
def _sign32(value):
    return ((value & TAG_MASK) ^ 0x80000000) - 0x80000000


@device
def _store_status(address, outcome, count, origin):
    store_8(address, outcome >> ERROR_SHIFT & 0xFF)
    store_8(address + 8, _sign32(origin))
    store_8(address + 16, _sign32(origin >> 32))
    store_8(address + 24, _sign32(count))
    store_8(address + 32, outcome & BYTES_MASK)


@device
def _look(ctx, handle, owner, tried):
    """One lane looks at its own request.

    The claim of the request may still be under way: only what comes with a completion asks for it.

    A payload that came with the completion is stored at once; its first unit is part of the same
    read, so a scalar costs no second one. So is the first order of a large request.

    Args:
        owner: what the claim found; the request is the caller's where that is ``handle``.
        tried: the order that the caller has looked at.

    Returns:
        (complete, low and high word of unit 0, low word of unit 1; whether there is an order for
        the first buffer, its two words, where the buffers are and what their ready word will be,
        whether it is the last one).
    """
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
    fresh = word0 >> 32 & TAG_MASK == expected and owner == handle
    ordered = False
    if large:
        ordered = word2 >> 32 & TAG_MASK == expected and known >> 32 & TAG_MASK == expected
        ordered = ordered and low2 != tried
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
        recv = slots.receive_address(ctx, slots.slot_of(handle))
        nbytes = low0 & BYTES_MASK
        unit = STATUS_UNITS
        while unit < units:
            at = (unit - STATUS_UNITS) * UNIT_PAYLOAD
            while word2 >> 32 & TAG_MASK != expected:
                low2, word2 = load_unit(address + unit * UNIT_BYTES)
            if at < nbytes:
                store_payload(recv + at, low2, word2 & TAG_MASK, nbytes - at)
            word2 = 0
            unit += opaque(1)
    return fresh, low0, word0, low1, ordered, low2, word2, base, known & TAG_MASK, last


@device
def _await_batch(ctx, handle, owner, recv, seen, waiting, low, word, origin, lane, lanes, mask):
    """Polls one request a lane until none is waiting; the leading warp.

    Args:
        owner: what the claims of the requests found; foreign ones are not waited for.
        seen: of a large request, claim word of its first buffer before there was an order.

    Returns:
        (event, place, order, length, buffers, own, target, waiting, low, word, origin): event ORDER
        asks the scope to carry out an order and to come back, with ``own`` and ``target`` for
        ``carry_out``; ABORTED has the class as order, DONE ends.
    """
    polls = 0
    tried = -1  # the order of the lane's request that has been looked at
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
                ctx, handle, owner, tried
            )
            if owner == handle:
                low, word, origin = count, status, whence
            waiting = not fresh and owner == handle
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
            if orders.take_first(ctx, handle, seen, first, base, ready, mine, chosen, mask) != 0:
                order = shuffle(mask, first, chosen)
                length = shuffle(mask, first_word & TAG_MASK, chosen)
                buffers = shuffle(mask, base, chosen)
                own = shuffle(mask, handle if last else 0, chosen)
                target = shuffle(mask, recv, chosen)
                place = shuffle(mask, slots.slot_of(handle) << 8, chosen)
                if last and lane == chosen:
                    waiting = False  # when it has been carried out
                event = completion.ORDER
                return event, place, order, length, buffers, own, target, waiting, low, word, origin
        if ballot(mask, waiting) == 0:
            return completion.DONE, 0, 0, 0, 0, 0, 0, waiting, low, word, origin
        polls += 1
        # Other orders are only in the attention word here.
        if polls & 3 == 0:
            attention, aborted = completion.look_at_control(ctx, lane, mask)
            if aborted != 0:
                return completion.ABORTED, 0, aborted, 0, 0, 0, 0, waiting, low, word, origin
            if attention != 0:
                slot, index, order, length, buffers = orders.take_other(
                    ctx, attention, lane, lanes, mask
                )
                if index >= 0:
                    place = slot << 8 | index
                    event = completion.ORDER
                    return event, place, order, length, buffers, 0, 0, waiting, low, word, origin
        relax(ctx.mapped + CONTROL_ATTENTION)


def make_finish_all(scope: Scope) -> Callable:
    """The function behind Waitall for one scope; all its threads call it together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    broadcast = scope.broadcast
    broadcast_5 = scope.broadcast_5
    put_row = scope.put_row
    get_row = scope.get_row
    carry_out = make_carry_out(scope)

    @device
    def unpack_batch(ctx, staged, recv, slot, nbytes):
        """Moves the staged payloads of a batch; ``staged`` has a bit for each lane that has one."""
        warp = rank() >> 5
        warps = (size() + 31) >> 5
        turn = 0  # whose turn it is to take a small one
        while staged != 0:
            chosen = first_bit(staged)
            staged &= staged - 1
            target, source, length = get_row(chosen, recv, slot, nbytes)
            staging = orders.small_staging(ctx, source)
            if target == SCATTERED:
                layout = layout_of(ctx, source, LAYOUT_RECV)
                unpack_layout(layout, staging, 0, length, rank(), size())
            elif length >= _WHOLE_SCOPE_BYTES:
                copy_from_staging(target, staging, length, rank(), size())
            else:
                if turn == warp:
                    lanes = min(32, size() - (warp << 5))
                    copy_from_staging(target, staging, length, rank() & 31, lanes)
                turn += 1
                if turn == warps:
                    turn = 0

    @device
    def finish_all(ctx, count, requests, statuses):
        """Waits for ``count`` requests whose handles are at address ``requests``.

        Sets the handles to REQUEST_NULL and, where ``statuses`` is not 0, stores a status for
        each there.

        Returns:
            The first error class that is not SUCCESS, in order of the requests.
        """
        sync()
        result = SUCCESS
        width = min(32, size())  # lanes of the leading warp
        first = 0
        while first < count:
            error = finish_batch(ctx, min(width, count - first), first, requests, statuses)
            if result == SUCCESS:
                result = error
            first += opaque(width)
        i = 0
        while i < count:
            # Every thread: the array may be private to each.
            store_8(requests + i * 8, REQUEST_NULL)
            i += opaque(1)
        sync()
        return result

    @device
    def close(ctx, count, first, handle, claimed, foreign, low, word, origin, statuses):
        """Statuses, slots, and the first error class of the batch; the leading warp."""
        lane = lane_id()
        mask = warp_mask()
        if lane < count:
            if statuses != 0:
                _store_status(statuses + (first + lane) * STATUS_BYTES, low, word, origin)
            if claimed:
                slots.release_after(ctx, handle, low >> ERROR_SHIFT & 0xFF)
        error = low >> ERROR_SHIFT & 0xFF
        bad = ballot(mask, error != SUCCESS and lane < count)
        # Handles that are no request of ours: the proxy cannot know.
        strangers = ballot(mask, foreign)
        while strangers != 0:
            stranger = shuffle(mask, handle, first_bit(strangers))
            strangers &= strangers - 1
            word0 = OP_FAULT | OP_WAIT << 8
            post(ctx, lane, warp_lanes(), mask, word0, stranger, 0, ERR_REQUEST)
        if bad == 0:
            return SUCCESS
        return shuffle(mask, error, first_bit(bad))

    @device
    def finish_batch(ctx, count, first, requests, statuses):
        handle = REQUEST_NULL
        owner = REQUEST_NULL
        waiting = False
        foreign = False
        low = COMPLETED
        word = 0
        origin = NO_ORIGIN
        recv = 0
        seen = 0
        lane = lane_id()
        if leads() and lane < count:
            handle = load_8(requests + (first + lane) * 8)
            if handle >> HANDLE_ERROR_SHIFT == 1:
                low = (handle & 0xFF) << ERROR_SHIFT
            elif handle != REQUEST_NULL:
                low = ERR_REQUEST << ERROR_SHIFT
                foreign = True
                if slots.names_slot(ctx, handle):
                    # The first look at the requests does not wait for these.
                    owner, recv = slots.begin_claim(ctx, handle, True)
                    if slots.is_large(handle):
                        seen = orders.first_claim(ctx, handle)
                    waiting = True
        places = landing_places(ctx)
        claimed = False
        event = completion.ORDER
        order = 0
        length = 0
        while event == completion.ORDER:
            place = 0
            buffers = 0
            own = 0
            target = 0
            if leads():
                event, place, order, length, buffers, own, target, waiting, low, word, origin = (
                    _await_batch(
                        ctx, handle, owner, recv, seen, waiting, low, word, origin, lane,
                        warp_lanes(), warp_mask(),
                    )
                )  # fmt: skip
                if event != completion.ORDER:
                    claimed = handle != REQUEST_NULL and owner == handle
                    foreign = foreign and not claimed
                    if event == completion.ABORTED and waiting:
                        claimed = False
                        low = (order & 0xFF) << ERROR_SHIFT
                    # Payloads in staging: every thread learns which, as ``order``. Mostly there
                    # are none; then the batch closes here, and ``length`` is its error class.
                    nbytes = low & BYTES_MASK
                    has_payload = claimed and recv != 0 and nbytes > 0
                    has_payload = has_payload and completion.is_staged(ctx, handle, nbytes)
                    order = ballot(warp_mask(), has_payload)
                    put_row(lane, recv, slots.slot_of(handle), nbytes)
                    if order == 0:
                        length = close(
                            ctx, count, first, handle, claimed, foreign, low, word, origin, statuses
                        )
            place, order, length, buffers, target = broadcast_5(
                event << EVENT_SHIFT | place, order, length, buffers, target
            )
            event = place >> EVENT_SHIFT
            place &= (1 << EVENT_SHIFT) - 1
            sync()
            if event == completion.ORDER:
                aborted = carry_out(ctx, place, order, length, buffers, places, own, target)
                if aborted != 0 and own != 0 and own == handle:
                    low = (aborted & 0xFF) << ERROR_SHIFT
        error = length
        if order != 0:  # all warps share the work
            unpack_batch(ctx, order, recv, slots.slot_of(handle), low & BYTES_MASK)
            sync()
            if leads():
                error = close(
                    ctx, count, first, handle, claimed, foreign, low, word, origin, statuses
                )
            error = broadcast(error)
            sync()
        return error

    return finish_all
