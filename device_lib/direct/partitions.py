"""Moving one partition: what sender and receiver do with its bytes; all threads of a scope.

Packets are stored and polled as in ``packets``. Other partitions are stored as they are and then
flagged. A partition has the same number of bytes in every round, and so the same packets.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.copy import (
    copy_from_staging,
    copy_to_staging,
    load_12,
    load_payload,
    store_12,
    store_payload,
)
from device_lib.move.layouts import pack_layout, unpack_layout
from device_lib.platform import primitives as gpu
from device_lib.platform.context import context_id
from device_lib.platform.divide import divide_wide
from device_lib.platform.primitives import device
from device_lib.proxied import slots
from gmpi.contract import partitions as p
from gmpi.contract import wire

mark_of = device(p.round_mark)
packets_of = device(p.packets_of_partition)
_HEAD = 15  # bytes before a multiple of 16


@device
def is_ours(ctx, handle):
    """Whether it is one of this context, so that it names a row."""
    ours = handle >> wire.HANDLE_CONTEXT_SHIFT & wire.HANDLE_CONTEXT_MASK == context_id(ctx)
    return ours and slots.is_partitioned(handle) and not slots.is_persistent(handle)


@device
def row_at(ctx, index):
    return ctx.device + wire.DEVICE_PARTITIONED + index * wire.PARTITIONED_ROW_BYTES


@device
def row_of(ctx, handle):
    return row_at(ctx, handle & (wire.PARTITIONED_ROWS - 1))


@device
def count_asked(row, block):
    """A call has found nothing, for reports; one thread.

    Args:
        block: that has called; | BY_TEST.
    """
    gpu.store_gpu(row + p.ASKED_BLOCK, block)
    gpu.count_gpu(row + p.ASKED, 1)


@device
def row_group(row, group):
    """The record of a group of partitions that go by the proxies."""
    return gpu.load_gpu(row + p.GROUPS_AT) + group * p.GROUP_BYTES


@device
def mode_of(shape):
    return shape >> p.MODE_SHIFT & p.MODE_MASK


@device
def inbox_of(place, stride, number, partition, partitions):
    """Where the packets of a sender's partition lie in a round."""
    return place + ((number & 1) * partitions + partition) * stride


@device
def may_store(mode, credit, number):
    """Whether a sender may store what is of a round.

    Args:
        credit: rounds that the receiver has started.
    """
    if mode == p.PACKETS:
        return credit + 1 >= number
    return mode == p.STORES and credit >= number


@device
def has_credit(row, mode, number):
    """``may_store`` by what the receiver has said; False where nobody knows the receiver."""
    if mode == p.OPENING:
        return False
    if mode == p.PROXIED:
        return True
    return may_store(mode, gpu.load_sys(gpu.load_gpu(row + p.CREDIT)), number)


@device
def put(at, source, nbytes, number, rank, size, low, high):
    """Stores the packets of a partition.

    Args:
        low, high: payload of packet ``rank``, which the caller has loaded, if there is one.
    """
    if rank < packets_of(nbytes):
        mark = mark_of(number) << 32
        gpu.write_packet(at + rank * wire.PACKET_BYTES, low, high & wire.LOW_32 | mark)
    put_rest(at, source, nbytes, number, rank + size, size)


@device
def put_rest(at, source, nbytes, number, packet, size):
    """Stores every ``size``-th packet, from one on."""
    mark = mark_of(number) << 32
    count = packets_of(nbytes)
    if source & 3 == 0:  # four loads under way at once
        last = count - 1 - 3 * size  # the last packet may not be full
        step = size * wire.PACKET_PAYLOAD
        while packet < last:
            begin = source + packet * wire.PACKET_PAYLOAD
            a0, b0 = load_12(begin)
            a1, b1 = load_12(begin + step)
            a2, b2 = load_12(begin + 2 * step)
            a3, b3 = load_12(begin + 3 * step)
            to = at + packet * wire.PACKET_BYTES
            gpu.write_packet(to, a0, b0 | mark)
            gpu.write_packet(to + size * wire.PACKET_BYTES, a1, b1 | mark)
            gpu.write_packet(to + 2 * size * wire.PACKET_BYTES, a2, b2 | mark)
            gpu.write_packet(to + 3 * size * wire.PACKET_BYTES, a3, b3 | mark)
            packet += gpu.opaque(4 * size)
    while packet < count:
        begin = packet * wire.PACKET_PAYLOAD
        low, high = load_payload(source + begin, nbytes - begin)
        gpu.write_packet(at + packet * wire.PACKET_BYTES, low, high & wire.LOW_32 | mark)
        packet += gpu.opaque(size)


