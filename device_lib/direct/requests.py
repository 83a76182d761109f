"""Opening and completing requests of the direct road, and going on with those of others.

A short send that finds its slot free is over when the call returns: it has no row. Everything else
is entered in a row, and whoever waits goes on with it. Who waits for long goes on with the requests
of others as well: MPI promises progress to all of them while a process waits for any.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import rows, table
from device_lib.direct.block_jobs import make_led
from device_lib.direct.claims import CLAIMED, LOST, NOT_YET
from device_lib.direct.going_on import make_go_on
from device_lib.direct.how import HOLD, HOLD_LONGER, KEEP, QUICK, WAIT
from device_lib.direct.one_warp import is_receive, make_one_warp
from device_lib.direct.row_requests import link_row_requests
from device_lib.direct.scattered import make_open_scattered
from device_lib.direct.warp_messages import LOOKS, TAKEN
from device_lib.direct.wide_messages import make_wide_messages
from device_lib.direct.words import elements_of
from device_lib.platform.library import declared
from device_lib.platform.primitives import device, lane_id, load_gpu
from device_lib.platform.scope import WARP, Scope
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN, is_over, outcome_of
from gmpi.contract import wire
from gmpi.contract.channels import PROXIED
from gmpi.contract.constants import SUCCESS


def make_ask(transact: Callable) -> Callable:
    """Asks the proxy for a channel; all threads of a scope.

    Args:
        transact: ``proxied.requests.transact`` of the scope.
    """

    @device
    def ask(ctx, word0, peer_tag):
        """(where the other end is, or PROXIED; where ours is; NEVER: no channel of the two ranks is
        any other). (Error class, UNKNOWN) where it could not be asked: no road is known then, and
        the other rank may take the direct one."""
        op = wire.OP_SEND_CHANNEL if word0 & 0xFF == wire.OP_ISEND else wire.OP_RECEIVE_CHANNEL
        word0 = op | wire.FLAG_BACK << 8 | word0 & wire.COMMUNICATOR_MASK << 16
        outcome, origin = transact(ctx, word0, peer_tag)
        error = outcome >> wire.ERROR_SHIFT & 0xFF
        if error != SUCCESS:
            return error, table.UNKNOWN
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
    if scope.name == WARP.name:
        link_row_requests(ask, help_others, groups)
    open_linked = make_led(scope, declared("gmpi_direct_open_warp", 12, 1), 1)
    finish_linked = make_led(scope, declared("gmpi_direct_finish_warp", 6, 3), 3)
    help_linked = make_led(scope, declared("gmpi_direct_help_warp", 4, 1), 1)
    complete_open = make_led(scope, declared("gmpi_direct_complete_open_warp", 3, 1), 1)
    leads = scope.leads

    @device
    def open_in_one_piece(ctx, word0, peer_tag, nbytes, address, row, remote, number):
        return open_linked(ctx, word0, peer_tag, nbytes, address, 0, 0, row, remote, number)

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
        if is_over(handle):
            return outcome_of(handle)
        if is_receive(handle):
            return take_wide(ctx, handle, looks, leave)
        held = how >= HOLD and handle & slots.CLAIMED != 0  # no user's handle has that
        return CLAIMED if held else LOST, 0, NO_ORIGIN

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
            rows.put_back(ctx, handle & ~slots.CLAIMED)  # nothing is known of it: HOLD

    return SimpleNamespace(
        put_back=put_back,
        send=quick.send,
        receive=quick.post,
        start_scattered=open_scattered,
        take_at_once=take_at_once,
        finish_rest=finish_linked,
        finish=finish,
        go_on=make_go_on(scope, help_linked),
        complete_open=complete_open,
    )
