"""Closing a request: wait, unpack, free the slot. The second half of every call.

``finish_small`` waits for a request of the small class and is tuned for latency: flag, status and
payload come back in one read by the lanes of one warp, and it calls no other function, so it saves
no registers on the stack. Of staged bytes it moves what one more read brings; for the rest it says
so, and the caller runs ``unpack`` or ``help``. ``finish_any`` does everything else: large requests,
whose commands it executes, looks without waiting, scopes of fewer than 32 threads.

One read of host memory is under way at a time. More would find an answer that comes at a random
time 0.3 us sooner (measured with ``cp.async`` into shared memory, four in turn), but the memory
system returns what a multiprocessor asks for in order: the next call's ticket then waits behind the
reads that nobody needs any more, and the 0.3 us are gone.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache

from device_lib.move.blocks import unpack_any
from device_lib.move.copy import SHORT_BYTES, copy_from_staging, copy_short, store_payload
from device_lib.move.layouts import layout_of
from device_lib.platform import primitives as gpu
from device_lib.platform.context import completion_address, our_mailboxes
from device_lib.platform.primitives import device
from device_lib.platform.scope import ALL_LANES, Scope, warp_lanes, warp_mask
from device_lib.proxied import commands, completion, helping, pacing, ring, slots
from device_lib.proxied.executing import make_execute, make_tell_event
from gmpi.contract import wire
from gmpi.contract.constants import ANY_SOURCE, ANY_TAG, ERR_REQUEST, PROC_NULL
from gmpi.contract.layouts import LAYOUT_RECV

# What the finish functions return: (outcome, count, origin). Outcome is packet 0 of the completion
# with these bits in place of its kind; count is its high word, origin is packet 1.
COMPLETED = 1 << 56
STAGED = 1 << 57  # complete, but the payload is still in staging: ``unpack``
FAULT = 1 << 58  # with COMPLETED: no such request, and the proxy does not know yet: ``report``
HELP = 1 << 59  # not complete, and others have commands that nobody executes: ``help``
# None of them: patience ran out.

NO_ORIGIN = (ANY_SOURCE & wire.LOW_32) + (ANY_TAG << 32)  # ANY_TAG is negative: an int64
NULL_ORIGIN = (PROC_NULL & wire.LOW_32) + (ANY_TAG << 32)


@device
def is_over(handle):
    """Whether it is a handle that says itself what has become of its request: of an error, of a
    short send, of a message to or from nobody."""
    return handle >> wire.HANDLE_ERROR_SHIFT == 1


@device
def outcome_of(handle):
    """(outcome, count, origin) of such a one."""
    origin = NULL_ORIGIN if handle & slots.NOBODY != 0 else NO_ORIGIN
    return COMPLETED | (handle & 0xFF) << wire.ERROR_SHIFT, 0, origin


@device
def collect(ctx, lane, handle, address, recv, low, word):
    """Polls until a request of the small class is complete; all lanes of one full warp.

    Args:
        handle: of a request that the caller alone may wait for.
        address: of the lane's packet of the completion; lanes without one share that of the last.
        low, word: the packet as the caller has read it.

    Returns:
        (outcome, count, origin), the same in all lanes; the slot is free again when COMPLETED.
    """
    expected = handle & wire.LOW_32
    packets = slots.packets_polled(handle)
    # Before the first vote, while nothing is there: afterwards it would cost time.
    target = gpu.opaque(recv + (lane - wire.STATUS_PACKETS) * wire.PACKET_PAYLOAD)
    busy = gpu.opaque(slots.busy_word(ctx, slots.slot_of(handle)))
    bit = gpu.opaque(slots.busy_bit(slots.slot_of(handle)))
    carries = gpu.opaque(lane >= wire.STATUS_PACKETS and lane < packets)
    polls = 0
    counted = pacing.NOT_COUNTED
    rest = 0
    while not gpu.vote_all(ALL_LANES, word >> 32 & wire.LOW_32 == expected):
        polls += 1
        if polls & (completion.CONTROL_EVERY - 1) == 0:
            # Both packets; opaque: else their addresses are made before the loop, for every wait.
            packet = wire.CONTROL_DOORBELL + (gpu.opaque(lane) & 1) * wire.PACKET_BYTES
            doorbell, aborted = gpu.read_packet(ctx.mapped + packet)
            ours = completion.names_block(gpu.shuffle(ALL_LANES, aborted, 1))
            aborted = gpu.shuffle(ALL_LANES, aborted, 0)
            if aborted != 0:
                return COMPLETED | (aborted & 0xFF) << wire.ERROR_SHIFT, 0, NO_ORIGIN
            if gpu.shuffle(ALL_LANES, doorbell, 0) != 0 or ours:
                return HELP, 0, 0
            counted, rest = pacing.count(ctx, counted, lane, ALL_LANES)
        gpu.relax(ctx.mapped + wire.CONTROL_DOORBELL)
        pacing.rest(rest)
        low, word = gpu.read_packet(address)

    outcome = COMPLETED | gpu.shuffle(ALL_LANES, low, 0) & (COMPLETED - 1)
    count = gpu.shuffle(ALL_LANES, word, 0)
    origin = NO_ORIGIN
    if packets >= wire.STATUS_PACKETS:
        origin = gpu.shuffle(ALL_LANES, low, 1)
        nbytes = outcome & wire.BYTES_MASK
        if packets == wire.STATUS_PACKETS:
            if recv != 0 and nbytes > 0:
                if nbytes > SHORT_BYTES or (recv | nbytes) & 3 != 0 or recv == wire.SCATTERED:
                    return outcome ^ (COMPLETED | STAGED), count, origin
                copy_short(recv, commands.small_staging(ctx, slots.slot_of(handle)), nbytes, lane)
        elif carries != 0:
            left = nbytes - (lane - wire.STATUS_PACKETS) * wire.PACKET_PAYLOAD
            if left > 0:
                store_payload(target, low, word & wire.LOW_32, left)
    if lane == 0:
        gpu.clear_bits_32_gpu(busy, bit)  # as ``slots.release``
    return outcome, count, origin


@device
def packet_address(ctx, lane, handle):
    """Where the lane's packet of a completion is; lanes without one share that of the last."""
    packet = min(lane, slots.packets_polled(handle) - 1)
    return completion_address(ctx, slots.slot_of(handle)) + packet * wire.PACKET_BYTES