# wide: and long: four packets in registers
@device
def take(at, target, nbytes, number, first, last, rank, size, looks):
    """Moves packets ``first`` to ``last`` - 1 of a sender's partition to ``target``.

    Args:
        nbytes: of that partition.
        looks: how often to look for each of the caller's packets.

    Returns:
        1 where one has not come, else 0.
    """
    mark = mark_of(number)
    packet = first + rank
    missing = 0
    if target & 3 == 0:
        step = size * wire.PACKET_PAYLOAD
        gap = size * wire.PACKET_BYTES
        whole = min(last, packets_of(nbytes) - 1) - 3 * size  # the last packet may not be full
        while packet < whole and missing == 0:
            begin = at + packet * wire.PACKET_BYTES
            tried = looks
            missing = 1
            while missing != 0 and tried > 0:
                a0, b0 = gpu.read_packet(begin)
                a1, b1 = gpu.read_packet(begin + gap)
                a2, b2 = gpu.read_packet(begin + 2 * gap)
                a3, b3 = gpu.read_packet(begin + 3 * gap)
                differ = (b0 >> 32 ^ mark) | (b1 >> 32 ^ mark)
                differ |= (b2 >> 32 ^ mark) | (b3 >> 32 ^ mark)
                if differ & wire.LOW_32 == 0:
                    missing = 0
                    to = target + packet * wire.PACKET_PAYLOAD
                    store_12(to, a0, b0)
                    store_12(to + step, a1, b1)
                    store_12(to + 2 * step, a2, b2)
                    store_12(to + 3 * step, a3, b3)
                else:
                    gpu.spin()
                tried -= 1
            packet += gpu.opaque(4 * size)
    while packet < last and missing == 0:
        begin = at + packet * wire.PACKET_BYTES
        low, word = gpu.read_packet(begin)
        tried = looks
        while word >> 32 & wire.LOW_32 != mark and tried > 1:
            gpu.spin()
            low, word = gpu.read_packet(begin)
            tried -= gpu.opaque(1)
        if word >> 32 & wire.LOW_32 != mark:
            missing = 1
        elif nbytes > 0:
            begin = packet * wire.PACKET_PAYLOAD
            store_payload(target + begin, low, word & wire.LOW_32, nbytes - begin)
        packet += gpu.opaque(size)
    return missing


@device
def _copy_head(target, source, nbytes, rank):
    """The first up to 15 bytes of a copy; one thread."""
    if rank == 0 and nbytes > 0:
        low, high = load_payload(source, min(nbytes, wire.PACKET_PAYLOAD))
        store_payload(target, low, high, min(nbytes, wire.PACKET_PAYLOAD))
        if nbytes > wire.PACKET_PAYLOAD:
            rest = nbytes - wire.PACKET_PAYLOAD
            low, high = load_payload(source + wire.PACKET_PAYLOAD, rest)
            store_payload(target + wire.PACKET_PAYLOAD, low, high, rest)


@device
def store(row, partition, number, rank, size):
    """Stores a partition of a round to the receiver's memory. After a barrier: ``publish``."""
    shape, nbytes = gpu.load_pair_gpu(row + p.SHAPE)
    user, kind = gpu.load_pair_gpu(row + p.USER)
    place, stride = gpu.load_pair_gpu(row + p.PLACE)
    begin = partition * nbytes
    if mode_of(shape) == p.PACKETS:
        at = inbox_of(place, stride, number, partition, shape & p.PARTITIONS_MASK)
        low = 0
        high = 0
        if rank < packets_of(nbytes):
            first = rank * wire.PACKET_PAYLOAD
            low, high = load_payload(user + begin + first, nbytes - first)
        put(at, user + begin, nbytes, number, rank, size, low, high)
    elif kind != 0:
        pack_layout(row + p.USER, place + begin, begin, begin + nbytes, rank, size)
    else:
        target = place + begin
        head = min(-target & _HEAD, nbytes)
        _copy_head(target, user + begin, head, rank)
        copy_to_staging(target + head, user + begin + head, nbytes - head, rank, size)


