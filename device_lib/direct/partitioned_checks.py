"""What a call of a partitioned request finds that is not ordinary; one thread for all others."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import partitions
from device_lib.direct.late import count_late
from device_lib.direct.partitions import is_ours, mode_of, row_of
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device
from device_lib.proxied.pacing import may_look_at_host
from gmpi.contract import partitions as p
from gmpi.contract.constants import ERR_ARG, ERR_REQUEST, SUCCESS
from gmpi.contract.wire import CONTROL_ABORT

LOOKS = 2 if gpu.SIMULATOR else 16  # before a call finds that the other end has not come
NEXT = 3  # added to STATE of an inactive request: the next round, ACTIVE
KEEP = 2  # in place of ``once``: looks once, and leaves a request active that is complete


# What a call has found that is not ordinary.
OPENS = -1
YES = 1
NO = 2
LATER = 3
ABORTED = 4
ERROR = 8  # | error class << 8


@device
def error_of(found):
    return found >> 8


@device
def _error(error_class):
    return ERROR | error_class << 8


@device
def start_one(ctx, request):
    """Starts a request: its error class, or OPENS, where it has to be opened; one thread."""
    if not is_ours(ctx, request):
        return ERR_REQUEST
    row = row_of(ctx, request)
    owner, state = gpu.load_pair_gpu(row + p.OWNER)
    shape = gpu.load_gpu(row + p.SHAPE)
    credit, marks = gpu.load_pair_gpu(row + p.CREDIT)
    if owner != request or state & p.ACTIVE != 0:
        return ERR_REQUEST
    mode = mode_of(shape)
    if mode == p.FAILED:
        return shape >> p.FAILURE_SHIFT & 0xFF
    state += NEXT
    gpu.store_gpu(row + p.STATE, state)
    if shape & p.SENDS == 0:
        if mode == p.OPENING:
            # The host opens it while we look: one of us sees what the other has stored.
            gpu.fence_gpu()
            mode = mode_of(gpu.load_gpu(row + p.SHAPE))
            credit = gpu.load_gpu(row + p.CREDIT)
            if mode == p.OPENING and shape & p.NO_ROAD != 0:
                count_late(ctx, row, 1)
        if mode == p.STORES:
            gpu.fence_sys()  # what has been stored to the buffer: before the sender stores there
        if mode == p.PACKETS or mode == p.STORES:
            gpu.store_sys(credit, state >> p.ROUND_SHIFT)
        elif mode == p.PROXIED:
            return OPENS
    return SUCCESS


@device
def _judge(ctx, partition, request, sends):
    """YES where a request has such a partition, is active, and sends or receives; or an error. One
    thread."""
    if not is_ours(ctx, request):
        return _error(ERR_REQUEST)
    row = row_of(ctx, request)
    owner, state = gpu.load_pair_gpu(row + p.OWNER)
    shape = gpu.load_gpu(row + p.SHAPE)
    if owner != request or (shape & p.SENDS != 0) != sends:
        return _error(ERR_REQUEST)
    if partition < 0 or partition >= shape & p.PARTITIONS_MASK:
        return _error(ERR_ARG)
    if mode_of(shape) == p.FAILED:
        return _error(shape >> p.FAILURE_SHIFT & 0xFF)
    if state & p.ACTIVE == 0:
        return NO
    return YES


@device
def judge_ready(ctx, partition, request):
    """What to do with a partition that is ready: YES, it is stored now; NO, there is nothing to
    store; LATER; or an error. One thread."""
    found = _judge(ctx, partition, request, True)
    if found != YES:
        return _error(ERR_REQUEST) if found == NO else found
    row = row_of(ctx, request)
    number = gpu.load_gpu(row + p.STATE) >> p.ROUND_SHIFT
    if (
        gpu.load_gpu(gpu.load_gpu(row + p.MARKS) + partition * p.MARK_BYTES) >> p.MARK_SHIFT
        == number
    ):
        return _error(ERR_ARG)  # it has been ready before
    tried = 0
    while tried < LOOKS:
        mode = mode_of(gpu.load_gpu(row + p.SHAPE))
        if mode == p.NOBODY:
            return NO
        if partitions.has_credit(row, mode, number):
            return YES
        gpu.spin()
        tried += gpu.opaque(1)
    return LATER


@device
def judge_arrived(ctx, partition, request):
    """What is known of a partition before anybody has looked for it: YES, it is in the buffer;
    NO, somebody must look; ABORTED; or an error. One thread."""
    found = _judge(ctx, partition, request, False)
    if found != YES:
        return YES if found == NO else found  # an inactive request has nothing to wait for
    row = row_of(ctx, request)
    shape = gpu.load_gpu(row + p.SHAPE)
    number = gpu.load_gpu(row + p.STATE) >> p.ROUND_SHIFT
    taken = number << p.MARK_SHIFT | p.TAKEN
    if (
        gpu.load_gpu(gpu.load_gpu(row + p.MARKS) + partition * p.MARK_BYTES) == taken
        or mode_of(shape) == p.NOBODY
    ):
        gpu.fence_gpu()  # what those stored who have taken it
        return YES
    if may_look_at_host() and gpu.load_sys(ctx.mapped + CONTROL_ABORT) != 0:
        return ABORTED
    return LATER if mode_of(shape) == p.OPENING else NO