@device
def finish_small(ctx, handle, resumed):
    """Waits until a request of the small class is complete; all lanes of one full warp.

    Args:
        resumed: 1 when an earlier call returned HELP: the request is claimed.
    """
    if not slots.names_slot(ctx, handle):
        return COMPLETED | FAULT | ERR_REQUEST << wire.ERROR_SHIFT, 0, NO_ORIGIN
    lane = gpu.lane_id()
    address = packet_address(ctx, lane, handle)
    # The first look and the claim are under way together.
    low, word = gpu.read_packet(address)
    owner, recv = slots.begin_claim(ctx, handle, lane == 0)
    owner = handle if resumed != 0 else owner
    recv = gpu.shuffle(ALL_LANES, recv if owner == handle else -1, 0)
    if recv < 0:
        return COMPLETED | FAULT | ERR_REQUEST << wire.ERROR_SHIFT, 0, NO_ORIGIN
    return collect(ctx, lane, handle, address, recv, low, word)


_WATCH = 31  # lanes that look at the control packets for a test; no completion has as many packets
_WATCH_BLOCKS = 30
_CALL = wire.CALL_MASK << wire.CALL_SHIFT


@device
def test_small(ctx, handle):
    """Looks once whether a request of the small class is complete; all lanes of one full warp.

    The control packets are read together with the completion: who tests again and again waits, and
    must end with an abort and help others.

    Returns:
        As ``collect``; nothing of (COMPLETED, STAGED) where the request goes on.
    """
    if not slots.names_slot(ctx, handle):
        return COMPLETED | FAULT | ERR_REQUEST << wire.ERROR_SHIFT, 0, NO_ORIGIN
    lane = gpu.lane_id()
    address = packet_address(ctx, lane, handle)
    if lane >= _WATCH_BLOCKS:
        address = ctx.mapped + wire.CONTROL_DOORBELL + (_WATCH - lane) * wire.PACKET_BYTES
    # The look and the claim are under way together.
    low, word = gpu.read_packet(address)
    owner, recv = slots.begin_claim(ctx, handle, lane == 0)
    recv = gpu.shuffle(ALL_LANES, recv if owner == handle else -1, 0)
    if recv < 0:
        return COMPLETED | FAULT | ERR_REQUEST << wire.ERROR_SHIFT, 0, NO_ORIGIN
    doorbell = gpu.shuffle(ALL_LANES, low, _WATCH)
    aborted = gpu.shuffle(ALL_LANES, word, _WATCH)
    ours = completion.names_block(gpu.shuffle(ALL_LANES, word, _WATCH_BLOCKS))
    if lane >= _WATCH_BLOCKS:
        word = handle << 32
    if gpu.vote_all(ALL_LANES, word >> 32 & wire.LOW_32 == handle & wire.LOW_32):
        return collect(ctx, lane, handle, address, recv, low, word)
    if aborted != 0:
        return COMPLETED | (aborted & 0xFF) << wire.ERROR_SHIFT, 0, NO_ORIGIN
    if lane == 0:
        slots.unclaim(ctx, handle)
    return HELP if doorbell != 0 or ours else 0, 0, 0


