"""Polling many requests at once, for Waitall and Waitany.

One read of host memory takes 0.9 us, so requests are not polled one after the other: each lane of
the leading warp polls one request, up to 32 in the same read. ``closing_all`` waits until all of
them are complete, ``closing_one`` until one is.

A wait for a single request has a poll of its own, ``completion.await_event``. There each lane looks
at another packet of one completion, so commands for all four chunk buffers are found by every read.
Here a lane has one request and looks at its first buffer only; commands for the others are found
by the control packets, every fourth poll and two more reads of host memory later. At 0.9 us a read
that would be some 3 us more for each further chunk of a single request (an estimate).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

from device_lib.move.copy import store_payload
from device_lib.platform import primitives as gpu
from device_lib.platform.context import completion_address, large_slots, request_slots
from device_lib.platform.primitives import device
from device_lib.platform.scope import warp_lanes, warp_mask
from device_lib.proxied import commands, completion, helping, pacing, slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from gmpi.contract import wire
from gmpi.contract.constants import ERR_REQUEST


class Asked(NamedTuple):
    """What one lane of the leading warp polls.

    Attributes:
        handle: the request.
        owner: what the claim of the request found; it is the caller's where that is ``handle``.
        recv: where its payload goes.
        seen: of a large request, the claim word of its first buffer before there was a command.
    """

    handle: int
    owner: int
    recv: int
    seen: int


class Turn(NamedTuple):
    """How long to poll.

    Attributes:
        any_of: the lanes that wait, as bits: the poll ends when one of them does not any more.
            0: it ends when none does.
        polls: how many polls there have been before; every few, commands of others are looked at.
        limit: the number of polls at which this one ends; 0: there is none.
    """

    any_of: int
    polls: int
    limit: int


class Event(NamedTuple):
    """How a poll ended.

    Attributes:
        kind: COMMAND or LAST: the scope must execute a command and come back; DONE; ABORTED, with
            the class as ``command``; NOTHING: the limit was reached.
        place, command, length, buffers, own, target: what ``execute`` takes.
    """

    kind: int
    place: int
    command: int
    length: int
    buffers: int
    own: int
    target: int


UNLIMITED = Turn(0, 0, 0)


@device
def ask(ctx, handle, wanted):
    """Begins a wait for a request, by one lane.

    Args:
        wanted: false in lanes that have none.

    Returns:
        (what to poll, whether to, packet 0 of the completion as far as it is known, whether the
        handle may turn out to be of no open request).
    """
    owner = wire.REQUEST_NULL
    recv = 0
    seen = 0
    waiting = False
    foreign = False
    low = COMPLETED
    if wanted:
        if handle >> wire.HANDLE_ERROR_SHIFT == 1:
            low = (handle & 0xFF) << wire.ERROR_SHIFT
        elif handle != wire.REQUEST_NULL:
            low = ERR_REQUEST << wire.ERROR_SHIFT
            foreign = True
            if slots.names_slot(ctx, handle):
                # The first look at the request does not wait for these.
                owner, recv = slots.begin_claim(ctx, handle, True)
                if slots.is_large(handle):
                    seen = commands.first_owner(ctx, handle)
                waiting = True
    return Asked(handle, owner, recv, seen), waiting, low, foreign


@device
def _store_payload(asked, address, nbytes, low, word):
    """Stores a payload that came with the completion; its first packet is (``low``, ``word``).

    Returns:
        Whether all its packets were there. They are stored before packet 0, which has been seen;
        but the first one was read before that.
    """
    expected = asked.handle & wire.LOW_32
    packets = slots.packets_polled(asked.handle)
    if word >> 32 & wire.LOW_32 != expected:
        low, word = gpu.read_packet(address + wire.STATUS_PACKETS * wire.PACKET_BYTES)
    packet = wire.STATUS_PACKETS
    while packet < packets:
        if word >> 32 & wire.LOW_32 != expected:
            return False
        at = (packet - wire.STATUS_PACKETS) * wire.PACKET_PAYLOAD
        if at < nbytes:
            store_payload(asked.recv + at, low, word & wire.LOW_32, nbytes - at)
        packet += gpu.opaque(1)
        if packet < packets:
            low, word = gpu.read_packet(address + packet * wire.PACKET_BYTES)
    return True


@device
def _look(ctx, asked, tried):
    """One lane looks at its own request.

    The claim of the request may still be under way: only what comes with a completion asks for it.

    A payload that came with the completion is stored at once; its first packet is part of the same
    read, so a scalar costs no second one. So is the first command of a large request.

    Args:
        tried: the command that the caller has looked at.

    Returns:
        (complete, low and high word of packet 0, low word of packet 1; whether there is a command
        for the first buffer, its two words, where the buffers are and what their ready word will
        be, whether it is the last one).
    """
    handle = asked.handle
    packets = slots.packets_polled(handle)
    large = slots.is_large(handle)
    expected = handle & wire.LOW_32
    address = completion_address(ctx, slots.slot_of(handle))
    # All under way together, and only those there are: many warps poll, and share one PCIe. Each
    # takes 0.3 us more, and the proxy may write meanwhile: the completion before the last command.
    # So the command is read first: who sees it sees that it is the last one.
    low1 = 0
    word1 = 0
    low2 = 0
    word2 = 0
    base = 0
    known = 0
    if packets > wire.STATUS_PACKETS or large:
        low2, word2 = gpu.read_packet(address + 2 * wire.PACKET_BYTES)
    if large:
        base, known = gpu.read_packet(address + wire.BASE_PACKET * wire.PACKET_BYTES)
    if packets >= wire.STATUS_PACKETS:
        low1, word1 = gpu.read_packet(address + wire.PACKET_BYTES)
    low0, word0 = gpu.read_packet(address)
    fresh = word0 >> 32 & wire.LOW_32 == expected and asked.owner == handle
    commanded = False
    if large:
        commanded = word2 >> 32 & wire.LOW_32 == expected and known >> 32 & wire.LOW_32 == expected
        # A command that was taken before this poll began is none for it.
        commanded = (
            commanded and low2 != tried and commands.is_open_command(asked.seen, expected, low2)
        )
    last = False
    if packets >= wire.STATUS_PACKETS:
        fresh = fresh and word1 >> 32 & wire.LOW_32 == expected
        if fresh and large:
            last = word1 & wire.LOW_32 == 1
            # Not before its command has been tried: reading the count takes 0.5 us.
            if commanded:
                fresh = False
            else:
                fresh = commands.finished(ctx, slots.slot_of(handle)) >= word1 & wire.LOW_32
    else:
        low1 = NO_ORIGIN
    if fresh and packets > wire.STATUS_PACKETS and large == 0:
        fresh = _store_payload(asked, address, low0 & wire.BYTES_MASK, low2, word2)
    return fresh, low0, word0, low1, commanded, low2, word2, base, known & wire.LOW_32, last


@device
def _own_commands(ctx, commanded, handle, waiting, mask):
    """The large slots of ``commanded`` (bits) whose requests the lanes wait for."""
    found = 0
    large = slots.slot_of(handle) - request_slots(ctx)
    own = waiting and large >= 0 and large < large_slots(ctx) and commanded >> (large & 63) & 1 != 0
    votes = gpu.ballot(mask, own)
    while votes != 0:
        found |= 1 << gpu.shuffle(mask, large & 63, gpu.first_bit(votes))
        votes &= votes - 1
    return found


# long: one loop, whose state is in registers
@device
def await_batch(ctx, asked, turn, waiting, low, word, origin):
    """Polls one request a lane; the leading warp.

    Args:
        waiting: whether the lane's request is one that is waited for.
        low, word, origin: what is known of its completion: both words of packet 0, low word of
            packet 1.

    Returns:
        (event, waiting, low, word, origin): of the event all lanes have the same.
    """
    handle = asked.handle
    recv = asked.recv
    lane = gpu.lane_id()
    mask = warp_mask()
    polls = turn.polls
    tried = -1  # the command of the lane's request that has been looked at
    counted = pacing.NOT_COUNTED
    rest = 0
    while True:
        calls = False
        last = False
        first = 0
        first_word = 0
        base = 0
        ready = 0
        helped = False
        if waiting:
            fresh, count, status, whence, calls, first, first_word, base, ready, last = _look(
                ctx, asked, tried
            )
            if asked.owner == handle:
                low, word, origin = count, status, whence
            waiting = not fresh and asked.owner == handle
            calls = calls and waiting
            helped = fresh and slots.is_large(handle) and recv != 0
        if gpu.ballot(mask, helped) != 0:
            gpu.fence_gpu()  # acquire: threads of other blocks may have stored chunks
        votes = gpu.ballot(mask, calls)
        if votes != 0:
            chosen = gpu.first_bit(votes)
            if lane == chosen:
                tried = first
            mine = lane == chosen
            if commands.claim_first(
                ctx, handle, asked.seen, first, base, ready, mine, chosen, mask
            ):
                own = gpu.shuffle(mask, handle if last else 0, chosen)
                # A reduction has another buffer from which is packed.
                target = 0 if commands.direction_of(first) == wire.PACK else recv
                event = Event(
                    completion.LAST if own != 0 else completion.COMMAND,
                    gpu.shuffle(mask, slots.slot_of(handle) << 8, chosen),
                    gpu.shuffle(mask, first, chosen),
                    gpu.shuffle(mask, first_word & wire.LOW_32, chosen),
                    gpu.shuffle(mask, base, chosen),
                    own,
                    gpu.shuffle(mask, target, chosen),
                )
                if last and lane == chosen:
                    waiting = False  # when it has been executed
                return event, waiting, low, word, origin
        left = gpu.ballot(mask, waiting)
        if left == 0 or (turn.any_of != 0 and left != turn.any_of):
            return Event(completion.DONE, 0, 0, 0, 0, 0, 0), waiting, low, word, origin
        polls += 1
        # Commands for other buffers than the first are only found here.
        if polls & 3 == 0:
            lanes = warp_lanes()
            doorbell, aborted, commanded, blocks = completion.look_at_control(
                ctx, lane, lanes, mask
            )
            if aborted != 0:
                event = Event(completion.ABORTED, 0, aborted, 0, 0, 0, 0)
                return event, waiting, low, word, origin
            doorbell = completion.to_execute(ctx, doorbell, commanded, blocks, lane, lanes, mask)
            doorbell |= _own_commands(ctx, commanded, handle, waiting, mask)
            if doorbell != 0 or completion.names_block(blocks):
                slot, index, command, length, buffers = helping.claim_other(
                    ctx, doorbell, blocks, lane, lanes, mask
                )
                if index >= 0:
                    event = Event(
                        completion.COMMAND, slot << 8 | index, command, length, buffers, 0, 0
                    )
                    return event, waiting, low, word, origin
        if polls & (completion.CONTROL_EVERY - 1) == 0:
            counted, rest = pacing.count(ctx, counted, lane, mask)
        gpu.relax(ctx.mapped + wire.CONTROL_DOORBELL)
        pacing.rest(rest)
        if polls == turn.limit:
            return Event(completion.NOTHING, 0, 0, 0, 0, 0, 0), waiting, low, word, origin
