"""Calls of partitioned requests in packets of whole words: what most calls are.

The host says in two sectors of a row which requests may be such. A call of any other kind has done
nothing when it goes on in ``partitioned``, or in ``partitioned_waits``.

Nothing here is longer than it must be: a warp that is alone on its multiprocessor takes some five
cycles for each instruction, and what lies between a packet that comes and the answer that goes is
part of every round trip. So numbers of rounds are compared by their low 32 bits, a thread's first
packet is moved without a loop, and memory is asked once: what never changes is read through the
nearest cache, which answers in a tenth of the time, and all else at the same time. A sector that
the cache has had from before the request was there names another one, or none; then it is emptied.

A Parrived that finds nothing returns soon, and only now and then does what any wait does for
others: what comes meanwhile would have to wait for that.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import partitioned_checks as checks
from device_lib.direct.partitions import count_asked, mark_of, packets_of, put_rest, row_of, take
from device_lib.move.copy import load_words, store_words
from device_lib.platform import primitives as gpu
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import Scope
from device_lib.proxied.closing import COMPLETED
from device_lib.proxied.pacing import may_look_at_host
from gmpi.contract import partitions as p
from gmpi.contract.constants import ERR_ARG, SUCCESS
from gmpi.contract.wire import (
    DEVICE_LATE,
    LOW_32,
    OP_PREADY,
    PACKET_BYTES,
    PACKET_PAYLOAD,
    REQUEST_NULL,
)

_SENDS = 1 << p.QUICK_SHIFT
# For a packet, in one call of Parrived: a round trip is to end before a call has given up, since
# the next one begins anew. Where a thread has several packets, a round trip takes longer.
_LOOKS = 2 if gpu.SIMULATOR else 24
_LOOKS_AT_MANY = 4 * _LOOKS


@device
def _inbox_of(place, packet, stride, number, partition, partitions):
    """Where a packet is: ``inbox_of``, of what fits into 32 bits."""
    turn = uint32(uint32(number & uint32(1)) * partitions + uint32(partition))
    return place + int64(uint32(turn * stride + packet * uint32(PACKET_BYTES)))


@device
def _mark(state, what):
    """Of the round of an active request."""
    return (state ^ p.ACTIVE) << (p.MARK_SHIFT - p.ROUND_SHIFT) | what


@device
def _refresh(row, request, seen, also):
    """Has the nearest cache read a row again, if what it has is older than the request; one
    thread."""
    if (seen != request or also != request) and gpu.load_gpu(row + p.QUICK_MORE) == request:
        gpu.fence_gpu()


def make_quick_calls(scope: Scope, calls: SimpleNamespace) -> SimpleNamespace:
    """Start, Pready and Parrived for one scope, all of whose threads call them together.

    Args:
        calls: of ``partitioned``: what any request needs.
    """
    rank, size, leads = scope.rank, scope.size, scope.leads
    sync, sync_or = scope.sync, scope.sync_or
    start_any, ready_otherwise, arrived_otherwise = calls.start, calls.ready, calls.arrived
    report = calls.report
    part = parts_of(scope.name, "gmpi_partitioned")

    @device
    def room():
        """Bytes of which each thread has at most one packet."""
        return uint32(uint32(size()) * uint32(PACKET_PAYLOAD))

    @device
    def look_around(ctx, row):
        """Whether a call that has found nothing is to do what any wait does; thread 0."""
        count_asked(row, gpu.block_id())
        return 1 if gpu.load_gpu(ctx.device + DEVICE_LATE) > 0 or may_look_at_host() else 0

    @device
    def start(ctx, request):
        sync()
        row = row_of(ctx, request)
        owner, state = gpu.load_pair_gpu(row + p.OWNER)
        seen, marks = gpu.load_16(row + p.QUICK_MORE)
        credit, total = gpu.load_16(row + p.QUICK_MORE + 16)
        known = seen == request and request != REQUEST_NULL  # a row that is free says that, too
        if sync_or(0 if known and state & p.ACTIVE == 0 else 1):
            if rank() == 0:
                _refresh(row, request, seen, request)
            return start_any(ctx, request)
        if rank() == 0:
            state += checks.NEXT
            gpu.store_gpu(row + p.STATE, state)
            if total & _SENDS == 0:
                gpu.store_sys(credit, state >> p.ROUND_SHIFT)
        return SUCCESS

    @device
    def ready(ctx, partition, request):
        packet = uint32(rank())
        begin = uint32(packet * uint32(PACKET_PAYLOAD))
        sync()  # what other threads wrote to the buffer
        row = row_of(ctx, request)
        also, marks = gpu.load_16(row + p.QUICK_MORE)
        credit, total = gpu.load_16(row + p.QUICK_MORE + 16)
        seen, user = gpu.load_16(row + p.QUICK)
        place, sizes = gpu.load_16(row + p.QUICK + 16)
        left = uint32(sizes)
        bad = 1
        low = word = to = state = int64(0)
        good = seen == request and also == request and total & _SENDS != 0
        if good and partition >= 0 and partition < int64(uint32(total)):
            started = uint32(gpu.load_sys(credit))
            marks += partition * p.MARK_BYTES
            mark = uint32(gpu.load_gpu(marks) >> p.MARK_SHIFT)
            low, word = load_words(user + partition * int64(left), left, begin)
            # Last: nobody waits for it before all others are under way.
            owner, state = gpu.load_pair_gpu(row + p.OWNER)
            number = uint32(state >> p.ROUND_SHIFT)
            stride = uint32(sizes >> p.QUICK_SHIFT)
            to = _inbox_of(place, packet, stride, number, partition, uint32(total))
            word |= int64(mark_of(number)) << 32
            # ``may_store``
            if mark != number and uint32(started + uint32(1) - number) < uint32(1 << 31):
                bad = 1 - int64(state & p.ACTIVE)
        if sync_or(bad):
            if packet == 0:
                _refresh(row, request, seen, also)
            return ready_otherwise(ctx, partition, request)
        gpu.write_packet_if(to, low, word, begin < left or packet == 0)
        if left > room():
            to -= int64(packet) * PACKET_BYTES
            user += partition * int64(left)
            put_rest(to, user, int64(left), state >> p.ROUND_SHIFT, int64(packet) + size(), size())
            sync()
        if packet == 0:  # all have read their bytes
            gpu.store_gpu(marks, _mark(state, p.SENT))
        return SUCCESS

    @device
    def arrived(ctx, partition, request):
        packet = uint32(rank())
        begin = uint32(packet * uint32(PACKET_PAYLOAD))
        fences = gpu.grid_blocks() > 1 or size() < gpu.block_threads()
        sync()  # what other threads still read from the buffer
        row = row_of(ctx, request)
        owner, state = gpu.load_pair_gpu(row + p.OWNER)
        also, marks = gpu.load_16(row + p.QUICK_MORE)
        credit, total = gpu.load_16(row + p.QUICK_MORE + 16)
        seen, user = gpu.load_16(row + p.QUICK)
        place, sizes = gpu.load_16(row + p.QUICK + 16)
        left = uint32(sizes)
        missing = other = 1
        good = seen == request and also == request and total & _SENDS == 0
        good = good and state & p.ACTIVE != 0
        good = good and partition >= 0 and partition < int64(uint32(total))
        if good:
            marks += partition * p.MARK_BYTES
            mark = uint32(gpu.load_gpu(marks) >> p.MARK_SHIFT)
            number = uint32(state >> p.ROUND_SHIFT)
            stride = uint32(sizes >> p.QUICK_SHIFT)
            at = _inbox_of(place, packet, stride, number, partition, uint32(total))
            wanted = uint32(mark_of(number))
            mine = begin < left or packet == 0
            low, word = gpu.read_packet_if(at, int64(wanted) << 32, mine)
            target = user + partition * int64(left)
            # What another block has taken is visible only behind a fence: no call for this way.
            if mark != number:
                missing = other = 0
                looks = _LOOKS if left <= room() else _LOOKS_AT_MANY
                tried = looks
                while uint32(word >> 32) != wanted and tried > 1:
                    gpu.as_it_stands()
                    gpu.spin()
                    low, word = gpu.read_packet(at)
                    tried -= gpu.opaque(1)
                if uint32(word >> 32) != wanted:
                    missing = 1
                else:
                    store_words(target, low, word & LOW_32, left, begin)
                    if left > room():
                        at -= int64(packet) * PACKET_BYTES
                        end = packets_of(int64(left))
                        missing = take(
                            at, target, int64(left), state >> p.ROUND_SHIFT, int64(size()), end,
                            int64(packet), size(), looks,
                        )  # fmt: skip
        if sync_or(missing):
            if packet == 0:
                _refresh(row, request, seen, also)
                if other == 0:
                    other = look_around(ctx, row)
            if sync_or(other):  # threads may have seen a request before and after it opened
                return arrived_otherwise(ctx, partition, request)
            return 0
        if packet == 0:
            if fences:
                gpu.fence_gpu()  # what has been stored to the buffer
            gpu.store_gpu(marks, _mark(state, p.TAKEN))
        return 1

    ready_linked = part("pready", 5, 1, ready)

    @device
    def ready_range(ctx, low, high, request):
        result = SUCCESS
        partition = low
        if low > high:
            sync()
            if leads():
                report(ctx, OP_PREADY, request, low, ERR_ARG)
            return ERR_ARG
        while partition <= high and result == SUCCESS:
            result = ready_linked(ctx, partition, request)
            partition += gpu.opaque(1)
        return result

    return SimpleNamespace(
        start=part("start", 4, 1, start),
        ready=ready_linked,
        ready_range=part("ready_range", 6, 1, ready_range),
        arrived=part("parrived", 5, 1, arrived),
    )


def make_quick_wait(scope: Scope, finish_any: Callable) -> Callable:
    """Wait and Test, likewise: (ctx, request, how) -> (outcome, count, origin).

    Args:
        finish_any: that of ``partitioned_waits``.
    """
    rank, size = scope.rank, scope.size
    sync, sync_or = scope.sync, scope.sync_or

    @device
    def finish(ctx, request, once):
        partition = uint32(rank())
        sync()
        row = row_of(ctx, request)
        owner, state = gpu.load_pair_gpu(row + p.OWNER)
        seen, marks = gpu.load_16(row + p.QUICK_MORE)
        credit, total = gpu.load_16(row + p.QUICK_MORE + 16)
        nbytes = gpu.load_gpu(row + p.NBYTES)
        origin = gpu.load_gpu(row + p.ORIGIN)
        count = gpu.load_gpu(row + p.COUNT)
        left = 1
        if seen == request and state & p.ACTIVE != 0:
            wanted = _mark(state, p.SENT if total & _SENDS != 0 else p.TAKEN)
            left = 0
            while partition < uint32(total):
                if gpu.load_gpu(marks + int64(partition) * p.MARK_BYTES) != wanted:
                    left = 1
                partition = uint32(partition + uint32(size()))
        if sync_or(left):
            if rank() == 0:
                _refresh(row, request, seen, request)
            return finish_any(ctx, request, once)
        if gpu.grid_blocks() > 1 or size() < gpu.block_threads():
            if rank() == 0:
                gpu.fence_gpu()  # what those stored who have taken the partitions
            sync()
        if rank() == 0 and once != checks.KEEP:
            gpu.store_gpu(row + p.STATE, state ^ p.ACTIVE)
        return COMPLETED | nbytes * int64(uint32(total)), count, origin

    return parts_of(scope.name, "gmpi_partitioned")("finish", 5, 3, finish)  # type: ignore[no-any-return]
