"""The quick way of an exchange: each lane of the leading warp has a block, which goes out or comes
back.

Written for latency, for calls of at most 32 blocks each way, of predefined datatypes, in one piece,
none longer than the wide slot. What memory is asked is asked for all blocks of a turn at once.

A call that is none for this way has done nothing when this returns. Of any other one, all messages
have their numbers by then, and ``exchanges`` goes on with those that are not over.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import block_jobs, table
from device_lib.direct.exchange_answers import may_be_answered
from device_lib.direct.exchange_blocks import (
    SWAPS,
    area_of,
    may_exchange,
    steps_of,
    with_swaps,
)
from device_lib.direct.exchange_checks import any_meet, meet_others
from device_lib.direct.exchange_lanes import (
    LANES,
    MOST,
    end_of,
    order_of,
    step_of,
    take_two,
)
from device_lib.direct.exchange_transfer import say_where, transfer
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


@device
def _nothing_done(ctx, slot, taken):
    if taken:
        slots.release(ctx, slot)
    return int64(0), int64(0), int64(0), int64(0), int64(0)


def _make_quick(two: bool) -> Callable:
    """The function for calls of one turn, or of two: what only two turns need takes registers."""
    most = MOST if two else LANES

    # long: one sequence, whose order is what it is for
    # wide: MPI's arguments, as words
    @device
    def body(
        ctx, word0, root_op, shape, numbers, send_count, send_type, send_buffer, recv_count,
        recv_type, recv_buffer, arrays,
    ):  # fmt: skip
        """(the handle of a call that is over, or 0; messages that are not: bits of steps out | back
        << 32, or 0: nothing has been done; in each lane, numbers of the messages of its steps, out
        | back << 32; bits of steps whose block comes straight; two slots, + 1 each, the second
        << 32).
        """
        lane = int64(gpu.lane_id())
        slot, taken = take_two(ctx, lane)
        comes = lane >= LANES
        way = BACK if comes else OUT
        root = sign32(root_op)
        out, back, in_place, flaw = sides_of(
            ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
            recv_type, recv_buffer, arrays,
        )  # fmt: skip
        shape = with_swaps(shape, in_place)
        swaps = shape & SWAPS != 0
        several = shape & OF_NEIGHBOURS != 0
        may = flaw == 0 and may_exchange(ctx, word0, root, shape)
        area, where = area_of(ctx, word0)
        first, last = 0, 0
        may = may and warp_lanes() == FULL_WARP
        if may:
            first, last = steps_of(area, where, word0, root, shape, way, in_place)
        if not two:  # before which the other function has been called
            block_jobs.begin(ctx)
        if not may:
            return _nothing_done(ctx, slot, taken)
        if gpu.ballot(ALL_LANES, taken) != 3 or gpu.ballot(ALL_LANES, last > most) != 0:
            return _nothing_done(ctx, slot, taken)
        own = gpu.ballot(ALL_LANES, first != 0 or last == 0) == 0 and not several and not swaps
        first = 1 if own else first
        side = out
        if comes:
            side = back
        # Of two turns the second one is looked at before the first, so that nothing has been done
        # where it is none for this way.
        turn = int64(-1 if two else 0)
        later_begin = int64(0)
        later_end = int64(0)
        left = int64(0)
        every = int64(0)
        straights = int64(0)
        while turn < (2 if two else 1):
            base = LANES if turn != 0 else 0
            step = base + (lane & LANES - 1)
            peer, nbytes, address, quick = step_of(area, where, shape, way, side, step, last)
            # With IN_PLACE this rank's own block is where it belongs.
            moves = first <= step and step < last and (not swaps or peer != where & LOW_32)
            sends = moves and not comes
            wants = moves and comes
            there, remote, local, counters = end_of(ctx, word0, peer, 1 if comes else 0, moves)
            own_source = gpu.shuffle(ALL_LANES, address, 0)
            its = gpu.shuffle(ALL_LANES, nbytes, 0)
            copies = own and turn == 0 and lane == LANES
            wrong = gpu.ballot(ALL_LANES, not quick or (copies and nbytes != its))
            if turn <= 0:
                met = any_meet(ALL_LANES, address, address + nbytes, LANES, min(back.number, LANES))
                if two:
                    met = met or (turn == 0 and meet_others(
                        address, address + nbytes, later_begin, later_end, LANES, LANES
                    ))  # fmt: skip
                    later_begin = address
                    later_end = address + nbytes
                if wrong != 0 or met or not there:
                    return _nothing_done(ctx, slot, taken)
            turn += gpu.opaque(1) if two else 1
            if turn > 0:
                before, all_of_it, leader = order_of(lane, peer, moves, last - base, several)
                # What is asked of memory from here on is on its way together.
                free = table.known_free(counters) if sends else int64(0)
                drawn = int64(0)
                if moves and before == 0:
                    drawn = int64(gpu.add_32_gpu(counters + channels.COUNTER_NUMBER, all_of_it))
                wide = int64(-1)
                if sends and nbytes > channels.ROOM and not may_be_answered(nbytes):
                    wide = table.next_wide(counters)
                number = gpu.shuffle(ALL_LANES, drawn, leader) + before & channels.NUMBERS
                # Of one channel, only as many as there are slots: what had them has been taken.
                answers = wants and base == 0 and before < channels.DEPTH and not swaps
                straight = say_where(ctx, answers, nbytes, address, remote, local, number)
                over = transfer(
                    ctx, shape, nbytes, address, remote, local, counters, number, wide,
                    table.slots_ahead(free, number), straight, sends, wants,
                    copies and nbytes > 0, own_source,
                )  # fmt: skip
                bits = gpu.ballot(ALL_LANES, moves and not over)
                left |= (bits & (1 << LANES) - 1 | bits >> LANES << 32) << base
                straights |= gpu.ballot(ALL_LANES, straight) >> LANES << base
                both = gpu.shuffle(ALL_LANES, number, lane & LANES - 1)
                both |= gpu.shuffle(ALL_LANES, number, lane | LANES) << 32
                every = both if lane & LANES == base else every
        if left == 0:
            if lane < 2:
                slots.release(ctx, slot)
            return slots.error_handle(SUCCESS), int64(0), int64(0), int64(0), int64(0)
        spares = gpu.shuffle(ALL_LANES, slot, 0) + 1 | gpu.shuffle(ALL_LANES, slot, 1) + 1 << 32
        return int64(0), left, every, straights, spares

    return body


_in_a_turn = linked("gmpi_direct_exchange_quick", 14, 5, _make_quick(False))
_in_two_turns = linked("gmpi_direct_exchange_turns", 14, 5, _make_quick(True))
_NUMBERS = 3  # which of the arguments it is


@device
def quick(ctx, words):
    """What ``_make_quick``'s function returns, of a call's arguments; its leading warp."""
    handle, left, drawn, straight, spares = _in_a_turn(ctx, *words)
    most = max(words[_NUMBERS] & LOW_32, words[_NUMBERS] >> 32)
    if handle == 0 and left == 0 and most > LANES:
        handle, left, drawn, straight, spares = _in_two_turns(ctx, *words)
    return handle, left, drawn, straight, spares
