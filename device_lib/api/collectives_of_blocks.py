"""The collectives that move blocks (``gmpi/contract/moves.py``), blocking and not, for each scope.

All of them are one linked function (``proxied/opening_blocks.py``); here are MPI's arguments.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.local import comm_rank, comm_size
from device_lib.api.waiting import as_it_is
from device_lib.move.message import fitting, pair, word0_of
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import buffer_of, describe, device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied.opening_blocks import make_open_blocks, place_of
from gmpi.contract.moves import ROWS
from gmpi.contract.wire import BLOCKING


def make_block_calls(
    scope: Scope, requests: SimpleNamespace, waiting: SimpleNamespace, direct: SimpleNamespace
) -> dict[str, Callable]:
    """The calls of one scope, by their names in lower case.

    Args:
        requests: of the proxied road.
        direct: ``direct.block_collectives``.
    """
    part = parts_of(scope.name)
    body = make_open_blocks(scope, requests.help_others, requests.report, direct)
    open_blocks = part("open_blocks", 12, 1, body)

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

    calls: dict[str, Callable] = {}
    for row in ROWS:
        make = _MAKE[row.reduces, row.rooted]
        calls[row.name.lower()] = make(start, row.op | BLOCKING, waiting.error_of)
        calls[row.nonblocking.lower()] = make(start, row.op, as_it_is)
    return calls


# MPI's arguments, in MPI's order, of each kind of call; ``end`` makes of the request what the call
# returns.


def _rooted_reduction(start: Callable, call: int, end: Callable) -> Callable:
    @device
    def reduce(ctx, sendbuf, recvbuf, count, datatype, op, root, comm):
        return end(ctx, start(
            ctx, call, sendbuf, count, datatype, recvbuf, count, datatype, op, root, comm
        ))  # fmt: skip

    return reduce


def _reduction(start: Callable, call: int, end: Callable) -> Callable:
    @device
    def reduce(ctx, sendbuf, recvbuf, count, datatype, op, comm):
        return end(ctx, start(
            ctx, call, sendbuf, count, datatype, recvbuf, count, datatype, op, 0, comm
        ))  # fmt: skip

    return reduce


def _rooted(start: Callable, call: int, end: Callable) -> Callable:
    # wide: as MPI's
    @device
    def move(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm):
        return end(ctx, start(
            ctx, call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, 0, root, comm
        ))  # fmt: skip

    return move


def _unrooted(start: Callable, call: int, end: Callable) -> Callable:
    @device
    def move(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm):
        return end(ctx, start(
            ctx, call, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, 0, 0, comm
        ))  # fmt: skip

    return move


#: (whether it reduces, whether it has a root) -> what makes its call.
_MAKE = {
    (True, True): _rooted_reduction,
    (True, False): _reduction,
    (False, True): _rooted,
    (False, False): _unrooted,
}
