"""The collectives that move blocks (``gmpi/contract/moves.py``), blocking and not, for each scope.

All of them are one linked function (``proxied/opening_blocks.py``); here are MPI's arguments.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.words import comm_rank, comm_size, pair, word0_of
from device_lib.move.message import fitting
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import buffer_of, describe, device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied.opening_blocks import make_open_blocks, place_of
from gmpi.contract.moves import ROWS, Row
from gmpi.contract.wire import BLOCKING


def make_block_calls(
    scope: Scope, requests: SimpleNamespace, waiting: SimpleNamespace
) -> dict[str, Callable]:
    """The calls of one scope, by their names in lower case."""
    part = parts_of(scope.name)
    body = make_open_blocks(scope, requests.help_others, requests.report)
    open_blocks = part("open_blocks", 12, 1, body)
    finish = waiting.finish

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

    @device
    def error_of(ctx, request):
        completed, status = finish(ctx, request, False)
        return status.error

    def rooted_reduction(row: Row) -> tuple[Callable, Callable]:
        op_blocking, op_not = row.op | BLOCKING, row.op

        @device
        def nonblocking(ctx, sendbuf, recvbuf, count, datatype, op, root, comm):
            return start(
                ctx, op_not, sendbuf, count, datatype, recvbuf, count, datatype, op, root,
                comm,
            )  # fmt: skip

        @device
        def blocking(ctx, sendbuf, recvbuf, count, datatype, op, root, comm):
            return error_of(ctx, start(
                ctx, op_blocking, sendbuf, count, datatype, recvbuf, count, datatype, op, root,
                comm,
            ))  # fmt: skip

        return blocking, nonblocking

    def reduction(row: Row) -> tuple[Callable, Callable]:
        op_blocking, op_not = row.op | BLOCKING, row.op

        @device
        def nonblocking(ctx, sendbuf, recvbuf, count, datatype, op, comm):
            return start(
                ctx, op_not, sendbuf, count, datatype, recvbuf, count, datatype, op, 0, comm,
            )  # fmt: skip

        @device
        def blocking(ctx, sendbuf, recvbuf, count, datatype, op, comm):
            return error_of(ctx, start(
                ctx, op_blocking, sendbuf, count, datatype, recvbuf, count, datatype, op, 0, comm,
            ))  # fmt: skip

        return blocking, nonblocking

    def rooted(row: Row) -> tuple[Callable, Callable]:
        op_blocking, op_not = row.op | BLOCKING, row.op

        # wide: as MPI's
        @device
        def nonblocking(
            ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm
        ):
            return start(
                ctx, op_not, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, 0,
                root, comm,
            )  # fmt: skip

        # wide: as MPI's
        @device
        def blocking(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm):
            return error_of(ctx, start(
                ctx, op_blocking, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, 0,
                root, comm,
            ))  # fmt: skip

        return blocking, nonblocking

    def unrooted(row: Row) -> tuple[Callable, Callable]:
        op_blocking, op_not = row.op | BLOCKING, row.op

        @device
        def nonblocking(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm):
            return start(
                ctx, op_not, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, 0, 0,
                comm,
            )  # fmt: skip

        @device
        def blocking(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm):
            return error_of(ctx, start(
                ctx, op_blocking, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, 0, 0,
                comm,
            ))  # fmt: skip

        return blocking, nonblocking

    calls: dict[str, Callable] = {}
    for row in ROWS:
        make = (
            (rooted_reduction if row.rooted else reduction)
            if row.reduces
            else (rooted if row.rooted else unrooted)
        )
        calls[row.name.lower()], calls[row.nonblocking.lower()] = make(row)
    return calls
