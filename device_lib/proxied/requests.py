"""Both halves of every call: opening a request and completing it, for each scope.

Small requests of full warps go through the functions that are tuned for latency (``open_inline``,
``finish_small``, ``transact``); everything else, and what these leave over, through those that can
do all (``open_any``, ``finish_any``). All of them are compiled apart (``library``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.move.copy import copy_to_staging
from device_lib.move.message import record_bytes
from device_lib.platform.context import eager_bytes, has_p2p, status_of
from device_lib.platform.library import linked, parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import FULL_WARP, Scope
from device_lib.proxied import closing, taking
from device_lib.proxied.blocking import transact
from device_lib.proxied.closing_one import make_finish_one
from device_lib.proxied.looking_at import make_keep_bytes, make_look_at
from device_lib.proxied.opening import NOTHING_TAKEN, UNFINISHED, make_open_any, open_inline
from device_lib.proxied.opening_long import open_long
from device_lib.proxied.opening_staged import begin_staged, publish_staged
from device_lib.proxied.outgoing import make_copy_out, make_fill, make_send_bytes
from device_lib.proxied.slots import error_handle, is_small
from gmpi.contract import wire
from gmpi.contract.constants import GMPI_ERR_NO_RESOURCE

_open_inline = linked("gmpi_open_inline", 8, 1, open_inline)
_open_long = linked("gmpi_open_long", 8, 2, open_long)
_begin_staged = linked("gmpi_begin_staged", 3, 2, begin_staged)
_publish_staged = linked("gmpi_publish_staged", 8, 1, publish_staged)
_finish_small = linked("gmpi_finish_small", 5, 3, closing.finish_small)
_test_small = linked("gmpi_test_small", 4, 3, closing.test_small)
_transact = linked("gmpi_transact", 8, 4, transact)


def make_requests(scope: Scope) -> SimpleNamespace:
    """Opening and completing for one scope."""

    part = parts_of(scope.name)

    help_others = part("help", 3, 1, closing.make_help(scope))
    fill = part("fill", 8, 1, make_fill(scope, make_copy_out(scope)))
    send_bytes = make_send_bytes(scope, fill)
    open_unreported = make_open_any(scope, help_others, send_bytes)
    finish_open = closing.make_finish_any(scope)
    finish_one = part("finish_one", 6, 5, make_finish_one(scope))
    unpack = closing.make_unpack(scope)
    look_at = part("look_at", 5, 3, make_look_at(scope))
    report = part("report", 6, 1, closing.make_report(scope))
    leads = scope.leads
    rank = scope.rank
    size = scope.size
    leading_lanes = scope.leading_lanes
    sync_full = scope.sync_full
    share_full = scope.share_full
    share_4_full = scope.share_4_full

    @device
    def is_inline(ctx, word0, nbytes):
        """Whether the functions for one full warp can do it."""
        small = nbytes <= wire.INLINE_BYTES
        if word0 & wire.FLAG_OUT << 8 == 0:
            small = nbytes <= eager_bytes(ctx)
        return small and leading_lanes() == FULL_WARP

    @device
    def is_staged_send(ctx, word0, nbytes, unfinished):
        """Whether the functions of ``opening_staged`` can do it."""
        short = wire.INLINE_BYTES < nbytes and nbytes <= eager_bytes(ctx)
        sends = word0 & 0xFF == wire.OP_ISEND and unfinished & wire.LOW_32 == 0
        return short and sends and leading_lanes() == FULL_WARP

    @device
    def open_reported(ctx, word0, peer_tag, count, send, recv, unfinished):
        """Opens any request, and tells the host where there is no slot for it."""
        handle = open_unreported(ctx, word0, peer_tag, count, send, recv, unfinished)
        if handle == error_handle(GMPI_ERR_NO_RESOURCE):
            most = taking.most_open(ctx, record_bytes(word0, count) > eager_bytes(ctx))
            report(ctx, word0, most, GMPI_ERR_NO_RESOURCE)
        return handle

    open_any = part("open_any", 9, 1, open_reported)

    # In the user's kernel: called in the library, 1 KiB and 64 KiB took 3 to 13 % longer. Probably
    # since a fence empties L1, where the registers are that a function around it has saved.
    @device
    def open_rest(ctx, word0, peer_tag, count, nbytes, send, recv, unfinished):
        handle = unfinished
        if is_staged_send(ctx, word0, nbytes, unfinished):
            sync_full()
            slot = 0
            staging = 0
            if leads():
                slot, staging = _begin_staged(ctx)
            slot, staging, send, nbytes = share_4_full(slot, staging, send, nbytes)
            if slot >= 0:
                copy_to_staging(staging, send, nbytes, rank(), size())
                sync_full()
                if leads():
                    handle = _publish_staged(ctx, word0, count, send, peer_tag, slot)
                handle = share_full(handle)
                if handle & UNFINISHED == 0:
                    return handle
        sends = word0 & 0xFF == wire.OP_ISEND and has_p2p(ctx)
        at_once = sends or word0 & 0xFF == wire.OP_IRECV
        if at_once and nbytes > eager_bytes(ctx) and leading_lanes() == FULL_WARP:
            goes_to = 0
            sync_full()
            if leads():
                handle, goes_to = _open_long(ctx, word0, count, send, peer_tag, recv)
            handle, goes_to, send, nbytes = share_4_full(handle, goes_to, send, nbytes)
            if handle & UNFINISHED == 0:
                if sends:
                    send_bytes(ctx, handle, goes_to, send, nbytes, 0)
                return handle
        return open_any(ctx, word0, peer_tag, count, send, recv, handle)

    @device
    def open_request(ctx, word0, peer_tag, count, nbytes, send, recv):
        handle = NOTHING_TAKEN
        count = int64(count)
        if is_inline(ctx, word0, nbytes):
            # What other threads of the scope wrote to the buffers, or still read from them.
            sync_full()
            if leads():
                handle = _open_inline(ctx, word0, count, send, peer_tag, recv)
            handle = share_full(handle)
        if handle & UNFINISHED != 0:
            handle = open_rest(ctx, word0, peer_tag, count, nbytes, send, recv, handle)
        return handle

    @device
    def unpack_and_report(ctx, request, outcome):
        if outcome & closing.STAGED != 0:
            unpack(ctx, request, outcome)
        if outcome & closing.FAULT != 0:
            report(ctx, wire.OP_WAIT, request, outcome >> wire.ERROR_SHIFT & 0xFF)
        return 0

    close_linked = part("close", 5, 1, unpack_and_report)

    @device
    def close(ctx, request, outcome, count, origin):
        """What is left to do when the finish functions return; the Status."""
        if outcome & (closing.STAGED | closing.FAULT) != 0:
            close_linked(ctx, request, outcome)
        return status_of(outcome, count, origin)

    @device
    def finish_open_or_none(ctx, request, once):
        """(outcome, count, origin) of a handle of any kind: also of those of no request."""
        if request == wire.REQUEST_NULL:
            return closing.COMPLETED, 0, closing.NO_ORIGIN
        if closing.is_over(request):
            return closing.outcome_of(request)
        return finish_open(ctx, request, once)

    finish_any = part("finish_any", 5, 3, finish_open_or_none)

    @device
    def complete(ctx, request, once):
        """(completed, Status) of a request; after one look if ``once``, else it is complete."""
        request = int64(request)
        outcome = closing.HELP
        count = 0
        origin = 0
        if not is_small(request) or leading_lanes() != FULL_WARP:
            if closing.is_over(request):  # by no function of the library, which saves registers
                outcome, count, origin = closing.outcome_of(request)
            else:
                outcome, count, origin = finish_any(ctx, request, once)
        elif once:
            sync_full()
            if leads():
                outcome, count, origin = _test_small(ctx, request)
            outcome, count, origin, ignored = share_4_full(outcome, count, origin, 0)
            if outcome & closing.HELP != 0:
                help_others(ctx)
        else:
            resumed = 0
            while outcome & closing.HELP != 0:
                sync_full()
                if leads():
                    outcome, count, origin = _finish_small(ctx, request, resumed)
                outcome, count, origin, resumed = share_4_full(outcome, count, origin, 1)
                if outcome & closing.HELP != 0:
                    help_others(ctx)
        status = close(ctx, request, outcome, count, origin)
        return outcome & (closing.COMPLETED | closing.STAGED) != 0, status

    @device
    def complete_one(ctx, count, requests, stride):
        """(index, Status) of the first of ``count`` requests to be complete; -1 if all are null.

        Args:
            requests, stride: address of the first handle, bytes from one to the next.
        """
        index, request, outcome, elements, origin = finish_one(ctx, count, requests, stride)
        return index, close(ctx, request, outcome, elements, origin)

    @device
    def perform(ctx, word0, peer_tag, count, nbytes, send, recv):
        """``open_request`` and ``complete`` for calls that block: the Status."""
        outcome = 0
        elements = 0
        origin = 0
        handle = NOTHING_TAKEN
        count = int64(count)
        if is_inline(ctx, word0, nbytes):
            sync_full()
            if leads():
                outcome, elements, origin, handle = _transact(
                    ctx, word0, count, send, peer_tag, recv
                )
            outcome, elements, origin, handle = share_4_full(outcome, elements, origin, handle)
        if outcome & closing.STAGED != 0:
            close_linked(ctx, handle, outcome)
        elif outcome & closing.COMPLETED == 0:
            if outcome == 0:
                handle = open_rest(ctx, word0, peer_tag, count, nbytes, send, recv, handle)
            completed, status = complete(ctx, handle, False)
            return status
        return status_of(outcome, elements, origin)

    @device
    def transact_whole(ctx, word0, peer_tag):
        """``perform`` of a call without data: (outcome, origin)."""
        handle = open_request(ctx, word0, peer_tag, 0, 0, 0, 0)
        outcome, count, origin = finish_any(ctx, handle, False)
        return outcome, origin

    return SimpleNamespace(
        close=close,
        transact=transact_whole,
        open_request=open_request,
        open_any=open_any,
        finish_any=finish_any,
        complete=complete,
        complete_one=complete_one,
        perform=perform,
        help_others=help_others,
        look_at=look_at,
        keep_bytes=make_keep_bytes(look_at),
        report=report,
    )
