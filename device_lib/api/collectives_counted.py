"""The collectives whose blocks have counts of their own (``gmpi/contract/moves.py``, COUNTED),
blocking and not, for each scope.

All of them are one linked function of each road (``proxied/opening_counted.py``; of those that
block ``direct/exchanges.py``, and ``direct/counted_reductions.py`` of the one that reduces); here
are MPI's arguments.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.finishing import as_it_is
from device_lib.api.local import comm_rank, comm_size
from device_lib.direct.exchange_blocks import area_of
from device_lib.direct.exchanges import NOT_OURS
from device_lib.move.message import fitting, pair, word0_of
from device_lib.platform.context import has_direct, may_collect_direct
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import buffer_of, describe, device, int64, itemsize_of
from device_lib.platform.scope import Scope
from device_lib.proxied import neighbours
from device_lib.proxied.counted_sides import SHAPE_ME_SHIFT, shape_of
from device_lib.proxied.opening_counted import make_open_counted
from gmpi.contract.collectives import RANKS_SHIFT
from gmpi.contract.moves import (
    ALL,
    ALL_AT_ROOT,
    DESTINATIONS,
    SOURCES,
    WITH_TABLES,
    Row,
)
from gmpi.contract.wire import BLOCKING, LOW_32

_NONE = 0  # in place of an array of integers


@device
def _words_of(array):
    """(address, bytes of an element, how many) of an array of integers, as ``Side`` has it."""
    address, nbytes, strided = buffer_of(array)
    size = itemsize_of(array)
    if strided != 0 or (size != 4 and size != 8):
        return int64(address), int64(0), int64(nbytes)
    return int64(address), int64(size), int64(nbytes // size)


def _number(kind: int) -> Callable:
    """How many blocks a rank gives or gets, by (rank, ranks, root, what ``_degrees`` says)."""

    @device
    def one(rank, ranks, root, degrees):
        return 1 if ranks > 0 else 0

    @device
    def each(rank, ranks, root, degrees):
        return ranks

    @device
    def each_at_root(rank, ranks, root, degrees):
        return ranks if rank == root else 0

    @device
    def each_source(rank, ranks, root, degrees):
        return degrees & LOW_32

    @device
    def each_destination(rank, ranks, root, degrees):
        return degrees >> 32

    found = {ALL: each, ALL_AT_ROOT: each_at_root}
    found |= {SOURCES: each_source, DESTINATIONS: each_destination}
    return found.get(kind, one)


def _degrees(row: Row) -> Callable:
    """``neighbours.degrees``, or 0 where a call has nothing of neighbours."""

    @device
    def none(ctx, comm):
        return 0

    return neighbours.degrees if row.among_neighbours else none


@device
def _place(ctx, word0, comm):
    """(rank, number of ranks) of this process on a communicator; of a direct one without a look at
    host memory, which takes 1 us."""
    if may_collect_direct(ctx, word0):
        where = area_of(ctx, word0)[1]
        return where & LOW_32, where >> RANKS_SHIFT
    return int64(comm_rank(ctx, comm)), int64(comm_size(ctx, comm))


def make_counted_calls(
    scope: Scope,
    requests: SimpleNamespace,
    finishing: SimpleNamespace,
    exchange: SimpleNamespace,
    reduction: SimpleNamespace,
) -> dict[str, Callable]:
    """The calls of one scope, by their names in lower case.

    Args:
        requests: of the proxied road.
        exchange: what ``make_exchange`` returned.
        reduction: what ``make_counted_reduction`` did. A *road* of the direct ones is ``leads`` ()
            -> whether the calling thread is of those that call ``lead`` (ctx, words of the call),
            while others call ``follow`` (ctx): each returns the handle, or NOT_OURS.
    """
    part = parts_of(scope.name)
    body = make_open_counted(scope, requests.help_others, requests.report)
    open_counted = part("open_counted", 14, 1, body)

    def starter(row: Row, may_go_direct: bool) -> Callable:
        """What opens the request: all that MPI's calls of this kind may have as arguments."""
        road = exchange.swapping if row.swaps else exchange.plain
        road = reduction if row.reduces else road
        leads, lead, follow = road.leads, road.lead, road.follow
        shape = shape_of(row)
        outs, backs, degrees_of = _number(row.out), _number(row.back), _degrees(row)

        # wide: as MPI's
        @device
        def start(
            ctx, call, sendbuf, sendcount, sendcounts, sdispls, sendtype, sendtypes,
            recvbuf, recvcount, recvcounts, rdispls, recvtype, recvtypes, op, root, comm,
        ):  # fmt: skip
            handle = NOT_OURS
            direct = may_go_direct and has_direct(ctx)
            if direct and not leads():
                handle = follow(ctx)
                if handle != NOT_OURS:
                    return handle
            at, room, strided = buffer_of(sendbuf)
            to, to_room, to_strided = buffer_of(recvbuf)
            a, b, c = _words_of(sendcounts)
            d, e, f = _words_of(sdispls)
            g, h, i = _words_of(sendtypes)
            j, k, m = _words_of(recvcounts)
            n, o, p = _words_of(rdispls)
            q, r, s = _words_of(recvtypes)
            sends = describe(sendbuf, at, room, strided)
            receives = describe(recvbuf, to, to_room, to_strided)
            arrays, nbytes, ignored = buffer_of(
                (a, b, d, e, g, h, min(c, f, i), j, k, n, o, q, r, min(m, p, s))
            )
            word0 = word0_of(call, 0, comm, 0)
            degrees = int64(degrees_of(ctx, comm))
            me, ranks = _place(ctx, word0, comm)
            given = int64(outs(me, ranks, root, degrees))
            numbers = given | int64(backs(me, ranks, root, degrees)) << 32
            words = (
                word0,
                pair(root, op),
                shape | me << SHAPE_ME_SHIFT,
                numbers,
                int64(sendcount),
                fitting(sendtype, sendbuf),
                sends,
                int64(recvcount),
                fitting(recvtype, recvbuf),
                receives,
                arrays,
            )
            if direct and leads():
                handle = lead(ctx, words)
                if handle != NOT_OURS:
                    return handle
            return open_counted(ctx, *words)

        return start

    calls: dict[str, Callable] = {}
    for row in WITH_TABLES:
        make = _MAKE[row.name]
        blocking, start = starter(row, True), starter(row, False)
        calls[row.name.lower()] = make(blocking, row.op | BLOCKING, finishing.error_of)
        calls[row.nonblocking.lower()] = make(start, row.op, as_it_is)
    return calls


