"""Direct collectives that take several rounds, or wait for long; and those that do not fit."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import rounds
from device_lib.direct.long_collectives import is_long, make_collect_long
from device_lib.direct.round_waits import DATA, ENTERED_ONLY, LOOKS
from device_lib.direct.rounds import NOBODY, kind_of, row_of, signature_of
from device_lib.direct.transfers import NOT_AT_ONCE
from device_lib.platform import primitives as gpu
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from gmpi.contract import collectives
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import (
    LOW_32,
)

# How far a call has come, in place of an error class.
NOTHING_DONE = -3
AFTER_STORES = -2  # of its first round


@device
def _sends(what, me):
    """Whether our bytes are wanted."""
    kind = kind_of(what)
    return kind == collectives.ALLREDUCE or (
        kind == collectives.BCAST and me == what & collectives.ROOT_MASK
    )


def make_collective_waits(scope: Scope, make_wait: Callable, transfer: Callable) -> SimpleNamespace:
    """``rest``: (ctx, what, send, recv, nbytes, how far it has come) -> error class or NOT_OURS;
    ``long``: (ctx, what, slot of layouts, send, recv, nbytes) -> the same of a long call.

    Args:
        make_wait: ``make_round_waits``.
        transfer: of ``transfers``.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    part = parts_of(scope.name, "gmpi_direct")

    @device
    def look(ctx, what, number, signature, target, size_mode):
        """1 where a packet of a round that the caller has looked for is missing, else 0."""
        row = row_of(ctx, what)
        area, place = gpu.load_16(row + collectives.AREA)
        ranks = place >> collectives.RANKS_SHIFT
        nbytes = size_mode >> 1
        if size_mode & 1 == ENTERED_ONLY:
            return rounds.missing_of_entered(area, ranks, number, signature, rank(), size(), LOOKS)
        reduces = kind_of(what) == collectives.ALLREDUCE
        root = what & collectives.ROOT_MASK
        if not reduces and place & LOW_32 == root:
            return 0
        first = 0 if reduces else root
        last = ranks - 1 if reduces else root
        missing, packet = rounds.take_four(
            first, last, area, ranks, number, what, target, nbytes, rank(), size(), LOOKS
        )
        if missing != 0:
            return 1
        if reduces:
            return rounds.take_reduced(
                area, ranks, ranks, number, what, target, nbytes, packet, size(), LOOKS
            )
        return rounds.take_from(
            root, area, ranks, number, what, target, nbytes, packet, size(), LOOKS
        )

    look_linked = part("look_for_round", 8, 1, look)

    wait_linked = make_wait("wait_collective", look_linked)

    @device
    def store_round(ctx, what, number, source, nbytes):
        """Stores what is ours of a round."""
        row = row_of(ctx, what)
        place = gpu.load_16(row + collectives.AREA)[1]
        ranks = place >> collectives.RANKS_SHIFT
        me = place & LOW_32
        if _sends(what, me):
            alone = NOBODY if kind_of(what) == collectives.ALLREDUCE else me
            packet = rounds.put_four(
                row, ranks, number, what, source, nbytes, alone, rank(), size()
            )
            low = rounds.load_packet(source, nbytes, packet)
            peers = gpu.load_16(row + collectives.PEERS)
            rounds.put(row, ranks, number, what, source, nbytes, alone, packet, size(), low, peers)
        else:
            rounds.put_entered(row, ranks, number, what, rank(), size())
        return 0

    store_linked = part("store_round", 7, 1, store_round)

    collect_long = make_collect_long(scope, wait_linked)

    @device
    def begin_and_end(ctx, what, slot, send, recv, nbytes):
        """A long call; NOT_OURS: it cannot be."""
        row = row_of(ctx, what)
        number, entered = gpu.load_pair_gpu(row + collectives.NUMBER)
        ranks = gpu.load_16(row + collectives.AREA)[1] >> collectives.RANKS_SHIFT
        if entered < 0 or (
            kind_of(what) == collectives.BCAST and what & collectives.ROOT_MASK >= ranks
        ):
            return collectives.NOT_OURS
        error = SUCCESS
        if entered != number:
            last = gpu.load_gpu(row + collectives.SIGNATURE)
            error = wait_linked(ctx, what, number - 1, last, 0, nbytes << 1 | ENTERED_ONLY)
        if error == SUCCESS:
            error = NOT_AT_ONCE
            if kind_of(what) == collectives.ALLREDUCE:
                error, number = transfer(ctx, what, send, recv, nbytes, number)
        if error == NOT_AT_ONCE:
            error, number = collect_long(ctx, what, slot, send, recv, nbytes, number)
        if leads() and gpu.lane_id() == 0:
            gpu.store_pair_gpu(row + collectives.NUMBER, number, number if error == SUCCESS else -1)
        sync()
        return error

    long_linked = part("collect_long", 8, 1, begin_and_end)

    @device
    def rest(ctx, what, send, recv, nbytes, state):
        """A whole call, or what is left of it.

        Args:
            state: NOTHING_DONE; or AFTER_STORES, of a single round.
        """
        if is_long(ctx, what, nbytes):
            return long_linked(ctx, what, 0, send, recv, nbytes)
        row = row_of(ctx, what)
        number, entered = gpu.load_pair_gpu(row + collectives.NUMBER)
        ranks = gpu.load_16(row + collectives.AREA)[1] >> collectives.RANKS_SHIFT
        kind = kind_of(what)
        if entered < 0 or (kind == collectives.BCAST and what & collectives.ROOT_MASK >= ranks):
            return collectives.NOT_OURS
        ours = signature_of(what)
        last = gpu.load_gpu(row + collectives.SIGNATURE)
        mode = ENTERED_ONLY if kind == collectives.BARRIER else DATA
        error = SUCCESS
        begin = 0
        going = True
        while going:
            some = min(nbytes - begin, collectives.ROOM)
            if state == NOTHING_DONE:
                if entered != number:
                    error = wait_linked(ctx, what, number - 1, last, 0, ENTERED_ONLY)
                if error == SUCCESS:
                    store_linked(ctx, what, number, send + begin, some)
            if error == SUCCESS:
                error = wait_linked(ctx, what, number, ours, recv + begin, some << 1 | mode)
            state = NOTHING_DONE
            entered = number if kind == collectives.BCAST else number + 1
            last = ours
            number += 1
            begin += collectives.ROOM
            going = error == SUCCESS and begin < nbytes
        if leads() and gpu.lane_id() == 0:
            if error == SUCCESS:
                gpu.store_gpu(row + collectives.SIGNATURE, ours)
                gpu.store_pair_gpu(row + collectives.NUMBER, number, entered)
            else:  # what comes next goes by the proxies, which refuse it
                gpu.store_pair_gpu(row + collectives.NUMBER, number, -1)
        return error

    rest_linked = part("rest_of_collective", 8, 1, rest)
    return SimpleNamespace(rest=rest_linked, long=long_linked)
