"""Opening long requests for which nothing has to be packed before: receives, and sends to a rank
that reads our GPU staging.

Such a send publishes its record first. The message takes its 3 us through two proxies in any case;
meanwhile the threads of the scope store or pack the bytes (``outgoing.py``). So neither packing nor
the fence behind it (1.7 us on an H200) is on the way.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.message import record_bytes
from device_lib.platform import primitives as gpu
from device_lib.platform.context import context_id, p2p_staging, record_address, ring_slots
from device_lib.platform.primitives import device
from device_lib.platform.scope import ALL_LANES
from device_lib.proxied import ring, slots, taking
from device_lib.proxied.opening import FULL, NO_SLOT, UNFINISHED
from device_lib.proxied.outgoing import place_of
from gmpi.contract import wire

_NOT_P2P = 1 << 50  # beside FULL and NO_SLOT: the receiver does not read our GPU staging


# long: one sequence, whose order is the protocol
@device
def open_long(ctx, word0, count, send, peer_tag, recv):
    """Publishes a receive above ``eager_bytes``, or a send whose bytes are not packed yet.

    Called by all lanes of one full warp, after a barrier of the scope; after a send,
    ``outgoing.send_bytes`` must follow. As ``opening.open_inline`` it calls nothing.

    The slot first, the ticket when it is ours (0.4 us later): whoever had the slot before freed it
    after taking the ticket of its last CHUNK record, and a record that opens the slot with an older
    ticket comes to the proxy while the request before is open.

    Returns:
        (handle, where a send's bytes go: ``outgoing.place_of``), or
        (``UNFINISHED``, 0) with the slot and the ticket that it has taken: call ``open_any``.
    """
    lane = gpu.lane_id()
    p2p, mailbox = p2p_staging(ctx, word0, peer_tag)  # under way while the slot is found
    slot = 0
    found = 0
    receives = word0 & 0xFF == wire.OP_IRECV
    if lane == 0:
        share = taking.large_share(ctx, receives)
        slot = taking.guess_large(ctx, share)
        taken = slots.take_bit(ctx, slot)
        if not slots.was_free(slot, taken):
            slot = taking.try_beside(ctx, slot, taken, share)
        if slot < 0:
            slot = 0
            found = NO_SLOT
        if p2p == 0 and not receives:
            found |= _NOT_P2P
    ticket, consumed = ring.begin_enter(ctx, lane == 0 and found == 0)
    buffer = recv if receives else send
    low, high = ring.header_packet(lane, word0, peer_tag, count, buffer, gpu.block_id())
    packets = wire.STATUS_PACKETS if receives else 1
    constant = gpu.opaque(
        packets << wire.HANDLE_PACKETS_SHIFT
        | 1 << wire.HANDLE_LARGE_SHIFT
        | context_id(ctx) << wire.HANDLE_CONTEXT_SHIFT
    )
    last_slot = gpu.opaque(ring_slots(ctx) - 1)
    if lane == 0:
        if found == 0:
            found = ring.seq_of(ticket)
            if ticket - consumed >= ring_slots(ctx):
                found |= FULL
        found |= slot << wire.HANDLE_SLOT_SHIFT
    found = gpu.shuffle(ALL_LANES, found, 0)
    if found >> 48 != 0:
        return UNFINISHED | found, 0
    handle = found | constant
    low = handle if lane == wire.HANDLE_PACKET else low
    if lane < wire.HEADER_PACKETS:
        record = record_address(ctx, 0) + ((found & wire.LOW_32) >> 1 & last_slot) * wire.SLOT_BYTES
        gpu.write_packet(record + lane * wire.PACKET_BYTES, low, (high & wire.LOW_32) | found << 32)
    slot = slots.slot_of(found)
    if lane == 0:
        slots.open_commands(ctx, slot, send)
    if receives:
        # Release, while the record is on its way: what the scope's threads did to the buffer comes
        # before other blocks find the request in its row and unpack to it. Behind a send's first
        # chunk there is one: no chunk that others pack is asked for before.
        gpu.fence_gpu()
    if lane == 0:
        slots.open_row(ctx, slot, handle, recv)
    nbytes = record_bytes(word0, count)
    return handle, place_of(ctx, p2p, mailbox, slot, nbytes, send)