@device
def publish(row, shape, partition, number):
    """Says that a partition has been stored; one thread, after a barrier of those that did it."""
    if mode_of(shape) == p.STORES:
        gpu.fence_sys()
        gpu.store_sys(gpu.load_gpu(row + p.FLAGS) + partition * p.FLAG_BYTES, number)


@device
def _theirs(row, shape, nbytes, partition):
    """(first partition of the sender, the last one, bytes of each) of those that have bytes of one
    of ours."""
    their_bytes = gpu.load_gpu(row + p.THEIR_BYTES)
    last = gpu.load_gpu(row + p.THEIR_PARTITIONS) - 1
    if shape & p.EQUAL != 0:
        return partition, partition, their_bytes
    if nbytes == 0:  # nothing says which
        partition = min(partition, last)
        return partition, partition, their_bytes
    first, rest = divide_wide(partition * nbytes, their_bytes)
    last, rest = divide_wide((partition + 1) * nbytes - 1, their_bytes)
    return first, last, their_bytes


@device
def take_packets(row, partition, number, rank, size, looks):
    """Moves one of our partitions from the inbox to the user's buffer, as far as it has come: 1
    where a packet that the caller has looked for is missing.

    Where a packet has bytes of two of our partitions, it is moved whole with each of them.
    """
    shape, nbytes = gpu.load_pair_gpu(row + p.SHAPE)
    user = gpu.load_gpu(row + p.USER)
    place = gpu.load_gpu(row + p.PLACE)
    stride = gpu.load_gpu(row + p.STRIDE)
    partitions = gpu.load_gpu(row + p.THEIR_PARTITIONS)
    theirs, last, their_bytes = _theirs(row, shape, nbytes, partition)
    missing = 0
    while theirs <= last:
        begin = theirs * their_bytes
        low = max(partition * nbytes - begin, 0)
        high = min((partition + 1) * nbytes - begin, their_bytes)
        first = low * 43691 >> 19  # divided by 12, as ``packets_of``
        end = packets_of(high)
        at = inbox_of(place, stride, number, theirs, partitions)
        missing |= take(at, user + begin, their_bytes, number, first, end, rank, size, looks)
        theirs += gpu.opaque(1)
    return missing


@device
def flags_missing(row, partition, number, looks):
    """1 where one of the sender's partitions that have bytes of ours has not been flagged; one
    thread. Else what it reads from now on is theirs."""
    shape, nbytes = gpu.load_pair_gpu(row + p.SHAPE)
    flags = gpu.load_gpu(row + p.FLAGS)
    theirs, last, their_bytes = _theirs(row, shape, nbytes, partition)
    while theirs <= last:
        at = flags + theirs * p.FLAG_BYTES
        tried = 1
        while gpu.load_sys(at) < number:
            if tried >= looks:
                return 1
            gpu.spin()
            tried += gpu.opaque(1)
        theirs += gpu.opaque(1)
    gpu.fence_sys()
    return 0


@device
def copy_out(row, partition, rank, size):
    """Moves one of our partitions from staging to the user's buffer."""
    nbytes = gpu.load_gpu(row + p.NBYTES)
    user, kind = gpu.load_pair_gpu(row + p.USER)
    begin = partition * nbytes
    staging = gpu.load_gpu(row + p.PLACE) + begin
    if kind != 0:
        unpack_layout(row + p.USER, staging, begin, begin + nbytes, rank, size)
    else:
        head = min(-staging & _HEAD, nbytes)
        _copy_head(user + begin, staging, head, rank)
        copy_from_staging(user + begin + head, staging + head, nbytes - head, rank, size)
