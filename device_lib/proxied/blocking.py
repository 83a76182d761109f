"""A small call that blocks, in one function: Send, Recv, Allreduce, Barrier and the like.

Nobody else ever sees the request, so it is not entered in its row and need not be claimed, and
between publishing and the first look there is no way back to the caller and in again: 0.3 us less
than ``open_inline`` and ``finish_small``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives as gpu
from device_lib.platform.context import poll_delay_address
from device_lib.platform.primitives import device
from device_lib.platform.scope import ALL_LANES
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, collect, packet_address
from device_lib.proxied.opening import UNFINISHED, publish_inline
from gmpi.contract.wire import LOW_32, OP_IRECV, OP_ISEND, OP_PING

# Cycles from publishing to the first look. A look takes 1.1 us: one that comes just before the
# answer costs another, and then another again each time, because all these times are the same. An
# answer is in memory some 0.8 us after its record was published, the one to a send when MPI has
# taken the message: how long exactly depends on the machine, so it is learned, by block. A look in
# vain puts the next one off by LATER, one that finds its answer brings it forward by 1/64: so about
# one in ten is in vain, and the answer waits 0.1 us for the look.
FIRST_DELAY = 700
FIRST_DELAY_SEND = 1700
LONGEST_DELAY = 4096
LATER = 256
_SOONER_SHIFT = 6


@device
def _learns(word0):
    """Whether the time to the answer is known from the one before: nobody else has a part in it."""
    op = word0 & 0xFF
    return op == OP_ISEND or op == OP_PING


@device
def _first_look(word0, learned):
    op = word0 & 0xFF
    if op == OP_IRECV:
        return 0  # nobody knows when the message comes
    if _learns(word0) and learned != 0:
        return learned
    if op == OP_ISEND:
        return FIRST_DELAY_SEND
    return FIRST_DELAY


@device
def _next_delay(patience, answered):
    """What is learned from a look ``patience`` cycles after publishing; never 0."""
    if answered:
        return patience - (patience >> _SOONER_SHIFT) + 1
    return min(patience + LATER, LONGEST_DELAY)


@device
def transact(ctx, word0, count, send, peer_tag, recv):
    """Opens a request as ``open_inline`` and waits for it as ``finish_small``.

    Called by all lanes of one full warp, after a barrier of the scope.

    Returns:
        (outcome, count, origin, handle). Outcome 0: the request is not open, call ``open_any`` with
        the handle. STAGED and HELP: the request is entered in its row, unpack it or wait for it.
    """
    lane = gpu.lane_id()
    place = poll_delay_address(ctx, gpu.block_id()) + (word0 & 0xFF == OP_ISEND) * 8
    learned = gpu.load_gpu(place)  # under way together with what publishing asks of device memory
    handle = publish_inline(ctx, lane, word0, count, send, peer_tag, recv, False)
    if handle & UNFINISHED != 0:
        return 0, 0, 0, handle
    address = packet_address(ctx, lane, handle)
    patience = _first_look(word0, learned)
    # All have read what they send: of a reduction in place the result comes to the same memory.
    gpu.sync_warp(ALL_LANES)
    gpu.wait_cycles(patience)
    low, word = gpu.read_packet(address)
    answered = gpu.vote_all(ALL_LANES, word >> 32 & LOW_32 == handle & LOW_32)
    outcome, count, origin = collect(ctx, lane, handle, address, recv, low, word)
    if lane == 0:
        if _learns(word0):
            gpu.store_gpu(place, _next_delay(patience, answered))
        if outcome & COMPLETED == 0:
            slots.open_row(ctx, slots.slot_of(handle), handle, recv)
    return outcome, count, origin, handle
