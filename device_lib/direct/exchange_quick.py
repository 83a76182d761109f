"""The quick way of an exchange: each lane of the leading warp has a block, which goes out or comes
back.

Written for latency, for calls of at most 16 blocks each way, of predefined datatypes, in one piece,
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
    may_be_answered,
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
    LANES,
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
from device_lib.platform.scope import ALL_LANES, FULL_WARP, warp_lanes
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
    comes = lane >= LANES
    step = lane & LANES - 1
    way = BACK if comes else OUT
    root = sign32(root_op)
    out, back, in_place, flaw = sides_of(
        ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
        recv_type, recv_buffer, arrays,
    )  # fmt: skip
    shape = with_swaps(shape, in_place)
    swaps = shape & SWAPS != 0
    may = flaw == 0 and may_exchange(ctx, word0, root, shape)
    area, where = area_of(ctx, word0)
    first, last = 0, 0
    may = may and warp_lanes() == FULL_WARP
    if may:
        first, last = steps_of(area, where, word0, root, shape, way, in_place)
    block_jobs.begin(ctx)
    if not may:
        return _nothing_done(ctx, slot, taken)
    if gpu.ballot(ALL_LANES, taken) != 3 or gpu.ballot(ALL_LANES, last > LANES) != 0:
        return _nothing_done(ctx, slot, taken)
    side = out
    if comes:
        side = back
    nbytes, address, quick = block_of(side, step)
    if gpu.ballot(ALL_LANES, not quick) != 0 or any_meet(
        ALL_LANES, address, address + nbytes, LANES, back.number
    ):
        return _nothing_done(ctx, slot, taken)
    peer, nbytes, address = step_of(
        area, where, shape, way, side.number, lane, last, nbytes, address
    )
    several = shape & OF_NEIGHBOURS != 0
    own = gpu.ballot(ALL_LANES, first != 0 or last == 0) == 0 and not several and not swaps
    if own:
        first = 1
    own_source = gpu.shuffle(ALL_LANES, address, 0)
    own_differs = own and gpu.shuffle(ALL_LANES, nbytes, 0) != gpu.shuffle(ALL_LANES, nbytes, LANES)
    own = own and lane == LANES and nbytes > 0
    # With IN_PLACE this rank's own block is where it belongs.
    moves = first <= step and step < last and (not swaps or peer != where & LOW_32)
    sends = moves and not comes
    wants = moves and comes
    there, remote, local, counters = end_of(ctx, word0, peer, 1 if comes else 0, moves)
    if not there or own_differs:
        return _nothing_done(ctx, slot, taken)
    before, all_of_it, leader = order_of(lane, peer, moves, last, several)
    free = int64(0)
    drawn = int64(0)
    if sends:
        free = table.known_free(counters)
    if moves and before == 0:
        drawn = int64(gpu.add_32_gpu(counters + channels.COUNTER_NUMBER, all_of_it))
    wide = int64(-1)
    if sends and nbytes > channels.ROOM and not may_be_answered(nbytes):
        wide = table.next_wide(counters)  # both are on their way together
    number = gpu.shuffle(ALL_LANES, drawn, leader) + before & channels.NUMBERS
    # Of one channel, only as many as there are slots: what had them before has been taken.
    answers = wants and before < channels.DEPTH and not swaps
    straight = _answer(ctx, answers, nbytes, address, remote, local, number)
    ahead = table.slots_ahead(free, number)
    sent = False
    state = _PENDING if wants and not packets.refreshed(number) else _NONE
    usual = sends and not packets.refreshed(number)
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
        held = swaps and state == _PENDING and unsent >> step & 1 != 0
        state = _HELD if held else state
        unsent = gpu.ballot(ALL_LANES, usual and not sent)
        looks = 1 if unsent != 0 else most - looked  # whose slots others give back meanwhile
        state = _receive(ctx, state, nbytes, address, remote, local, number, straight, looks)
        state = _PENDING if held else state
        looked += looks
        if unsent | gpu.ballot(ALL_LANES, state == _PENDING) == 0:
            break
    left = gpu.ballot(ALL_LANES, (sends and not sent) or (wants and state != _OVER))
    if left == 0:
        if lane < 2:
            slots.release(ctx, slot)
        return slots.error_handle(SUCCESS), int64(0), int64(0), int64(0), int64(0)
    left = left & (1 << LANES) - 1 | left >> LANES << 32
    spares = gpu.shuffle(ALL_LANES, slot, 0) + 1 | gpu.shuffle(ALL_LANES, slot, 1) + 1 << 32
    straights = gpu.ballot(ALL_LANES, straight) >> LANES
    drawn = number | gpu.shuffle(ALL_LANES, number, lane | LANES) << 32
    return int64(0), left, drawn, straights, spares


quick = linked("gmpi_direct_exchange_quick", 14, 5, _quick)
