"""The row of a request of the direct road that is open: what whoever goes on with it must know.

A request takes a small slot of the proxied road (``proxied/slots.py``): its row, its busy bit and
its handle. Whoever holds the claim goes on with it: the wait, or for a moment a helper.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import table
from device_lib.direct.packets import mark_of
from device_lib.platform import primitives as gpu
from device_lib.platform.context import (
    all_slots,
    busy_address,
    context_id,
    request_slots,
    row_address,
)
from device_lib.platform.primitives import device
from device_lib.proxied import pacing, slots
from gmpi.contract import wire

# Three packets, each stored at once and without a fence; the stamp tells a helper, who has found
# the first, whether the others have arrived. The rest is written by whoever holds the claim.
OWNER = 0  # the handle; | TOUCHED; | CLAIMED by a wait, | HELPED by a helper, for a moment
STAGE = 8  # | index of the channel's row << INDEX_SHIFT
ADDRESS = 16  # of the user's buffer
STAMP = 24  # mark of the message's number | index << 32 | the user's call << CALL_SHIFT
# Of a send; room of a receive, bytes; | ANNOUNCED; | low half of the datatype << LENGTH_BITS
LENGTH = 32
STAMP_TOO = 40
OUTCOME = 48  # FINISHED: bytes | error class << ERROR_SHIFT; in rounds of a receive: the length
WANTED = 56  # of a long receive: bytes to move | staging buffer << LENGTH_BITS; FINISHED: length

# Stages. From ROUNDS on: a long message, and round STAGE - ROUNDS of it.
BEGINS = 0  # a send waits for its credit, a receive for its message
FINISHED = 1
ROUNDS = 2

_DIRECT = 1 << wire.HANDLE_DIRECT_SHIFT - wire.HANDLE_CONTEXT_SHIFT

INDEX_SHIFT = 40
INDEX_MASK = 0xFFFFFF

CALL_SHIFT = 56
LENGTH_BITS = 48
ANNOUNCED = 1 << LENGTH_BITS - 1  # of a receive: its sender knows where the user's buffer is
LENGTH_MASK = ANNOUNCED - 1

HELPED = 1 << 62
# A helper has gone on with it: what it stored must be acquired.
TOUCHED = 1 << wire.HANDLE_LARGE_SHIFT

# A request is opened without a fence. So a helper, on another multiprocessor, must not touch the
# user's buffer before everything is there that was stored to it earlier: it leaves a request alone
# for so long. That is time, and no order of the memory model; a fence in each call would be one.
ALONE_NS = 200_000
_TOLD = 1 << 62
TOLD = 1  # the proxy knows of a wait for it;
WATCHED = 2  # and wants to know of its end (``watching.py``)
MINE = 0
RESUMED = 1  # mine, and TOUCHED
BUSY = 2  # a helper has it: soon
FOREIGN = 3

# Of the handle of a receive in one piece: one warp takes it, by a packet for each lane;
SMALL = 1 << wire.HANDLE_SMALL_SHIFT
MEDIUM = 1 << wire.HANDLE_MEDIUM_SHIFT  # one warp takes it, by several for each;
WIDE = SMALL | MEDIUM  # the wide slot has room for it; else nothing.


@device
def direct_handle(ctx, slot, number, kind, sends=False):
    """``kind``: SMALL, MEDIUM, WIDE or 0."""
    handle = mark_of(number) | slot << wire.HANDLE_SLOT_SHIFT | 1 << wire.HANDLE_DIRECT_SHIFT
    if sends:
        handle |= 1 << wire.HANDLE_SENDS_SHIFT
    return handle | kind | context_id(ctx) << wire.HANDLE_CONTEXT_SHIFT


@device
def is_send(handle):
    return handle >> wire.HANDLE_SENDS_SHIFT & 1 != 0


@device
def is_wide(handle):
    return handle & WIDE == WIDE


@device
def is_direct_handle(handle):
    return handle >> wire.HANDLE_DIRECT_SHIFT == 1


@device
def names_request(ctx, handle):
    """Whether a handle may be that of a request of ours (any lane, no memory access). No user's
    handle is TOUCHED: the row's owner may be."""
    ours = handle >> wire.HANDLE_LARGE_SHIFT == (context_id(ctx) | _DIRECT) << 1
    return ours and slots.slot_of(handle) < request_slots(ctx)


@device
def row_of(ctx, handle):
    return row_address(ctx, slots.slot_of(handle))


@device
def open_row(ctx, slot, handle, address, channel, stage, call, length):
    """Enters a request; one lane, which does not wait for anything.

    Args:
        channel: index of its row.
        stage: BEGINS, or ROUNDS where the length of a long message has been sent.
        call: which of the user's calls.
        length: as LENGTH.
    """
    row = row_address(ctx, slot)
    stamp = handle & wire.LOW_32 | channel << 32 | call << CALL_SHIFT
    gpu.write_packet(row + LENGTH, length, stamp)
    gpu.write_packet(row + ADDRESS, address, stamp)
    gpu.write_packet(row + OWNER, handle, stage | channel << INDEX_SHIFT)
    gpu.count_gpu(ctx.device + wire.DEVICE_DIRECT_OPEN, 1)
    gpu.set_bits_32_gpu(busy_address(ctx, slot >> 5) + wire.BUSY_DIRECT, slots.busy_bit(slot))
    gpu.set_bits_32_gpu(_summary(ctx, slot >> 10), 1 << (slot >> 5 & 31))


