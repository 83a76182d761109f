"""Alltoallv and Alltoallw with IN_PLACE: what comes in takes the place of what goes out.

In step k a rank swaps its block with the one rank for which this is step k, too: their numbers
have the sum k, modulo the number of ranks. So both are at the same pair, and two slots are enough
for a call. Of a pair, nothing is taken that would fall on what has not gone out: a message that
comes in a slot waits until the own one has left; a long one is taken round by round, behind the
rounds that have been pushed. Long blocks always come by staging.

A rank that waits for the other one's staging must not hold its own meanwhile: many calls at once,
on other communicators, could wait in a circle. So of two ranks the one with the higher number takes
staging first. See ``tests/model/in_place.pml``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct import packets, rows
from device_lib.direct.announcing import LOG_SHIFT
from device_lib.direct.exchange_blocks import (
    NOT_DRAWN,
    area_of,
    may_exchange,
    whom,
    with_swaps,
)
from device_lib.direct.grid_rounds import end_of_round
from device_lib.platform import primitives as gpu
from device_lib.platform.context import sign32
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import warp_mask
from device_lib.proxied import pacing, slots
from device_lib.proxied.counted_sides import sides_of
from gmpi.contract import channels, collectives
from gmpi.contract.constants import SUCCESS
from gmpi.contract.moves import BACK, OUT
from gmpi.contract.wire import LOW_32

ALL = -1  # in place of bits of steps
_LOOKS = 2 if gpu.SIMULATOR else 16  # at the only open request of a pair


@device
def is_left(steps, step):
    """Whether the message of a step is not over.

    Args:
        steps: bits of steps, or ALL.
    """
    return steps == ALL or steps >> step & 1 != 0


@device
def _may_take(ctx, receive, send, first):
    """Whether a receive may take its next step, while the send of the same block is open; one lane.

    Args:
        first: whether this rank takes staging before the other one.
    """
    pushed = rows.stage_of(ctx, send) - rows.ROUNDS
    stage, target, stamp, room = rows.facts(ctx, receive)
    if stage != rows.BEGINS:
        log = rows.field(ctx, receive, rows.WANTED) >> rows.LENGTH_BITS + LOG_SHIFT
        return pushed >= end_of_round(stage - rows.ROUNDS, log)
    key, sender, inbox, counters = rows.ends_of(ctx, stamp)
    number = stamp >> 1 & channels.NUMBERS
    low, word = gpu.read_packet(packets.inbox_slot(inbox, number))
    if word >> 32 & LOW_32 != packets.mark_of(number) or word & LOW_32 != channels.LONG:
        return False
    return first or pushed > 0


def make_swap(steps: SimpleNamespace) -> None:
    """Links what carries out a call, or what ``quick`` has left of it; its leading warp.

    Args:
        steps: of ``exchanges``.
    """
    prepare, no_slot, enter, advance = steps.prepare, steps.no_slot, steps.enter, steps.advance
    end, be_patient, over, give_back = steps.end, steps.be_patient, steps.over, steps.give_back

    # wide: what is known of a pair
    @device
    def swap_pair(
        ctx, word0, root, receive, send, receiving, sending, first, failed, handle
    ):  # fmt: skip
        """(error class of aborted waits, that of the call, by which handle the proxy knows of it or
        0).

        Args:
            receive, send: slots of the messages that ``receiving`` and ``sending`` say are open.
            first: as ``_may_take``'s.
            failed, handle: of the call so far.
        """
        error = int64(0)
        began = int64(0)
        turns = 0
        while (sending or receiving) and error == 0:
            looks = 1 if sending and receiving else _LOOKS
            turns += 1
            if sending and advance(ctx, send, 1, looks) != 0:
                sending = False
                turns = 0
            takes = 0
            if receiving:
                takes = 1
                if sending and gpu.lane_id() == 0:
                    takes = 1 if _may_take(ctx, receive, send, first) else 0
                takes = gpu.shuffle(warp_mask(), takes, 0)
            if takes != 0 and advance(ctx, receive, 0, looks) != 0:
                failed = end(ctx, word0, receive, 0, failed)
                receiving = False
                turns = 0
            if turns > pacing.PATIENCE:
                error, began, handle = be_patient(ctx, word0, root, began, handle)
        return error, failed, handle

    # wide: MPI's arguments, as words
    @device
    def swap(
        ctx, word0, root_op, shape, numbers, send_count, send_type, send_buffer, recv_count,
        recv_type, recv_buffer, arrays, left, drawn, straight, spares,
    ):  # fmt: skip
        """As ``exchange``: the handle of a call that is over; 0: it goes by the proxy."""
        root = sign32(root_op)
        out, back, in_place, flaw = sides_of(
            ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
            recv_type, recv_buffer, arrays,
        )  # fmt: skip
        shape = with_swaps(shape, in_place)
        if flaw != 0 or not may_exchange(ctx, word0, root, shape):
            return 0
        receive = (spares & LOW_32) - 1
        send = (spares >> 32) - 1
        sends_left = left & LOW_32
        receives_left = left >> 32 & LOW_32
        drawn_send = drawn & channels.NUMBERS
        drawn_receive = drawn >> 32 & channels.NUMBERS
        if left == 0:
            wrong, receive, send, source, target, own = prepare(
                ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
                recv_type, recv_buffer, arrays, int64(0),
            )  # fmt: skip
            if wrong != 0:
                return 0
            if send < 0:
                return no_slot(ctx, word0, send, 0)
            sends_left = receives_left = int64(ALL)
            drawn_send = drawn_receive = int64(NOT_DRAWN)
        area, place = area_of(ctx, word0)
        ranks = place >> collectives.RANKS_SHIFT
        me = place & LOW_32
        failed = int64(SUCCESS)
        error = int64(0)
        handle = int64(0)
        step = int64(0)
        while step < ranks and error == 0:
            peer = whom(area, place, shape, OUT, ranks, step)[0]
            receiving = peer != me and is_left(receives_left, step)
            sending = peer != me and is_left(sends_left, step)
            if receiving:
                enter(ctx, word0, shape, BACK, back, step, receive, 0, drawn_receive)
            if sending:
                enter(ctx, word0, shape, OUT, out, step, send, 0, drawn_send)
            error, failed, handle = swap_pair(
                ctx, word0, root, receive, send, receiving, sending, me > peer, failed, handle
            )
            step += gpu.opaque(1)
        over(ctx, word0, root, handle)
        give_back(ctx, receive)
        give_back(ctx, send)
        return slots.error_handle(error if error != 0 else failed)

    linked("gmpi_direct_exchange_swap", 18, 1, swap)
