"""Direct collectives that take several rounds, or wait for long; and those that do not fit.

Who waits goes on with the requests of others, and tells the proxy after 50 ms, as everywhere. Whose
call differs from that of another rank ends with an error: both say what both have called.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import rounds, rows
from device_lib.direct.late_waits import make_late_waits
from device_lib.direct.long_collectives import is_long, make_collect_long
from device_lib.direct.rounds import NOBODY, row_of, signature_of
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import (
    SIMULATOR,
    device,
    lane_id,
    load_16,
    load_gpu,
    load_pair_gpu,
    load_sys,
    spin,
    store_gpu,
    store_pair_gpu,
    timer_ns,
)
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import ring, slots
from gmpi.contract import collectives
from gmpi.contract.collectives import (
    ALLREDUCE,
    AREA,
    BARRIER,
    BCAST,
    COMM_SHIFT,
    KIND_SHIFT,
    NOT_OURS,
    NUMBER,
    OP_MASK,
    PEERS,
    RANKS_SHIFT,
    ROOM,
    ROOT_MASK,
    SIGNATURE,
    SIZE_SHIFT,
)
from gmpi.contract.constants import ERR_OTHER, SUCCESS
from gmpi.contract.wire import (
    BLOCKING,
    COMMUNICATORS,
    CONTROL_ABORT,
    DATATYPE_SHIFT,
    LOW_32,
    OP_ALLREDUCE,
    OP_BARRIER,
    OP_BCAST,
    OP_FAULT,
    OP_WAITED,
    OP_WAITS,
)

LOOKS = 2 if SIMULATOR else 64  # for each packet, before all threads of the scope meet
_PATIENCE = 2 if SIMULATOR else 8  # turns of LOOKS, before anything else is thought of

# How far a call has come, in place of an error class.
NOTHING_DONE = -3
AFTER_STORES = -2  # of its first round

# What is waited for in a round.
_ENTERED = 0  # packet 0 of all ranks
_DATA = 1

datatype_of = device(collectives.datatype_of)


@device
def _kind_of(what):
    return what >> KIND_SHIFT & 3


@device
def _sends(what, me):
    """Whether our bytes are wanted."""
    kind = _kind_of(what)
    return kind == ALLREDUCE or (kind == BCAST and me == what & ROOT_MASK)


def make_collective_waits(scope: Scope, help_others: Callable, go_on: Callable) -> SimpleNamespace:
    """``rest``: (ctx, what, send, recv, nbytes, how far it has come) -> error class or NOT_OURS;
    ``long``: (ctx, what, slot of layouts, send, recv, nbytes) -> the same of a long call."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    broadcast_3 = scope.broadcast_3
    late_waits = make_late_waits(scope, help_others)
    begin_late, end_late = late_waits.begin, late_waits.end
    part = parts_of(scope.name, "gmpi_direct")

    @device
    def tell(ctx, op, what, about, nbytes, handle):
        """A record about a call; the leading warp.

        Args:
            op: OP_WAITS, OP_WAITED or OP_FAULT.
            about: of a fault: the other rank.
            nbytes: of a fault: our signature of the round, which may be that of the call before.
        """
        kind = _kind_of(what)
        call = OP_BARRIER
        peer_tag = 0
        if kind == ALLREDUCE:
            call = OP_ALLREDUCE
            peer_tag = (what & OP_MASK) << 32
        elif kind == BCAST:
            call = OP_BCAST
            peer_tag = what & ROOT_MASK
        value = nbytes
        count = nbytes
        if op == OP_FAULT:
            peer_tag = about
            value = ERR_OTHER
            count = nbytes
        elif kind == ALLREDUCE:
            count = nbytes >> (what >> SIZE_SHIFT & 3)
        word0 = op | call << 8 | (what >> COMM_SHIFT & (COMMUNICATORS - 1)) << 16
        if kind == ALLREDUCE:
            word0 |= BLOCKING
        if kind != BARRIER:
            word0 |= datatype_of(what) << DATATYPE_SHIFT
        lane = lane_id()
        ring.post_about(ctx, lane, warp_lanes(), warp_mask(), word0, peer_tag, count, handle, value)
        return 0

    tell_linked = part("tell_collective", 8, 1, tell)

    @device
    def look(ctx, what, number, signature, target, size_mode):
        """1 where a packet of a round that the caller has looked for is missing, else 0."""
        row = row_of(ctx, what)
        area, place = load_16(row + AREA)
        ranks = place >> RANKS_SHIFT
        nbytes = size_mode >> 1
        if size_mode & 1 == _ENTERED:
            return rounds.missing_of_entered(area, ranks, number, signature, rank(), size(), LOOKS)
        reduces = _kind_of(what) == ALLREDUCE
        root = what & ROOT_MASK
        if not reduces and place & LOW_32 == root:
            return 0
        first = 0 if reduces else root
        last = ranks - 1 if reduces else root
        missing, packet = rounds.take_four(
            first, last, area, ranks, number, what, target, nbytes, rank(), size(), LOOKS
        )
        if missing != 0:
            return 1
        if reduces:
            return rounds.take_reduced(
                area, ranks, number, what, target, nbytes, packet, size(), LOOKS
            )
        return rounds.take_from(
            root, area, ranks, number, what, target, nbytes, packet, size(), LOOKS
        )

    look_linked = part("look_for_round", 8, 1, look)

    @device
    def judge(ctx, what, number, signature, began):
        """(error class with which a wait ends, or 0; what differs: rank + 1 | signature << 32;
        when it began); one lane, now and then."""
        area, place = load_16(row_of(ctx, what) + AREA)
        error = load_sys(ctx.mapped + CONTROL_ABORT)
        other, theirs = rounds.who_differs(area, place >> RANKS_SHIFT, number, signature)
        if other != NOBODY and error == 0:
            error = ERR_OTHER
        now = timer_ns()
        return error, other + 1 | theirs << 32, now if began == 0 else began

    @device
    def wait(ctx, what, number, signature, target, size_mode):
        """Waits for a round: SUCCESS or the error class.

        Args:
            size_mode: its bytes << 1 | _DATA; or _ENTERED: only for all ranks to enter it.
        """
        turns = 0
        began = 0
        handle = 0
        error = SUCCESS
        differs = 0
        missing = sync_or(look_linked(ctx, what, number, signature, target, size_mode))
        while missing and error == SUCCESS:
            turns += 1
            if turns > _PATIENCE:
                late = 0
                if leads() and lane_id() == 0:
                    error, differs, began = judge(ctx, what, number, signature, began)
                    late = 1 if timer_ns() - began > rows.LATE_NS else 0
                error, differs, late = broadcast_3(error, differs, late)
                sync()
                if late != 0 and handle == 0:
                    handle = begin_late(ctx)
                    if handle > 0 and leads():
                        tell_linked(ctx, OP_WAITS, what, 0, size_mode >> 1, handle)
                if error == SUCCESS:
                    go_on(ctx, slots.guess(ctx))
                    help_others(ctx)
            spin()
            if error == SUCCESS:
                missing = sync_or(look_linked(ctx, what, number, signature, target, size_mode))
        if handle > 0:
            if leads():
                tell_linked(ctx, OP_WAITED, what, 0, 0, handle)
            end_late(ctx, handle)
        if error == ERR_OTHER and leads():
            other = (differs & LOW_32) - 1
            tell_linked(ctx, OP_FAULT, what, other, signature, differs >> 32)
        return error & 0xFF

    wait_linked = part("wait_collective", 8, 1, wait)

    @device
    def store_round(ctx, what, number, source, nbytes):
        """Stores what is ours of a round."""
        row = row_of(ctx, what)
        place = load_16(row + AREA)[1]
        ranks = place >> RANKS_SHIFT
        me = place & LOW_32
        if _sends(what, me):
            alone = NOBODY if _kind_of(what) == ALLREDUCE else me
            packet = rounds.put_four(
                row, ranks, number, what, source, nbytes, alone, rank(), size()
            )
            low = rounds.load_packet(source, nbytes, packet)
            peers = load_16(row + PEERS)
            rounds.put(row, ranks, number, what, source, nbytes, alone, packet, size(), low, peers)
        else:
            rounds.put_entered(row, ranks, number, what, rank(), size())
        return 0

    store_linked = part("store_round", 7, 1, store_round)

    collect_long = make_collect_long(scope, wait_linked)

    @device
    def begin_and_end(ctx, what, slot, send, recv, nbytes):
        """A long call; NOT_OURS: it cannot be."""
        row = row_of(ctx, what)
        number, entered = load_pair_gpu(row + NUMBER)
        ranks = load_16(row + AREA)[1] >> RANKS_SHIFT
        if entered < 0 or (_kind_of(what) == BCAST and what & ROOT_MASK >= ranks):
            return NOT_OURS
        error = SUCCESS
        if entered != number:
            error = wait_linked(ctx, what, number - 1, load_gpu(row + SIGNATURE), 0, _ENTERED)
        if error == SUCCESS:
            error, number = collect_long(ctx, what, slot, send, recv, nbytes, number)
        if leads() and lane_id() == 0:
            store_pair_gpu(row + NUMBER, number, number if error == SUCCESS else -1)
        sync()
        return error

    long_linked = part("collect_long", 8, 1, begin_and_end)

    @device
    def rest(ctx, what, send, recv, nbytes, state):
        """A whole call, or what is left of it.

        Args:
            state: NOTHING_DONE; or AFTER_STORES, of a single round.
        """
        if is_long(ctx, what, nbytes):
            return long_linked(ctx, what, 0, send, recv, nbytes)
        row = row_of(ctx, what)
        number, entered = load_pair_gpu(row + NUMBER)
        ranks = load_16(row + AREA)[1] >> RANKS_SHIFT
        kind = _kind_of(what)
        if entered < 0 or (kind == BCAST and what & ROOT_MASK >= ranks):
            return NOT_OURS
        ours = signature_of(what)
        last = load_gpu(row + SIGNATURE)
        mode = _ENTERED if kind == BARRIER else _DATA
        error = SUCCESS
        begin = 0
        going = True
        while going:
            some = min(nbytes - begin, ROOM)
            if state == NOTHING_DONE:
                if entered != number:
                    error = wait_linked(ctx, what, number - 1, last, 0, _ENTERED)
                if error == SUCCESS:
                    store_linked(ctx, what, number, send + begin, some)
            if error == SUCCESS:
                error = wait_linked(ctx, what, number, ours, recv + begin, some << 1 | mode)
            state = NOTHING_DONE
            entered = number if kind == BCAST else number + 1
            last = ours
            number += 1
            begin += ROOM
            going = error == SUCCESS and begin < nbytes
        if leads() and lane_id() == 0:
            if error == SUCCESS:
                store_gpu(row + SIGNATURE, ours)
                store_pair_gpu(row + NUMBER, number, entered)
            else:  # what comes next goes by the proxies, which refuse it
                store_pair_gpu(row + NUMBER, number, -1)
        return error

    rest_linked = part("rest_of_collective", 8, 1, rest)
    return SimpleNamespace(rest=rest_linked, long=long_linked)
