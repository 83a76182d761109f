"""Collectives of the direct road that do not block: taking what has come, and their requests.

Calls are *taken* in their order, by one scope at a time: whoever waits for one of them, or goes on
with others' requests, reduces what has come or moves it to the user's buffer. Starting them is in
``pending_starts.py``. See ``gmpi/contract/collectives.py``. One warp does this; of a block, the
leading one. Whoever waits has these functions, since it goes on with what others have started.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import block_rounds, rounds
from device_lib.direct.how import KEEP, ONE_LOOK, WAIT
from device_lib.direct.looking_on import make_look_on
from device_lib.direct.pending_rows import (
    has_room,
    packed_at,
    pending_place,
    record_of,
    tell_credit,
)
from device_lib.direct.round_waits import DATA, ENTERED_ONLY, LOOKS
from device_lib.direct.rounds import NOBODY, is_reducing, kind_of, row_of, signature_of
from device_lib.direct.rows import ALONE_NS
from device_lib.move.layouts import layout_of, unpack_layout
from device_lib.platform import primitives as gpu
from device_lib.platform.context import context_id
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import WARP
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from gmpi.contract import collectives, wire
from gmpi.contract.constants import ERR_OTHER, SUCCESS
from gmpi.contract.layouts import LAYOUT_RECV

HELPS = -1  # in place of a call's number: whoever looks takes what has come

_amount_of = device(collectives.amount_of)

# A handle: as one of the direct road, a send, in a slot that is none; below, the call.
_NO_SLOT = wire.HANDLE_SLOT_MASK
_NUMBER_BITS = 24
_NUMBERS = (1 << _NUMBER_BITS) - 1
_MARK = _NO_SLOT << wire.HANDLE_SLOT_SHIFT | 1 << wire.HANDLE_DIRECT_SHIFT
assert wire.MAX_REQUEST_SLOTS <= _NO_SLOT and wire.COMMUNICATORS << _NUMBER_BITS <= 1 << 32

# What the leader has found: nothing to do; done; it is its turn.
_NOTHING = 0
_READY = 1
_OURS = 2


@device
def is_pending(handle):
    """Whether it is the handle of a collective that does not block, on the direct road."""
    return handle & (_MARK | -1 << wire.HANDLE_ERROR_SHIFT) == _MARK


@device
def handle_of(ctx, what, number):
    comm = what >> collectives.COMM_SHIFT & (wire.COMMUNICATORS - 1)
    handle = _MARK | 1 << wire.HANDLE_SENDS_SHIFT | context_id(ctx) << wire.HANDLE_CONTEXT_SHIFT
    return handle | comm << _NUMBER_BITS | number & _NUMBERS


@device
def _row_by(ctx, handle):
    """The row of the communicator of a handle's call."""
    comm = handle >> _NUMBER_BITS & (wire.COMMUNICATORS - 1)
    return row_of(ctx, comm << collectives.COMM_SHIFT)


@device
def _number_by(handle, started):
    """The number of a handle's call, of ``started`` ones."""
    return started - (started - handle & _NUMBERS)


@device
def gives_to(what, me, ranks):
    """A bit for each rank that bytes of ours go to; packet 0 goes to all."""
    kind = kind_of(what)
    if kind >= collectives.REDUCE:
        return block_rounds.gives_to(what, me, ranks)
    everybody = (1 << ranks) - 1
    if kind == collectives.BCAST:
        return everybody & ~(1 << me) if me == what & collectives.ROOT_MASK else 0
    return everybody


@device
def takes_from(what, me, ranks):
    """A bit for each rank that packets are waited for from."""
    kind = kind_of(what)
    if kind >= collectives.REDUCE:
        return block_rounds.takes_from(what, me, ranks)
    root = what & collectives.ROOT_MASK
    if kind == collectives.BCAST:
        return 0 if me == root else 1 << root
    return (1 << ranks) - 1


@device
def _bytes_of(what):
    amount = _amount_of(signature_of(what))
    return amount << (what >> collectives.SIZE_SHIFT & 3) if is_reducing(what) else amount


@device
def last_pending(ctx, comm):
    """(number of the last call on a communicator that has been started, its word), if it has not
    been taken; NOBODY, 0: it has. One lane."""
    row = row_of(ctx, comm << collectives.COMM_SHIFT)
    started, taken = gpu.load_pair_gpu(row + collectives.STARTED)
    if taken >= started:
        return NOBODY, 0
    area, where = gpu.load_16(row + collectives.AREA)
    what = record_of(area, where >> collectives.RANKS_SHIFT, started - 1)[1]
    return started - 1, what


@device
def count_pending(ctx, more):
    """Says to whoever waits how many more calls there are to take."""
    gpu.count_gpu(ctx.device + wire.DEVICE_PENDING, more)
    gpu.count_gpu(ctx.device + wire.DEVICE_DIRECT_OPEN, more)


@device
def _turn_of(taken):
    """TURN, where nobody takes."""
    return (taken & _NUMBERS) << 1


