"""Staging buffers in our GPU memory: for long messages that come to what peers cannot store to, and
for a moment for data that is not in one piece. One lane of a scope takes them and gives them back.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device
from gmpi.contract import channels
from gmpi.contract.wire import DEVICE_DIRECT, DEVICE_STAGED

NONE = channels.STAGED  # needs none
_ALL = (1 << channels.STAGED) - 1
_NUMBER_MASK = 0xFF


@device
def number_of(buffer):
    """Without what a long receive notes beside it."""
    return buffer & _NUMBER_MASK


@device
def take(ctx):
    """A staging buffer, -1 where none is free."""
    word = ctx.device + DEVICE_STAGED
    free = ~gpu.load_gpu(word) & _ALL
    while free != 0:
        bit = gpu.first_bit(free)
        old = gpu.or_32_gpu(word, 1 << bit)
        if old >> bit & 1 == 0:
            return bit
        free = ~old & _ALL
    return -1


@device
def take_many(ctx, log):
    """The first of ``1 << log`` staging buffers side by side, -1 where none are free."""
    word = ctx.device + DEVICE_STAGED
    many = 1 << log
    bits = (1 << many) - 1
    first = 0
    while first < channels.STAGED:
        old = gpu.load_gpu(word)
        if old >> first & bits == 0:
            if gpu.cas_gpu(word, old, old | bits << first) == old:
                return first
        else:
            first += many
    return -1


@device
def give_back(ctx, buffer, log):
    """``1 << log`` of them, after a barrier of those that have read them."""
    bits = (1 << (1 << log)) - 1
    gpu.clear_bits_32_gpu(ctx.device + DEVICE_STAGED, bits << number_of(buffer))


@device
def give_back_packed(ctx, buffer):
    """``give_back`` of a buffer that a send was packed to.

    What was stored there may have been read from L1 before it was in L2: without the fence it could
    fall on what the next one stores who takes the buffer, on another multiprocessor. What a receive
    stores there is read past L1.
    """
    gpu.fence_gpu()
    give_back(ctx, buffer, 0)


@device
def address_of(ctx, buffer):
    return gpu.load_gpu(ctx.device + DEVICE_DIRECT) + number_of(buffer) * channels.STAGED_BYTES
