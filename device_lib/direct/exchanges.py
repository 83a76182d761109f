"""Direct collectives with counts of their own, and those among neighbours: exchanges of messages
(``gmpi/contract/exchanges.py``).

A call enters a message for each block, as many at once as there are slots for, and goes on with all
of them in turn: each step is one of the direct road's messages (``sends``, ``receives``). Nobody
else knows of these requests. So helpers leave them alone, and buffers may lie in shared memory. A
call holds two slots from the beginning, for a block each way; that is enough, in the order in which
all ranks come to theirs.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import block_jobs, rows
from device_lib.direct.exchange_answers import ask, note
from device_lib.direct.exchange_blocks import (
    LINK,
    NOT_DRAWN,
    STRAIGHT,
    SWAPS,
    area_of,
    channel_word,
    enter,
    may_exchange,
    place_of_block,
    steps_of,
    whom,
)
from device_lib.direct.exchange_preparing import make_preparing
from device_lib.direct.exchange_quick import quick
from device_lib.direct.exchange_swaps import ALL, is_left, make_swap
from device_lib.direct.late_waits import make_late_waits
from device_lib.direct.receives import make_advance_receive
from device_lib.direct.sends import make_advance_send
from device_lib.direct.words import peer_tag_of
from device_lib.move.layouts import BUFFER_ADDRESS
from device_lib.platform import primitives as gpu
from device_lib.platform.context import as_leading_warp, sign32
from device_lib.platform.library import declared, linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import WARP, Scope, warp_lanes, warp_mask
from device_lib.proxied import pacing, ring, slots, taking
from device_lib.proxied.counted_sides import OF_NEIGHBOURS, sides_of
from device_lib.proxied.publishing import make_no_slot
from gmpi.contract import channels, wire
from gmpi.contract.channels import ROW_KEY
from gmpi.contract.constants import BYTE, ERR_TRUNCATE, IN_PLACE, SUCCESS
from gmpi.contract.moves import BACK, OUT

_SEND_BUFFER = 6  # which of the arguments of ``open_counted`` it is
NOT_OURS = 0  # in place of a handle: the call goes by the proxy
_LOOKS = 2 if gpu.SIMULATOR else 16  # at the only open request, before all threads meet again


@device
def _node(slot, sends):
    """What a list of open requests has of one; 0 is its end."""
    return slot + 1 << 1 | sends


def _make_body(requests: SimpleNamespace, go_on: Callable) -> None:
    """What a leading warp does, whatever the scope of its call.

    Args:
        requests: of the proxied road, of warp scope.
        go_on: goes on with requests of the direct road, likewise.
    """
    scope = WARP
    sync = scope.sync
    broadcast_3 = scope.broadcast_3
    help_others = requests.help_others
    preparing = make_preparing(help_others)
    prepare, give_back = preparing.prepare, preparing.give_back
    no_slot = make_no_slot(requests.report)
    late_waits = make_late_waits(scope, help_others)
    begin_late, end_late = late_waits.begin, late_waits.end
    advance_send = make_advance_send()
    advance_receive = make_advance_receive(note)

    @device
    def advance(ctx, slot, sends, looks):
        """Whether a message has moved, after one step of it."""
        if sends != 0:
            return 1 if advance_send(ctx, slot, looks) else 0
        return 1 if advance_receive(ctx, slot, looks) else 0

    advance_linked = linked("gmpi_direct_advance_exchange", 6, 1, advance)

    @device
    def tell(ctx, op, word0, root, handle):
        """Tells the proxy that a call takes long, or that it is over; the leading warp."""
        word0 = op | (word0 & 0xFF) << 8 | (word0 & wire.COMMUNICATOR_MASK << 16) | wire.BLOCKING
        lane = gpu.lane_id()
        peer = root & wire.LOW_32
        ring.post_about(ctx, lane, warp_lanes(), warp_mask(), word0, peer, 0, handle, 0)
        return 0

    tell_linked = linked("gmpi_direct_exchange_tell", 7, 1, tell)

    @device
    def report(ctx, word0, slot):
        """Tells the host of a block that is not as long as this rank's counts say; the leading
        warp."""
        key = gpu.load_gpu(rows.channel_of(ctx, slot) + ROW_KEY)
        room = rows.length_of(ctx, slot)
        call = wire.OP_FAULT | (word0 & 0xFF) << 8 | (word0 & wire.COMMUNICATOR_MASK << 16)
        call |= wire.BLOCKING | BYTE << wire.DATATYPE_SHIFT
        ring.post_about(
            ctx, gpu.lane_id(), warp_lanes(), warp_mask(), call,
            peer_tag_of(key) & wire.LOW_32, room, rows.field(ctx, slot, rows.WANTED),
            ERR_TRUNCATE | room << 8,
        )  # fmt: skip
        return 0

    report_linked = linked("gmpi_direct_exchange_report", 5, 1, report)

    @device
    def take(ctx, spare):
        """A slot: the spare one, or another that is free now; -1: there is none."""
        if spare >= 0:
            return spare
        return taking.try_some(ctx, gpu.lane_id(), warp_mask())

    # wide: what is known of a step
    @device
    def enter_step(ctx, word0, shape, way, side, step, slot, tail, drawn):
        """Enters the message of a step behind all others.

        Args:
            drawn: as ``enter``'s, of the lane that has the step's number.
        """
        area, place = area_of(ctx, word0)
        peer, which = whom(area, place, shape, way, side.number, step)
        nbytes, begin, row = place_of_block(ctx, side, which)
        channel = channel_word(word0, shape, peer, way, step)
        drawn = gpu.shuffle(warp_mask(), drawn, min(step, warp_lanes() - 1))
        enter(ctx, channel, slot, nbytes, begin, side.buffer, row, drawn)
        answers = shape & SWAPS == 0
        if way == OUT and drawn == NOT_DRAWN and answers and gpu.lane_id() == 0:
            ask(ctx, slot)
        if tail != 0 and gpu.lane_id() == 0:
            rows.set_field(ctx, (tail >> 1) - 1, LINK, _node(slot, 1 if way == OUT else 0))
        sync()

    # wide: the same
    @device
    def open_receives(ctx, word0, shape, back, step, last, spare, head, tail, steps, drawn):
        """Enters receives as long as there are slots: (the next step, spare slot, list)."""
        while step < last:
            if not is_left(steps, step):
                step += gpu.opaque(1)
                continue
            slot = take(ctx, spare)
            spare = -1
            if slot < 0:
                break
            enter_step(ctx, word0, shape, BACK, back, step, slot, tail, drawn)
            tail = _node(slot, 0)
            head = tail if head == 0 else head
            step += gpu.opaque(1)
        return step, spare, head, tail

    # wide: the same
    @device
    def open_sends(ctx, word0, shape, out, step, last, spare, head, tail, steps, drawn):
        """The same of sends, most of which are over at once."""
        while step < last:
            if not is_left(steps, step):
                step += gpu.opaque(1)
                continue
            slot = take(ctx, spare)
            spare = -1
            if slot < 0:
                break
            enter_step(ctx, word0, shape, OUT, out, step, slot, 0, drawn)
            if advance_linked(ctx, slot, 1, 1) != 0:
                spare = slot
            else:
                if tail != 0 and gpu.lane_id() == 0:
                    rows.set_field(ctx, (tail >> 1) - 1, LINK, _node(slot, 1))
                tail = _node(slot, 1)
                head = tail if head == 0 else head
                sync()
            step += gpu.opaque(1)
        return step, spare, head, tail

    @device
    def end(ctx, word0, slot, sends, failed):
        """The error class of a call, one of whose messages has moved; the leading warp."""
        if sends != 0:
            return failed
        wrong = 0
        if gpu.lane_id() == 0:
            wrong = rows.field(ctx, slot, rows.WANTED) - rows.length_of(ctx, slot)
        if gpu.shuffle(warp_mask(), wrong, 0) == 0:
            return failed
        if failed == SUCCESS:
            report_linked(ctx, word0, slot)
        return ERR_TRUNCATE

    @device
    def turn(ctx, word0, head, tail, spares, failed, looks):
        """One step of each open request: (list, spare slots, error class in the leading warp, how
        many have ended).

        Args:
            spares: of receives and sends, + 1 each, the latter << 32.
        """
        before = int64(0)
        node = head
        ended = 0
        while node != 0:
            slot = (node >> 1) - 1
            sends = node & 1
            after = rows.field(ctx, slot, LINK)
            if advance_linked(ctx, slot, sends, looks) != 0:
                ended += 1
                spare = spares >> 32 if sends != 0 else spares & wire.LOW_32
                failed = end(ctx, word0, slot, sends, failed)
                if gpu.lane_id() == 0:
                    if before != 0:
                        rows.set_field(ctx, (before >> 1) - 1, LINK, after)
                    if spare != 0:
                        slots.release(ctx, slot)
                if spare == 0:
                    spares |= slot + 1 << (32 if sends != 0 else 0)
                head = after if before == 0 else head
                tail = before if after == 0 else tail
                sync()  # before anybody looks at the list again
            else:
                before = node
            node = after
        return head, tail, spares, failed, ended

    @device
    def be_patient(ctx, word0, root, began, handle):
        """In a turn of a long wait: (error class of aborted waits, when it began, by which handle
        the proxy knows of it or 0)."""
        found = 0
        error = 0
        if gpu.lane_id() == 0:
            found, error, began = pacing.long_wait(ctx, began, False)
        error, found, began = broadcast_3(error, found, began)
        sync()
        if found & pacing.LATE != 0 and handle == 0:
            handle = begin_late(ctx)
            if handle > 0:
                tell_linked(ctx, wire.OP_WAITS, word0, root, handle)
        if error == 0:
            go_on(ctx, slots.guess(ctx))
            if found & pacing.LOOKED != 0:
                help_others(ctx)
        return error & 0xFF, began, handle

    @device
    def over(ctx, word0, root, handle):
        """A wait that the proxy knows of by a handle, if that is not 0, has ended."""
        if handle > 0:
            tell_linked(ctx, wire.OP_WAITED, word0, root, handle)
            end_late(ctx, handle)

    make_swap(SimpleNamespace(
        prepare=prepare, no_slot=no_slot, enter=enter_step, advance=advance_linked, end=end,
        be_patient=be_patient, over=over, give_back=give_back,
    ))  # fmt: skip

    # long: one sequence, of one state
    # wide: MPI's arguments, as words
    @device
    def exchange(
        ctx, word0, root_op, shape, numbers, send_count, send_type, send_buffer, recv_count,
        recv_type, recv_buffer, arrays, left, drawn, straight, spares,
    ):  # fmt: skip
        """The handle of a call that is over; NOT_OURS: it goes by the proxy.

        Args:
            left, drawn, straight, spares: what ``quick`` has returned.
        """
        root = sign32(root_op)
        out, back, in_place, flaw = sides_of(
            ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
            recv_type, recv_buffer, arrays,
        )  # fmt: skip
        if flaw != 0 or not may_exchange(ctx, word0, root, shape):
            return NOT_OURS
        area, place = area_of(ctx, word0)
        receive, last_receive = steps_of(area, place, word0, root, shape, BACK, in_place)
        send, last_send = steps_of(area, place, word0, root, shape, OUT, in_place)
        spare_recv = (spares & wire.LOW_32) - 1
        spare_send = (spares >> 32) - 1
        own = int64(-1)
        sends_left = left & wire.LOW_32
        receives_left = left >> 32 & wire.LOW_32
        drawn_send = drawn & channels.NUMBERS
        drawn_receive = drawn >> 32 & channels.NUMBERS
        if straight >> int64(gpu.lane_id()) & 1 != 0:
            drawn_receive |= STRAIGHT
        if left == 0:
            has_own = shape & OF_NEIGHBOURS == 0 and receive == 0 and send == 0
            has_own = has_own and last_receive > 0 and last_send > 0
            wrong, spare_recv, spare_send, source, target, own = prepare(
                ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
                recv_type, recv_buffer, arrays, int64(1 if has_own else 0),
            )  # fmt: skip
            if wrong != 0:
                return NOT_OURS
            if spare_send < 0:
                return no_slot(ctx, word0, spare_send, 0)
            sends_left = receives_left = int64(ALL)
            drawn_send = drawn_receive = int64(NOT_DRAWN)
            if own >= 0:
                receive += 1
                send += 1
        head = int64(0)
        tail = int64(0)
        failed = int64(SUCCESS)
        error = int64(0)
        turns = 0
        began = int64(0)
        handle = int64(0)
        going = True
        while going:
            receive, spare_recv, head, tail = open_receives(
                ctx, word0, shape, back, receive, last_receive, spare_recv, head, tail,
                receives_left, drawn_receive,
            )  # fmt: skip
            if own > 0:  # while answers are on their way
                block_jobs.copy(ctx, target, source, own)
                own = int64(0)
            send, spare_send, head, tail = open_sends(
                ctx, word0, shape, out, send, last_send, spare_send, head, tail, sends_left,
                drawn_send,
            )  # fmt: skip
            spares = spare_recv + 1 | spare_send + 1 << 32
            looks = _LOOKS if head == tail else 1
            head, tail, spares, failed, ended = turn(ctx, word0, head, tail, spares, failed, looks)
            spare_recv = (spares & wire.LOW_32) - 1
            spare_send = (spares >> 32) - 1
            going = head != 0 or receive < last_receive or send < last_send
            turns = turns + 1 if ended == 0 else 0
            began = began if ended == 0 else 0
            if going and turns > pacing.PATIENCE:
                error, began, handle = be_patient(ctx, word0, root, began, handle)
                going = error == 0
        over(ctx, word0, root, handle)
        give_back(ctx, spare_recv)
        give_back(ctx, spare_send)
        return slots.error_handle(error if error != 0 else failed)

    linked("gmpi_direct_exchange", 18, 1, exchange)


def make_exchange(scope: Scope, requests: SimpleNamespace, go_on: Callable) -> SimpleNamespace:
    """Roads of ``make_counted_calls``, for one scope: ``plain``; and ``swapping``, of calls that
    swap blocks with IN_PLACE. Kernels that make no such calls link nothing of it.

    Args:
        requests: of the proxied road.
        go_on: goes on with requests of the direct road.
    """
    if scope.name == WARP.name:
        _make_body(requests, go_on)
    rest, swap = (declared(f"gmpi_direct_exchange{name}", 18, 1) for name in ("", "_swap"))

    @device
    def lead(ctx, words):
        handle, left, drawn, straight, spares = quick(ctx, words)
        if handle == 0:
            handle = rest(ctx, *(words + (left, drawn, straight, spares)))
        return handle

    @device
    def lead_or_swap(ctx, words):
        handle, left, drawn, straight, spares = quick(ctx, words)
        if handle == 0 and gpu.load_8(words[_SEND_BUFFER] + BUFFER_ADDRESS) == IN_PLACE:
            handle = swap(ctx, *(words + (left, drawn, straight, spares)))
        elif handle == 0:
            handle = rest(ctx, *(words + (left, drawn, straight, spares)))
        return handle

    def road(lead: Callable) -> SimpleNamespace:
        @device
        def lead_block(ctx, words):
            handle = lead(as_leading_warp(ctx), words)
            block_jobs.release(handle, 0, 0)
            return handle

        @device
        def follow(ctx):
            handle, unused, ignored = block_jobs.follow_rows(ctx)
            return handle

        here = lead if scope.name == WARP.name else lead_block
        return SimpleNamespace(leads=scope.leads, lead=here, follow=follow)

    return SimpleNamespace(plain=road(lead), swapping=road(lead_or_swap))