@device
def _name_of(handle, state):
    """Handles of two channels may be equal.

    Args:
        state: as STAGE.
    """
    return handle & wire.LOW_32 | (state >> INDEX_SHIFT & INDEX_MASK) << 32


@device
def _arrived(row):
    """Whether all that the opener has stored is there."""
    handle, stage = gpu.read_packet(row + OWNER)
    address, stamp = gpu.read_packet(row + ADDRESS)
    length, stamp_too = gpu.read_packet(row + LENGTH)
    wanted = _name_of(handle, stage)
    both = (1 << CALL_SHIFT) - 1
    return stamp & both == wanted and stamp_too & both == wanted


@device
def claim(ctx, handle, mark):
    """Whether the caller may go on with a request: MINE, RESUMED, BUSY or FOREIGN; one lane.

    Args:
        mark: ``slots.CLAIMED`` or HELPED.
    """
    if not names_request(ctx, handle):
        return FOREIGN
    row = row_address(ctx, slots.slot_of(handle))
    owner = gpu.cas_gpu(row + OWNER, handle, handle | mark)
    if owner == handle:
        return MINE
    if owner == handle | TOUCHED:
        owner = gpu.cas_gpu(row + OWNER, handle | TOUCHED, handle | TOUCHED | mark)
        if owner == handle | TOUCHED:
            gpu.fence_gpu()
            return RESUMED
    return BUSY if owner & ~TOUCHED == handle | HELPED else FOREIGN


@device
def claim_to_help(ctx, handle):
    """``claim`` for a helper. BUSY: the request is still being entered."""
    ours = claim(ctx, handle, HELPED)
    if ours == MINE:
        row = row_address(ctx, slots.slot_of(handle))
        if not _arrived(row):
            gpu.store_gpu(row + OWNER, handle)
            return BUSY
        gpu.fence_gpu()
    return ours


@device
def _seen_at(ctx, slot):
    """Where it stands when the request in a slot was first seen: its name, | _TOLD; the time."""
    return ctx.device + wire.DEVICE_SEEN + slot * wire.SEEN_BYTES


@device
def left_alone(ctx, slot):
    """The handle of the open request in a slot, where a helper may go on with it: nobody has it,
    and ALONE_NS have passed since a helper first saw it; else 0. One lane."""
    handle, state = gpu.read_packet(row_address(ctx, slot) + OWNER)
    if not is_direct_handle(handle) or handle & slots.CLAIMED != 0:
        return 0
    request = _name_of(handle, state)
    place = _seen_at(ctx, slot)
    known, since = gpu.read_packet(place)
    now = gpu.timer_ns()
    if known & ~_TOLD != request:
        gpu.write_packet(place, request, now)
        return 0
    return handle & ~TOUCHED if now - since > ALONE_NS else 0


@device
def looked_for_long(ctx, slot, handle, now, told):
    """LATE, LATE_NS after the first of many looks: the proxy is to be told of the request as of a
    wait, and it stays off the quick way, so that its end is told, too; else 0. The caller has
    claimed it; one lane. ``told``: | TOLD, if it has been."""
    if told & TOLD != 0:
        return 0
    request = _name_of(handle, field(ctx, slot, STAGE))
    place = _seen_at(ctx, slot)
    known, since = gpu.read_packet(place)
    if known & ~_TOLD != request:
        gpu.write_packet(place, request, now)
        return 0
    if known != request or now - since <= pacing.LATE_NS:
        return 0
    gpu.write_packet(place, request | _TOLD, since)
    return pacing.LATE


@device
def what_is_known(ctx, slot, handle):
    """Of a request that is TOUCHED: TOLD, if ``looked_for_long`` has once said so; WATCHED."""
    known, since = gpu.read_packet(_seen_at(ctx, slot))
    told = known == _name_of(handle, field(ctx, slot, STAGE)) | _TOLD
    return (TOLD if told else 0) | (WATCHED if table.is_watched(ctx) else 0)


@device
def unclaim(ctx, handle):
    """Others may go on with it, with all that has been stored for it; one lane."""
    gpu.fence_sys()
    gpu.store_gpu(row_address(ctx, slots.slot_of(handle)) + OWNER, handle | TOUCHED)


@device
def put_back(ctx, handle, known=0):
    """``unclaim``, or ``leave`` where it has come to nothing: then it still goes the quick way."""
    if known == 0 and stage_of(ctx, slots.slot_of(handle)) == BEGINS:
        leave(ctx, handle & ~TOUCHED)
    else:
        unclaim(ctx, handle)


