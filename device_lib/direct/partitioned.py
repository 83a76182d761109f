"""Calls of partitioned requests (MPI 4.1 chapter 4); all threads of a scope make them together.

What these do with any request: ``partitioned_quick`` comes first. One thread judges for all others.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct import partitioned_checks as checks
from device_lib.direct import partitions
from device_lib.direct.groups import group_of
from device_lib.direct.late import leave, make_late, set_mark
from device_lib.direct.partitions import count_asked, mode_of, row_of
from device_lib.platform import primitives as gpu
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import ring
from gmpi.contract import partitions as p
from gmpi.contract.constants import ERR_ARG, ERR_REQUEST, SUCCESS
from gmpi.contract.wire import (
    DEVICE_LATE,
    OP_FAULT,
    OP_PARRIVED,
    OP_PREADY,
    OP_START,
)


def make_partitioned(scope: Scope, groups: SimpleNamespace) -> SimpleNamespace:
    """For one scope.

    Args:
        groups: what ``make_groups`` returned.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    broadcast = scope.broadcast
    part = parts_of(scope.name, "gmpi_partitioned")
    store_late = make_late(scope, groups).store_late
    look_at_group, look_at_all = groups.look, groups.look_at_all
    ready_in_group, help_others = groups.ready, groups.help_others

    @device
    def others():
        """Whether somebody else than the callers may want to see what they have stored."""
        return gpu.grid_blocks() > 1 or size() < gpu.block_threads()

    @device
    def report(ctx, op, request, partition, error):
        """Tells the host of a call that was refused; the leading warp.

        Where the two ends do not fit, it knows.
        """
        if error != ERR_REQUEST and error != ERR_ARG:
            return 0
        value = request
        more = error
        if error == ERR_ARG:
            value = partition
            more |= (gpu.load_gpu(row_of(ctx, request) + p.SHAPE) & p.PARTITIONS_MASK) << 8
        word0 = OP_FAULT | op << 8
        ring.post_about(ctx, gpu.lane_id(), warp_lanes(), warp_mask(), word0, 0, value, 0, more)
        return 0

    report_linked = part("report", 7, 1, report)

    # --- GMPI_Start --------------------------------------------------------------

    @device
    def start(ctx, request):
        sync()
        error = SUCCESS
        if leads() and gpu.lane_id() == 0:
            error = checks.start_one(ctx, request)
        error = broadcast(error)
        if error != SUCCESS and error != checks.OPENS and leads():
            report_linked(ctx, OP_START, request, 0, error)
        if error == checks.OPENS:
            row = row_of(ctx, request)
            look_at_all(ctx, row, gpu.load_gpu(row + p.STATE) >> p.ROUND_SHIFT)
            error = SUCCESS
        return error

    # --- GMPI_Pready ----------------------------------------------------------------------------

    @device
    def ready_otherwise(ctx, partition, request):
        sync()
        found = 0
        if leads() and gpu.lane_id() == 0:
            found = checks.judge_ready(ctx, partition, request)
        found = broadcast(found)
        if found & checks.ERROR != 0:
            if leads():
                report_linked(ctx, OP_PREADY, request, partition, checks.error_of(found))
            return checks.error_of(found)
        row = row_of(ctx, request)
        number = gpu.load_gpu(row + p.STATE) >> p.ROUND_SHIFT
        if found == checks.YES and mode_of(gpu.load_gpu(row + p.SHAPE)) == p.PROXIED:
            ready_in_group(ctx, row, partition, number)
        elif found == checks.YES:
            partitions.store(row, partition, number, rank(), size())
            sync()
        if leads() and gpu.lane_id() == 0:
            if found == checks.LATER:
                leave(ctx, row, partition, number)
            else:
                if found == checks.YES:
                    partitions.publish(row, gpu.load_gpu(row + p.SHAPE), partition, number)
                set_mark(row, partition, number, p.SENT)
        return SUCCESS

    # --- GMPI_Parrived --------------------------------------------------------------------------

    @device
    def look(ctx, row, partition, looks):
        """Moves a partition of an open receive to the user's buffer, if it has come: whether."""
        shape = gpu.load_gpu(row + p.SHAPE)
        number = gpu.load_gpu(row + p.STATE) >> p.ROUND_SHIFT
        if mode_of(shape) == p.PROXIED:
            return look_at_group(ctx, row, group_of(row, partition), number)
        if mode_of(shape) == p.PACKETS:
            missing = partitions.take_packets(row, partition, number, rank(), size(), looks)
        else:
            missing = 0
            if leads() and gpu.lane_id() == 0:
                missing = partitions.flags_missing(row, partition, number, looks)
        if sync_or(missing):
            return 0
        if mode_of(shape) == p.STORES and shape & p.COPIES != 0:
            partitions.copy_out(row, partition, rank(), size())
            sync()
        if leads() and gpu.lane_id() == 0:
            if others():
                gpu.fence_gpu()
            set_mark(row, partition, number, p.TAKEN)
        return 1

    look_linked = part("look", 6, 1, look)

    @device
    def arrived_otherwise(ctx, partition, request):
        sync()
        found = 0
        if leads() and gpu.lane_id() == 0:
            found = checks.judge_arrived(ctx, partition, request)
        found = broadcast(found)
        if found & checks.ERROR != 0 and leads():
            report_linked(ctx, OP_PARRIVED, request, partition, checks.error_of(found))
        arrived = 1
        if found == checks.NO:
            arrived = look_linked(ctx, row_of(ctx, request), partition, checks.LOOKS)
        elif found == checks.LATER:
            arrived = 0
        if arrived == 0:
            gpu.spin()
            if leads() and gpu.lane_id() == 0:
                count_asked(row_of(ctx, request), gpu.block_id())
            if (
                found == checks.NO
                and mode_of(gpu.load_gpu(row_of(ctx, request) + p.SHAPE)) == p.PROXIED
            ):
                help_others(ctx)
            late = sync_or(1 if gpu.load_gpu(ctx.device + DEVICE_LATE) > 0 else 0)
            if late:
                store_late(ctx, 0)
        return arrived

    return SimpleNamespace(
        report=report_linked,
        start=part("start_any", 4, 1, start),
        ready=part("ready_otherwise", 5, 1, ready_otherwise),
        arrived=part("arrived_otherwise", 5, 1, arrived_otherwise),
        look=look_linked,
        look_at_all=look_at_all,
        store_late=store_late,
    )
