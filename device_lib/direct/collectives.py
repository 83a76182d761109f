"""Collectives of the direct road: short ones at once, all else in ``collective_waits``.

Written for latency, as ``partitioned``: each thread reads the communicator's row itself, its own
packets are its own from end to end, and two barriers frame the call. That is slow where many warps
do all this. So of one warp, or of more than TOGETHER threads, the leading warp alone carries out
what it can move with two packets a lane, and also finds out whether the call is one of the direct
road; the others come to two barriers.
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
from device_lib.direct.scattered_collectives import allreduce_word, bcast_word
from device_lib.direct.telling import make_telling
from device_lib.move.message import is_sound, size_of
from device_lib.platform.context import (
    DeviceContext,
    collects_direct,
    has_direct,
    may_collect_direct,
)
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import (
    SIMULATOR,
    ballot,
    device,
    int64,
    lane_id,
    load_16,
    load_pair_gpu,
    store_gpu_if,
    store_pair_gpu_if,
)
from device_lib.platform.scope import ALL_LANES, FULL_WARP, Scope
from gmpi.contract import collectives
from gmpi.contract.collectives import NOT_OURS
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import COMMUNICATORS, LOW_32

TOGETHER = 32 if SIMULATOR else 256  # threads

_BARRIER = collectives.BARRIER << collectives.KIND_SHIFT
_BARRIER |= collectives.BARRIER << collectives.KIND_SHIFT + collectives.SIGNATURE_SHIFT


@device
def barrier_word(word0):
    return _BARRIER | (word0 >> 16 & (COMMUNICATORS - 1)) << collectives.COMM_SHIFT


@device
def _at_once(size):
    """Bytes of which no thread has more than two packets: then latency is all."""
    return min(collectives.ROOM, 2 * size * collectives.PAYLOAD)


@device
def _full():
    return FULL_WARP


@device
def _any_lane(flag):
    return ballot(ALL_LANES, flag != 0) != 0


def make_at_once(rank: Callable, size: Callable, some: Callable) -> SimpleNamespace:
    """Short collectives by some threads, which have met before: an error class, NOTHING_DONE or
    AFTER_STORES, the same in all of them.

    Args:
        rank, size: of the calling thread among them, and how many they are.
        some: (flag) -> whether any has a flag that is not 0.
    """

    @device
    def last_is_missing(row, area, ranks, number, entered):
        """Whether somebody may not have entered the round before."""
        if entered == number:
            return False
        return some(
            rounds.missing_of_last(row, area, ranks, number, entered, rank(), size(), LOOKS)
        )

    @device
    def allreduce(ctx, what, send, recv, nbytes):
        row = row_of(ctx, what)
        number, entered = load_pair_gpu(row + collectives.NUMBER)
        area, place = load_16(row + collectives.AREA)
        peers = load_16(row + collectives.PEERS)
        low = rounds.load_packet(send, min(nbytes, collectives.ROOM), rank())
        ranks = place >> collectives.RANKS_SHIFT
        if nbytes > _at_once(size()) or last_is_missing(row, area, ranks, number, entered):
            return NOTHING_DONE
        rounds.put(row, ranks, number, what, send, nbytes, NOBODY, rank(), size(), low, peers)
        missing = rounds.take_reduced(
            area, ranks, ranks, number, what, recv, nbytes, rank(), size(), LOOKS
        )
        if some(missing):
            return AFTER_STORES
        store_pair_gpu_if(row + collectives.NUMBER, number + 1, number + 1, rank() == 0)
        return SUCCESS

    @device
    def bcast(ctx, what, buffer, nbytes):
        row = row_of(ctx, what)
        number, entered = load_pair_gpu(row + collectives.NUMBER)
        area, place = load_16(row + collectives.AREA)
        peers = load_16(row + collectives.PEERS)
        ranks = place >> collectives.RANKS_SHIFT
        me = place & LOW_32
        root = what & collectives.ROOT_MASK
        if nbytes > _at_once(size()) or root >= ranks:
            return NOTHING_DONE
        if last_is_missing(row, area, ranks, number, entered):
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
        if some(missing):
            return AFTER_STORES
        known = number + 1
        if me == root or ranks > 2:  # else the root's data say that all have entered
            if some(rounds.missing_soon(area, ranks, number, what, rank(), size())):
                known = number
        store_pair_gpu_if(row + collectives.NUMBER, number + 1, known, rank() == 0)
        store_gpu_if(row + collectives.SIGNATURE, signature_of(what), rank() == 0)
        return SUCCESS

    @device
    def barrier(ctx, what):
        row = row_of(ctx, what)
        number, entered = load_pair_gpu(row + collectives.NUMBER)
        area, place = load_16(row + collectives.AREA)
        ranks = place >> collectives.RANKS_SHIFT
        if last_is_missing(row, area, ranks, number, entered):
            return NOTHING_DONE
        rounds.put_entered(row, ranks, number, what, rank(), size())
        missing = rounds.missing_of_entered(
            area, ranks, number, signature_of(what), rank(), size(), LOOKS
        )
        if some(missing):
            return AFTER_STORES
        store_pair_gpu_if(row + collectives.NUMBER, number + 1, number + 1, rank() == 0)
        return SUCCESS

    return SimpleNamespace(allreduce=allreduce, bcast=bcast, barrier=barrier)


def make_collectives(scope: Scope, make_wait: Callable, transfer: Callable) -> SimpleNamespace:
    """For one scope, all of whose threads call them. Each returns the error class, or NOT_OURS: the
    call goes by the proxies.

    Args:
        make_wait: ``make_round_waits``.
        transfer: of ``transfers``.
    """
    leads = scope.leads
    size = scope.size
    sync = scope.sync
    sync_full = scope.sync_full
    told, follow = make_telling(scope)
    waits = make_collective_waits(scope, make_wait, transfer)
    rest = waits.rest
    part = parts_of(scope.name, "gmpi_direct")
    by_all = make_at_once(scope.rank, scope.size, scope.sync_or)
    all_reduce, all_bcast, all_meet = by_all.allreduce, by_all.bcast, by_all.barrier
    by_warp = make_at_once(lane_id, _full, _any_lane)
    warp_reduces, warp_bcasts, warp_meets = by_warp.allreduce, by_warp.bcast, by_warp.barrier

    # They call nothing themselves: that costs registers, which would have to be saved.
    @device
    def allreduce_by_all(ctx, what, send, recv, nbytes):
        sync()  # what other threads wrote to the buffer
        return all_reduce(ctx, what, send, recv, nbytes)

    @device
    def bcast_by_all(ctx, what, buffer, nbytes):
        sync()
        return all_bcast(ctx, what, buffer, nbytes)

    @device
    def barrier_by_all(ctx, what):
        sync()
        return all_meet(ctx, what)

    @device
    def allreduce_by_warp(memory, word0, op, count, send, recv):
        ctx = DeviceContext(0, memory, 0, 0)
        sync_full()
        state = NOT_OURS
        if collects_direct(ctx, word0) & is_sound(word0, count):
            nbytes = count * size_of(word0)
            what = allreduce_word(word0, op, nbytes)
            if what != NOT_OURS:
                state = warp_reduces(ctx, what, send, recv, nbytes)
        return told(state)

    @device
    def bcast_by_warp(memory, word0, root, count, buffer):
        ctx = DeviceContext(0, memory, 0, 0)
        sync_full()
        state = NOT_OURS
        if collects_direct(ctx, word0) & is_sound(word0, count):
            nbytes = count * size_of(word0)
            what = bcast_word(word0, root, nbytes)
            if what != NOT_OURS:
                state = warp_bcasts(ctx, what, buffer, nbytes)
        return told(state)

    @device
    def barrier_by_warp(memory, word0):
        ctx = DeviceContext(0, memory, 0, 0)
        sync_full()
        state = NOT_OURS
        if collects_direct(ctx, word0):
            state = warp_meets(ctx, barrier_word(word0))
        return told(state)

    allreduce_all = part("allreduce", 7, 1, allreduce_by_all)
    bcast_all = part("bcast", 6, 1, bcast_by_all)
    barrier_all = part("barrier", 4, 1, barrier_by_all)
    allreduce_alone = part("allreduce_alone", 6, 1, allreduce_by_warp)
    bcast_alone = part("bcast_alone", 5, 1, bcast_by_warp)
    barrier_alone = part("barrier_alone", 2, 1, barrier_by_warp)

    @device
    def allreduce_longer(ctx, what, send, recv, nbytes):
        state = allreduce_all(ctx, what, send, recv, nbytes)
        return rest(ctx, what, send, recv, nbytes, state) if state <= AFTER_STORES else state

    @device
    def bcast_longer(ctx, what, buffer, nbytes):
        state = bcast_all(ctx, what, buffer, nbytes)
        return rest(ctx, what, buffer, buffer, nbytes, state) if state <= AFTER_STORES else state

    @device
    def is_short(ctx, nbytes):
        """Whether a call is for the leading warp alone, if it is one of the direct road."""
        alone = (size() == FULL_WARP) | (size() > TOGETHER)
        return (has_direct(ctx) != 0) & alone & (nbytes <= _at_once(FULL_WARP))

    @device
    def allreduce(ctx, word0, op, count, nbytes, send, recv):
        if is_short(ctx, nbytes):
            if leads():
                state = allreduce_alone(ctx.device, word0, int64(op), count, send, recv)
            else:
                state = follow()
            if state > AFTER_STORES:
                return state
            return rest(ctx, allreduce_word(word0, op, nbytes), send, recv, nbytes, state)
        if not may_collect_direct(ctx, word0) or not is_sound(word0, count):
            return NOT_OURS
        what = allreduce_word(word0, op, nbytes)
        if what == NOT_OURS:
            return NOT_OURS
        return allreduce_longer(ctx, what, send, recv, nbytes)

    @device
    def bcast(ctx, word0, root, count, nbytes, buffer):
        if is_short(ctx, nbytes):
            if leads():
                state = bcast_alone(ctx.device, word0, int64(root), count, buffer)
            else:
                state = follow()
            if state > AFTER_STORES:
                return state
            return rest(ctx, bcast_word(word0, root, nbytes), buffer, buffer, nbytes, state)
        if not may_collect_direct(ctx, word0) or not is_sound(word0, count):
            return NOT_OURS
        what = bcast_word(word0, root, nbytes)
        if what == NOT_OURS:
            return NOT_OURS
        return bcast_longer(ctx, what, buffer, nbytes)

    @device
    def barrier(ctx, word0):
        if is_short(ctx, 0):
            if leads():
                state = barrier_alone(ctx.device, word0)
            else:
                state = follow()
        elif may_collect_direct(ctx, word0):
            state = barrier_all(ctx, barrier_word(word0))
        else:
            return NOT_OURS
        return rest(ctx, barrier_word(word0), 0, 0, 0, state) if state <= AFTER_STORES else state

    return SimpleNamespace(
        allreduce=allreduce,
        bcast=bcast,
        barrier=barrier,
        # By the word of a call, and any number of bytes:
        allreduce_longer=allreduce_longer,
        bcast_longer=bcast_longer,
        long=waits.long,
    )
