"""Allreduce, Bcast and Barrier, blocking and not (MPI 4.1 chapter 6), for each scope.

Which road a call takes depends only on what MPI demands to be equal on all ranks: communicator,
operation, datatype and count, and whether it blocks; never on the buffer. What does not lie in one
piece finds the same road in ``proxied.scattered``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.local import comm_rank
from device_lib.move import message
from device_lib.platform.primitives import buffer_of, describe, device, int64
from gmpi.contract import wire
from gmpi.contract.collectives import NOT_OURS
from gmpi.contract.constants import IN_PLACE


@device
def _reduction(ctx, op, sendbuf, recvbuf, count, datatype, comm):
    """(first word of the record, bytes to move, where from, where to)."""
    nbytes = message.message_bytes(count, datatype)
    send, recv, nbytes, flags = message.inspect_reduction(ctx, sendbuf, recvbuf, nbytes)
    return message.word0_of(op, flags, comm, datatype), nbytes, send, recv


@device
def _not_ours(ctx, word0, *arguments):
    return NOT_OURS


#: In place of ``direct.pending_starts``: all calls go by the proxies.
NONE_PENDING = SimpleNamespace(iallreduce=_not_ours, ibcast=_not_ours, ibarrier=_not_ours)


def make_collective_calls(
    requests: SimpleNamespace, finishing: SimpleNamespace, direct: SimpleNamespace,
    pending: SimpleNamespace, open_scattered: Callable,
) -> SimpleNamespace:  # fmt: skip
    """The calls of one scope.

    Args:
        requests: of the proxied road.
        direct: ``direct.collectives``.
        pending: ``direct.pending_starts``, or ``NONE_PENDING``.
    """
    open_request = requests.open_request
    error_of, perform = finishing.error_of, finishing.perform
    direct_allreduce, direct_bcast, direct_barrier = direct.allreduce, direct.bcast, direct.barrier
    direct_iallreduce, direct_ibcast = pending.iallreduce, pending.ibcast
    direct_ibarrier = pending.ibarrier

    @device
    def start_reduction(ctx, call, sendbuf, recvbuf, count, datatype, op, comm):
        datatype = message.fitting(message.fitting(datatype, sendbuf), recvbuf)
        at, room, strided = buffer_of(sendbuf)
        to, to_room, to_strided = buffer_of(recvbuf)
        if message.is_scattered(datatype, strided | to_strided):
            word0 = message.word0_of(call, wire.FLAG_OUT | wire.FLAG_BACK, comm, datatype)
            back = describe(recvbuf, to, to_room, to_strided)
            words = describe(sendbuf, at, room, strided)
            words = back if at == IN_PLACE else words
            return open_scattered(ctx, word0, message.pair(0, op), int64(count), words, back)
        word0, nbytes, send, recv = _reduction(ctx, call, sendbuf, recvbuf, count, datatype, comm)
        handle = direct_iallreduce(ctx, word0, op, int64(count), nbytes, send, recv)
        if handle != NOT_OURS:
            return handle
        return open_request(ctx, word0, message.pair(0, op), count, nbytes, send, recv)

    @device
    def iallreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        return start_reduction(ctx, wire.OP_ALLREDUCE, sendbuf, recvbuf, count, datatype, op, comm)

    @device
    def allreduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        call = wire.OP_ALLREDUCE | wire.BLOCKING
        datatype = message.fitting(message.fitting(datatype, sendbuf), recvbuf)
        at, room, strided = buffer_of(sendbuf)
        to, to_room, to_strided = buffer_of(recvbuf)
        if message.is_scattered(datatype, strided | to_strided):
            request = start_reduction(ctx, call, sendbuf, recvbuf, count, datatype, op, comm)
            return error_of(ctx, request)
        word0, nbytes, send, recv = _reduction(ctx, call, sendbuf, recvbuf, count, datatype, comm)
        error = direct_allreduce(ctx, word0, op, int64(count), nbytes, send, recv)
        if error != NOT_OURS:
            return error
        return perform(ctx, word0, message.pair(0, op), count, nbytes, send, recv).error

    @device
    def start_scattered_bcast(ctx, op, buf, count, datatype, root, comm):
        at, room, strided = buffer_of(buf)
        way = wire.FLAG_OUT
        if root != comm_rank(ctx, comm):
            way = wire.FLAG_BACK
        word0 = message.word0_of(op, way, comm, datatype)
        words = describe(buf, at, room, strided)
        return open_scattered(ctx, word0, message.pair(root, 0), int64(count), words, words)

    @device
    def ibcast(ctx, buf, count, datatype, root, comm):
        op = wire.OP_BCAST | wire.NONBLOCKING
        datatype = message.fitting(datatype, buf)
        at, room, strided = buffer_of(buf)
        if message.is_scattered(datatype, strided):
            return start_scattered_bcast(ctx, op, buf, count, datatype, root, comm)
        address, nbytes, flags = message.inspect(
            ctx, buf, message.message_bytes(count, datatype), wire.FLAG_OUT
        )
        word0 = message.word0_of(op, flags, comm, datatype)
        handle = direct_ibcast(ctx, word0, root, int64(count), nbytes, address)
        if handle != NOT_OURS:
            return handle
        if nbytes > 0 and root != comm_rank(ctx, comm):
            word0 = message.word0_of(op, wire.FLAG_BACK, comm, datatype)
        return open_request(ctx, word0, message.pair(root, 0), count, nbytes, address, address)

    @device
    def bcast(ctx, buf, count, datatype, root, comm):
        datatype = message.fitting(datatype, buf)
        at, room, strided = buffer_of(buf)
        if message.is_scattered(datatype, strided):
            request = start_scattered_bcast(ctx, wire.OP_BCAST, buf, count, datatype, root, comm)
            return error_of(ctx, request)
        address, nbytes, flags = message.inspect(
            ctx, buf, message.message_bytes(count, datatype), wire.FLAG_OUT
        )
        word0 = message.word0_of(wire.OP_BCAST, flags, comm, datatype)
        error = direct_bcast(ctx, word0, root, int64(count), nbytes, address)
        if error != NOT_OURS:
            return error
        if nbytes > 0 and root != comm_rank(ctx, comm):
            word0 = message.word0_of(wire.OP_BCAST, wire.FLAG_BACK, comm, datatype)
        return perform(ctx, word0, message.pair(root, 0), count, nbytes, address, address).error

    @device
    def barrier(ctx, comm):
        word0 = message.word0_of(wire.OP_BARRIER, 0, comm, 0)
        error = direct_barrier(ctx, word0)
        if error != NOT_OURS:
            return error
        return perform(ctx, word0, 0, 0, 0, 0, 0).error

    @device
    def ibarrier(ctx, comm):
        word0 = message.word0_of(wire.OP_BARRIER | wire.NONBLOCKING, 0, comm, 0)
        handle = direct_ibarrier(ctx, word0)
        if handle != NOT_OURS:
            return handle
        return open_request(ctx, word0, 0, 0, 0, 0, 0)

    return SimpleNamespace(
        iallreduce=iallreduce,
        allreduce=allreduce,
        ibcast=ibcast,
        bcast=bcast,
        ibarrier=ibarrier,
        barrier=barrier,
    )