# MPI's arguments, in MPI's order, of each kind of call.


def _gatherv(start: Callable, op: int, end: Callable) -> Callable:
    # wide: as MPI's
    @device
    def call(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm):
        return end(ctx, start(
            ctx, op, sendbuf, sendcount, _NONE, _NONE, sendtype, _NONE,
            recvbuf, 0, recvcounts, displs, recvtype, _NONE, 0, root, comm,
        ))  # fmt: skip

    return call


def _scatterv(start: Callable, op: int, end: Callable) -> Callable:
    # wide: as MPI's
    @device
    def call(ctx, sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm):
        return end(ctx, start(
            ctx, op, sendbuf, 0, sendcounts, displs, sendtype, _NONE,
            recvbuf, recvcount, _NONE, _NONE, recvtype, _NONE, 0, root, comm,
        ))  # fmt: skip

    return call


def _allgatherv(start: Callable, op: int, end: Callable) -> Callable:
    # wide: as MPI's
    @device
    def call(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm):
        return end(ctx, start(
            ctx, op, sendbuf, sendcount, _NONE, _NONE, sendtype, _NONE,
            recvbuf, 0, recvcounts, displs, recvtype, _NONE, 0, 0, comm,
        ))  # fmt: skip

    return call


def _alltoallv(start: Callable, op: int, end: Callable) -> Callable:
    # wide: as MPI's
    @device
    def call(
        ctx, sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm
    ):
        return end(ctx, start(
            ctx, op, sendbuf, 0, sendcounts, sdispls, sendtype, _NONE,
            recvbuf, 0, recvcounts, rdispls, recvtype, _NONE, 0, 0, comm,
        ))  # fmt: skip

    return call


def _alltoallw(start: Callable, op: int, end: Callable) -> Callable:
    # wide: as MPI's
    @device
    def call(
        ctx, sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm
    ):
        return end(ctx, start(
            ctx, op, sendbuf, 0, sendcounts, sdispls, 0, sendtypes,
            recvbuf, 0, recvcounts, rdispls, 0, recvtypes, 0, 0, comm,
        ))  # fmt: skip

    return call


def _reduce_scatter(start: Callable, op: int, end: Callable) -> Callable:
    opcode = op

    @device
    def call(ctx, sendbuf, recvbuf, recvcounts, datatype, op, comm):
        return end(ctx, start(
            ctx, opcode, sendbuf, 0, recvcounts, _NONE, datatype, _NONE,
            recvbuf, 0, _NONE, _NONE, datatype, _NONE, op, 0, comm,
        ))  # fmt: skip

    return call


def _of_one_length(start: Callable, op: int, end: Callable) -> Callable:
    @device
    def call(ctx, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm):
        return end(ctx, start(
            ctx, op, sendbuf, sendcount, _NONE, _NONE, sendtype, _NONE,
            recvbuf, recvcount, _NONE, _NONE, recvtype, _NONE, 0, 0, comm,
        ))  # fmt: skip

    return call


_MAKE = {
    "Gatherv": _gatherv,
    "Scatterv": _scatterv,
    "Allgatherv": _allgatherv,
    "Alltoallv": _alltoallv,
    "Alltoallw": _alltoallw,
    "Reduce_scatter": _reduce_scatter,
    "Neighbor_allgather": _of_one_length,
    "Neighbor_allgatherv": _allgatherv,
    "Neighbor_alltoall": _of_one_length,
    "Neighbor_alltoallv": _alltoallv,
    "Neighbor_alltoallw": _alltoallw,
}
