"""Opening and completing requests of the direct road, and going on with those of others.

A short send that finds its slot free is over when the call returns: it has no row. Everything else
is entered in a row, and whoever waits goes on with it. Who waits for long goes on with the requests
of others as well: MPI promises progress to all of them while a process waits for any.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import own, rows, table
from device_lib.direct.claims import CLAIMED, FOREIGN, LOST, NOT_YET, RESUMED, claim_again
from device_lib.direct.going_on import make_going_on
from device_lib.direct.one_warp import PROXIED_ROAD, is_receive, make_one_warp
from device_lib.direct.scattered import make_open_scattered
from device_lib.direct.sends import first_stage
from device_lib.direct.synchronize import make_complete_open
from device_lib.direct.warp_messages import LOOKS, TAKEN
from device_lib.direct.wide_messages import LENGTH_SENT, SLOT_SHIFT, make_wide_messages
from device_lib.direct.words import call_of, elements, elements_of, length_word, peer_tag_of
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import (
    SIMULATOR,
    device,
    fence_gpu,
    lane_id,
    load_gpu,
)
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import pacing, ring, slots, taking
from device_lib.proxied.closing import COMPLETED, FAULT, NO_ORIGIN
from device_lib.proxied.scattered import place
from gmpi.contract import wire
from gmpi.contract.channels import (
    KEY_COMM_SHIFT,
    NUMBERS,
    PROXIED,
    ROOM,
    ROW_KEY,
)
from gmpi.contract.constants import DATATYPE_MARK, ERR_REQUEST, SUCCESS
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND

# How to finish a request.
WAIT = 0
ONE_LOOK = 1  # and one at the requests of others
QUICK = 2
KEEP = 3  # as ONE_LOOK, and a request that is complete stays open for a wait to come
HOLD = 4  # as QUICK, and the caller keeps the claim of what takes several steps: HELD
HOLD_LONGER = 5  # the same, with several looks

HELD = 1  # in place of COMPLETED: the caller passes handle | slots.CLAIMED from now on

_LOOKS = 2 if SIMULATOR else 16  # of one lane, before all threads of the scope meet again
_ALONE = 1  # open requests of the direct road: our own
_OTHERS = 4  # are open: found in a turn of a wait, as pacing.LOOKED and LATE


def make_ask(transact: Callable) -> Callable:
    """Asks the proxy for a channel; all threads of a scope.

    Args:
        transact: ``proxied.requests.transact`` of the scope.
    """

    @device
    def ask(ctx, word0, peer_tag):
        """(where the other end is, or PROXIED; where ours is; UNKNOWN: nobody has said so; NEVER:
        no channel of the two ranks is any other)."""
        op = wire.OP_SEND_CHANNEL if word0 & 0xFF == wire.OP_ISEND else wire.OP_RECEIVE_CHANNEL
        word0 = op | wire.FLAG_BACK << 8 | word0 & wire.COMMUNICATOR_MASK << 16
        outcome, origin = transact(ctx, word0, peer_tag)
        if outcome >> wire.ERROR_SHIFT & 0xFF != SUCCESS:
            return PROXIED, table.UNKNOWN
        local = outcome & wire.BYTES_MASK
        if local == 0:
            return PROXIED, table.NEVER if origin == PROXIED else 0
        return origin, load_gpu(ctx.device + wire.DEVICE_DIRECT) + local - 1

    return ask


def make_direct(
    scope: Scope, ask: Callable, help_others: Callable, groups: SimpleNamespace
) -> SimpleNamespace:
    """The direct road for one scope.

    Args:
        ask: what ``make_ask`` returned.
        help_others: executes commands of the proxied road.
        groups: what ``make_groups`` returned.
    """

    part = parts_of(scope.name, "gmpi_direct")

    leads = scope.leads
    sync = scope.sync
    broadcast = scope.broadcast
    broadcast_3 = scope.broadcast_3
    # Rarely called, and long: not in the functions that every message goes through.
    ask_proxy = part("ask", 5, 2, ask)
    take_slot = taking.make_take_slot(scope, help_others)
    going_on = make_going_on(scope, groups)
    advance, go_on = going_on.advance, going_on.go_on
    help_own, help_linked = going_on.help_own, going_on.help_one

    # wide: what ``table.draw`` has returned
    @device
    def open_rest(ctx, word0, peer_tag, nbytes, address, buffer, type_row, row, remote, number):
        """The handle of a request whose channel has been looked for; PROXIED_ROAD: it is not ours.

        Args:
            address: of a buffer in one piece, or SCATTERED.
            buffer, type_row: then what ``proxied.scattered.place`` takes.
            row, remote, number: what ``table.draw`` has returned; number with LENGTH_SENT and
                a slot beside it.
        """
        sends = word0 & 0xFF == wire.OP_ISEND
        if row == table.NOBODY:  # in L1
            if leads() and lane_id() == 0:
                key = table.key_of(word0, peer_tag)
                row, remote, number, local, counters = table.draw(ctx, key)
            row, remote, number = broadcast_3(row, remote, number)
            sync()
        if row == table.NOBODY:
            remote, local = ask_proxy(ctx, word0, peer_tag)
            sync()
            if leads() and lane_id() == 0 and local != table.UNKNOWN:
                key = table.key_of(word0, peer_tag)
                if local == table.NEVER:
                    key = table.peer_key(key)
                row, remote, local, counters = table.enter(ctx, key, remote, local)
                if table.is_direct(remote):
                    number = table.next_count(counters) & NUMBERS
            row, remote, number = broadcast_3(row, remote, number)
            sync()
        if not table.is_direct(remote):
            return PROXIED_ROAD
        length_sent = number & LENGTH_SENT != 0
        slot = take_slot(ctx, (number >> SLOT_SHIFT) - 1, taking.SMALL)
        number &= NUMBERS
        if slot < 0:
            return slots.error_handle(-slot)
        handle = rows.direct_handle(ctx, slot, number, 0, sends)
        if address == wire.SCATTERED:
            if leads():
                direction = LAYOUT_SEND if sends else LAYOUT_RECV
                place(
                    ctx, slot, direction, buffer, type_row, nbytes, lane_id(), warp_lanes(),
                    warp_mask(),
                )  # fmt: skip
                fence_gpu()
            sync()
        stage = rows.BEGINS
        if leads() and lane_id() == 0:
            length = length_word(word0, nbytes, type_row)
            if length_sent:
                stage = rows.ROUNDS
            elif sends:
                stage = first_stage(ctx, row, number, nbytes)
            rows.open_row(ctx, slot, handle, address, row, stage, call_of(word0), length)
            if sends or address == wire.SCATTERED or nbytes > ROOM:
                own.note(ctx, handle)
        stage = broadcast(stage)
        sync()
        if sends and stage == rows.BEGINS:
            go_on(ctx, slot, handle)
        return handle

    open_linked = part("open", 12, 1, open_rest)

    @device
    def open_in_one_piece(ctx, word0, peer_tag, nbytes, address, row, remote, number):
        return open_linked(ctx, word0, peer_tag, nbytes, address, 0, 0, row, remote, number)

    @device
    def outcome_of(ctx, slot, sends):
        """(outcome, count, origin) of a finished request; any thread."""
        outcome = rows.field(ctx, slot, rows.OUTCOME)
        if sends:
            return COMPLETED | outcome, 0, NO_ORIGIN
        stage, address, stamp, length = rows.facts(ctx, slot)
        key, remote, local, counters = rows.ends_of(ctx, stamp)
        count = elements(ctx, slot, length, outcome & wire.BYTES_MASK)
        return COMPLETED | outcome, count, peer_tag_of(key)

    @device
    def word0_about(ctx, slot, op, request, key):
        """The beginning of a record ``op`` about a request."""
        comm = key >> KEY_COMM_SHIFT & (wire.COMMUNICATORS - 1)
        datatype = DATATYPE_MARK | rows.field(ctx, slot, rows.LENGTH) >> rows.LENGTH_BITS & 0xFFFF
        word0 = op | request << 8 | comm << 16 | datatype << wire.DATATYPE_SHIFT
        return word0 | rows.call_of(ctx, slot) << wire.CALL_SHIFT

    @device
    def report(ctx, slot, error):
        """Tells the host of a receive that has failed; the leading warp."""
        key = load_gpu(rows.channel_of(ctx, slot) + ROW_KEY)
        word0 = word0_about(ctx, slot, wire.OP_FAULT, wire.OP_IRECV, key)
        room = rows.length_of(ctx, slot)
        ring.post_about(
            ctx, lane_id(), warp_lanes(), warp_mask(), word0, peer_tag_of(key),
            elements(ctx, slot, rows.field(ctx, slot, rows.LENGTH), room),
            rows.field(ctx, slot, rows.WANTED), error | room << 8,
        )  # fmt: skip
        return 0

    @device
    def tell(ctx, op, slot, handle):
        """Tells the proxy that a wait takes long, or that it is over; the leading warp."""
        key = load_gpu(rows.channel_of(ctx, slot) + ROW_KEY)
        request = wire.OP_ISEND if rows.is_send(handle) else wire.OP_IRECV
        length = rows.field(ctx, slot, rows.LENGTH)
        word0 = word0_about(ctx, slot, op, request, key)
        size = length >> rows.LENGTH_BITS + 8 & 0xFF
        length &= rows.LENGTH_MASK
        count = length // size if size != 0 else 1
        ring.post_about(
            ctx,
            lane_id(),
            warp_lanes(),
            warp_mask(),
            word0,
            peer_tag_of(key),
            count,
            handle,
            length,
        )
        return 0

    tell_linked = part("tell", 6, 1, tell)
    report_linked = part("report", 5, 1, report)

    @device
    def close(ctx, slot, handle, sends, told, how):
        """(outcome, count, origin) of a finished request, which is one no more, unless KEEP."""
        outcome, count, origin = outcome_of(ctx, slot, sends)
        if how == KEEP:
            sync()  # all have read the row
            return outcome, count, origin
        failed = outcome >> wire.ERROR_SHIFT & 0xFF
        if told != 0 and leads():
            tell_linked(ctx, wire.OP_WAITED, slot, handle)
        if failed != SUCCESS and leads():
            report_linked(ctx, slot, failed)
        sync()  # all have read the row
        if leads() and lane_id() == 0:
            own.forget(handle)
            fence_gpu()  # what was stored in the row: before the slot's next request
            rows.close_row(ctx, handle)
        return outcome, count, origin

    @device
    def finish_rest(ctx, handle, how, state):
        """Goes on where ``take_at_once`` has stopped: (outcome, count, origin)."""
        if state == LOST:
            if leads() and lane_id() == 0:
                state = claim_again(ctx, handle)
            state = broadcast(state)
            sync()
            if state == FOREIGN:
                return COMPLETED | FAULT | ERR_REQUEST << wire.ERROR_SHIFT, 0, NO_ORIGIN
        slot = slots.slot_of(handle)
        sends = rows.is_send(handle)
        done = state == RESUMED and rows.stage_of(ctx, slot) == rows.FINISHED
        sync()
        looked = 0
        looks = _LOOKS if how == HOLD_LONGER else 1
        began = 0
        told = 1 if state == RESUMED and rows.was_told(ctx, slot, handle) else 0
        holds = how >= HOLD and told == 0
        first = slots.guess(ctx)  # who looks once, again and again, must come to all of them
        error = 0
        one_look = how == ONE_LOOK or how == KEEP
        while not done and error == 0:
            done = advance(ctx, slot, sends, looks)
            looked += looks
            if done:
                break
            if how == WAIT:
                looks = 1 if help_own(ctx, handle, looked) else _LOOKS
            if looked >= pacing.PATIENCE * _LOOKS or one_look:
                what = 0
                if leads() and lane_id() == 0:
                    what, error, began = pacing.long_wait(ctx, began, False)
                    if one_look and told == 0 and rows.looked_for_long(ctx, slot, handle, began):
                        what |= pacing.LATE
                    if load_gpu(ctx.device + wire.DEVICE_DIRECT_OPEN) > _ALONE:
                        what |= _OTHERS
                error, what, unused = broadcast_3(error, what, 0)
                sync()
                if what & pacing.LATE != 0 and told == 0:
                    told = 1
                    if leads():
                        tell_linked(ctx, wire.OP_WAITS, slot, handle)
                if what & _OTHERS != 0 and error == 0:
                    first = help_linked(ctx, first)
                if error == 0 and what & pacing.LOOKED != 0:
                    help_others(ctx)
            if how != WAIT:
                break
        outcome = 0
        count = 0
        origin = NO_ORIGIN
        if done:
            outcome, count, origin = close(ctx, slot, handle, sends, told, how)
        elif error != 0:
            outcome = COMPLETED | (error & 0xFF) << wire.ERROR_SHIFT
        elif holds:
            outcome = HELD
        if (how == KEEP or outcome == 0) and leads() and lane_id() == 0:
            rows.put_back(ctx, handle)
        return outcome, count, origin

    finish_linked = part("finish", 6, 3, finish_rest)
    wide = make_wide_messages(scope)
    quick = make_one_warp(scope, open_in_one_piece, wide.send)
    open_scattered = make_open_scattered(scope, quick, open_linked)
    is_short, take_short, take_wide = quick.is_short, quick.take_short, wide.take

    @device
    def take_at_once(ctx, handle, how):
        """(outcome, count, origin) of a request that may be over: a short send, or a receive whose
        message comes while we look.

        Returns:
            outcome COMPLETED; NOT_YET, and others may take it; else the rest is for
            ``finish_rest``, if it is one of the direct road: its state.
        """
        looks = LOOKS if how == WAIT or how == HOLD_LONGER else 1
        leave = how == QUICK or how >= HOLD
        if is_short(handle):  # first what takes least time
            state, nbytes, length, origin = take_short(ctx, handle, looks, leave)
            if state == TAKEN:
                return COMPLETED | nbytes, elements_of(length, nbytes), origin
            return state, 0, NO_ORIGIN
        if handle == slots.error_handle(SUCCESS):
            return COMPLETED, 0, NO_ORIGIN
        if is_receive(handle):
            return take_wide(ctx, handle, looks, leave)
        return CLAIMED if handle & slots.CLAIMED != 0 else LOST, 0, NO_ORIGIN

    @device
    def finish(ctx, handle, how):
        """(outcome, count, origin) of a request of the direct road.

        Args:
            handle: | slots.CLAIMED where the caller holds it.
            how: WAIT; ONE_LOOK, which goes on with others' requests as well; QUICK; KEEP; HOLD or
                HOLD_LONGER.
        """
        outcome = LOST
        count = 0
        origin = NO_ORIGIN
        if how != KEEP:
            outcome, count, origin = take_at_once(ctx, handle, how)
        if outcome & COMPLETED == 0 and outcome != NOT_YET:
            handle &= ~slots.CLAIMED
            outcome, count, origin = finish_linked(ctx, handle, how, outcome)
        return outcome, count, origin

    @device
    def put_back(ctx, handle):
        """Others may go on with a request that the caller has held."""
        if leads() and lane_id() == 0:
            rows.put_back(ctx, handle & ~slots.CLAIMED)

    return SimpleNamespace(
        put_back=put_back,
        send=quick.send,
        receive=quick.post,
        start_scattered=open_scattered,
        take_at_once=take_at_once,
        finish_rest=finish_linked,
        finish=finish,
        go_on=going_on.go_on_with_others,
        complete_open=make_complete_open(scope, going_on, help_others, tell_linked),
    )
