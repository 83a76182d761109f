"""Opening a request: slot, pack, publish. The first half of every call.

``open_inline`` is the path of a small message, tuned for latency: one warp, each lane makes its
own packet of the record before anything is asked of memory, then ticket, slot and the state of the
ring come from three accesses to device memory that overlap, and one store publishes. It calls no
other function, so it saves no registers on the stack, and it is short: it runs once a message, so
every instruction is fetched anew. ``open_any`` does everything else: payloads that need staging or
are not aligned, leading warps that are not full, a full ring, no free slot at the first try.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.copy import copy_to_staging
from device_lib.move.message import record_bytes
from device_lib.platform import primitives as gpu
from device_lib.platform.context import (
    chunk_bytes,
    context_id,
    eager_bytes,
    record_address,
    ring_slots,
    staging_of,
)
from device_lib.platform.primitives import device
from device_lib.platform.scope import ALL_LANES, Scope, warp_lanes, warp_mask
from device_lib.proxied import commands, ring, slots, taking
from device_lib.proxied.outgoing import place_of
from device_lib.proxied.publishing import BACK, INLINE, OUT, publish
from gmpi.contract import wire
from gmpi.contract.rules import chunk_bytes_of

_chunk_bytes_of = device(chunk_bytes_of)
_payload_packets = device(wire.payload_packets)

# What the leading lane found, above the 48 bits of sequence number and slot.
FULL = 1 << 48  # the ring is full, or so it seems
NO_SLOT = 1 << 49

# The request is not open yet: the low 32 bits are the sequence number of the ticket that has been
# taken for it, 0 if none; where a handle has its slot is the slot that has been taken, unless
# NO_SLOT is set.
UNFINISHED = 1 << 62
NOTHING_TAKEN = UNFINISHED | NO_SLOT


@device
def packets_back(word0, nbytes):
    """Packets of the completion: status for a receive, payload as far as it fits."""
    if word0 & BACK == 0:
        if word0 & 0xFF == wire.OP_IRECV:
            return wire.STATUS_PACKETS
        return 1
    if nbytes > wire.INLINE_BYTES:
        return wire.STATUS_PACKETS
    return wire.STATUS_PACKETS + _payload_packets(nbytes)


@device
def _load_unaligned(send, nbytes, offset):
    """12 bytes from ``offset`` (below 0: none) of a payload at any address, as three words.

    All loads are under way at once: whole words that lie on multiples of 4, and what is left behind
    the last of them byte by byte, because the memory may end there.
    """
    at = send + offset
    within = at & 3
    base = at - within
    stop = send + nbytes
    left = stop & 3
    tail_at = stop - left
    payload = offset >= 0
    ends = payload and tail_at >= base and tail_at < base + 16 and stop > at
    byte_0 = gpu.load_1_if(tail_at, ends and left > 0)
    byte_1 = gpu.load_1_if(tail_at + 1, ends and left > 1)
    byte_2 = gpu.load_1_if(tail_at + 2, ends and left > 2)
    word_0 = gpu.load_4_if(base, payload and tail_at > base)
    word_1 = gpu.load_4_if(base + 4, payload and tail_at > base + 4)
    word_2 = gpu.load_4_if(base + 8, payload and tail_at > base + 8)
    word_3 = gpu.load_4_if(base + 12, payload and tail_at > base + 12 and within > 0)
    tail = byte_0 | byte_1 << 8 | byte_2 << 16
    word_0 = tail if tail_at == base else word_0
    word_1 = tail if tail_at == base + 4 else word_1
    word_2 = tail if tail_at == base + 8 else word_2
    word_3 = tail if tail_at == base + 12 else word_3
    bits = within << 3
    return (
        (word_0 | word_1 << 32) >> bits & wire.LOW_32,
        (word_1 | word_2 << 32) >> bits & wire.LOW_32,
        (word_2 | word_3 << 32) >> bits & wire.LOW_32,
    )


@device
def publish_inline(ctx, lane, word0, count, send, peer_tag, recv, enter):
    """What ``open_inline`` and ``transact`` begin with; all lanes of one full warp.

    What does not depend on the ticket is done before it is there: ``opaque`` keeps the compiler
    from moving it behind the branch.

    Args:
        enter: whether the request is entered in its row, where a later wait finds it.
    """
    slot = slots.guess(ctx)
    # Three accesses to device memory, all under way while the lanes make their packets: a ticket,
    # how many records are consumed, a slot. In which order does not matter: a request of the small
    # class has no record after its first, so whoever frees its slot is through with the ring.
    ticket, consumed, taken = gpu.take_if(
        ctx.device + wire.DEVICE_TICKET, ctx.device + wire.DEVICE_CONSUMED,
        slots.busy_word(ctx, slot), slots.busy_bit(slot), lane == 0,
    )  # fmt: skip

    # Nothing longer than eager_bytes comes here: the rest of the count is not looked at.
    nbytes = count * (word0 >> (wire.DATATYPE_SHIFT + 8) & 0xFF) & (2 * wire.MAX_EAGER_BYTES - 1)
    out = nbytes if word0 & OUT != 0 else 0
    at = (lane - wire.HEADER_PACKETS) * wire.PACKET_PAYLOAD
    if (send | out) & 3 == 0:
        payload = lane >= wire.HEADER_PACKETS
        word_0 = gpu.load_4_if(send + at, payload and out > at)
        word_1 = gpu.load_4_if(send + at + 4, payload and out > at + 4)
        word_2 = gpu.load_4_if(send + at + 8, payload and out > at + 8)
    else:
        word_0, word_1, word_2 = _load_unaligned(send, out, at)
    word0 = word0 | INLINE if word0 & OUT != 0 else word0
    packets = gpu.opaque(wire.HEADER_PACKETS + _payload_packets(out))
    buffer = recv if recv != 0 else send
    low, high = ring.header_packet(lane, word0, peer_tag, count, buffer, gpu.block_id())
    constant = packets_back(word0, nbytes) << wire.HANDLE_PACKETS_SHIFT
    constant = gpu.opaque(constant | context_id(ctx) << wire.HANDLE_CONTEXT_SHIFT)
    first_record = gpu.opaque(record_address(ctx, 0) + lane * wire.PACKET_BYTES)
    last_slot = gpu.opaque(ring_slots(ctx) - 1)

    found = ring.seq_of(ticket) | slot << wire.HANDLE_SLOT_SHIFT
    found = found if slots.was_free(slot, taken) else found | NO_SLOT
    found = found | FULL if ticket - consumed >= ring_slots(ctx) else found
    found = gpu.shuffle(ALL_LANES, found, 0)
    low = gpu.opaque(low if lane < wire.HEADER_PACKETS else word_0 | word_1 << 32)
    high = gpu.opaque(high if lane < wire.HEADER_PACKETS else word_2)
    if found >> 48 != 0:
        return UNFINISHED | found
    handle = found | constant
    low = handle if lane == wire.HANDLE_PACKET else low
    if lane < packets:
        record = first_record + ((found & wire.LOW_32) >> 1 & last_slot) * wire.SLOT_BYTES
        gpu.write_packet(record, low, (high & wire.LOW_32) | found << 32)
    if enter:
        if lane == 0:
            slots.open_row(ctx, found >> wire.HANDLE_SLOT_SHIFT, handle, recv)
    return handle


@device
def open_inline(ctx, word0, count, send, peer_tag, recv):
    """Publishes a request whose outgoing bytes, at most 144, travel in its record.

    Called by all lanes of one full warp, after a barrier of the scope.

    Args:
        word0: first word of the record; its flags say whether bytes go OUT of ``send`` and
            come BACK to ``recv``. How many follows from ``count`` and the datatype.

    Returns:
        The handle, or ``UNFINISHED``, in all lanes: call ``open_any`` with it.
    """
    return publish_inline(ctx, gpu.lane_id(), word0, count, send, peer_tag, recv, True)


@device
def _unknown(ctx, ticket):
    """A number of records consumed that makes the producer of ``ticket`` look for the true one."""
    return ticket - ring_slots(ctx)


def make_open_any(scope: Scope, help_others: Callable, send_bytes: Callable) -> Callable:
    """The complete way to open a request; all threads of the scope call it together.

    Args:
        send_bytes: ``outgoing.make_send_bytes``.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    broadcast = scope.broadcast
    take_slot = taking.make_take_slot(scope, help_others)

    # long: one sequence, whose order is the protocol
    @device
    def open_any(ctx, word0, peer_tag, count, send, recv, unfinished):
        """As ``open_inline``, for every size and in every situation.

        Args:
            unfinished: what ``open_inline`` or ``open_long`` returned, or NOTHING_TAKEN.
        """
        sync()
        nbytes = record_bytes(word0, count)
        out = 0
        if word0 & OUT != 0:
            out = nbytes
        moved = out
        if word0 & BACK != 0:
            moved = nbytes
        large = 0
        buffers = 0
        p2p = False
        mailbox = 0
        if moved > eager_bytes(ctx):
            large = 1
            # Under way while the slot is found.
            buffers, p2p, mailbox = staging_of(ctx, word0, peer_tag)
        slot = 0
        ticket = -1
        if leads():
            lane = gpu.lane_id()
            mask = warp_mask()
            slot = -1
            if unfinished & NO_SLOT == 0:
                slot = slots.slot_of(unfinished)
            if unfinished & wire.LOW_32 != 0:
                ticket = (unfinished & wire.LOW_32) >> 1
                if slot < 0 and large == 0:
                    slot = taking.try_some(ctx, lane, mask)
                if slot < 0 or large:
                    # The ring waits for this ticket, but there is no slot yet, or there is a lot
                    # to pack before: give it back.
                    if ring.wait_for_room(ctx, lane, mask, ticket, _unknown(ctx, ticket)) == 0:
                        ring.write(ctx, lane, warp_lanes(), ticket, wire.OP_NULL, 0, 0, 0, 0, 0, 0)
                    ticket = -1
        slot = take_slot(ctx, slot, taking.large_kind(word0) if large else taking.SMALL)
        if slot < 0:
            return slots.error_handle(-slot)
        if slots.is_narrow(ctx, slot):  # all that goes out waits for commands
            out = 0
            p2p = False
            mailbox = 0
        goes_to = 0
        if large:
            goes_to = place_of(ctx, buffers, mailbox, slot, out, send)
        if out > wire.INLINE_BYTES and not p2p:
            staging = commands.small_staging(ctx, slot)
            first = out
            if large:
                staging = goes_to
                first = min(out, _chunk_bytes_of(out, chunk_bytes(ctx)))
            copy_to_staging(staging, send, first, rank(), size())
        sync()
        handle = 0
        if leads():
            lane = gpu.lane_id()
            mask = warp_mask()
            consumed = _unknown(ctx, ticket)
            if ticket < 0:
                ticket, consumed = ring.begin_enter(ctx, lane == 0)
            if large and lane == 0:
                slots.open_commands(ctx, slot, send)
            # Release. The staging is complete before the record says so; and whoever finds a large
            # request in its row finds what its commands are about, and the buffer as it was left.
            # What a peer gets, ``send_bytes`` releases, before there is a command.
            if out > wire.INLINE_BYTES and not p2p:
                gpu.fence_sys()
            elif large and not p2p:
                gpu.fence_gpu()
            inline = 0
            if word0 & OUT != 0 and nbytes <= wire.INLINE_BYTES:
                inline = nbytes
                word0 |= INLINE
            handle = publish(
                ctx, ticket, consumed, slot, large, packets_back(word0, nbytes), word0, peer_tag,
                count, recv if recv != 0 else send, recv, send, inline,
            )  # fmt: skip
        handle = broadcast(handle)
        if large and handle >> wire.HANDLE_ERROR_SHIFT == 0:
            send_bytes(ctx, handle, goes_to, send, out, 0 if p2p else 1)
        return handle

    return open_any
