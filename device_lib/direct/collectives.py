"""Collectives of the direct road: short ones at once, all else in ``collective_waits``.

Written for latency, as ``partitioned``: each thread reads the communicator's row itself, its own
packets are its own from end to end, and two barriers frame the call. All threads of a scope call
these, with the word of the call (``gmpi/contract/collectives.py``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import rounds
from device_lib.direct.collective_waits import (
    AFTER_STORES,
    NOTHING_DONE,
    make_collective_waits,
)
from device_lib.direct.round_waits import LOOKS
from device_lib.direct.rounds import NOBODY, row_of, signature_of
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import (
    device,
    lane_id,
    load_16,
    load_pair_gpu,
    store_gpu,
    store_pair_gpu,
)
from device_lib.platform.scope import Scope
from gmpi.contract import collectives
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import LOW_32


@device
def _at_once(size):
    """Bytes of which no thread has more than two packets: then latency is all."""
    return min(collectives.ROOM, 2 * size * collectives.PAYLOAD)


def make_collectives(scope: Scope, make_wait: Callable, transfer: Callable) -> SimpleNamespace:
    """For one scope. Each returns the error class, or NOT_OURS: the call goes by the proxies.

    Args:
        make_wait: ``make_round_waits``.
        transfer: of ``transfers``.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    waits = make_collective_waits(scope, make_wait, transfer)
    rest = waits.rest
    part = parts_of(scope.name, "gmpi_direct")

    @device
    def allreduce(ctx, what, send, recv, nbytes):
        sync()  # what other threads wrote to the buffer
        row = row_of(ctx, what)
        number, entered = load_pair_gpu(row + collectives.NUMBER)
        area, place = load_16(row + collectives.AREA)
        peers = load_16(row + collectives.PEERS)
        low = rounds.load_packet(send, min(nbytes, collectives.ROOM), rank())
        ranks = place >> collectives.RANKS_SHIFT
        if nbytes > _at_once(size()):
            return NOTHING_DONE
        if entered != number:
            missing = rounds.missing_of_last(
                row, area, ranks, number, entered, rank(), size(), LOOKS
            )
            if sync_or(missing):
                return NOTHING_DONE
        rounds.put(row, ranks, number, what, send, nbytes, NOBODY, rank(), size(), low, peers)
        missing = rounds.take_reduced(
            area, ranks, ranks, number, what, recv, nbytes, rank(), size(), LOOKS
        )
        if sync_or(missing):
            return AFTER_STORES
        if leads() and lane_id() == 0:
            store_pair_gpu(row + collectives.NUMBER, number + 1, number + 1)
        return SUCCESS

    @device
    def bcast(ctx, what, buffer, nbytes):
        sync()
        row = row_of(ctx, what)
        number, entered = load_pair_gpu(row + collectives.NUMBER)
        area, place = load_16(row + collectives.AREA)
        peers = load_16(row + collectives.PEERS)
        ranks = place >> collectives.RANKS_SHIFT
        me = place & LOW_32
        root = what & collectives.ROOT_MASK
        if nbytes > _at_once(size()) or root >= ranks:
            return NOTHING_DONE
        if entered != number:
            missing = rounds.missing_of_last(
                row, area, ranks, number, entered, rank(), size(), LOOKS
            )
            if sync_or(missing):
                return NOTHING_DONE
        missing = 0
        if me == root:
            low = rounds.load_packet(buffer, nbytes, rank())
            rounds.put(row, ranks, number, what, buffer, nbytes, me, rank(), size(), low, peers)
        else:
            rounds.put_entered(row, ranks, number, what, rank(), size())
            missing = rounds.take_from(
                root, area, ranks, number, what, buffer, nbytes, rank(), size(), LOOKS
            )
        if sync_or(missing):
            return AFTER_STORES
        if leads() and lane_id() == 0:
            store_pair_gpu(row + collectives.NUMBER, number + 1, number)
            store_gpu(row + collectives.SIGNATURE, signature_of(what))
        return SUCCESS

    @device
    def barrier(ctx, what):
        sync()
        row = row_of(ctx, what)
        number, entered = load_pair_gpu(row + collectives.NUMBER)
        area, place = load_16(row + collectives.AREA)
        ranks = place >> collectives.RANKS_SHIFT
        if entered != number:
            missing = rounds.missing_of_last(
                row, area, ranks, number, entered, rank(), size(), LOOKS
            )
            if sync_or(missing):
                return NOTHING_DONE
        rounds.put_entered(row, ranks, number, what, rank(), size())
        missing = rounds.missing_of_entered(
            area, ranks, number, signature_of(what), rank(), size(), LOOKS
        )
        if sync_or(missing):
            return AFTER_STORES
        if leads() and lane_id() == 0:
            store_pair_gpu(row + collectives.NUMBER, number + 1, number + 1)
        return SUCCESS

    # They call nothing themselves: that costs registers, which would have to be saved.
    allreduce_linked = part("allreduce", 7, 1, allreduce)
    bcast_linked = part("bcast", 6, 1, bcast)
    barrier_linked = part("barrier", 4, 1, barrier)

    @device
    def allreduce_or_rest(ctx, what, send, recv, nbytes):
        error = allreduce_linked(ctx, what, send, recv, nbytes)
        if error <= AFTER_STORES:
            error = rest(ctx, what, send, recv, nbytes, error)
        return error

    @device
    def bcast_or_rest(ctx, what, buffer, nbytes):
        error = bcast_linked(ctx, what, buffer, nbytes)
        if error <= AFTER_STORES:
            error = rest(ctx, what, buffer, buffer, nbytes, error)
        return error

    @device
    def barrier_or_rest(ctx, what):
        error = barrier_linked(ctx, what)
        if error <= AFTER_STORES:
            error = rest(ctx, what, 0, 0, 0, error)
        return error

    return SimpleNamespace(
        allreduce=allreduce_or_rest,
        bcast=bcast_or_rest,
        barrier=barrier_or_rest,
        long=waits.long,
    )
