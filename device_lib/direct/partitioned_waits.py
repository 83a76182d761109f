"""Waiting for partitioned requests: all their partitions, then they are inactive again."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct.groups import error_of_groups
from device_lib.direct.late import count_late
from device_lib.direct.late_waits import make_late_waits
from device_lib.direct.looking_on import make_look_on
from device_lib.direct.partitioned_checks import KEEP
from device_lib.direct.partitioned_quick import make_quick_wait
from device_lib.direct.partitions import count_asked, is_ours, mode_of, row_of
from device_lib.direct.persistent_rows import is_inactive_row
from device_lib.platform import primitives as gpu
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import pacing, ring, slots
from device_lib.proxied.closing import COMPLETED, FAULT, NO_ORIGIN
from gmpi.contract import partitions as p
from gmpi.contract import wire
from gmpi.contract.constants import BYTE, ERR_REQUEST, SUCCESS

_LOOKS = 2 if gpu.SIMULATOR else 16  # at each of its packets, in one pass over all partitions

# What one pass has found.
_GOES_ON = 0
_DONE = 1
_INACTIVE = 2
_FOREIGN = 3
_FAILED = 4  # | error class << 8


@device
def is_inactive(ctx, handle):
    """Whether a wait for it has nothing to wait for; any thread."""
    if slots.is_persistent(handle):
        return is_inactive_row(ctx, handle)
    if not is_ours(ctx, handle):
        return False
    owner, state = gpu.load_pair_gpu(row_of(ctx, handle) + p.OWNER)
    return owner == handle and state & p.ACTIVE == 0


@device
def _state_of(ctx, request):
    """What is known before anybody looks at partitions; one thread."""
    if not is_ours(ctx, request):
        return _FOREIGN
    row = row_of(ctx, request)
    owner, state = gpu.load_pair_gpu(row + p.OWNER)
    shape = gpu.load_gpu(row + p.SHAPE)
    if owner != request:
        return _FOREIGN
    if mode_of(shape) == p.FAILED:
        return _FAILED | shape >> p.FAILURE_SHIFT << 8 & 0xFF00
    if state & p.ACTIVE == 0:
        return _INACTIVE
    if mode_of(shape) == p.NOBODY and shape & p.SENDS == 0:
        return _DONE
    return _GOES_ON


@device
def _first_left(row):
    """The first partition of ours that is not sent, or taken; -1: all are. One thread."""
    owner, state = gpu.load_pair_gpu(row + p.OWNER)
    shape = gpu.load_gpu(row + p.SHAPE)
    what = p.SENT if shape & p.SENDS != 0 else p.TAKEN
    marks = gpu.load_gpu(row + p.MARKS)
    wanted = state >> p.ROUND_SHIFT << p.MARK_SHIFT | what
    partition = 0
    while partition < shape & p.PARTITIONS_MASK:
        if gpu.load_gpu(marks + partition * p.MARK_BYTES) != wanted:
            return partition
        partition += gpu.opaque(1)
    return -1


def make_partitioned_waits(
    scope: Scope, calls: SimpleNamespace, help_others: Callable, go_on: Callable
) -> SimpleNamespace:
    """For one scope, all of whose threads call it together.

    Args:
        calls: of ``partitioned``.
        help_others: executes commands of the proxied road.
        go_on: goes on with requests of the direct road.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    broadcast_3 = scope.broadcast_3
    look, store_late, look_at_all = calls.look, calls.store_late, calls.look_at_all
    late_waits = make_late_waits(scope, help_others)
    begin_late, end_late = late_waits.begin, late_waits.end
    look_on = make_look_on(scope, go_on, help_others)
    part = parts_of(scope.name, "gmpi_partitioned")

    @device
    def tell(ctx, op, request, handle):
        """Tells the proxy that a wait takes long, or that it is over; the leading warp.

        Args:
            handle: of the slot that stands for the wait.
        """
        row = row_of(ctx, request)
        shape, nbytes = gpu.load_pair_gpu(row + p.SHAPE)
        total = nbytes * (shape & p.PARTITIONS_MASK)
        kind = wire.OP_ISEND if shape & p.SENDS != 0 else wire.OP_IRECV
        word0 = op | kind << 8 | (shape >> p.COMM_SHIFT & (wire.COMMUNICATORS - 1)) << 16
        word0 |= BYTE << wire.DATATYPE_SHIFT | wire.PARTITIONED
        origin = gpu.load_gpu(row + p.ORIGIN)
        ring.post_about(
            ctx, gpu.lane_id(), warp_lanes(), warp_mask(), word0, origin, total, handle, total
        )
        return 0

    tell_linked = part("tell", 6, 1, tell)

    @device
    def pass_over(ctx, request):
        """Does for a request what can be done now: what has been found."""
        sync()
        found = 0
        left = -1
        late = 0
        shape = 0  # as one thread sees it: the host may open the request meanwhile
        if leads() and gpu.lane_id() == 0:
            found = _state_of(ctx, request)
            if found == _GOES_ON:
                row = row_of(ctx, request)
                shape = gpu.load_gpu(row + p.SHAPE)
                late = gpu.load_gpu(row + p.LATE_COUNT)
                if mode_of(shape) != p.PROXIED:
                    left = _first_left(row)
                    found = _DONE if left < 0 else _GOES_ON
        found, left, shape = broadcast_3(found, left << 32 | late, shape)
        if found != _GOES_ON:
            return found
        row = row_of(ctx, request)
        late = left & wire.LOW_32
        sync()
        while late > 0:
            late = store_late(ctx, row)
        if mode_of(shape) == p.PROXIED:
            number = gpu.load_gpu(row + p.STATE) >> p.ROUND_SHIFT
            return _DONE if look_at_all(ctx, row, number) else _GOES_ON
        if shape & p.SENDS == 0 and mode_of(shape) != p.OPENING:
            look(ctx, row, left >> 32, _LOOKS)
        return _GOES_ON

    pass_linked = part("pass", 4, 1, pass_over)

    @device
    def conclude(ctx, request, found, error, once):
        """(outcome, count, origin)."""
        ends = once != KEEP and leads() and gpu.lane_id() == 0
        if found == _FOREIGN:
            return COMPLETED | FAULT | ERR_REQUEST << wire.ERROR_SHIFT, 0, NO_ORIGIN
        if found == _INACTIVE:
            return COMPLETED, 0, NO_ORIGIN
        if found & 0xFF == _FAILED:
            sync()
            if ends:
                row = row_of(ctx, request)
                state = gpu.load_gpu(row + p.STATE)
                gpu.store_gpu(row + p.STATE, state & ~p.ACTIVE)
                count_late(ctx, row, -gpu.load_gpu(row + p.LATE_COUNT))
            return COMPLETED | (found >> 8) << wire.ERROR_SHIFT, 0, NO_ORIGIN
        if found == _GOES_ON:
            if error == SUCCESS:
                return 0, 0, NO_ORIGIN
            return COMPLETED | (error & 0xFF) << wire.ERROR_SHIFT, 0, NO_ORIGIN
        row = row_of(ctx, request)
        state = gpu.load_gpu(row + p.STATE)
        shape, nbytes = gpu.load_pair_gpu(row + p.SHAPE)
        count = gpu.load_gpu(row + p.ORIGIN + 8)
        origin = gpu.load_gpu(row + p.ORIGIN)
        if (
            (gpu.grid_blocks() > 1 or size() < gpu.block_threads())
            and leads()
            and gpu.lane_id() == 0
        ):
            gpu.fence_gpu()  # what those stored who have taken the partitions
        failed = error_of_groups(row) if mode_of(shape) == p.PROXIED else SUCCESS
        sync()
        if ends:
            gpu.store_gpu(row + p.STATE, state & ~p.ACTIVE)
        if mode_of(shape) == p.NOBODY or failed != SUCCESS:
            return COMPLETED | failed << wire.ERROR_SHIFT, 0, origin
        return COMPLETED | nbytes * (shape & p.PARTITIONS_MASK), count, origin

    @device
    def finish_rest(ctx, request, once):
        """As ``finish``, where it is not complete at first sight."""
        found = pass_linked(ctx, request)
        turns = 0
        began = 0
        handle = 0
        error = 0
        while found == _GOES_ON and error == 0 and once == 0:
            turns += 1
            if turns > pacing.PATIENCE:
                sync()
                what = 0
                if leads() and gpu.lane_id() == 0:
                    # Those between nodes come by commands in host memory.
                    shape = gpu.load_gpu(row_of(ctx, request) + p.SHAPE)
                    what, error, began = pacing.long_wait(ctx, began, mode_of(shape) == p.PROXIED)
                error, what, unused = broadcast_3(error, what, 0)
                sync()
                if what & pacing.LATE != 0 and handle == 0:
                    handle = begin_late(ctx)
                    if handle > 0 and leads():
                        tell_linked(ctx, wire.OP_WAITS, request, handle)
                if error == 0:
                    go_on(ctx, slots.guess(ctx))
                    if what & pacing.LOOKED != 0:
                        help_others(ctx)
            gpu.spin()
            found = pass_linked(ctx, request)
        sync()  # before the next broadcast
        if found == _GOES_ON and once != 0:
            if leads() and gpu.lane_id() == 0:
                count_asked(row_of(ctx, request), int64(gpu.block_id()) | p.BY_TEST)
            error = look_on(ctx)
        if handle > 0:
            if leads():
                tell_linked(ctx, wire.OP_WAITED, request, handle)
            end_late(ctx, handle)
        return conclude(ctx, request, found, error, once)

    finish_rest_linked = part("finish_rest", 5, 3, finish_rest)

    @device
    def finish_any(ctx, request, once):
        sync()
        row = row_of(ctx, request)
        owner, state = gpu.load_pair_gpu(row + p.OWNER)
        shape = gpu.load_gpu(row + p.SHAPE)
        marks = gpu.load_gpu(row + p.MARKS)
        wanted = state >> p.ROUND_SHIFT << p.MARK_SHIFT | (
            p.SENT if shape & p.SENDS != 0 else p.TAKEN
        )
        left = 0
        active = owner == request and state & p.ACTIVE != 0 and is_ours(ctx, request)
        if not active:
            left = 1
        elif mode_of(shape) >= p.FAILED or mode_of(shape) == p.OPENING:
            left = 1
        else:
            partition = rank()
            while partition < shape & p.PARTITIONS_MASK:
                if gpu.load_gpu(marks + partition * p.MARK_BYTES) != wanted:
                    left = 1
                partition += gpu.opaque(size())
        if sync_or(left):
            # What has few dependent loads comes first: while all blocks load from memory, each of
            # them waits behind theirs.
            one = active and shape & (p.SENDS | p.PARTITIONS_MASK) == 1
            one = one and mode_of(shape) == p.PACKETS
            if sync_or(0 if one else 1) or look(ctx, row, 0, _LOOKS) == 0:
                return finish_rest_linked(ctx, request, once)
        return conclude(ctx, request, _DONE, SUCCESS, once)

    finish_linked = part("finish_any", 5, 3, finish_any)
    return SimpleNamespace(finish=make_quick_wait(scope, finish_linked))
