"""Partitioned requests between ranks without a direct road: groups of partitions, by the proxies.

A group is a message of the proxied road, on a communicator of ours. Whoever makes its last
partition ready sends it; whoever starts a receive opens one for each group. The request is not the
user's: it stands in the group's record, and whoever waits, or asks for a partition, looks at it in
turn. All threads of a scope call these.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct.partitions import row_group
from device_lib.platform import primitives as gpu
from device_lib.platform.divide import divide_wide
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from device_lib.proxied.scattered import make_open_scattered
from gmpi.contract import partitions as p
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import OP_ISEND


@device
def group_of(row, partition):
    group, rest = divide_wide(partition, gpu.load_gpu(row + p.GROUP_PARTITIONS))
    return group


@device
def error_of_groups(row):
    """The error class of the first group that has failed; any thread, when all are done."""
    group = 0
    while group < gpu.load_gpu(row + p.GROUP_COUNT):
        error = gpu.load_gpu(row_group(row, group) + p.GROUP_ERROR)
        if error != SUCCESS:
            return error
        group += gpu.opaque(1)
    return SUCCESS


@device
def _never_direct(ctx, word0, peer_tag, nbytes, buffer, row):
    return 0


@device
def _never_collects(ctx, word0, peer_tag, count, nbytes, row, send_buffer, recv_buffer):
    return 0


@device
def _claim(row, group, number):
    """(what to do with the request of a group in a round: OPEN, it is to be opened; BUSY, it is to
    be looked at; DONE; or 0, nothing; its handle). One thread."""
    at = row_group(row, group)
    state = gpu.load_gpu(at + p.GROUP_STATE)
    mark = number << p.GROUP_SHIFT
    if state == mark | p.DONE:
        gpu.fence_gpu()  # what those stored who have found it complete
        return p.DONE, 0
    if state == mark | p.OPEN:
        if gpu.cas_gpu(at + p.GROUP_STATE, state, mark | p.BUSY) == state:
            gpu.fence_gpu()
            return p.BUSY, gpu.load_gpu(at + p.GROUP_HANDLE)
    elif state >> p.GROUP_SHIFT < number and gpu.load_gpu(row + p.SHAPE) & p.SENDS == 0:
        if gpu.cas_gpu(at + p.GROUP_STATE, state, mark | p.BUSY) == state:
            gpu.fence_gpu()
            return p.OPEN, 0
    return 0, 0


def make_groups(scope: Scope, requests: SimpleNamespace) -> SimpleNamespace:
    """For one scope.

    Args:
        requests: of the proxied road (``proxied.requests``).
    """
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3
    complete = requests.complete
    part = parts_of(scope.name, "gmpi_partitioned")
    body = make_open_scattered(
        scope, requests.help_others, requests.report, _never_direct, _never_collects, closes=False
    )
    open_scattered = part("open", 8, 1, body)

    @device
    def leave(row, group, number, what, field, value):
        """Lets others have a group."""
        sync()
        if leads() and gpu.lane_id() == 0:
            at = row_group(row, group)
            gpu.store_gpu(at + field, value)
            gpu.fence_gpu()
            gpu.store_gpu(at + p.GROUP_STATE, number << p.GROUP_SHIFT | what)

    @device
    def open_request(ctx, row, group, number):
        """Opens the request of a group that the caller has claimed."""
        at = row_group(row, group)
        word0 = gpu.load_gpu(row + p.FIRST_WORD)
        peer_tag = gpu.load_gpu(row + p.FIRST_RECORD) + (group << 32)
        send = at + p.GROUP_BUFFER if word0 & 0xFF == OP_ISEND else 0
        recv = at + p.GROUP_BUFFER if send == 0 else 0
        count = gpu.load_gpu(at + p.GROUP_ELEMENTS)
        handle = open_scattered(ctx, word0, peer_tag, count, send, recv)
        leave(row, group, number, p.OPEN, p.GROUP_HANDLE, handle)

    @device
    def look(ctx, row, group, number):
        """Whether a group has been sent, or is in the buffer; opens the request of a receive."""
        sync()
        what = 0
        handle = 0
        if leads() and gpu.lane_id() == 0:
            what, handle = _claim(row, group, number)
        what, handle, unused = broadcast_3(what, handle, 0)
        sync()
        if what == p.DONE:
            return 1
        if what == p.OPEN:
            open_request(ctx, row, group, number)
        if what != p.BUSY:
            return 0
        completed, status = complete(ctx, handle, True)
        if completed:
            leave(row, group, number, p.DONE, p.GROUP_ERROR, status.error)
            return 1
        leave(row, group, number, p.OPEN, p.GROUP_HANDLE, handle)
        return 0

    look_linked = part("look_at_group", 6, 1, look)

    @device
    def look_at_all(ctx, row, number):
        """Whether all of them have."""
        done = 1
        group = 0
        while group < gpu.load_gpu(row + p.GROUP_COUNT):
            done &= look_linked(ctx, row, group, number)
            group += gpu.opaque(1)
        return done

    @device
    def ready(ctx, row, partition, number):
        """Counts a partition, after a barrier of those that wrote it; the last one of its group
        sends it."""
        begins = 0
        group = group_of(row, partition)
        sync()  # all have what the caller has broadcast
        if leads() and gpu.lane_id() == 0:
            gpu.fence_gpu()  # whoever sends it must see its bytes
            at = row_group(row, group)
            each = gpu.load_gpu(row + p.GROUP_PARTITIONS)
            wanted = min(each, (gpu.load_gpu(row + p.SHAPE) & p.PARTITIONS_MASK) - group * each)
            if gpu.add_gpu(at + p.GROUP_READY, 1) + 1 == wanted:
                gpu.fence_gpu()
                gpu.store_gpu(at + p.GROUP_READY, 0)
                gpu.store_gpu(at + p.GROUP_STATE, number << p.GROUP_SHIFT | p.BUSY)
                begins = 1
        begins, unused, ignored = broadcast_3(begins, 0, 0)
        sync()
        if begins:
            open_request(ctx, row, group, number)
        return begins

    return SimpleNamespace(
        look=look_linked,
        look_at_all=part("look_at_groups", 5, 1, look_at_all),
        ready=part("ready_in_group", 6, 1, ready),
        help_others=requests.help_others,
    )
