"""Consumer of completions (producer: ``host_proxy/records/completion.py``).

One warp polls for its scope, one completion slot per request. Each lane loads one 16-byte packet,
so flag, status and a small payload come back in the same PCIe read; the next read, 0.9 us later, is
never needed for the data of the first. What commits a packet is its sequence number (see
``ring.py``): the request's own, so a completion left in the slot by an earlier request is never
taken for this one.

What is in staging was there before the completion, or the command, that says so. Nobody needs a
fence to read it (0.5 us): all loads from staging bypass L1 and are issued when the number has come.

Every wait ends: sixteen polls apart, the polling lane reads the control packet, whose second word
the host sets to end all waits (``Context.close``, Ctrl-C, a dead proxy).

Functions here are called by all lanes of one warp.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.copy import store_payload
from device_lib.platform import primitives as gpu
from device_lib.platform.context import completion_address, eager_bytes, request_slots
from device_lib.platform.primitives import device
from device_lib.proxied import commands, helping, pacing, slots
from gmpi.contract import wire

# What a look at a completion found.
NOTHING = 0
DONE = 1
COMMAND = 2
ABORTED = 3
FOREIGN = 4  # the handle is not of an open request
LAST = 5  # a command, and when it has been executed, the request is complete

CONTROL_EVERY = 16  # polls between two looks at the control packet; a power of two


@device
def claim(ctx, handle, lane, mask):
    """Begins a wait: (whether the handle is of an open request, address to unpack to)."""
    recv = -1
    if slots.names_slot(ctx, handle):
        if lane == 0:
            recv = slots.receive_address(ctx, slots.slot_of(handle))
            if slots.claim(ctx, handle) != handle:
                recv = -1
        recv = gpu.shuffle(mask, recv, 0)
    return recv >= 0, recv


@device
def is_staged(ctx, handle, nbytes):
    """Whether the ``nbytes`` that the request brings, if any, wait in its small staging buffer.

    A short message may come to a large receive: it has no chunks.
    """
    short = slots.packets_polled(handle) == wire.STATUS_PACKETS
    if slots.is_large(handle):
        short = nbytes <= eager_bytes(ctx)
    return short


@device
def look_at_control(ctx, lane, lanes, mask):
    """The two control packets, read by one lane, or by two at once, for all.

    Returns:
        (large slots with a command that nobody has come for, abort class, large slots with a
        command, blocks that have opened such requests: for ``names_block``).
    """
    doorbell = 0
    aborted = 0
    if lane < 2:
        doorbell, aborted = gpu.read_packet(
            ctx.mapped + wire.CONTROL_DOORBELL + lane * wire.PACKET_BYTES
        )
    if lanes < 2:
        commanded, blocks = gpu.read_packet(ctx.mapped + wire.CONTROL_COMMANDS)
    else:
        commanded, blocks = gpu.shuffle(mask, doorbell, 1), gpu.shuffle(mask, aborted, 1)
    return gpu.shuffle(mask, doorbell, 0), gpu.shuffle(mask, aborted, 0), commanded, blocks


@device
def names_block(blocks):
    """Whether the second word of the second control packet has a bit of the calling block."""
    return blocks >> (gpu.block_id() & wire.BLOCK_BITS) & (1 << wire.NARROW_SHIFT | 1) != 0


@device
def to_execute(ctx, doorbell, commanded, blocks, lane, lanes, mask):
    """The large slots whose commands the calling warp should execute, from ``look_at_control``."""
    if blocks >> (gpu.block_id() & wire.BLOCK_BITS) & 1 != 0:
        first = request_slots(ctx)
        doorbell |= helping.of_this_block(ctx, commanded, first, lane, lanes, mask)
    return doorbell


@device
def _packet(lanes, mask, completion, packet, low, word):
    """(low, word) of one packet in all lanes: from the lane that holds it, else read again."""
    if lanes < wire.SLOT_PACKETS:  # it may have been polled in turns
        return gpu.read_packet(completion + packet * wire.PACKET_BYTES)
    return gpu.shuffle(mask, low, packet), gpu.shuffle(mask, word, packet)


# long: one loop, whose state is in registers
@device
def await_event(ctx, handle, recv, lane, lanes, mask, patience):
    """Polls until something happens to the request, or ``patience`` polls (0: no limit) are over,
    and each packet has been looked at.

    For requests of either class and warps of any size. On DONE a payload that came with the
    completion has been stored at ``recv``.

    Returns:
        (event, place, command, length, buffers, status, count, origin):
        COMMAND, claimed for the caller: place is slot << 8 | index of the staging buffer;
        LAST: as both COMMAND and DONE;
        DONE: packet 0 as status and count, low word of packet 1 as origin;
        ABORTED: the error class as status.
    """
    slot = slots.slot_of(handle)
    large = slots.is_large(handle)
    packets = slots.packets_polled(handle)
    needed = (1 << packets) - 1
    if large:
        packets = wire.LARGE_PACKETS
    expected = handle & wire.LOW_32
    completion = completion_address(ctx, slot)
    seen = 0
    if large and lanes >= wire.LARGE_PACKETS:
        seen = commands.last_owner(ctx, slot, lane)
    begin = 0  # first packet of this turn: a warp of fewer lanes than packets takes turns
    arrived = 0
    polls = 0
    low = 0
    word = 0
    counted = pacing.NOT_COUNTED
    rest = 0
    while True:
        packet = begin + lane
        at = completion + packet * wire.PACKET_BYTES
        polls += 1
        # A program may wait by testing one request again and again: that must help others, too.
        control = polls == patience or polls & (CONTROL_EVERY - 1) == 0
        beside = control and lanes > packets + 1  # two more lanes look at it in the same read
        watches = beside and lane >= lanes - 2
        if watches:
            at = ctx.mapped + wire.CONTROL_DOORBELL + (lanes - 1 - lane) * wire.PACKET_BYTES
        if packet < packets or watches:
            low, word = gpu.read_packet(at)
        fresh = packet < packets and word >> 32 & wire.LOW_32 == expected
        arrived |= gpu.ballot(mask, fresh) << begin
        complete = arrived & needed == needed
        if complete and large == 0:
            break
        if large:
            # Commands first: who executes the last one need not ask how many have been.
            if lanes >= wire.LARGE_PACKETS:
                index, command, length, buffers, seen = commands.claim_own(
                    ctx, slot, expected, seen, lane, mask, packet, low, word
                )
                if index >= 0 and needed > 1 and arrived & needed == needed:
                    if gpu.shuffle(mask, word, 1) & wire.LOW_32 == 1:  # the only command there is
                        status, count = _packet(lanes, mask, completion, 0, low, word)
                        origin = gpu.shuffle(mask, low, 1)
                        place = slot << 8 | index
                        return LAST, place, command, length, buffers, status, count, origin
            else:
                index, command, length, buffers = commands.claim_any(
                    ctx, slot, expected, lane, lanes, mask, packet, low, word
                )
            if index >= 0:
                return COMMAND, slot << 8 | index, command, length, buffers, 0, 0, 0
            if complete:
                if commands_are_done(ctx, slot, lane, lanes, mask, completion, word, needed):
                    break
        if lanes < packets:
            begin += lanes
            if begin >= packets:
                begin = 0
        if control:
            if beside:
                doorbell, aborted = (
                    gpu.shuffle(mask, low, lanes - 1),
                    gpu.shuffle(mask, word, lanes - 1),
                )
                commanded = gpu.shuffle(mask, low, lanes - 2)
                blocks = gpu.shuffle(mask, word, lanes - 2)
            else:
                doorbell, aborted, commanded, blocks = look_at_control(ctx, lane, lanes, mask)
            if aborted != 0:
                return ABORTED, 0, 0, 0, 0, aborted, 0, 0
            doorbell = to_execute(ctx, doorbell, commanded, blocks, lane, lanes, mask)
            if doorbell != 0 or names_block(blocks):
                other, index, command, length, buffers = helping.claim_other(
                    ctx, doorbell, blocks, lane, lanes, mask
                )
                if index >= 0:
                    return COMMAND, other << 8 | index, command, length, buffers, 0, 0, 0
            counted, rest = pacing.count(ctx, counted, lane, mask)
        if patience != 0 and polls >= patience and begin == 0:  # all packets have been looked at
            return NOTHING, 0, 0, 0, 0, 0, 0, 0
        gpu.relax(ctx.mapped + wire.CONTROL_DOORBELL)
        pacing.rest(rest)

    status, count = _packet(lanes, mask, completion, 0, low, word)
    origin = 0
    if slots.packets_polled(handle) >= wire.STATUS_PACKETS:
        origin, ignored = _packet(lanes, mask, completion, 1, low, word)
    if packets > wire.STATUS_PACKETS and large == 0:
        nbytes = status & wire.BYTES_MASK
        packet = lane
        while packet < packets:
            at = (packet - wire.STATUS_PACKETS) * wire.PACKET_PAYLOAD
            if at >= 0 and at < nbytes:
                if lanes < packets:
                    low, word = gpu.read_packet(completion + packet * wire.PACKET_BYTES)
                store_payload(recv + at, low, word & wire.LOW_32, nbytes - at)
            packet += gpu.opaque(lanes)
    elif large and needed > 1:
        # Acquire: threads of other blocks stored chunks before they counted them as finished.
        gpu.fence_gpu()
    return DONE, slot << 8, 0, 0, 0, status, count, origin


@device
def commands_are_done(ctx, slot, lane, lanes, mask, completion, word, needed):
    """Whether the commands that the completion of a large request counts have been executed."""
    if needed == 1:
        return True  # nothing comes back
    ignored, expected = _packet(lanes, mask, completion, 1, 0, word)
    finished = 0
    if lane == 0:
        finished = commands.finished(ctx, slot)
    return gpu.shuffle(mask, finished, 0) >= expected & wire.LOW_32