@cache
def make_take_out(scope: Scope) -> Callable:
    """What follows STAGED, but for the slot; all threads of the scope call it together."""
    rank = scope.rank
    size = scope.size
    sync = scope.sync

    @device
    def take_out(ctx, handle, outcome):
        """Moves the payload from the request's staging to the user."""
        sync()  # one lane may only just have entered the request in its row
        slot = slots.slot_of(handle)
        staging = commands.small_staging(ctx, slot)
        target = slots.receive_address(ctx, slot)
        nbytes = outcome & wire.BYTES_MASK
        if target == wire.SCATTERED:
            layout = layout_of(ctx, slot, LAYOUT_RECV)
            unpack_any(layout, staging, 0, nbytes, rank(), size())
        else:
            copy_from_staging(target, staging, nbytes, rank(), size())
        sync()  # the payload is in place for every thread, staging is no longer read
        return 0

    return take_out


def make_unpack(scope: Scope) -> Callable:
    """What follows STAGED; all threads of the scope call it together."""
    leads = scope.leads
    take_out = make_take_out(scope)

    @device
    def unpack(ctx, handle, outcome):
        """Moves the payload from the request's staging to the user and frees the slot."""
        take_out(ctx, handle, outcome)
        if leads() and gpu.lane_id() == 0:
            slots.release(ctx, slots.slot_of(handle))
        return 0

    return unpack


def make_help(scope: Scope) -> Callable:
    """What follows HELP; all threads of the scope call it together."""
    leads = scope.leads
    sync = scope.sync
    broadcast_5 = scope.broadcast_5
    execute = make_execute(scope)

    @device
    def help_others(ctx):
        """Executes one command that is for the caller to execute, if there still is one."""
        sync()
        index = -1
        place = 0
        command = 0
        length = 0
        buffers = 0
        if leads():
            lane = gpu.lane_id()
            lanes = warp_lanes()
            mask = warp_mask()
            doorbell, aborted, commanded, blocks = completion.look_at_control(
                ctx, lane, lanes, mask
            )
            doorbell = completion.to_execute(ctx, doorbell, commanded, blocks, lane, lanes, mask)
            slot, index, command, length, buffers = helping.claim_other(
                ctx, doorbell, blocks, lane, lanes, mask
            )
            place = slot << 8 | (index & 0xFF)
        index, place, command, length, buffers = broadcast_5(index, place, command, length, buffers)
        if index >= 0:
            sync()
            execute(ctx, place, command, length, buffers, our_mailboxes(ctx), 0, 0)
        return 0

    return help_others