@device
def _begin_turn(row, taken):
    """TURN as it was: the caller may take calls from ``taken`` on, if it was ``_turn_of`` it."""
    return gpu.cas_gpu(row + collectives.TURN, _turn_of(taken), _turn_of(taken) | 1)


@device
def _end_turn(ctx, row, taken, come):
    """The caller has taken all calls before ``come``; one lane."""
    if come != taken:
        gpu.fence_gpu()  # what has been taken: before others see that it has
        gpu.store_gpu(row + collectives.TAKEN, come)
        count_pending(ctx, taken - come)
        if come & -collectives.CREDIT_STEP > taken:
            tell_credit(row, come)
            gpu.fence_sys()  # before that of the next one who takes, on another SM
    gpu.store_gpu(row + collectives.TURN, _turn_of(come))


@device
def _is_old(row, started):
    """Whether helpers have seen for ALONE_NS that so many calls have been started: then all that
    was stored before they were is there. No start has a fence; who waits for a call, or starts the
    next one, has been told of it by whoever started it. One lane."""
    known, since = gpu.read_packet(row + collectives.SEEN)
    now = gpu.timer_ns()
    if known != started:
        gpu.write_packet(row + collectives.SEEN, started, now)
        return False
    return now - since > ALONE_NS


@device
def give_up(ctx, row):
    """Ranks have called different things: nothing more is taken or started; one lane."""
    if gpu.cas_gpu(row + collectives.BROKEN, SUCCESS, ERR_OTHER) == SUCCESS:
        taken = gpu.load_gpu(row + collectives.TAKEN)
        while _begin_turn(row, taken) != _turn_of(taken):  # who takes counts what it takes
            gpu.spin()
            taken = gpu.load_gpu(row + collectives.TAKEN)
        count_pending(ctx, taken - gpu.load_gpu(row + collectives.STARTED))


