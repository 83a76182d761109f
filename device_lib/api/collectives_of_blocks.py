"""The collectives that move blocks (``gmpi/contract/moves.py``), blocking and not, for each scope.

All of them are one linked function (``proxied/opening_blocks.py``), and short ones that block are
another one before it (``direct/short_blocks.py``); here are MPI's arguments.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.local import comm_rank, comm_size
from device_lib.direct.collective_waits import AFTER_STORES
from device_lib.direct.short_blocks import short_bytes
from device_lib.move.message import fitting, pair, word0_of
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import buffer_of, describe, device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied.opening_blocks import BEGUN, make_open_blocks, place_of
from gmpi.contract.constants import SUCCESS
from gmpi.contract.moves import ROWS
from gmpi.contract.wire import BLOCKING


def make_block_calls(
    scope: Scope, requests: SimpleNamespace, finishing: SimpleNamespace, direct: SimpleNamespace,
    start_pending: Callable, short: SimpleNamespace,
) -> dict[str, Callable]:  # fmt: skip
    """The calls of one scope, by their names in lower case.

    Args:
        requests: of the proxied road.
        direct: ``direct.block_collectives``.
        start_pending: as ``make_open_blocks`` takes it.
        short: ``direct.short_blocks``.
    """
    part = parts_of(scope.name)
    body = make_open_blocks(scope, requests.help_others, requests.report, direct, start_pending)
    open_blocks = part("open_blocks", 12, 1, body)
    error_of = finishing.error_of
    may_be_short, carry_out = short.may_be, short.carry_out

    # wide: as MPI's
    @device
    def start(
        ctx, call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, op, root, comm
    ):
        at, room, strided = buffer_of(sendbuf)
        to, to_room, to_strided = buffer_of(recvbuf)
        return open_blocks(
            ctx,
            word0_of(call, 0, comm, 0),
            pair(root, op),
            place_of(comm_rank(ctx, comm), comm_size(ctx, comm)),
            int64(sendcount),
            fitting(sendtype, sendbuf),
            describe(sendbuf, at, room, strided),
            int64(recvcount),
            fitting(recvtype, recvbuf),
            describe(recvbuf, to, to_room, to_strided),
        )

    # wide: as MPI's
    @device
    def perform(
        ctx, call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, op, root, comm
    ):
        """A call that blocks: its error class."""
        at, room, strided = buffer_of(sendbuf)
        to, to_room, to_strided = buffer_of(recvbuf)
        if strided | to_strided == 0:
            datatype = fitting(sendtype, sendbuf)
            sent = short_bytes(int64(sendcount), datatype)
            received = short_bytes(int64(recvcount), fitting(recvtype, recvbuf))
            if may_be_short(ctx, sent, received):
                word0 = word0_of(call, 0, comm, datatype)
                words = pair(root, op)
                state = carry_out(ctx, word0, words, sent, received, at, to, room, to_room)
                if state == SUCCESS:
                    return state
                if state == AFTER_STORES:
                    call |= BEGUN
        return error_of(ctx, start(
            ctx, call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, op, root, comm
        ))  # fmt: skip

    calls: dict[str, Callable] = {}
    for row in ROWS:
        make = _MAKE[row.reduces, row.rooted]
        calls[row.name.lower()] = make(perform, row.op | BLOCKING)
        calls[row.nonblocking.lower()] = make(start, row.op)
    return calls


# MPI's arguments, in MPI's order, of each kind of call.


def _rooted_reduction(carry_out: Callable, call: int) -> Callable:
    @device
    def reduce(ctx, sendbuf, recvbuf, count, datatype, op, root, comm):
        return carry_out(
            ctx, call, sendbuf, count, datatype, recvbuf, count, datatype, op, root, comm
        )

    return reduce


def _reduction(carry_out: Callable, call: int) -> Callable:
    @device
    def reduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        return carry_out(ctx, call, sendbuf, count, datatype, recvbuf, count, datatype, op, 0, comm)

    return reduce


def _rooted(carry_out: Callable, call: int) -> Callable:
    # wide: as MPI's
    @device
    def move(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm):
        return carry_out(
            ctx, call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, 0, root, comm
        )

    return move


def _unrooted(carry_out: Callable, call: int) -> Callable:
    @device
    def move(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm):
        return carry_out(
            ctx, call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, 0, 0, comm
        )

    return move


#: (whether it reduces, whether it has a root) -> what makes its call.
_MAKE = {
    (True, True): _rooted_reduction,
    (True, False): _reduction,
    (False, True): _rooted,
    (False, False): _unrooted,
}