def make_follow(scope: Scope, closes: bool) -> Callable:
    """One request until something is decided; all threads of the scope call it together.

    Args:
        closes: whether the last command may close the request. It stays open where it is only
            looked at: then that command is counted as all others, for the wait to come.
    """
    leads = scope.leads
    sync = scope.sync
    execute = make_execute(scope)
    tell_event = make_tell_event(scope)

    @device
    def follow(ctx, handle, patience):
        """Claims the request, and executes its commands and those of others, its own first.

        Returns:
            (event, whether the caller has the claim, recv, status, count, origin): event is the
            same in all threads, the rest is known to the leading warp.
        """
        sync()
        places = our_mailboxes(ctx)  # before it is needed, while nothing is there
        ours = False
        recv = 0
        if leads():
            ours, recv = completion.claim(ctx, handle, gpu.lane_id(), warp_mask())
        event = completion.COMMAND
        status = 0
        count = 0
        origin = NO_ORIGIN
        while event == completion.COMMAND:
            event = completion.FOREIGN
            place = 0
            command = 0
            length = 0
            buffers = 0
            if leads() and ours:
                event, place, command, length, buffers, status, count, origin = (
                    completion.await_event(
                        ctx, handle, recv, gpu.lane_id(), warp_lanes(), warp_mask(), patience
                    )
                )
                if not closes and event == completion.LAST:
                    event = completion.COMMAND
            event, place, command, length, buffers, target = tell_event(
                event, place, command, length, buffers, recv
            )
            if event == completion.COMMAND:
                execute(ctx, place, command, length, buffers, places, 0, 0)
            elif closes and event == completion.LAST:
                aborted = execute(ctx, place, command, length, buffers, places, handle, target)
                if aborted != 0:
                    event = completion.ABORTED
                    status = aborted
        return event, ours, recv, status, count, origin

    return follow


def make_finish_any(scope: Scope) -> Callable:
    """The complete way to wait; all threads of the scope call it together."""
    leads = scope.leads
    broadcast_3 = scope.broadcast_3
    follow = make_follow(scope, True)

    @device
    def finish_any(ctx, handle, patience):
        """As ``finish_small``, for every request; executes commands meanwhile, its own first.

        Looks ``patience`` times, 0 for as many as it takes.
        """
        event, ours, recv, status, count, origin = follow(ctx, handle, patience)
        outcome = COMPLETED | FAULT | ERR_REQUEST << wire.ERROR_SHIFT
        if event == completion.LAST:
            outcome = COMPLETED | status & (COMPLETED - 1)
            if leads() and gpu.lane_id() == 0:
                slots.release(ctx, slots.slot_of(handle))
        elif event == completion.DONE:
            outcome = COMPLETED | status & (COMPLETED - 1)
            if leads():
                if slots.packets_polled(handle) < wire.STATUS_PACKETS:
                    origin = NO_ORIGIN
                nbytes = status & wire.BYTES_MASK
                if recv != 0 and nbytes > 0 and completion.is_staged(ctx, handle, nbytes):
                    outcome = STAGED | status & (COMPLETED - 1)
                elif gpu.lane_id() == 0:
                    slots.release_after(ctx, handle, status >> wire.ERROR_SHIFT & 0xFF)
        elif event == completion.NOTHING:
            outcome = 0
            if leads() and gpu.lane_id() == 0:
                slots.unclaim(ctx, handle)
        elif event == completion.ABORTED:
            outcome = COMPLETED | (status & 0xFF) << wire.ERROR_SHIFT
        return broadcast_3(outcome, count, origin)

    return finish_any


def make_report(scope: Scope) -> Callable:
    """Tells the host of a call that the device refused; all threads of the scope call it."""
    leads = scope.leads
    sync = scope.sync

    @device
    def report(ctx, op, value, error):
        sync()
        if leads():
            word0 = wire.OP_FAULT | (op & 0xFF) << 8 | op & _CALL
            ring.post(ctx, gpu.lane_id(), warp_lanes(), warp_mask(), word0, value, 0, error)
        return 0

    return report
