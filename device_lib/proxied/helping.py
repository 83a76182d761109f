"""Whose commands a waiting warp executes besides its own: those of its block, at once, and those
that nobody has come for (``commands.py`` says why).

For large slots the control packets have bits. Narrow ones are too many: for them, the packets say
which blocks have opened such with commands, and ``CONTROL_NARROW``, which is read only then, has
the bits.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives as gpu
from device_lib.platform.context import completion_address, first_narrow, request_slots, row_address
from device_lib.platform.primitives import device
from device_lib.proxied import commands, slots
from gmpi.contract import wire


@device
def claim_other(ctx, doorbell, blocks, lane, lanes, mask):
    """Claims a command of a request of another call; all lanes of a warp.

    Args:
        doorbell: large slots (bits) with commands that the caller should execute.
        blocks: what ``completion.look_at_control`` says of the narrow ones.

    Returns:
        (slot, index or -1, command, length, where the chunk buffers are)
    """
    bits = doorbell
    first = request_slots(ctx)
    words = 0
    everybody = blocks >> wire.NARROW_SHIFT & wire.LOW_32 == wire.LOW_32
    if everybody or blocks >> (gpu.block_id() & wire.BLOCK_BITS) >> wire.NARROW_SHIFT & 1 != 0:
        words = wire.NARROW_WORDS
    mine = 0
    if words != 0:
        mine = _narrow_commands(ctx, lane & wire.NARROW_WORDS - 1)
    word = 0
    while True:
        slot, index, command, length, buffers = _take_of(ctx, bits, first, lane, lanes, mask)
        if index >= 0 or word == words:
            return slot, index, command, length, buffers
        # The next word of narrow slots that has something.
        bits = 0
        while bits == 0 and word < words:
            if lanes < wire.NARROW_WORDS:  # one reads for all: another look may see another command
                bits = gpu.shuffle(mask, _narrow_commands(ctx, word), 0)
            else:
                bits = gpu.shuffle(mask, mine, word)
            first = first_narrow(ctx) + word * 64
            word += gpu.opaque(1)
        if bits != 0 and not everybody:
            bits = of_this_block(ctx, bits, first, lane, lanes, mask)


@device
def _narrow_commands(ctx, word):
    """Which of 64 narrow slots have commands."""
    return gpu.load_sys(ctx.mapped + wire.CONTROL_NARROW + word * 8)


@device
def _take_of(ctx, bits, first, lane, lanes, mask):
    """``claim_other`` among 64 slots from ``first`` on, those whose bit is set."""
    # In halves: bit 63 of an int64 is its sign.
    low_bits = bits & 0xFFFFFFFF
    high_bits = bits >> 32 & 0xFFFFFFFF
    while low_bits | high_bits != 0:
        bit = 0
        if low_bits != 0:
            bit = gpu.first_bit(low_bits)
            low_bits &= low_bits - 1
        else:
            bit = 32 + gpu.first_bit(high_bits)
            high_bits &= high_bits - 1
        slot = first + bit
        expected = 0
        if lane == 0:
            expected = slots.open_seq(ctx, slot)
        expected = gpu.shuffle(mask, expected, 0)
        if expected != 0:
            completion = completion_address(ctx, slot)
            begin = 0
            while begin < wire.LARGE_PACKETS:
                packet = begin + lane
                low = 0
                word = 0
                if packet < wire.LARGE_PACKETS:
                    low, word = gpu.read_packet(completion + packet * wire.PACKET_BYTES)
                index, command, length, buffers = commands.claim_any(
                    ctx, slot, expected, lane, lanes, mask, packet, low, word
                )
                if index >= 0:
                    # Acquire: the owner's threads wrote to the user's buffer, or read from it,
                    # before they opened the request's row, and another SM may have lines of it.
                    gpu.fence_gpu()
                    return slot, index, command, length, buffers
                begin += gpu.opaque(lanes)
    return 0, -1, 0, 0, 0


@device
def of_this_block(ctx, commanded, first, lane, lanes, mask):
    """Which slots of ``commanded`` (bits from slot ``first`` on) have requests that the calling
    block has opened; all lanes of a warp."""
    found = 0
    begin = 0
    while begin < 64 and commanded >> begin != 0:
        bit = begin + lane
        ours = False
        if bit < 64 and commanded >> (bit & 63) & 1 != 0:
            row = row_address(ctx, first + bit)
            ours = gpu.load_gpu(row + wire.REQUEST_BLOCK) == gpu.block_id()
        found |= gpu.ballot(mask, ours) << begin
        begin += gpu.opaque(lanes)
    return found