@device
def leave(ctx, handle):
    """``unclaim`` of a request for which nothing has been stored.

    Args:
        handle: | TOUCHED, where somebody else had gone on with it before.
    """
    gpu.store_gpu(row_address(ctx, slots.slot_of(handle)) + OWNER, handle)


@device
def close_row(ctx, handle):
    """Frees the slot of a request that the caller has claimed; one lane."""
    slot = slots.slot_of(handle)
    gpu.count_gpu(ctx.device + wire.DEVICE_DIRECT_OPEN, -1)
    bit = slots.busy_bit(slot)  # released as ``slots.release`` does
    gpu.clear_bits_gpu(busy_address(ctx, slot >> 5), bit | bit << 8 * wire.BUSY_DIRECT)


@device
def close_taken(ctx, handle, credit, bits, wanted):
    """``close_row`` of a receive whose message has been taken from its slot, in the lane that wants
    it: first gives the slot back.

    Args:
        credit: of the slot.
        bits: the message's mark, where the credit has it.
    """
    slot = slots.slot_of(handle)
    bit = slots.busy_bit(slot)
    gpu.give_back_if(
        credit, bits, ctx.device + wire.DEVICE_DIRECT_OPEN, busy_address(ctx, slot >> 5),
        bit | bit << 8 * wire.BUSY_DIRECT, wanted,
    )  # fmt: skip


@device
def _summary(ctx, group):
    """A bit for each of 32 words of direct bits: one of these may be set."""
    return busy_address(ctx, group << 5) + wire.BUSY_SUMMARY


@device
def _open_in(ctx, word):
    return gpu.load_gpu(busy_address(ctx, word)) >> 8 * wire.BUSY_DIRECT & wire.LOW_32


@device
def handle_in(ctx, slot):
    """The handle of the request in a slot; one lane."""
    return field(ctx, slot, OWNER) & ~(HELPED | TOUCHED | slots.CLAIMED)


@device
def is_over(ctx, slot, handle):
    """Whether a request is complete, or is none any more; one lane."""
    if _open_in(ctx, slot >> 5) >> (slot & 31) & 1 == 0 or handle_in(ctx, slot) != handle:
        return True
    return stage_of(ctx, slot) == FINISHED


@device
def next_open(ctx, first):
    """A slot with an open request, from ``first`` on, then around; -1: there is none. One lane."""
    groups = (all_slots(ctx) + 1023) >> 10
    group = first >> 10
    tried = 0
    while tried <= groups:
        summary = _summary(ctx, group)
        words = gpu.load_gpu(summary) & wire.LOW_32
        while words != 0:
            index = gpu.first_bit(words)
            words &= words - 1
            word = group << 5 | index
            found = _open_in(ctx, word)
            if found == 0:
                gpu.clear_bits_32_gpu(summary, 1 << index)
                if _open_in(ctx, word) != 0:  # it came just now
                    gpu.set_bits_32_gpu(summary, 1 << index)
            if tried == 0 and word <= first >> 5:
                found &= wire.LOW_32 << (first & 31) if word == first >> 5 else 0
            if found != 0:
                return word << 5 | gpu.first_bit(found)
        group += 1
        if group >= groups:
            group = 0
        tried += gpu.opaque(1)
    return -1


@device
def field(ctx, slot, which):
    return gpu.load_gpu(row_address(ctx, slot) + which)


@device
def facts(ctx, slot):
    """(stage, ADDRESS, STAMP, LENGTH), all under way at once."""
    row = row_address(ctx, slot)
    stage = gpu.load_gpu(row + STAGE)
    address = gpu.load_gpu(row + ADDRESS)
    stamp = gpu.load_gpu(row + STAMP)
    length = gpu.load_gpu(row + LENGTH)
    return stage & (1 << INDEX_SHIFT) - 1, address, stamp, length


@device
def ends_of(ctx, stamp):
    """(key, where the other end is, where ours is, counters) of the channel of a request, by its
    STAMP."""
    return table.entries(table.row_of(ctx, stamp >> 32 & INDEX_MASK))


@device
def set_field(ctx, slot, which, value):
    gpu.store_gpu(row_address(ctx, slot) + which, value)


@device
def channel_of(ctx, slot):
    """Address of the row of its channel."""
    return table.row_of(ctx, field(ctx, slot, STAMP) >> 32 & INDEX_MASK)


@device
def call_of(ctx, slot):
    """Which of the user's calls it was."""
    return field(ctx, slot, STAMP) >> CALL_SHIFT & 0xFF


@device
def stage_of(ctx, slot):
    return field(ctx, slot, STAGE) & (1 << INDEX_SHIFT) - 1


@device
def is_finished(state):
    """Of a request whose STAGE this is."""
    return state & (1 << INDEX_SHIFT) - 1 == FINISHED


@device
def set_stage(ctx, slot, stage):
    index = field(ctx, slot, STAMP) >> 32 & INDEX_MASK
    set_field(ctx, slot, STAGE, stage | index << INDEX_SHIFT)


@device
def length_of(ctx, slot):
    return field(ctx, slot, LENGTH) & LENGTH_MASK
