"""Both halves of every call: opening a request and completing it, for each scope.

Small requests of full warps go through the functions that are tuned for latency (``open_inline``,
``finish_small``, ``transact``); everything else, and what these leave over, through those that can
do all (``open_any``, ``finish_any``). All of them are compiled apart (``library``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.move.message import record_bytes
from device_lib.platform.context import eager_bytes, status_of
from device_lib.platform.library import linked, parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import FULL_WARP, Scope
from device_lib.proxied import closing, taking
from device_lib.proxied.blocking import transact
from device_lib.proxied.closing_one import make_finish_one
from device_lib.proxied.looking_at import make_keep_bytes, make_look_at
from device_lib.proxied.opening import NOTHING_TAKEN, UNFINISHED, make_open_any, open_inline
from device_lib.proxied.opening_longer import make_open_longer
from device_lib.proxied.outgoing import make_copy_out, make_fill, make_send_bytes
from device_lib.proxied.slots import NOBODY, error_handle, is_small
from gmpi.contract import wire
from gmpi.contract.constants import GMPI_ERR_NO_RESOURCE

_open_inline = linked("gmpi_open_inline", 8, 1, open_inline)
_finish_small = linked("gmpi_finish_small", 5, 3, closing.finish_small)
_test_small = linked("gmpi_test_small", 4, 3, closing.test_small)
_transact = linked("gmpi_transact", 8, 4, transact)


def make_requests(scope: Scope) -> SimpleNamespace:
    """Opening and completing for one scope."""

    part = parts_of(scope.name)

    help_others = part("help", 3, 1, closing.make_help(scope))
    fill = part("fill", 8, 1, make_fill(scope, make_copy_out(scope)))
    send_bytes = make_send_bytes(scope, fill)
    open_anyhow = make_open_any(scope, help_others, send_bytes)
    finish_any = part("finish_any", 5, 3, closing.make_finish_any(scope))
    finish_one = part("finish_one", 6, 5, make_finish_one(scope))
    unpack = closing.make_unpack(scope)
    look_at = part("look_at", 5, 3, make_look_at(scope))
    report = part("report", 6, 1, closing.make_report(scope))
    longer = make_open_longer(scope, send_bytes)
    lead, follow = longer.lead, longer.follow
    leads = scope.leads
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
    def open_or_report(ctx, word0, peer_tag, count, send, recv, unfinished):
        """``open_any``, and tells the host where there is no slot for it."""
        handle = open_anyhow(ctx, word0, peer_tag, count, send, recv, unfinished)
        if handle == error_handle(GMPI_ERR_NO_RESOURCE):
            most = taking.most_open(ctx, record_bytes(word0, count) > eager_bytes(ctx))
            report(ctx, word0, most, GMPI_ERR_NO_RESOURCE)
        return handle

    open_any = part("open_any", 9, 1, open_or_report)

    @device
    def open_rest(ctx, word0, peer_tag, count, nbytes, send, recv, unfinished):
        handle = unfinished
        is_message = word0 & 0xFF == wire.OP_ISEND or word0 & 0xFF == wire.OP_IRECV
        if is_message and leading_lanes() == FULL_WARP:
            if leads():
                handle = lead(ctx, word0, peer_tag, count, nbytes, send, recv, unfinished)
            else:
                handle = follow(ctx, word0, nbytes, unfinished)
        if handle & UNFINISHED != 0:
            handle = open_any(ctx, word0, peer_tag, count, send, recv, handle)
        return handle

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
    def finish_rest(ctx, request, once):
        """(outcome, count, origin) of what is not for ``finish_small``; outcome as it returns."""
        if request == wire.REQUEST_NULL:
            return closing.COMPLETED, 0, closing.NO_ORIGIN
        if request >> wire.HANDLE_ERROR_SHIFT == 1:
            origin = closing.NULL_ORIGIN if request & NOBODY != 0 else closing.NO_ORIGIN
            return closing.COMPLETED | (request & 0xFF) << wire.ERROR_SHIFT, 0, origin
        return finish_any(ctx, request, once)

    finish_rest_linked = part("finish_rest", 5, 3, finish_rest)

    @device
    def complete(ctx, request, once):
        """(completed, Status) of a request; after one look if ``once``, else it is complete."""
        request = int64(request)
        outcome = closing.HELP
        count = 0
        origin = 0
        if not is_small(request) or leading_lanes() != FULL_WARP:
            outcome, count, origin = finish_rest_linked(ctx, request, once)
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
