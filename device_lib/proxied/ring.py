"""Producer of the request ring (consumer: ``host_proxy/records/ring.py``).

A producer takes a ticket from a counter in device memory and owns ring slot ``ticket % slots``
from then on: it must write a record there, or the consumer, which takes records strictly in
ticket order, stands still. Ticket order is program order within a warp, so MPI's non-overtaking
rule holds between the calls of one warp.

What commits a record: the sequence number of each 16-byte packet, written by the lane of that
packet, read by the proxy. Packets may arrive in any order; the proxy waits for the number of each
packet it needs. A torn packet would show new words under an old number or the reverse: it cannot
happen, a packet is one single-copy atomic store. The number is the ticket's (odd, 31 bits of the
ticket), so the packet of the previous lap never passes for this one, and nothing is ever cleared.

Flow control: the proxy publishes how many records it has taken in mapped memory. Reading that
costs a PCIe round trip (0.9 us), so producers compare with a copy in device memory; when the copy
says full, one warp refreshes it for all and the rest look at the copy. (Re-reading the host's
counter for each record limits a ring to 1.1 M records/s, all warps polling it to 4.8 M.)

Every function here is called by all lanes of one warp, except where it says otherwise.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.copy import load_payload
from device_lib.platform import primitives as gpu
from device_lib.platform.context import record_address, ring_slots
from device_lib.platform.primitives import device
from gmpi.contract import wire

_payload_packets = device(wire.payload_packets)


@device
def seq_of(ticket):
    """Tag of the record with this ticket, and of the completion that answers it."""
    return ((ticket << 1) | 1) & wire.LOW_32


@device
def last_known_consumed(ctx):
    """One lane only. A lower bound of the records that the proxy has taken."""
    return gpu.load_gpu(ctx.device + wire.DEVICE_CONSUMED)


@device
def _refresh_consumed(ctx):
    """One lane of each waiting warp; one of them asks the host. Returns (consumed, aborted)."""
    if gpu.cas_gpu(ctx.device + wire.DEVICE_REFRESH, 0, 1) == 0:
        consumed = gpu.load_sys(ctx.mapped + wire.CONTROL_CONSUMED)
        aborted = gpu.load_sys(ctx.mapped + wire.CONTROL_ABORT)
        # Only the holder of DEVICE_REFRESH writes these two. It gives the lock back by a relaxed
        # store, so the copy may go backwards for a moment; it is a lower bound all the same.
        gpu.store_gpu(ctx.device + wire.DEVICE_CONSUMED, consumed)
        gpu.store_gpu(ctx.device + wire.DEVICE_ABORT, aborted)
        gpu.store_gpu(ctx.device + wire.DEVICE_REFRESH, 0)
        return consumed, aborted
    gpu.pause(200)
    return gpu.load_gpu(ctx.device + wire.DEVICE_CONSUMED), gpu.load_gpu(
        ctx.device + wire.DEVICE_ABORT
    )


@device
def begin_enter(ctx, wanted):
    """(ticket, last known number of records consumed) in the lane that wants them.

    The caller must write the record of the ticket, whatever happens next. Both accesses are under
    way when this returns; what comes before the first use of the results does not wait for them.
    """
    return gpu.enter_if(ctx.device + wire.DEVICE_TICKET, ctx.device + wire.DEVICE_CONSUMED, wanted)


@device
def wait_for_room(ctx, lane, mask, ticket, consumed):
    """Returns once the ring slot of ``ticket`` may be overwritten; the abort class, else 0.

    Args:
        ticket: only the low 31 bits count.
        consumed: as ``begin_enter`` returned it, now the same in all lanes.
    """
    aborted = 0
    full = _is_full(ctx, ticket, consumed)
    while full and aborted == 0:
        if lane == 0:
            consumed = last_known_consumed(ctx)
            if _is_full(ctx, ticket, consumed):
                consumed, aborted = _refresh_consumed(ctx)
                # The record that the proxy waits for may be another warp's; in the simulator that
                # warp runs only when this one lets it.
                gpu.pause(50)
        full = _is_full(ctx, ticket, gpu.shuffle(mask, consumed, 0))
        aborted = gpu.shuffle(mask, aborted, 0)
    if full:
        return aborted
    return 0


@device
def _is_full(ctx, ticket, consumed):
    return (ticket - consumed) & 0x7FFFFFFF >= ring_slots(ctx)


@device
def header_packet(packet, word0, peer_tag, count, position, block):
    """(low, high) of a header packet, all but the handle (any lane; selects, no branches)."""
    low = count if packet == 1 else word0
    low = position if packet == 3 else low
    high = peer_tag >> 32 if packet == 1 else peer_tag
    high = block if packet == 3 else high
    return low, high


# wide: what a record says
@device
def write(ctx, lane, lanes, ticket, word0, peer_tag, count, handle, position, payload, nbytes):
    """Writes the record of ``ticket``: the header and ``nbytes`` (0..144) from ``payload``.

    Lane i writes packet i, all packets in one coalesced instruction; a warp of fewer than 16
    threads takes several turns. ``peer_tag`` has the peer in its low and the message tag in its
    high 32 bits. ``wait_for_room`` comes first.
    """
    record = record_address(ctx, ticket)
    seq = seq_of(ticket) << 32
    packets = wire.HEADER_PACKETS + _payload_packets(nbytes)
    packet = lane
    while packet < packets:
        low, high = header_packet(packet, word0, peer_tag, count, position, gpu.block_id())
        if packet == wire.HANDLE_PACKET:
            low = handle
        if packet >= wire.HEADER_PACKETS:
            begin = (packet - wire.HEADER_PACKETS) * wire.PACKET_PAYLOAD
            low, high = load_payload(payload + begin, nbytes - begin)
        gpu.write_packet(record + packet * wire.PACKET_BYTES, low, (high & wire.LOW_32) | seq)
        packet += gpu.opaque(lanes)


@device
def post(ctx, lane, lanes, mask, word0, count, handle, position):
    """A record that opens no request. Returns the abort class, else 0."""
    ticket, consumed = begin_enter(ctx, lane == 0)
    return post_with(ctx, lane, lanes, mask, ticket, consumed, word0, count, handle, position)


# wide: what a record says
@device
def post_about(ctx, lane, lanes, mask, word0, peer_tag, count, handle, value):
    """A record about a request that is not the proxy's."""
    ticket, consumed = begin_enter(ctx, lane == 0)
    ticket = gpu.shuffle(mask, ticket, 0)
    aborted = wait_for_room(ctx, lane, mask, ticket, gpu.shuffle(mask, consumed, 0))
    if aborted == 0:
        write(ctx, lane, lanes, ticket, word0, peer_tag, count, handle, value, 0, 0)


# wide: what a record says
@device
def post_with(ctx, lane, lanes, mask, ticket, consumed, word0, count, handle, position):
    """``post`` with what ``begin_enter`` has returned."""
    ticket = gpu.shuffle(mask, ticket, 0)
    aborted = wait_for_room(ctx, lane, mask, ticket, gpu.shuffle(mask, consumed, 0))
    if aborted == 0:
        write(ctx, lane, lanes, ticket, word0, 0, count, handle, position, 0, 0)
    return aborted