def link_pending(make_wait: Callable, go_on: Callable, help_others: Callable) -> None:
    """Gives the library these functions.

    Args:
        make_wait: ``make_round_waits`` of warp scope; not one whose waits close what was freed:
            whoever closes such a request may come here.
        go_on: goes on with requests of the direct road.
        help_others: executes commands of the proxied road.
    """
    scope = WARP
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    broadcast = scope.broadcast
    broadcast_3 = scope.broadcast_3
    look_on = make_look_on(scope, go_on, help_others)
    part = parts_of(scope.name, "gmpi_direct")

    # wide: what ``take_one`` knows of the call
    @device
    def take_scattered(ctx, area, ranks, number, what, takes, slot, nbytes, looks):
        """``take_one`` where what comes does not go to one piece: block by block, all again if one
        is missing."""
        packed = packed_at(area, ranks, number)
        layout = layout_of(ctx, slot, LAYOUT_RECV)
        stride = block_rounds.stride_back(what, nbytes)
        missing = False
        while takes != 0 and not missing:
            some = takes if is_reducing(what) else takes & -takes
            missing = sync_or(
                block_rounds.take(
                    area + pending_place(number), ranks, number, what, some, packed, 0, nbytes,
                    rank(), size(), looks, False,
                )
            )  # fmt: skip
            if not missing:
                at = gpu.first_bit(some) * stride
                unpack_layout(layout, packed, at, at + nbytes, rank(), size())
            sync()
            takes &= ~some
        if not missing and leads() and gpu.lane_id() == 0:
            slots.release(ctx, slot)
        return missing

    @device
    def take_one(ctx, row, number, looks):
        """Whether a packet of the next call that has not been taken is missing; else it is taken
        now."""
        area, where = gpu.load_16(row + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        target, what = record_of(area, ranks, number)
        nbytes = _bytes_of(what)
        takes = takes_from(what, where & wire.LOW_32, ranks)
        if target == 0 and nbytes > 0:  # a root's own block of an Iscatter is where it belongs
            takes = 0
        if target & wire.SCATTERED != 0:
            slot = target & wire.LOW_32
            return take_scattered(ctx, area, ranks, number, what, takes, slot, nbytes, looks)
        return sync_or(
            block_rounds.take(
                area + pending_place(number), ranks, number, what, takes, target,
                block_rounds.stride_back(what, nbytes), nbytes, rank(), size(), looks, False,
            )
        )  # fmt: skip

    @device
    def take_all(ctx, row, taken, wanted, started):
        """Takes what has come of the calls from ``taken`` on, in whose turn the caller is: the
        first one that has not. Those before ``wanted`` are looked for longer."""
        come = taken
        missing = False
        while come < started and not missing:
            missing = take_one(ctx, row, come, LOOKS if come < wanted else 1)
            if not missing:
                come += 1
        if leads() and gpu.lane_id() == 0:
            _end_turn(ctx, row, taken, come)
        sync()
        return come

    take_linked = part("take_pending", 7, 1, take_all)

    @device
    def look(ctx, what, number, signature, target, size_mode):
        """1 while a call has not been taken, or, ENTERED_ONLY, may not be started; takes those that
        have come."""
        row = row_of(ctx, what)
        started = taken = 0
        state = _NOTHING
        starts = size_mode & 1 == ENTERED_ONLY
        if leads() and gpu.lane_id() == 0:
            started, taken = gpu.load_pair_gpu(row + collectives.STARTED)
            broken = gpu.load_gpu(row + collectives.BROKEN)
            known = gpu.load_gpu(row + collectives.KNOWN)
            if starts:
                ready = number != HELPS and has_room(row, number, known)
            else:
                ready = taken > number
            may_take = taken < started and broken == SUCCESS
            if number == HELPS and may_take:
                may_take = _is_old(row, started)
            if ready:
                state = _READY
                gpu.fence_gpu()  # another block may have taken it
            elif may_take and _begin_turn(row, taken) == _turn_of(taken):
                state = _OURS
                if number == HELPS:
                    gpu.fence_gpu()
        state, started, taken = broadcast_3(state, started, taken)
        sync()  # before the next broadcast
        if state != _OURS:
            return 0 if state == _READY else 1
        wanted = taken if number == HELPS else started if starts else number + 1
        come = take_linked(ctx, row, taken, wanted, started)
        return 0 if not starts and come > number else 1

    look_linked = part("look_pending", 8, 1, look)
    wait_linked = make_wait("wait_pending", look_linked)

    @device
    def finish_short(ctx, handle):
        """READY: the call is complete; OURS: it is its turn, which the caller has; NOTHING. It
        takes an Allreduce or a Barrier itself, and calls nothing."""
        row = _row_by(ctx, handle)
        lane = gpu.lane_id()
        turn = 0
        if lane == 0:
            turn = _begin_turn(row, handle)  # mostly the call is the next one
        started = gpu.load_gpu(row + collectives.STARTED)  # all under way together
        area, where = gpu.load_16(row + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        target, what = record_of(area, ranks, handle)
        number = _number_by(handle, started)
        turn = broadcast(turn)
        if turn != _turn_of(handle):
            if (turn >> 1) - handle - 1 & _NUMBERS < _NUMBERS >> 1:
                gpu.fence_gpu()  # another block may have taken it
                return _READY
            return _NOTHING
        missing = 1
        packets = area + pending_place(number)
        if kind_of(what) == collectives.BARRIER:
            missing = rounds.missing_of_entered(
                packets, ranks, number, signature_of(what), lane, size(), LOOKS
            )
        elif kind_of(what) == collectives.ALLREDUCE and target & wire.SCATTERED == 0:
            missing = rounds.take_reduced(
                packets, ranks, ranks, number, what, target, _bytes_of(what), lane, size(), LOOKS
            )
        if sync_or(missing):
            return _OURS
        if lane == 0:
            _end_turn(ctx, row, number, number + 1)
        sync()
        return _READY

    short_linked = part("finish_short", 4, 1, finish_short)

    @device
    def finish(ctx, handle, how):
        """(outcome, count, origin) of a call, as ``direct.requests.finish``."""
        state = short_linked(ctx, handle)
        if state == _READY:
            return COMPLETED, 0, NO_ORIGIN
        row = _row_by(ctx, handle)
        number = started = error = 0
        if leads() and gpu.lane_id() == 0:
            started = gpu.load_gpu(row + collectives.STARTED)
            error = gpu.load_gpu(row + collectives.BROKEN)
            number = _number_by(handle, started)
        number, started, error = broadcast_3(number, started, error)
        sync()  # before the next broadcast
        if state == _OURS and take_linked(ctx, row, number, number + 1, started) > number:
            return COMPLETED, 0, NO_ORIGIN
        if error == SUCCESS:
            area, where = gpu.load_16(row + collectives.AREA)
            what = record_of(area, where >> collectives.RANKS_SHIFT, number)[1]
            mode = _bytes_of(what) << 1 | DATA
            if how != WAIT:
                done = state == _NOTHING
                if done:  # it may be taken after those before it
                    done = look_linked(ctx, what, number, signature_of(what), 0, mode) == 0
                if done or (how != ONE_LOOK and how != KEEP):
                    return COMPLETED if done else 0, 0, NO_ORIGIN
                if leads() and gpu.lane_id() == 0:
                    gpu.write_packet(row + collectives.ASKED_ABOUT, gpu.block_id(), number)
                    gpu.count_gpu(row + collectives.ASKED, 1)
                error = look_on(ctx)
                return COMPLETED | error << wire.ERROR_SHIFT if error != 0 else 0, 0, NO_ORIGIN
            error = wait_linked(ctx, what, number, signature_of(what), 0, mode)
            if error == ERR_OTHER and leads() and gpu.lane_id() == 0:
                give_up(ctx, row)
        return COMPLETED | error << wire.ERROR_SHIFT, 0, NO_ORIGIN

    part("finish_pending", 5, 3, finish)
