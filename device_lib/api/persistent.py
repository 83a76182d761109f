"""Persistent requests (MPI 4.1 sections 3.9 and 6.13), for each scope: made in kernels, alone.

A row in device memory keeps the arguments of a call. A Start opens an ordinary request with them,
on whichever road it goes, and a wait for the persistent request is a wait for that one. So a round
costs what the call costs, and a few loads.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.collectives import NONE_PENDING, make_collective_calls
from device_lib.api.finishing import as_it_is
from device_lib.api.lists import WORD, call_of
from device_lib.api.messages import make_message_call, make_refused, not_direct
from device_lib.direct.one_warp import PROXIED_ROAD
from device_lib.direct.persistent_rows import find_row, is_row_s, persistent_row
from device_lib.platform import primitives as gpu
from device_lib.platform.context import context_id, has_direct
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied import slots
from device_lib.proxied.slots import error_handle
from gmpi.contract import persistent, wire
from gmpi.contract.constants import (
    ERR_COMM,
    ERR_COUNT,
    ERR_REQUEST,
    GMPI_ERR_NO_RESOURCE,
    SUCCESS,
)

_CALL = wire.CALL_MASK << wire.CALL_SHIFT
_STARTALL = call_of("Startall")


@device
def _keep_buffer(row, field, at, words):
    """What is said of a buffer that is scattered; 0: there is none."""
    gpu.store_gpu(row + field, 0 if words == 0 else row + at)
    if words == 0:
        return
    i = 0
    end = 4 + 2 * gpu.load_8(words + 16)
    while i < end:
        gpu.store_gpu(row + at + i * 8, gpu.load_8(words + i * 8))
        i += gpu.opaque(1)


# long: a name for each
def make_persistent(
    scope: Scope,
    requests: SimpleNamespace,
    opening: SimpleNamespace,
    start_partitioned: Callable,
    refuse: Callable,
) -> SimpleNamespace:
    """The calls of one scope.

    Args:
        requests: of the proxied road.
        opening: ``open_scattered``, and ``send`` and ``receive`` of the direct road.
        start_partitioned: GMPI_Start of partitioned requests.
        refuse: of ``lists``.
    """
    open_request, report = requests.open_request, requests.report
    keep_bytes = requests.keep_bytes
    refused = make_refused(report)
    open_scattered = opening.open_scattered
    send_direct, receive_direct = opening.send, opening.receive
    leads = scope.leads
    sync = scope.sync
    broadcast = scope.broadcast
    part = parts_of(scope.name, "gmpi_partitioned")

    @device
    def make(ctx, word0, peer_tag, count, nbytes, send, recv, scattered):
        """The handle of a new request; each thread may have its own copy of what is scattered."""
        sync()
        handle = error_handle(GMPI_ERR_NO_RESOURCE)
        if leads() and gpu.lane_id() == 0:
            index = find_row(ctx)
            if index >= 0:
                row = persistent_row(ctx, index)
                number = gpu.add_gpu(ctx.device + wire.DEVICE_PERSISTENT_COUNT, 1) & (
                    persistent.GENERATIONS - 1
                )
                handle = (
                    index
                    | number << persistent.ROW_BITS
                    | context_id(ctx) << wire.HANDLE_CONTEXT_SHIFT
                )
                handle |= 3 << wire.HANDLE_DIRECT_SHIFT
                gpu.store_gpu(row + persistent.STATE, 0)
                gpu.store_gpu(row + persistent.WORD0, word0)
                gpu.store_gpu(row + persistent.PEER_TAG, peer_tag)
                gpu.store_gpu(row + persistent.COUNT, count)
                gpu.store_gpu(row + persistent.NBYTES, nbytes)
                gpu.store_gpu(row + persistent.IS_SCATTERED, scattered)
                if scattered:
                    _keep_buffer(row, persistent.SEND, persistent.FIRST_BUFFER, send)
                    _keep_buffer(row, persistent.RECV, persistent.SECOND_BUFFER, recv)
                else:
                    gpu.store_gpu(row + persistent.SEND, send)
                    gpu.store_gpu(row + persistent.RECV, recv)
                gpu.fence_gpu()
                gpu.store_gpu(row + persistent.OWNER, handle)
        handle = broadcast(handle)
        sync()
        if handle == error_handle(GMPI_ERR_NO_RESOURCE):
            report(ctx, word0, wire.PERSISTENT_ROWS, GMPI_ERR_NO_RESOURCE)
        return handle

    make_linked = part("make_persistent", 10, 1, make)

    # --- making -----------------------------------------------------------------------------------

    @device
    def keep(ctx, word0, peer_tag, count, nbytes, send, recv):
        return make_linked(ctx, word0, peer_tag, int64(count), nbytes, send, recv, 0)

    @device
    def keep_scattered(ctx, word0, peer_tag, count, send, recv):
        return make_linked(ctx, word0, peer_tag, count, 0, send, recv, 1)

    init_send = make_message_call(wire.FLAG_OUT, not_direct, as_it_is, keep, keep_scattered)
    init_receive = make_message_call(wire.FLAG_BACK, not_direct, as_it_is, keep, keep_scattered)

    @device
    def send_init(ctx, buf, count, datatype, dest, tag, comm):
        return init_send(
            ctx, wire.OP_ISEND | wire.PERSISTENT, buf, count, datatype, dest, tag, comm
        )

    @device
    def rsend_init(ctx, buf, count, datatype, dest, tag, comm):
        return init_send(
            ctx, wire.OP_ISEND | wire.READY_PERSISTENT, buf, count, datatype, dest, tag, comm
        )

    @device
    def init_proxied(ctx, op, buf, count, datatype, dest, tag, comm):
        """Of sends that the direct road does not have."""
        if refused(ctx, op, comm):
            return error_handle(ERR_COMM)
        return init_send(ctx, op, buf, count, datatype, dest, tag, comm)

    @device
    def ssend_init(ctx, buf, count, datatype, dest, tag, comm):
        op = wire.OP_ISEND | wire.SYNCHRONOUS_PERSISTENT
        return init_proxied(ctx, op, buf, count, datatype, dest, tag, comm)

    @device
    def bsend_init(ctx, buf, count, datatype, dest, tag, comm):
        return init_proxied(
            ctx, wire.OP_BSEND | wire.PERSISTENT, buf, count, datatype, dest, tag, comm
        )

    @device
    def recv_init(ctx, buf, count, datatype, source, tag, comm):
        return init_receive(
            ctx, wire.OP_IRECV | wire.PERSISTENT, buf, count, datatype, source, tag, comm
        )

    # What the collectives hand over to open a request makes one here.
    @device
    def record(ctx, word0, peer_tag, count, nbytes, send, recv):
        return keep(ctx, word0 & ~_CALL | wire.PERSISTENT, peer_tag, count, nbytes, send, recv)

    @device
    def record_scattered(ctx, word0, peer_tag, count, send, recv):
        return keep_scattered(ctx, word0 & ~_CALL | wire.PERSISTENT, peer_tag, count, send, recv)

    recorded = make_collective_calls(
        SimpleNamespace(open_request=record),
        SimpleNamespace(error_of=None, perform=None),
        SimpleNamespace(allreduce=None, bcast=None, barrier=None),
        NONE_PENDING,
        record_scattered,
    )

    @device
    def change(ctx, op, request, field, value):
        """Sets a field of a request that is inactive; False: it is not, or is none, which the host
        is told of ``op``."""
        sync()
        row = persistent_row(ctx, request)
        good = 0
        if leads() and gpu.lane_id() == 0 and is_row_s(ctx, row, request):
            if gpu.load_gpu(row + persistent.STATE) == 0:
                good = 1
                gpu.store_gpu(row + field, value)
        good = broadcast(good)
        sync()
        if good == 0:
            report(ctx, op, request, ERR_REQUEST)
        return good != 0

    # --- starting ---------------------------------------------------------------------------------

    @device
    def open_round(ctx, row):
        """The request of a round."""
        word0 = gpu.load_gpu(row + persistent.WORD0)
        peer_tag = gpu.load_gpu(row + persistent.PEER_TAG)
        count = gpu.load_gpu(row + persistent.COUNT)
        nbytes = gpu.load_gpu(row + persistent.NBYTES)
        send = gpu.load_gpu(row + persistent.SEND)
        recv = gpu.load_gpu(row + persistent.RECV)
        op = word0 & 0xFF
        if gpu.load_gpu(row + persistent.IS_SCATTERED) != 0:
            handle = open_scattered(ctx, word0, peer_tag, count, send, recv)
            return keep_bytes(ctx, handle) if op == wire.OP_BSEND else handle
        moves = op == wire.OP_ISEND or op == wire.OP_IRECV
        if moves and has_direct(ctx):
            handle = PROXIED_ROAD
            if op == wire.OP_ISEND:
                handle = send_direct(ctx, word0, peer_tag, count, nbytes, send)
            else:
                handle = receive_direct(ctx, word0, peer_tag, count, nbytes, recv)
            if handle != PROXIED_ROAD:
                return handle
        handle = open_request(ctx, word0, peer_tag, count, nbytes, send, recv)
        return keep_bytes(ctx, handle) if op == wire.OP_BSEND else handle

    @device
    def start_persistent(ctx, request):
        row = persistent_row(ctx, request)
        if not change(ctx, wire.OP_START, request, persistent.STATE, persistent.ACTIVE):
            return ERR_REQUEST
        inner = open_round(ctx, row)
        if leads() and gpu.lane_id() == 0:
            gpu.store_gpu(row + persistent.INNER, inner)
        sync()
        return SUCCESS

    start_linked = part("start_persistent", 4, 1, start_persistent)

    @device
    def start(ctx, request):
        request = int64(request)
        if slots.is_persistent(request):
            return start_linked(ctx, request)
        return start_partitioned(ctx, request)

    @device
    def start_each(ctx, count, requests):
        sync()
        result = SUCCESS
        i = 0
        while i < count:
            error = start(ctx, gpu.load_8(requests + i * 8))
            result = error if result == SUCCESS else result
            i += gpu.opaque(1)
        return result

    start_each_linked = part("start_each", 5, 1, start_each)

    @device
    def startall(ctx, count, requests):
        address, room, strided = gpu.buffer_of(requests)
        if refuse(ctx, _STARTALL, count, int64(room) // WORD):
            return int64(ERR_COUNT)
        return start_each_linked(ctx, int64(count), address)

    # --- freeing ----------------------------------------------------------------------------------

    @device
    def free_persistent(ctx, request):
        return (
            SUCCESS
            if change(ctx, wire.OP_REQUEST_FREE, request, persistent.OWNER, 0)
            else ERR_REQUEST
        )

    free_linked = part("free_persistent", 4, 1, free_persistent)

    return SimpleNamespace(
        send_init=send_init,
        ssend_init=ssend_init,
        rsend_init=rsend_init,
        bsend_init=bsend_init,
        recv_init=recv_init,
        allreduce_init=recorded.iallreduce,
        bcast_init=recorded.ibcast,
        barrier_init=recorded.ibarrier,
        start=start,
        startall=startall,
        free_persistent=free_linked,
    )
