"""Requests that are entered in a row: opening them, and going on until they are complete.

What is not over when its call returns, and what a wait does not find at once, comes here. One warp
carries it out; of a block, its leading warp, and the others move the bytes (``block_jobs``); of a
grid, that of its leader. Who waits for long goes on with the requests of others as well: MPI
promises progress to all of them while a process waits for any.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import block_jobs, own, rows, table
from device_lib.direct.claims import FOREIGN, LOST, RESUMED, claim_again
from device_lib.direct.going_on import make_going_on
from device_lib.direct.how import HELD, HOLD, HOLD_LONGER, KEEP, ONE_LOOK, WAIT
from device_lib.direct.one_warp import PROXIED_ROAD
from device_lib.direct.pending import is_pending
from device_lib.direct.sends import first_stage
from device_lib.direct.synchronize import make_complete_open
from device_lib.direct.watching import link_watching
from device_lib.direct.wide_messages import LENGTH_SENT, SLOT_SHIFT
from device_lib.direct.words import call_of, elements, length_word, peer_tag_of
from device_lib.platform.context import leads_block, leads_grid
from device_lib.platform.library import declared, parts_of
from device_lib.platform.primitives import (
    SIMULATOR,
    device,
    fence_gpu,
    lane_id,
    load_gpu,
)
from device_lib.platform.scope import WARP, warp_lanes, warp_mask
from device_lib.proxied import pacing, ring, slots, taking
from device_lib.proxied.closing import COMPLETED, FAULT, NO_ORIGIN
from device_lib.proxied.scattered import place
from gmpi.contract import wire
from gmpi.contract.channels import KEY_COMM_SHIFT, NUMBERS, ROOM, ROW_KEY
from gmpi.contract.constants import DATATYPE_MARK, ERR_REQUEST, SUCCESS
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND

_LOOKS = 2 if SIMULATOR else 16  # of one lane, before all threads of the scope meet again
_ALONE = 1  # open requests of the direct road: our own
_OTHERS = 4  # are open: found in a turn of a wait, as pacing.LOOKED and LATE


def link_row_requests(ask: Callable, help_warp: Callable, groups: SimpleNamespace) -> None:
    """Gives the library these functions.

    Args:
        ask: what ``make_ask`` returned.
        help_warp: executes commands of the proxied road, by a warp.
        groups: what ``make_groups`` returned.
    """
    part = parts_of(WARP.name, "gmpi_direct")

    leads = WARP.leads
    sync = WARP.sync
    broadcast = WARP.broadcast
    broadcast_3 = WARP.broadcast_3

    @device
    def help_others(ctx):
        if leads_block(ctx):
            block_jobs.help_by_block(ctx)
        else:
            help_warp(ctx)

    # Rarely called, and long: not in the functions that every message goes through.
    ask_proxy = part("ask", 5, 2, ask)
    take_slot = taking.make_take_slot(WARP, help_others)
    going_on = make_going_on(groups)
    advance, go_on = going_on.advance, going_on.go_on
    help_own, help_linked = going_on.help_own, going_on.help_one
    finish_pending = declared("gmpi_direct_finish_pending_warp", 5, 3)

    @device
    def enter_channel(ctx, word0, peer_tag, mark):
        """Asks for a channel and enters it: (row, where the other end is, counters), in lane 0.
        (REFUSED, error class, 0) where it could not be asked.

        Args:
            mark: KEY_WATCHED, or 0.
        """
        remote, local = ask_proxy(ctx, word0, peer_tag)
        sync()
        row = table.NOBODY
        counters = 0
        if local == table.UNKNOWN:
            row = table.REFUSED
        elif leads() and lane_id() == 0:
            key = table.key_of(word0, peer_tag)
            if local == table.NEVER:
                key = table.peer_key(key)
            elif mark != 0 and table.is_direct(remote):
                key |= mark
            row, remote, local, counters = table.enter(ctx, key, remote, local)
        return row, remote, counters

    # wide: what is known of it
    @device
    def enter_request(
        ctx, word0, nbytes, address, buffer, type_row, row, number, slot, length_sent, touched
    ):
        """Opens a request: its handle. Arguments as of ``open_rest``.

        Args:
            number: of the message.
            slot: that has been taken for it.
            length_sent: whether that of a long message has been.
            touched: TOUCHED, or 0.
        """
        sends = word0 & 0xFF == wire.OP_ISEND
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
            call = call_of(word0)
            rows.open_row(ctx, slot, handle | touched, address, row, stage, call, length)
            if sends or address == wire.SCATTERED or nbytes > ROOM:
                own.note(ctx, handle)
        stage = broadcast(stage)
        sync()
        if sends and (stage == rows.BEGINS or leads_grid(ctx) != 0):
            go_on(ctx, slot, handle, _LOOKS if leads_grid(ctx) != 0 else 1)  # all blocks are here
        return handle

    open_watched, end_watched = link_watching(enter_channel, enter_request, take_slot)

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
        if row == table.NOBODY:  # in L1
            if leads() and lane_id() == 0:
                key = table.key_of(word0, peer_tag)
                row, remote, number, local, counters = table.draw(ctx, key)
            row, remote, number = broadcast_3(row, remote, number)
            sync()
        if row == table.NOBODY:  # always, in debug mode
            if table.is_watched(ctx):
                return open_watched(ctx, word0, peer_tag, nbytes, address, buffer, type_row)
            row, remote, counters = enter_channel(ctx, word0, peer_tag, 0)
            if row >= 0 and table.is_direct(remote):
                number = table.next_count(counters) & NUMBERS
            row, remote, number = broadcast_3(row, remote, number)
            sync()
        if row == table.REFUSED:
            return slots.error_handle(remote)
        if not table.is_direct(remote):
            return PROXIED_ROAD
        length_sent = number & LENGTH_SENT != 0
        slot = take_slot(ctx, (number >> SLOT_SHIFT) - 1, taking.SMALL)
        number &= NUMBERS
        if slot < 0:
            return slots.error_handle(-slot)
        return enter_request(
            ctx, word0, nbytes, address, buffer, type_row, row, number, slot, length_sent, 0
        )

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
    def close(ctx, slot, handle, sends, known, how):
        """(outcome, count, origin) of a finished request, which is one no more, unless KEEP."""
        outcome, count, origin = outcome_of(ctx, slot, sends)
        if how == KEEP:
            sync()  # all have read the row
            return outcome, count, origin
        failed = outcome >> wire.ERROR_SHIFT & 0xFF
        if known != 0:
            if known & rows.TOLD != 0 and leads():
                tell_linked(ctx, wire.OP_WAITED, slot, handle)
            if known & rows.WATCHED != 0:
                outcome = end_watched(ctx, slot, outcome)
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
        known = rows.what_is_known(ctx, slot, handle) if state == RESUMED else 0
        holds = how >= HOLD and known == 0
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
                    if one_look:
                        what |= rows.looked_for_long(ctx, slot, handle, began, known)
                    if load_gpu(ctx.device + wire.DEVICE_DIRECT_OPEN) > _ALONE:
                        what |= _OTHERS
                error, what, unused = broadcast_3(error, what, 0)
                sync()
                if what & pacing.LATE != 0 and known & rows.TOLD == 0:
                    known |= rows.TOLD
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
            outcome, count, origin = close(ctx, slot, handle, sends, known, how)
        elif error != 0:
            outcome = COMPLETED | (error & 0xFF) << wire.ERROR_SHIFT
        elif holds:
            outcome = HELD
        if (how == KEEP or outcome == 0) and leads() and lane_id() == 0:
            rows.put_back(ctx, handle, known)
        return outcome, count, origin

    part("open", 12, 1, open_rest)

    rest_linked = part("finish_rest", 6, 3, finish_rest)

    @device
    def finish(ctx, handle, how, state):
        """The same of any request, also of a collective that does not block."""
        if is_pending(handle):
            return finish_pending(ctx, handle, how)
        return rest_linked(ctx, handle, how, state)

    part("finish", 6, 3, finish)
    make_complete_open(WARP, going_on, help_others, tell_linked)
