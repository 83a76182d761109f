"""Consumer of completions (producer: ``host_proxy/records/completion.py``).

One warp polls for its scope, one completion slot per request. Each lane loads one 16-byte unit, so
flag, status and a small payload come back in the same PCIe read; the next read, 0.9 us later, is
never needed for the data of the first. What commits a unit is its tag (see ``ring.py``): the
request's own, so a completion left in the slot by an earlier request is never taken for this one.

What is in staging was there before the completion, or the order, that says so. Nobody needs a
fence to read it (0.5 us): all loads from staging bypass L1 and are issued when the tag has come.

Every wait ends: sixteen polls apart, the polling lane reads the control unit, whose second word
the host sets to end all waits (``Context.close``, Ctrl-C, a dead proxy).

Functions here are called by all lanes of one warp.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.copy import store_payload
from device_lib.platform.context import completion_address, eager_bytes, request_slots
from device_lib.platform.primitives import (
    ballot,
    block_id,
    device,
    fence_gpu,
    load_unit,
    opaque,
    relax,
    shuffle,
)
from device_lib.proxied import helping, orders, pacing, slots
from gmpi.contract.wire import (
    BLOCK_BITS,
    BYTES_MASK,
    CONTROL_ATTENTION,
    CONTROL_ORDERS,
    LARGE_UNITS,
    NARROW_SHIFT,
    SLOT_UNITS,
    STATUS_UNITS,
    TAG_MASK,
    UNIT_BYTES,
    UNIT_PAYLOAD,
)

# What a look at a completion found.
NOTHING = 0
DONE = 1
ORDER = 2
ABORTED = 3
FOREIGN = 4  # the handle is not of an open request
LAST = 5  # an order, and when it has been carried out, the request is complete

CONTROL_EVERY = 16  # polls between two looks at the control unit; a power of two


@device
def claim(ctx, handle, lane, mask):
    """Begins a wait: (whether the handle is of an open request, address to unpack to)."""
    recv = -1
    if slots.names_slot(ctx, handle):
        if lane == 0:
            recv = slots.receive_address(ctx, slots.slot_of(handle))
            if slots.claim(ctx, handle) != handle:
                recv = -1
        recv = shuffle(mask, recv, 0)
    return recv >= 0, recv


@device
def is_staged(ctx, handle, nbytes):
    """Whether the ``nbytes`` that the request brings, if any, wait in its small staging buffer.

    A short message may come to a large receive: it has no chunks.
    """
    short = slots.units_of(handle) == STATUS_UNITS
    if slots.is_large(handle):
        short = nbytes <= eager_bytes(ctx)
    return short


@device
def look_at_control(ctx, lane, lanes, mask):
    """The two control units, read by one lane, or by two at once, for all.

    Returns:
        (large slots with an order that nobody has come for, abort class, large slots with an
        order, blocks that have opened such requests: for ``names_block``).
    """
    attention = 0
    aborted = 0
    if lane < 2:
        attention, aborted = load_unit(ctx.mapped + CONTROL_ATTENTION + lane * UNIT_BYTES)
    if lanes < 2:
        ordered, blocks = load_unit(ctx.mapped + CONTROL_ORDERS)
    else:
        ordered, blocks = shuffle(mask, attention, 1), shuffle(mask, aborted, 1)
    return shuffle(mask, attention, 0), shuffle(mask, aborted, 0), ordered, blocks


@device
def names_block(blocks):
    """Whether the second word of the second control unit has a bit of the calling block."""
    return blocks >> (block_id() & BLOCK_BITS) & (1 << NARROW_SHIFT | 1) != 0


@device
def to_carry_out(ctx, attention, ordered, blocks, lane, lanes, mask):
    """The large slots whose orders the calling warp should carry out, from ``look_at_control``."""
    if blocks >> (block_id() & BLOCK_BITS) & 1 != 0:
        first = request_slots(ctx)
        attention |= helping.of_this_block(ctx, ordered, first, lane, lanes, mask)
    return attention


@device
def _unit(lanes, mask, completion, unit, low, word):
    """(low, word) of one unit in all lanes: from the lane that holds it, else read again."""
    if lanes < SLOT_UNITS:  # it may have been polled in turns
        return load_unit(completion + unit * UNIT_BYTES)
    return shuffle(mask, low, unit), shuffle(mask, word, unit)


# long: one loop, whose state is in registers
@device
def await_event(ctx, handle, recv, lane, lanes, mask, patience):
    """Polls until something happens to the request, or ``patience`` polls (0: no limit) are over.

    For requests of either class and warps of any size. On DONE a payload that came with the
    completion has been stored at ``recv``.

    Returns:
        (event, place, order, length, buffers, status, count, origin):
        ORDER, claimed for the caller: place is slot << 8 | index of the staging buffer;
        LAST: as both ORDER and DONE;
        DONE: unit 0 as status and count, low word of unit 1 as origin;
        ABORTED: the error class as status.
    """
    slot = slots.slot_of(handle)
    large = slots.is_large(handle)
    units = slots.units_of(handle)
    needed = (1 << units) - 1
    if large:
        units = LARGE_UNITS
    expected = handle & TAG_MASK
    completion = completion_address(ctx, slot)
    seen = 0
    if large and lanes >= LARGE_UNITS:
        seen = orders.last_claim(ctx, slot, lane)
    begin = 0  # first unit of this turn: a warp of fewer lanes than units takes turns
    arrived = 0
    polls = 0
    low = 0
    word = 0
    counted = pacing.NOT_COUNTED
    rest = 0
    while True:
        unit = begin + lane
        at = completion + unit * UNIT_BYTES
        polls += 1
        # A program may wait by testing one request again and again: that must help others, too.
        control = polls == patience or polls & (CONTROL_EVERY - 1) == 0
        beside = control and lanes > units + 1  # two more lanes look at it in the same read
        watches = beside and lane >= lanes - 2
        if watches:
            at = ctx.mapped + CONTROL_ATTENTION + (lanes - 1 - lane) * UNIT_BYTES
        if unit < units or watches:
            low, word = load_unit(at)
        fresh = unit < units and word >> 32 & TAG_MASK == expected
        arrived |= ballot(mask, fresh) << begin
        complete = arrived & needed == needed
        if complete and large == 0:
            break
        if large:
            # Orders first: who carries out the last one need not ask how many have been.
            if lanes >= LARGE_UNITS:
                index, order, length, buffers, seen = orders.take_own(
                    ctx, slot, expected, seen, lane, mask, unit, low, word
                )
                if index >= 0 and needed > 1 and arrived & needed == needed:
                    if shuffle(mask, word, 1) & TAG_MASK == 1:  # the only order there is
                        status, count = _unit(lanes, mask, completion, 0, low, word)
                        origin = shuffle(mask, low, 1)
                        place = slot << 8 | index
                        return LAST, place, order, length, buffers, status, count, origin
            else:
                index, order, length, buffers = orders.take(
                    ctx, slot, expected, lane, lanes, mask, unit, low, word
                )
            if index >= 0:
                return ORDER, slot << 8 | index, order, length, buffers, 0, 0, 0
            if complete:
                if orders_are_done(ctx, slot, lane, lanes, mask, completion, word, needed):
                    break
        if lanes < units:
            begin += lanes
            if begin >= units:
                begin = 0
        if control:
            if beside:
                attention, aborted = shuffle(mask, low, lanes - 1), shuffle(mask, word, lanes - 1)
                ordered = shuffle(mask, low, lanes - 2)
                blocks = shuffle(mask, word, lanes - 2)
            else:
                attention, aborted, ordered, blocks = look_at_control(ctx, lane, lanes, mask)
            if aborted != 0:
                return ABORTED, 0, 0, 0, 0, aborted, 0, 0
            attention = to_carry_out(ctx, attention, ordered, blocks, lane, lanes, mask)
            if attention != 0 or names_block(blocks):
                other, index, order, length, buffers = helping.take_other(
                    ctx, attention, blocks, lane, lanes, mask
                )
                if index >= 0:
                    return ORDER, other << 8 | index, order, length, buffers, 0, 0, 0
            counted, rest = pacing.count(ctx, counted, lane, mask)
        if polls == patience:
            return NOTHING, 0, 0, 0, 0, 0, 0, 0
        relax(ctx.mapped + CONTROL_ATTENTION)
        pacing.rest(rest)

    status, count = _unit(lanes, mask, completion, 0, low, word)
    origin = 0
    if slots.units_of(handle) >= STATUS_UNITS:
        origin, ignored = _unit(lanes, mask, completion, 1, low, word)
    if units > STATUS_UNITS and large == 0:
        nbytes = status & BYTES_MASK
        unit = lane
        while unit < units:
            at = (unit - STATUS_UNITS) * UNIT_PAYLOAD
            if at >= 0 and at < nbytes:
                if lanes < units:
                    low, word = load_unit(completion + unit * UNIT_BYTES)
                store_payload(recv + at, low, word & TAG_MASK, nbytes - at)
            unit += opaque(lanes)
    elif large and needed > 1:
        # Acquire: threads of other blocks stored chunks before they counted them as finished.
        fence_gpu()
    return DONE, slot << 8, 0, 0, 0, status, count, origin


@device
def orders_are_done(ctx, slot, lane, lanes, mask, completion, word, needed):
    """Whether the orders that the completion of a large request counts have been carried out."""
    if needed == 1:
        return True  # nothing comes back
    ignored, expected = _unit(lanes, mask, completion, 1, 0, word)
    finished = 0
    if lane == 0:
        finished = orders.finished(ctx, slot)
    return shuffle(mask, finished, 0) >= expected & TAG_MASK
