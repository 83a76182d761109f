"""The GMPI_* device functions, made for every scope.

``make_calls(scope)`` returns the functions of one scope; ``gmpi`` exports those of the block scope
under MPI's names and those of the warp scope with ``_warp`` appended. Each one says what MPI's
arguments mean for the record and hands over to the three functions that do the work, which are
compiled apart (``requests``, ``closing_all``): open, complete, finish_all.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.api.collectives import make_collective_calls
from device_lib.api.collectives_counted import make_counted_calls
from device_lib.api.collectives_of_blocks import make_block_calls
from device_lib.api.combined import both_of, make_combined
from device_lib.api.finishing import as_it_is, failed_status, make_finishing
from device_lib.api.freeing import FOREVER, make_freeing
from device_lib.api.lists import WORD, call_of, make_refuse, statuses_of
from device_lib.api.looking import make_looking
from device_lib.api.messages import make_message_call, make_refused
from device_lib.api.onesided import make_onesided_calls
from device_lib.api.partitioned import make_partitioned_calls
from device_lib.api.persistent import make_persistent
from device_lib.api.several import make_several
from device_lib.api.waiting import make_waiting
from device_lib.direct.block_collectives import make_block_collectives
from device_lib.direct.collectives import make_collectives
from device_lib.direct.counted_reductions import make_counted_reduction
from device_lib.direct.exchanges import make_exchange
from device_lib.direct.groups import make_groups
from device_lib.direct.partitioned import make_partitioned
from device_lib.direct.partitioned_making import make_making
from device_lib.direct.partitioned_quick import make_quick_calls
from device_lib.direct.partitioned_waits import make_partitioned_waits
from device_lib.direct.pending import link_pending
from device_lib.direct.pending_starts import link_pending_starts, make_pending_starts
from device_lib.direct.pipeline_waits import make_pipeline_waits
from device_lib.direct.requests import make_ask, make_direct
from device_lib.direct.round_waits import make_round_waits
from device_lib.direct.scattered_collectives import make_scattered
from device_lib.direct.short_blocks import make_short_blocks
from device_lib.direct.transfers import make_transfer
from device_lib.platform.context import has_direct
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import (
    buffer_of,
    describe,
    device,
    int64,
    lane_id,
)
from device_lib.platform.scope import WARP, Scope, warp_lanes, warp_mask
from device_lib.proxied.closing_all import make_finish_all
from device_lib.proxied.requests import make_requests
from device_lib.proxied.ring import post
from device_lib.proxied.scattered import make_open_scattered
from device_lib.proxied.slots import error_handle
from gmpi.contract import wire
from gmpi.contract.constants import ERR_COMM, ERR_COUNT, SUCCESS

_WAITALL, _WAITANY = call_of("Waitall"), call_of("Waitany")


# long: a name for each
def make_calls(scope: Scope) -> SimpleNamespace:
    """All GMPI_* functions for one scope."""

    part = parts_of(scope.name)

    requests = make_requests(scope)
    groups = make_groups(scope, requests)
    direct = make_direct(scope, make_ask(requests.transact), requests.help_others, groups)
    open_request, complete_one = requests.open_request, requests.complete_one
    report = requests.report
    refused = make_refused(report)
    complete_open = direct.complete_open
    partitioned = make_partitioned(scope, groups)
    quick = make_quick_calls(scope, partitioned)
    waits = make_partitioned_waits(scope, partitioned, requests.help_others, direct.go_on)
    finishing = make_finishing(scope, requests, direct, waits)
    finish, wait, perform = finishing.finish, finishing.wait, finishing.perform
    waiting = make_waiting(scope, requests, direct, finishing)
    finish_several, finish_one_of = waiting.finish_several, waiting.finish_one
    wait_for_each = waiting.wait_for_each
    refuse = make_refuse(requests.report)
    several = make_several(scope, finish, refuse)
    make_wait = make_round_waits(scope, requests.help_others, direct.go_on)
    make_pipeline_waits(scope, requests.help_others)
    transfer = make_transfer(scope, make_wait)
    collectives = make_collectives(scope, make_wait, transfer)
    if scope.name == WARP.name:
        closes_none = make_round_waits(scope, requests.help_others, direct.go_on, closes=False)
        link_pending(closes_none, direct.go_on, requests.help_others)
        link_pending_starts(requests.help_others)
    starts = make_pending_starts(scope)
    collect = make_scattered(scope, collectives, requests.help_others, starts.start_scattered)
    body = make_open_scattered(
        scope, requests.help_others, requests.report, direct.start_scattered, collect
    )
    open_scattered = part("open_scattered", 8, 1, body)
    finish_all = part("finish_all", 6, 1, make_finish_all(scope))
    leads = scope.leads

    # --- point to point (MPI 4.1 chapter 3) -----------------------------------------------------

    @device
    def wait_scattered(ctx, word0, peer_tag, count, send, recv):
        return wait(ctx, open_scattered(ctx, word0, peer_tag, count, send, recv))

    send_direct, receive_direct = direct.send, direct.receive
    start_send = make_message_call(
        wire.FLAG_OUT, send_direct, as_it_is, open_request, open_scattered
    )
    start_receive = make_message_call(
        wire.FLAG_BACK, receive_direct, as_it_is, open_request, open_scattered
    )
    do_send = make_message_call(wire.FLAG_OUT, send_direct, wait, perform, wait_scattered)
    do_receive = make_message_call(wire.FLAG_BACK, receive_direct, wait, perform, wait_scattered)

    @device
    def isend(ctx, buf, count, datatype, dest, tag, comm):
        return start_send(ctx, wire.OP_ISEND, buf, count, datatype, dest, tag, comm)

    @device
    def irecv(ctx, buf, count, datatype, source, tag, comm):
        return start_receive(ctx, wire.OP_IRECV, buf, count, datatype, source, tag, comm)

    @device
    def test(ctx, request):
        return finish(ctx, request, True)

    @device
    def send(ctx, buf, count, datatype, dest, tag, comm):
        return do_send(ctx, wire.OP_ISEND | wire.BLOCKING, buf, count, datatype, dest, tag, comm)

    @device
    def start_synchronous(ctx, op, buf, count, datatype, dest, tag, comm):
        if refused(ctx, op, comm):  # nobody says there when a short message is received
            return error_handle(ERR_COMM)
        return start_send(ctx, op, buf, count, datatype, dest, tag, comm)

    @device
    def issend(ctx, buf, count, datatype, dest, tag, comm):
        op = wire.OP_ISEND | wire.SYNCHRONOUS
        return start_synchronous(ctx, op, buf, count, datatype, dest, tag, comm)

    @device
    def ssend(ctx, buf, count, datatype, dest, tag, comm):
        op = wire.OP_ISEND | wire.SYNCHRONOUS_BLOCKING
        return wait(ctx, start_synchronous(ctx, op, buf, count, datatype, dest, tag, comm))

    @device
    def recv(ctx, buf, count, datatype, source, tag, comm):
        return do_receive(
            ctx, wire.OP_IRECV | wire.BLOCKING, buf, count, datatype, source, tag, comm
        )

    # wide: as MPI's
    @device
    def sendrecv(
        ctx, sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source,
        recvtag, comm,
    ):  # fmt: skip
        incoming = start_receive(
            ctx, wire.OP_IRECV | wire.SENDRECV, recvbuf, recvcount, recvtype, source, recvtag, comm
        )
        outgoing = start_send(
            ctx, wire.OP_ISEND | wire.SENDRECV, sendbuf, sendcount, sendtype, dest, sendtag, comm
        )
        sent = wait(ctx, outgoing)
        return both_of(sent, wait(ctx, incoming))

    sending = SimpleNamespace(start_send=start_send, start_receive=start_receive)
    combined = make_combined(sending, finishing, requests)

    @device
    def waitall(ctx, count, requests, statuses=None):
        address, room, strided = buffer_of(requests)
        if refuse(ctx, _WAITALL, count, min(int64(room) // WORD, statuses_of(statuses))):
            return ERR_COUNT
        if statuses is None:
            if strided:
                words = describe(requests, address, room, strided)
                return wait_for_each(ctx, count, words, 0)
            if has_direct(ctx):
                return finish_several(ctx, count, address, 0)
            return finish_all(ctx, count, address, 0)
        status_address, status_room, status_strided = buffer_of(statuses)
        if strided | status_strided:
            words = describe(requests, address, room, strided)
            status_words = describe(statuses, status_address, status_room, status_strided)
            return wait_for_each(ctx, count, words, status_words)
        if has_direct(ctx):
            return finish_several(ctx, count, address, status_address)
        return finish_all(ctx, count, address, status_address)

    @device
    def waitany(ctx, count, requests):
        address, room, strided = buffer_of(requests)
        if refuse(ctx, _WAITANY, count, int64(room) // WORD):
            return -1, failed_status(ERR_COUNT)
        if has_direct(ctx):
            return finish_one_of(ctx, count, address, requests.strides[0])
        return complete_one(ctx, count, address, requests.strides[0])

    # --- partitioned requests (MPI 4.1 chapter 4) -------------------------------------------------

    making = make_making(scope, requests)
    ends = make_partitioned_calls(quick, making, refuse)
    opening = SimpleNamespace(
        open_scattered=open_scattered, send=direct.send, receive=direct.receive
    )
    persistent = make_persistent(scope, requests, opening, quick.start, refuse)
    others = SimpleNamespace(
        perform=perform, free_persistent=persistent.free_persistent, free_partitioned=making.free
    )
    freeing = make_freeing(scope, requests, direct, others)
    close_freed = freeing.close_freed

    # --- collectives (MPI 4.1 chapter 6) ----------------------------------------------------------

    collective = make_collective_calls(requests, finishing, collectives, starts, open_scattered)
    direct_blocks = make_block_collectives(scope, make_wait, transfer)
    short = make_short_blocks(scope)
    of_blocks = make_block_calls(scope, requests, finishing, direct_blocks, starts.start, short)
    exchange = make_exchange(scope, requests, direct.go_on)
    reduction = make_counted_reduction(scope, requests.help_others, direct_blocks)
    of_blocks |= make_counted_calls(scope, requests, finishing, exchange, reduction)

    # --- one-sided (MPI 4.1 chapter 12) -----------------------------------------------------------

    onesided = make_onesided_calls(scope, collective.barrier)

    # --- this context -----------------------------------------------------------------------------

    @device
    def synchronize(ctx):
        if has_direct(ctx):
            error = complete_open(ctx)
            if error != SUCCESS:
                return error
        error = perform(ctx, wire.OP_SYNCHRONIZE, 0, 0, 0, 0, 0).error
        close_freed(ctx, FOREVER)
        return error

    @device
    def ping(ctx):
        return perform(ctx, wire.OP_PING, 0, 0, 0, 0, 0)

    @device
    def post_null(ctx, value):
        if leads():
            post(ctx, lane_id(), warp_lanes(), warp_mask(), wire.OP_NULL, value, 0, 0)

    return SimpleNamespace(
        help_others=requests.help_others,
        open_request=open_request,
        complete=requests.complete,
        isend=isend,
        irecv=irecv,
        wait=wait,
        test=test,
        request_get_status=finishing.request_get_status,
        send=send,
        issend=issend,
        ssend=ssend,
        recv=recv,
        sendrecv=sendrecv,
        waitall=waitall,
        waitany=waitany,
        testany=several.testany,
        testall=several.testall,
        testsome=several.testsome,
        waitsome=several.waitsome,
        **vars(combined),
        **vars(make_looking(finishing, report, open_request, open_scattered)),
        **{**vars(ends), **vars(persistent), **vars(freeing)},
        iallreduce=collective.iallreduce,
        allreduce=collective.allreduce,
        bcast=collective.bcast,
        ibcast=collective.ibcast,
        barrier=collective.barrier,
        ibarrier=collective.ibarrier,
        **of_blocks,
        **vars(onesided),
        synchronize=synchronize,
        ping=ping,
        post_null=post_null,
    )
