"""The quick way of an exchange: each lane of the leading warp has a block that goes out, and one
that comes back.

Written for latency, for calls of at most 32 blocks each way, of predefined datatypes, in one piece,
none longer than the wide slot. What memory is asked is asked for all blocks at once. A message that
finds its slot free and one that comes soon are never entered as requests. Blocks of up to 8 bytes
are moved by their lanes, longer ones by all threads of the call (``block_jobs``).

A call that is none for this way has done nothing when this returns. Of any other one, all messages
have their numbers by then, and ``exchanges`` goes on with those that are not over.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import block_jobs, packets, table
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
from device_lib.direct.exchange_blocks import (
    SWAPS,
    area_of,
    may_exchange,
    steps_of,
    with_swaps,
)
from device_lib.direct.exchange_checks import any_meet
from device_lib.direct.exchange_lanes import (
    block_of,
    end_of,
    look_for_credits,
    order_of,
    step_of,
    take_two,
)
from device_lib.direct.own import are_noted_besides
from device_lib.direct.registered import places_by_warp
from device_lib.direct.rows import direct_handle
from device_lib.move.copy import load_payload, store_payload
from device_lib.platform import primitives as gpu
from device_lib.platform.context import sign32
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import ALL_LANES, FULL_WARP, warp_lanes, warp_mask
from device_lib.proxied import slots
from device_lib.proxied.counted_sides import OF_NEIGHBOURS, sides_of
from gmpi.contract import channels
from gmpi.contract.constants import SUCCESS
from gmpi.contract.moves import BACK, OUT
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
    ctx, sends, nbytes, source, remote, local, counters, number, ahead, own_to, own, looks
):  # fmt: skip
    """Sends the lane's block, if it can go now: whether it has. Copies the block for this rank
    itself.

    Args:
        ahead: slots that are free from this message on.
        own_to: where this rank's own block goes.
        own: in lane 0, whether there is one, from ``source``.
        looks: how often to look for an answer; 0: nobody answers.
    """
    place = packets.inbox_slot(remote, number)
    mark = packets.mark_of(number) << 32
    short = sends and nbytes <= channels.ROOM and ahead > 0
    over = short
    to = place
    word = row_word(PUT_PACKETS, nbytes, number)
    if short and nbytes <= channels.HEADER_PAYLOAD:
        low, high = load_payload(source, nbytes)
        gpu.write_packet(place, low, nbytes | mark)
        short = False
    now = gpu.ballot(ALL_LANES, short)
    later = gpu.ballot(ALL_LANES, own)
    if own:
        to = own_to
        word = row_word(COPY, nbytes, 0)
    large = sends and nbytes > channels.ROOM
    some_large = gpu.ballot(ALL_LANES, large)
    straight = False
    parts = int64(0)
    if some_large != 0:
        answer = int64(NO_ANSWER)
        there = int64(0)
        undecided = int64(0)
        if looks > 0:
            undecided, answer, there, parts = _look_for_answers(
                some_large, local, number, nbytes, answer, there, parts
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
            wide = table.next_wide(counters)
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
def _answer(ctx, wants, nbytes, target, remote, local, number):
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


# --- a call ---------------------------------------------------------------------------------------


@device
def _nothing_done(ctx, slot, taken):
    if taken:
        slots.release(ctx, slot)
    return int64(0), int64(0), int64(0), int64(0), int64(0)


# long: one sequence, whose order is what it is for
# wide: MPI's arguments, as words
@device
def _quick(
    ctx, word0, root_op, shape, numbers, send_count, send_type, send_buffer, recv_count,
    recv_type, recv_buffer, arrays,
):  # fmt: skip
    """(the handle of a call that is over, or 0; messages that are not: bits of steps out | back
    << 32, or 0: nothing has been done; in each lane, numbers of the messages of its steps, out
    | back << 32; bits of steps whose block comes straight; two slots, + 1 each, the second << 32).
    """
    lane = int64(gpu.lane_id())
    slot, taken = take_two(ctx, lane)
    root = sign32(root_op)
    out, back, in_place, flaw = sides_of(
        ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
        recv_type, recv_buffer, arrays,
    )  # fmt: skip
    shape = with_swaps(shape, in_place)
    swaps = shape & SWAPS != 0
    may = flaw == 0 and may_exchange(ctx, word0, root, shape)
    area, where = area_of(ctx, word0)
    first_out, last_out, first_back, last_back = 0, 0, 0, 0
    if may:
        first_out, last_out = steps_of(area, where, word0, root, shape, OUT, in_place)
        first_back, last_back = steps_of(area, where, word0, root, shape, BACK, in_place)
    may = may and warp_lanes() == FULL_WARP and max(last_out, last_back) <= FULL_WARP
    may = gpu.ballot(warp_mask(), taken) == 3 and may
    block_jobs.begin(ctx)
    if not may:
        return _nothing_done(ctx, slot, taken)
    nbytes, source, quick_out = block_of(out, lane)
    room, target, quick_back = block_of(back, lane)
    if gpu.ballot(ALL_LANES, not quick_out or not quick_back) != 0 or any_meet(
        target, target + room, back.number
    ):
        return _nothing_done(ctx, slot, taken)
    to, nbytes, source = step_of(
        area, where, shape, OUT, out.number, lane, last_out, nbytes, source
    )
    sender, room, target = step_of(
        area, where, shape, BACK, back.number, lane, last_back, room, target
    )
    several = shape & OF_NEIGHBOURS != 0
    own = not several and first_out == 0 and first_back == 0 and min(last_out, last_back) > 0
    own = own and not swaps
    if own:
        first_out, first_back = 1, 1
    own = own and lane == 0
    other = not swaps or to != where & LOW_32  # this rank's own block is where it belongs
    sends = first_out <= lane and lane < last_out and other
    wants = first_back <= lane and lane < last_back and other
    there, remote, cells, counters = end_of(ctx, word0, to, 0, sends)
    there_too, sending, inbox, counted = end_of(ctx, word0, sender, 1, wants)
    if not there or not there_too or gpu.ballot(ALL_LANES, own and nbytes != room) != 0:
        return _nothing_done(ctx, slot, taken)
    before, all_out, leader = order_of(to, sends, last_out, several)
    before_back, all_back, leader_back = order_of(sender, wants, last_back, several)
    free = int64(0)
    drawn = int64(0)
    drawn_back = int64(0)
    if sends:
        free = table.known_free(counters)
    if wants and before_back == 0:
        drawn_back = int64(gpu.add_32_gpu(counted + channels.COUNTER_NUMBER, all_back))
    if sends and before == 0:
        drawn = int64(gpu.add_32_gpu(counters + channels.COUNTER_NUMBER, all_out))
    number_back = gpu.shuffle(ALL_LANES, drawn_back, leader_back) + before_back & channels.NUMBERS
    # Of one channel, only as many as there are slots: what had them before has been taken.
    answers = wants and before_back < channels.DEPTH and not swaps
    straight = _answer(ctx, answers, room, target, sending, inbox, number_back)
    number = gpu.shuffle(ALL_LANES, drawn, leader) + before & channels.NUMBERS
    ahead = table.slots_ahead(free, number)
    own = own and nbytes > 0
    sent = False
    state = _PENDING if wants and not packets.refreshed(number_back) else _NONE
    usual = sends and not packets.refreshed(number)
    answer_looks = 0 if swaps else _ANSWER_LOOKS
    anybody = direct_handle(ctx, 0, 0, 0)
    most = _LOOKS if are_noted_besides(anybody) else _LOOKS_ALONE
    looked = 0
    while looked < most:
        now = usual and not sent
        needed = now and ahead < (1 if nbytes <= channels.ROOM else channels.DEPTH)
        ahead = look_for_credits(gpu.ballot(ALL_LANES, needed), cells, number, counters, ahead)
        gone = _send(
            ctx, now, nbytes, source, remote, cells, counters, number, ahead, target, own,
            answer_looks if looked == 0 else min(answer_looks, 1),
        )  # fmt: skip
        sent = sent or gone
        own = False
        held = swaps and state == _PENDING and sends and not sent
        state = _HELD if held else state
        unsent = gpu.ballot(ALL_LANES, usual and not sent)
        looks = 1 if unsent != 0 else most - looked  # whose slots others give back meanwhile
        state = _receive(ctx, state, room, target, sending, inbox, number_back, straight, looks)
        state = _PENDING if held else state
        looked += looks
        if unsent | gpu.ballot(ALL_LANES, state == _PENDING) == 0:
            break
    left = gpu.ballot(ALL_LANES, sends and not sent)
    left |= gpu.ballot(ALL_LANES, wants and state != _OVER) << 32
    if left == 0:
        if lane < 2:
            slots.release(ctx, slot)
        return slots.error_handle(SUCCESS), int64(0), int64(0), int64(0), int64(0)
    spares = gpu.shuffle(ALL_LANES, slot, 0) + 1 | gpu.shuffle(ALL_LANES, slot, 1) + 1 << 32
    straights = gpu.ballot(ALL_LANES, straight)
    return int64(0), left, number | number_back << 32, straights, spares


quick = linked("gmpi_direct_exchange_quick", 14, 5, _quick)
