"""The messages of an exchange's quick way (``exchange_quick``): each lane of a full warp sends one,
or receives it.

A message that finds its slot free and one that comes soon are never entered as requests. Blocks of
up to 8 bytes are moved by their lanes, longer ones by all threads of the call (``block_jobs``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import packets, table
from device_lib.direct.block_jobs import batch
from device_lib.direct.block_rows import (
    COPY,
    PUT_PACKETS,
    PUT_WIDE,
    TAKE_PACKETS,
    TAKE_WIDE,
    row_word,
)
from device_lib.direct.exchange_answers import (
    NO_ANSWER,
    STRAIGHT,
    announce_place,
    answer_to,
    is_answered,
)
from device_lib.direct.exchange_blocks import SWAPS
from device_lib.direct.exchange_lanes import LANES, look_for_credits
from device_lib.direct.own import are_noted_besides
from device_lib.direct.registered import places_by_warp
from device_lib.direct.rows import direct_handle
from device_lib.move.copy import load_payload, store_payload
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import ALL_LANES
from gmpi.contract import channels
from gmpi.contract.wire import LOW_32

# For messages, before they are entered as requests; and where the block has no others that it must
# go on with meanwhile: who comes late costs no more than that.
_LOOKS = 4 if gpu.SIMULATOR else 64
_LOOKS_ALONE = 4 if gpu.SIMULATOR else 512
_ANSWER_LOOKS = 2 if gpu.SIMULATOR else 6  # for answers

# What has become of a message that a lane receives.
_NONE = 0  # there is none, or it is none for this way
_PENDING = 1
_OVER = 2
_IN_ROW = 3  # it is there, and all threads move it
_STRAIGHT = 4  # it is where it belongs
_HELD = 5  # as PENDING: it would fall on what has not gone out


# --- what goes out --------------------------------------------------------------------------------


@device
def _look_for_answers(undecided, local, number, nbytes, answer, place, parts):
    """(lanes without an answer, ``answer_to``), of those that have none so far."""
    if undecided >> int64(gpu.lane_id()) & 1 != 0:
        answer, place, parts = answer_to(local, number, nbytes)
    still = undecided >> int64(gpu.lane_id()) & 1 != 0 and answer == NO_ANSWER
    return gpu.ballot(ALL_LANES, still), answer, place, parts


# long: one sequence, whose order is what it is for
# wide: what a lane has of its message
@device
def _send(
    ctx, sends, nbytes, address, remote, local, counters, number, wide, ahead, own, own_source,
    looks
):  # fmt: skip
    """Sends the lane's block, if it can go now: whether it has. Copies the block for this rank
    itself.

    Args:
        wide: number in the wide slot, if that has been drawn; else -1.
        ahead: slots that are free from this message on.
        own: in one lane, whether there is one, from ``own_source`` to ``address``.
        looks: how often to look for an answer; 0: nobody answers.
    """
    place = packets.inbox_slot(remote, number)
    mark = packets.mark_of(number) << 32
    short = sends and nbytes <= channels.ROOM and ahead > 0
    over = short
    to = place
    source = address
    word = row_word(PUT_PACKETS, nbytes, number)
    if own:
        to = address
        source = own_source
        word = row_word(COPY, nbytes, 0)
    if (short or own) and nbytes <= channels.HEADER_PAYLOAD:
        low, high = load_payload(source, nbytes)
        if own:
            store_payload(address, low, 0, nbytes)
        else:
            gpu.write_packet(place, low, nbytes | mark)
        short = False
        own = False
    now = gpu.ballot(ALL_LANES, short)
    later = gpu.ballot(ALL_LANES, own)
    large = sends and nbytes > channels.ROOM
    some_large = gpu.ballot(ALL_LANES, large)
    straight = False
    parts = int64(0)
    if some_large != 0:
        answer = int64(NO_ANSWER)
        there = int64(0)
        undecided = int64(0)
        if looks > 0:
            undecided = gpu.ballot(ALL_LANES, large and is_answered(number, nbytes))
        if undecided != 0:
            undecided, answer, there, parts = _look_for_answers(
                undecided, local, number, nbytes, answer, there, parts
            )
        if undecided != 0:  # what else there is to do, while answers are on their way
            if now | later != 0:
                batch(ctx, now | later, to, source, word)
            now = int64(0)
            later = int64(0)
        looked = 1
        while undecided != 0 and looked < looks:
            gpu.spin()
            undecided, answer, there, parts = _look_for_answers(
                undecided, local, number, nbytes, answer, there, parts
            )
            looked += 1
        straight = large and answer == STRAIGHT
        if straight:
            packets.write_length(place, nbytes, number)
            to = remote + there
            word = row_word(COPY, nbytes, 0)
        elif large and ahead >= channels.DEPTH:
            wide = wide if wide >= 0 else table.next_wide(counters)
            packets.write_wide_header(place, nbytes, number, wide)
            to = packets.wide_slot_of(place, number)
            word = row_word(PUT_WIDE, nbytes, wide)
        else:
            large = False
        over = over or large
        now |= gpu.ballot(ALL_LANES, large)
    if gpu.ballot(ALL_LANES, straight) == 0:
        now |= later
        later = int64(0)
    if now != 0:
        batch(ctx, now, to, source, word)
    if straight:
        gpu.fence_sys()
        gpu.write_packet(place + channels.FILLED, parts, mark)
    if later != 0:
        batch(ctx, later, to, source, word)
    return over


# --- what comes back ------------------------------------------------------------------------------


@device
def say_where(ctx, wants, nbytes, target, remote, local, number):
    """Says where long blocks go: whether the lane's goes straight there.

    Args:
        wants: whether the lane receives one, and may say so.
    """
    wants = wants and is_answered(number, nbytes)
    wanted = gpu.ballot(ALL_LANES, wants)
    place = int64(0)
    if wanted != 0:
        place = places_by_warp(ctx, target, nbytes, remote, wanted)
    if wants and place != 0:
        announce_place(remote, number, place - local, nbytes)
    elif wants:
        packets.announce_inbox(remote, number)
    return place != 0


@device
def _look(place, number, nbytes, target, straight):
    """(what has become of the lane's message, number in the wide slot)."""
    low, word = gpu.read_packet(place)
    parts = int64(0)
    filled = int64(0)
    if straight:
        parts, filled = gpu.read_packet(place + channels.FILLED)
    mark = packets.mark_of(number)
    if word >> 32 & LOW_32 != mark:
        return _PENDING, 0
    length = word & LOW_32
    if length == nbytes:
        if nbytes > channels.HEADER_PAYLOAD:
            return _IN_ROW, 0
        store_payload(target, low, 0, nbytes)
        return _OVER, 0
    if length == channels.LONG:
        if not straight or low != nbytes:
            return _NONE, 0
        return _STRAIGHT if filled >> 32 & LOW_32 == mark and parts > 0 else _PENDING, 0
    if length >= channels.ALL_OF_IT and low & LOW_32 == nbytes:
        return _IN_ROW, low >> channels.WIDE_LENGTH_BITS + 1 & channels.NUMBERS
    return _NONE, 0


# wide: what a lane has of its message
@device
def _receive(ctx, state, nbytes, target, remote, local, number, straight, looks):
    """Waits a little for the lane's block, if it is PENDING, and takes it: its new state.

    Args:
        looks: how often to look whether all have come.
    """
    place = packets.inbox_slot(local, number)
    wide = int64(0)
    tried = 0
    before = state
    while gpu.ballot(ALL_LANES, state == _PENDING) != 0 and tried < looks:
        if tried > 0:
            gpu.spin()
        if state == _PENDING:
            state, wide = _look(place, number, nbytes, target, straight)
        tried += gpu.opaque(1)
    rows = gpu.ballot(ALL_LANES, state == _IN_ROW)
    if rows != 0:
        word = row_word(TAKE_PACKETS, nbytes, number)
        source = place
        if nbytes > channels.ROOM:
            word = row_word(TAKE_WIDE, nbytes, wide)
            source = packets.wide_slot_of(place, number)
        aborted = batch(ctx, rows, target, source, word) != 0
        if state == _IN_ROW:
            state = _NONE if aborted else _OVER
    if state == _STRAIGHT:
        gpu.fence_sys()  # what the sender has stored: before other threads read it
        state = _OVER
    if state == _OVER and before == _PENDING:  # all packets have been seen
        packets.give_back(remote, number, True)
    return state


# wide: what a lane has of its message
@device
def transfer(
    ctx, shape, nbytes, address, remote, local, counters, number, wide, ahead, straight, sends,
    wants, own, own_source,
):  # fmt: skip
    """Sends the lane's block, or receives it, as far as that takes no long wait: whether it is
    over."""
    swaps = shape & SWAPS != 0
    usual = sends and not packets.refreshed(number)
    sent = False
    state = _PENDING if wants and not packets.refreshed(number) else _NONE
    answer_looks = 0 if swaps else _ANSWER_LOOKS
    anybody = direct_handle(ctx, 0, 0, 0)
    most = _LOOKS if are_noted_besides(anybody) else _LOOKS_ALONE
    looked = 0
    while looked < most:
        now = usual and not sent
        needed = now and ahead < (1 if nbytes <= channels.ROOM else channels.DEPTH)
        ahead = look_for_credits(gpu.ballot(ALL_LANES, needed), local, number, counters, ahead)
        gone = _send(
            ctx, now, nbytes, address, remote, local, counters, number, wide, ahead, own,
            own_source, answer_looks if looked == 0 else min(answer_looks, 1),
        )  # fmt: skip
        sent = sent or gone
        own = False
        unsent = gpu.ballot(ALL_LANES, sends and not sent)
        held = swaps and state == _PENDING and unsent >> (gpu.lane_id() & LANES - 1) & 1 != 0
        state = _HELD if held else state
        unsent = gpu.ballot(ALL_LANES, usual and not sent)
        looks = 1 if unsent != 0 else most - looked  # whose slots others give back meanwhile
        state = _receive(ctx, state, nbytes, address, remote, local, number, straight, looks)
        state = _PENDING if held else state
        looked += looks
        if unsent | gpu.ballot(ALL_LANES, state == _PENDING) == 0:
            break
    return sent or state == _OVER
