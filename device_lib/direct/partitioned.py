"""Calls of partitioned requests (MPI 4.1 chapter 4); all threads of a scope make them together.

What these do with any request: ``partitioned_quick`` comes first. Each thread reads the request's
row itself, in a few wide loads, so that no thread waits for another's answer; one barrier with a
vote tells whether all of them have found packets. What else there is goes to a function of its own.
Every call begins with a barrier, so none needs one at its end.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct import partitioned_checks as checks
from device_lib.direct import partitions
from device_lib.direct.groups import group_of
from device_lib.direct.late import leave, make_late, set_mark
from device_lib.direct.partitions import is_ours, mode_of, row_of
from device_lib.move.copy import load_payload
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
    PACKET_PAYLOAD,
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

    ready_otherwise_linked = part("ready_otherwise", 5, 1, ready_otherwise)

    @device
    def ready(ctx, partition, request):
        sync()  # what other threads wrote to the buffer
        row = row_of(ctx, request)
        owner, state = gpu.load_pair_gpu(row + p.OWNER)
        shape, nbytes = gpu.load_pair_gpu(row + p.SHAPE)
        user = gpu.load_gpu(row + p.USER)
        place, stride = gpu.load_pair_gpu(row + p.PLACE)
        credit, marks = gpu.load_pair_gpu(row + p.CREDIT)
        number = state >> p.ROUND_SHIFT
        total = shape & p.PARTITIONS_MASK
        good = owner == request and state & p.ACTIVE != 0 and is_ours(ctx, request)
        good = good and mode_of(shape) == p.PACKETS and shape & p.SENDS != 0
        low = 0
        high = 0
        if good and partition >= 0 and partition < total:
            started = gpu.load_sys(credit)
            marks += partition * p.MARK_BYTES
            mark = gpu.load_gpu(marks)
            user += partition * nbytes
            if rank() < partitions.packets_of(nbytes):
                begin = rank() * PACKET_PAYLOAD
                low, high = load_payload(user + begin, nbytes - begin)
            good = mark >> p.MARK_SHIFT != number and partitions.may_store(
                p.PACKETS, started, number
            )
        else:
            good = False
        if sync_or(0 if good else 1):
            return ready_otherwise_linked(ctx, partition, request)
        at = partitions.inbox_of(place, stride, number, partition, total)
        partitions.put(at, user, nbytes, number, rank(), size(), low, high)
        sync()  # all have read their bytes
        if leads() and gpu.lane_id() == 0:
            gpu.store_gpu(marks, number << p.MARK_SHIFT | p.SENT)
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
                gpu.store_gpu(row_of(ctx, request) + p.ASKED_BLOCK, gpu.block_id())
                gpu.count_gpu(row_of(ctx, request) + p.ASKED, 1)
            if (
                found == checks.NO
                and mode_of(gpu.load_gpu(row_of(ctx, request) + p.SHAPE)) == p.PROXIED
            ):
                help_others(ctx)
            late = sync_or(1 if gpu.load_gpu(ctx.device + DEVICE_LATE) > 0 else 0)
            if late:
                store_late(ctx, 0)
        return arrived

    arrived_otherwise_linked = part("arrived_otherwise", 5, 1, arrived_otherwise)

    @device
    def arrived(ctx, partition, request):
        sync()  # what other threads still read from the buffer
        row = row_of(ctx, request)
        owner, state = gpu.load_pair_gpu(row + p.OWNER)
        shape, nbytes = gpu.load_pair_gpu(row + p.SHAPE)
        user = gpu.load_gpu(row + p.USER)
        place, stride = gpu.load_pair_gpu(row + p.PLACE)
        marks = gpu.load_gpu(row + p.MARKS)
        number = state >> p.ROUND_SHIFT
        total = shape & p.PARTITIONS_MASK
        good = owner == request and state & p.ACTIVE != 0 and is_ours(ctx, request)
        good = (
            good and mode_of(shape) == p.PACKETS and shape & p.SENDS == 0 and shape & p.EQUAL != 0
        )
        missing = 1
        if good and partition >= 0 and partition < total:
            marks += partition * p.MARK_BYTES
            mark = gpu.load_gpu(marks)
            if mark >> p.MARK_SHIFT != number:
                at = partitions.inbox_of(place, stride, number, partition, total)
                end = partitions.packets_of(nbytes)
                target = user + partition * nbytes
                missing = partitions.take(
                    at, target, nbytes, number, 0, end, rank(), size(), checks.LOOKS
                )
        if sync_or(missing):
            return arrived_otherwise_linked(ctx, partition, request)
        if leads() and gpu.lane_id() == 0:
            if others():
                gpu.fence_gpu()  # what has been stored to the buffer
            gpu.store_gpu(marks, number << p.MARK_SHIFT | p.TAKEN)
        return 1

    return SimpleNamespace(
        report=report_linked,
        start=part("start_any", 4, 1, start),
        ready=part("ready_any", 5, 1, ready),
        arrived=part("arrived_any", 5, 1, arrived),
        look=look_linked,
        look_at_all=look_at_all,
        store_late=store_late,
    )
