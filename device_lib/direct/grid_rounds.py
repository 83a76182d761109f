"""A round of a long message by all blocks of a grid; the leading block calls these.

As ``push_round`` of ``direct.sends`` and ``take_parts`` of ``direct.receives``, which one block
does alone: the receiver need not know how many blocks push, nor the sender how many take.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import packets
from device_lib.direct.grid_commands import share
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device
from gmpi.contract.channels import FILLED, PART_BYTES, STRAIGHT
from gmpi.contract.grid import PUSH, TAKE
from gmpi.contract.wire import LOW_32


@device
def round_bytes(log):
    """Of a whole round, by what its announcement says of its parts."""
    return PART_BYTES << (log & STRAIGHT - 1)


# wide: what a round has
@device
def _push(ctx, slot, number, parts, at, to, address, total, log):
    """As ``push_round``: the whole round at once, since all blocks meet after it."""
    begin = parts * PART_BYTES
    nbytes = max(0, min(total - begin, round_bytes(log)))
    share(ctx, PUSH, slot, to, address, begin, nbytes)
    parts += max(1, (nbytes + PART_BYTES - 1) // PART_BYTES)
    if gpu.thread_rank() == 0:
        gpu.fence_sys()
        gpu.write_packet(at + FILLED, parts, packets.mark_of(number) << 32)
    return parts


@device
def parts_of(at, mark):
    """How many parts of the long message in an inbox slot have come; one thread."""
    parts, word = gpu.read_packet(at + FILLED)
    return parts if word >> 32 & LOW_32 == mark else 0


@device
def await_part(at, mark, parts, looks):
    """The same, as soon as more than ``parts`` have come; one thread."""
    come = parts
    looked = 0
    while come <= parts and looked < looks:
        come = parts_of(at, mark)
        looked += 1
        gpu.pause(20)
    return max(come, parts)


@device
def end_of_round(parts, log):
    """The part that the next round begins with, by how many parts have been taken."""
    return ((parts >> log) + 1) << log


# wide: what a round has
@device
def _take(ctx, slot, number, at, target, staging, come, wanted, parts, looks, log):
    """As ``take_parts``."""
    begin = parts * PART_BYTES
    last = end_of_round(parts, log)
    while parts < come:
        end = min(come * PART_BYTES, wanted)
        there = staging + (begin & (2 * PART_BYTES << log) - 1)
        share(ctx, TAKE, slot, there, target, begin, end)
        parts = come
        begin = end
        if begin < wanted and parts < last:
            if gpu.thread_rank() == 0:
                come = min(await_part(at, packets.mark_of(number), parts, looks), last)
            come = gpu.broadcast_block(come)
            gpu.sync_block()
    return parts


push_by_grid = linked("gmpi_grid_push", 11, 1, _push)
take_by_grid = linked("gmpi_grid_take", 13, 1, _take)
