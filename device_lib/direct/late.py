"""Partitions that are ready before the receiver has come: whoever waits stores them later.

``GMPI_Pready`` does not wait for the receiver: MPI promises that, and two ranks that both make
their sends ready before they start their receives would wait for each other. All threads of a scope
call these.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import partitions
from device_lib.platform import primitives as gpu
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from gmpi.contract import partitions as p
from gmpi.contract.wire import (
    DEVICE_ABORT,
    DEVICE_DIRECT_OPEN,
    DEVICE_LATE,
    DEVICE_PARTITIONED_COUNT,
)

_NONE = -1


@device
def set_mark(row, partition, number, what):
    gpu.store_gpu(
        gpu.load_gpu(row + p.MARKS) + partition * p.MARK_BYTES, number << p.MARK_SHIFT | what
    )


@device
def count_late(ctx, row, more):
    """Says how much more there is in a row for others to do."""
    gpu.count_gpu(row + p.LATE_COUNT, more)
    tell_others(ctx, more)


@device
def tell_others(ctx, more):
    """The same of all rows."""
    gpu.count_gpu(ctx.device + DEVICE_LATE, more)
    gpu.count_gpu(ctx.device + DEVICE_DIRECT_OPEN, more)  # others look for open requests by this


@device
def leave(ctx, row, partition, number):
    """Marks a partition as ready; one thread, after a barrier of those that wrote it."""
    gpu.fence_gpu()  # whoever stores it must see its bytes
    set_mark(row, partition, number, p.LATE)
    count_late(ctx, row, 1)


@device
def _claim_in(row):
    """(partition that may be stored now, its round) of a row, claimed; (_NONE, 0): there is none.
    Of a receive, partition 0. One thread."""
    if gpu.load_gpu(row + p.LATE_COUNT) == 0:
        return _NONE, 0
    owner, state = gpu.load_pair_gpu(row + p.OWNER)
    shape = gpu.load_gpu(row + p.SHAPE)
    number = state >> p.ROUND_SHIFT
    if not partitions.has_credit(row, partitions.mode_of(shape), number):
        return _NONE, 0
    if shape & p.SENDS == 0:  # no other thread begins with it
        if gpu.cas_gpu(row + p.LATE_COUNT, 1, 0) == 1:
            return 0, number
        return _NONE, 0
    marks = gpu.load_gpu(row + p.MARKS)
    mark = number << p.MARK_SHIFT
    partition = 0
    while partition < shape & p.PARTITIONS_MASK:
        at = marks + partition * p.MARK_BYTES
        if (
            gpu.load_gpu(at) == mark | p.LATE
            and gpu.cas_gpu(at, mark | p.LATE, mark | p.MOVING) == mark | p.LATE
        ):
            gpu.fence_gpu()
            return partition, number
        partition += gpu.opaque(1)
    return _NONE, 0


@device
def _claim_any(ctx):
    """(row, partition, round), likewise, of any request."""
    rows = gpu.load_gpu(ctx.device + DEVICE_PARTITIONED_COUNT)
    index = 0
    while index < rows:
        row = partitions.row_at(ctx, index)
        partition, number = _claim_in(row)
        if partition != _NONE:
            return row, partition, number
        index += gpu.opaque(1)
    return 0, _NONE, 0


def make_late(scope: Scope, groups: SimpleNamespace) -> SimpleNamespace:
    """For one scope.

    Args:
        groups: what ``make_groups`` returned.
    """
    look_at_all, ready_in_group = groups.look_at_all, groups.ready
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3

    @device
    def store_one(ctx, row):
        """Stores a partition that is late and may be stored, of one row or, where it is 0, of any,
        unless waits have been aborted; whether there was one. Opens what a receive could not open
        when it was started."""
        sync()
        partition = _NONE
        number = 0
        if leads() and gpu.lane_id() == 0 and gpu.load_gpu(ctx.device + DEVICE_LATE) > 0:
            if row != 0:
                partition, number = _claim_in(row)
            elif gpu.load_gpu(ctx.device + DEVICE_ABORT) == 0:
                row, partition, number = _claim_any(ctx)
        row, partition, number = broadcast_3(row, partition, number)
        sync()
        if partition == _NONE:
            return 0
        shape = gpu.load_gpu(row + p.SHAPE)
        if shape & p.SENDS == 0:
            look_at_all(ctx, row, number)
        elif partitions.mode_of(shape) == p.PROXIED:
            ready_in_group(ctx, row, partition, number)
        else:
            partitions.store(row, partition, number, rank(), size())
        sync()
        if leads() and gpu.lane_id() == 0:
            if shape & p.SENDS != 0:
                partitions.publish(row, shape, partition, number)
                set_mark(row, partition, number, p.SENT)
                count_late(ctx, row, -1)
            else:
                tell_others(ctx, -1)
        return 1

    store_late: Callable = parts_of(scope.name, "gmpi_direct")("store_late", 4, 1, store_one)
    return SimpleNamespace(store_late=store_late)
