"""Waiting for a round of a direct collective.

Who waits goes on with the requests of others, and tells the proxy after 50 ms, as everywhere. Whose
call differs from that of another rank ends with an error: both say what both have called.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import rounds
from device_lib.direct.late_waits import make_late_waits
from device_lib.direct.pending_rows import signature_before, who_differs_in
from device_lib.direct.rounds import NOBODY, is_reducing, kind_of, row_of, signature_of
from device_lib.platform import primitives as gpu
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import pacing, ring, slots
from gmpi.contract import collectives, wire
from gmpi.contract.constants import ERR_OTHER, SUCCESS

LOOKS = 2 if gpu.SIMULATOR else 64  # for each packet, before all threads of the scope meet

# What is waited for in a round: the lowest bit of ``size_mode``.
ENTERED_ONLY = 0  # packet 0 of all ranks
DATA = 1

# Of calls that do not block: how many before the first that has not been taken.
_LAG_SHIFT = 8
_LAG_MASK = 2 * collectives.PENDING - 1
_RANK_MASK = (1 << _LAG_SHIFT) - 1
assert collectives.RANKS < _RANK_MASK

_amount_of = device(collectives.amount_of)
_datatype_of = device(collectives.datatype_of)
_op_of = device(collectives.op_of)
_root_of = device(collectives.root_of)


def make_round_waits(
    scope: Scope, help_others: Callable, go_on: Callable, closes: bool = True
) -> Callable:
    """What makes the waits of a scope: (name, look) -> wait, linked under that name.

    Args:
        help_others: executes commands of the proxied road.
        go_on: goes on with requests of the direct road.
        closes: as of ``make_take_slot``.
    """
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    broadcast_3 = scope.broadcast_3
    late_waits = make_late_waits(scope, help_others, closes)
    begin_late, end_late = late_waits.begin, late_waits.end
    part = parts_of(scope.name, "gmpi_direct")

    @device
    def tell(ctx, op, what, about, nbytes, handle):
        """A record about a call; the leading warp.

        Args:
            op: OP_WAITS, OP_WAITED or OP_FAULT.
            about: of a fault: the other rank; of a wait for a piece, which it is, else 0.
            nbytes: of a fault: our signature of the round, which may be that of the call before.
        """
        kind = kind_of(what)
        call = wire.OP_BARRIER
        peer_tag = 0
        value = nbytes
        count = nbytes
        if kind == collectives.ALLREDUCE:
            call = wire.OP_ALLREDUCE
            peer_tag = (what & collectives.OP_MASK) << 32
            count = nbytes >> (what >> collectives.SIZE_SHIFT & 3)
        elif kind == collectives.BCAST:
            call = wire.OP_BCAST
            peer_tag = what & collectives.ROOT_MASK
        elif kind >= collectives.REDUCE:
            call = _op_of(kind)
            peer_tag = _root_of(signature_of(what))
            if is_reducing(what):
                peer_tag |= (what & collectives.OP_MASK) << 32
        if op == wire.OP_FAULT:
            peer_tag = about
            value = ERR_OTHER
            count = nbytes
        word0 = op | call << 8 | (what >> collectives.COMM_SHIFT & (wire.COMMUNICATORS - 1)) << 16
        if op == wire.OP_WAITS and about != 0:
            peer_tag = peer_tag & ~wire.LOW_32 | about
            word0 |= wire.PIECE
        elif kind == collectives.ALLREDUCE or kind >= collectives.REDUCE:
            word0 |= wire.BLOCKING if what & collectives.NONBLOCKING_CALL == 0 else 0
        elif what & collectives.NONBLOCKING_CALL != 0:
            word0 |= wire.NONBLOCKING
        if kind != collectives.BARRIER:
            word0 |= _datatype_of(what) << wire.DATATYPE_SHIFT
        lane = gpu.lane_id()
        ring.post_about(ctx, lane, warp_lanes(), warp_mask(), word0, peer_tag, count, handle, value)
        return 0

    tell_linked = part("tell_collective", 8, 1, tell)

    @device
    def judge(ctx, what, number, signature, began, turns):
        """(error class with which a wait ends, or 0; what differs: rank + 1 | lag << _LAG_SHIFT
        | signature << 32; when it began; what ``pacing.long_wait`` has found); one lane, now and
        then."""
        row = row_of(ctx, what)
        area, place = gpu.load_16(row + collectives.AREA)
        ranks = place >> collectives.RANKS_SHIFT
        found, error, began = pacing.long_wait(ctx, began, False)
        lag = 0
        if what & collectives.NONBLOCKING_CALL != 0:
            # In each second turn the call itself, else one before it: the last ones first.
            lag = min(turns >> 1 & _LAG_MASK, collectives.PENDING) if turns & 1 != 0 else 0
            other, theirs = who_differs_in(row, area, ranks, lag)
        else:
            other, theirs = rounds.who_differs(area, ranks, number, signature)
        if other != NOBODY and error == 0:
            error = ERR_OTHER
        return error, other + 1 | lag << _LAG_SHIFT | theirs << 32, began, found

    def make_wait(name: str, look: Callable, of_blocks: bool = False) -> Callable:
        """
        Args:
            of_blocks: reports say how many bytes a block has, whatever the round has.
            look: (ctx, what, number, signature, target, size_mode) -> 1 where a packet that the
                caller has looked for is missing, else 0.
        """

        @device
        def wait(ctx, what, number, signature, target, size_mode):
            """Waits for a round: SUCCESS or the error class.

            Args:
                size_mode: its bytes << 1 | DATA; or ENTERED_ONLY: only for all ranks to enter it.
            """
            turns = 0
            began = 0
            handle = 0
            error = SUCCESS
            differs = 0
            missing = sync_or(look(ctx, what, number, signature, target, size_mode))
            while missing and error == SUCCESS:
                turns += 1
                if turns > pacing.PATIENCE:
                    found = 0
                    if leads() and gpu.lane_id() == 0:
                        error, differs, began, found = judge(
                            ctx, what, number, signature, began, turns
                        )
                    error, differs, found = broadcast_3(error, differs, found)
                    sync()
                    if found & pacing.LATE != 0 and handle == 0:
                        handle = begin_late(ctx)
                        if handle > 0 and leads():
                            nbytes = size_mode >> 1
                            if of_blocks:
                                nbytes = _amount_of(signature_of(what))
                            tell_linked(ctx, wire.OP_WAITS, what, 0, nbytes, handle)
                    if error == SUCCESS:
                        go_on(ctx, slots.guess(ctx))
                        if found & pacing.LOOKED != 0:
                            help_others(ctx)
                gpu.spin()
                if error == SUCCESS:
                    missing = sync_or(look(ctx, what, number, signature, target, size_mode))
            if handle > 0:
                if leads():
                    tell_linked(ctx, wire.OP_WAITED, what, 0, 0, handle)
                end_late(ctx, handle)
            if error == ERR_OTHER and leads():
                other = (differs & _RANK_MASK) - 1
                if what & collectives.NONBLOCKING_CALL != 0:
                    lag = differs >> _LAG_SHIFT & _LAG_MASK
                    signature = signature_before(row_of(ctx, what), lag)
                tell_linked(ctx, wire.OP_FAULT, what, other, signature, differs >> 32)
            return error & 0xFF

        linked: Callable = part(name, 8, 1, wait)
        return linked

    return make_wait
