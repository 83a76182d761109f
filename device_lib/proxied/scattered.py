"""Opening a request whose bytes are scattered: derived datatypes and strided views.

The way of ``opening.open_any`` with a layout in place of an address. What goes out is packed by the
threads of the scope: into staging, or, when the record takes it, into device memory beside the
layout. What comes back always waits in staging; whoever waits unpacks it from there.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move import layouts
from device_lib.move.column import find_column, pack_column
from device_lib.move.copy import copy_to_staging
from device_lib.move.message import is_derived, message_bytes
from device_lib.platform.context import (
    chunk_bytes,
    eager_bytes,
    may_go_direct,
    staging_of,
)
from device_lib.platform.primitives import (
    device,
    fence_gpu,
    fence_sys,
    lane_id,
    load_8,
    store_gpu,
    sync_warp,
)
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import commands, ring, slots, taking
from device_lib.proxied.flaws import flaw_of
from device_lib.proxied.outgoing import make_fill, make_send_bytes, place_of
from device_lib.proxied.publishing import BACK, FLAGS_SHIFT, INLINE, OUT, make_no_slot, publish
from gmpi.contract import wire
from gmpi.contract.constants import PROC_NULL
from gmpi.contract.layouts import LAYOUT_INLINE, LAYOUT_RECV, LAYOUT_SEND, LAYOUT_TYPE, LAYOUT_USER
from gmpi.contract.rules import chunk_bytes_of

_chunk_bytes_of = device(chunk_bytes_of)


# wide: what a buffer is, and who writes it down
@device
def place(ctx, slot, direction, buffer, row, nbytes, lane, lanes, mask):
    """What the request's row says of a buffer: its address, or SCATTERED, and then the layout has
    been written. All lanes of the leading warp."""
    address = load_8(buffer + layouts.BUFFER_ADDRESS)
    if row == 0 and load_8(buffer + layouts.BUFFER_DIMS) == 0:
        return address
    layout = layouts.layout_of(ctx, slot, direction)
    if lane == 0:
        store_gpu(layout + LAYOUT_USER, address)
        if row != 0:
            store_gpu(layout + LAYOUT_TYPE, row)
        else:
            layouts.write_view(layout, buffer, nbytes)
    sync_warp(mask)
    if row == 0:
        layouts.finish_view(layout, lane, lanes)
    return wire.SCATTERED


def make_open_scattered(
    scope: Scope,
    help_others: Callable,
    report: Callable,
    start_direct: Callable,
    collect: Callable,
    closes: bool = True,
) -> Callable:
    """Opens requests of derived datatypes and strided views; all threads of the scope call it.

    Args:
        start_direct: (ctx, word0, peer_tag, nbytes, buffer, row) -> handle; 0: not the direct road.
        collect: the same of collectives, of ``start``'s arguments but the last.
        closes: of ``taking.make_take_slot``.
    """
    rank = scope.rank
    size = scope.size
    take_slot = taking.make_take_slot(scope, help_others, closes)
    no_slot = make_no_slot(report)
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3
    broadcast = scope.broadcast

    @device
    def pack(ctx, slot, send, packed, begin, end):
        """Packs bytes ``begin..end`` of the message to ``packed``."""
        if send == wire.SCATTERED:
            layout = layouts.layout_of(ctx, slot, LAYOUT_SEND)
            layouts.pack_layout(layout, packed, begin, end, rank(), size())
        else:
            copy_to_staging(packed, send + begin, end - begin, rank(), size())

    send_bytes = make_send_bytes(scope, make_fill(scope, pack))

    @device
    def open_scattered(ctx, word0, peer_tag, count, send_buffer, recv_buffer):
        """As ``opening.open_any``.

        Args:
            word0: first word of the record; its flags say which way bytes are to go.
            send_buffer, recv_buffer: what ``primitives.describe`` wrote; 0 for none.
        """
        sync()
        datatype = word0 >> wire.DATATYPE_SHIFT & wire.LOW_32
        way = word0 >> FLAGS_SHIFT & (wire.FLAG_OUT | wire.FLAG_BACK)
        word0 &= ~(OUT | BACK)
        row = 0
        if is_derived(datatype):
            row = layouts.type_row(ctx, datatype)
            nbytes = 0
            if row != 0 and word0 & 0xFF != wire.OP_ALLREDUCE:  # which MPI does not define for them
                nbytes = layouts.derived_bytes(row, count)
        else:
            nbytes = message_bytes(count, datatype)
        if peer_tag & wire.LOW_32 == PROC_NULL & wire.LOW_32:
            nbytes = 0
        flaws = 0
        room = 0
        if nbytes > 0:
            if way & wire.FLAG_OUT != 0:
                flaws = flaw_of(ctx, send_buffer, row, count, nbytes, wire.FLAG_OUT)
                room = load_8(send_buffer + layouts.BUFFER_BYTES)
            if way & wire.FLAG_BACK != 0 and flaws == 0:
                flaws = flaw_of(ctx, recv_buffer, row, count, nbytes, wire.FLAG_BACK)
                room = load_8(recv_buffer + layouts.BUFFER_BYTES)
            if flaws != 0:
                nbytes = 0
                word0 |= flaws << FLAGS_SHIFT
            else:
                word0 |= way << FLAGS_SHIFT
                room = 0
        op = word0 & 0xFF
        if (
            flaws == 0
            and (op == wire.OP_ISEND or op == wire.OP_IRECV)
            and may_go_direct(ctx, word0)
        ):
            if count >= 0 and (row != 0 or not is_derived(datatype)):
                buffer = send_buffer if op == wire.OP_ISEND else recv_buffer
                handle = start_direct(ctx, word0, peer_tag, nbytes, buffer, row)
                if handle != 0:
                    return handle
        if (
            flaws == 0
            and (op == wire.OP_ALLREDUCE or op == wire.OP_BCAST)
            and word0 & wire.PERSISTENT != wire.PERSISTENT
        ):
            handle = collect(ctx, word0, peer_tag, count, nbytes, row, send_buffer, recv_buffer)
            if handle != 0:
                return handle
        return start(ctx, word0, peer_tag, count, nbytes, row, send_buffer, recv_buffer, room)

    # long: one sequence, whose order is the protocol
    # wide: what the call has found out
    @device
    def start(ctx, word0, peer_tag, count, nbytes, row, send_buffer, recv_buffer, room):
        large = 0
        buffers = 0
        p2p = False
        mailbox = 0
        if nbytes > eager_bytes(ctx):
            large = 1
            # Under way while the slot is found.
            buffers, p2p, mailbox = staging_of(ctx, word0, peer_tag)
        out = nbytes if word0 & OUT != 0 else 0
        # A short column is packed at once, without a layout for whoever packs the rest.
        address = 0
        stride = 0
        column = 0
        if out > 0 and large == 0:
            address, stride, column = find_column(send_buffer, row, count, nbytes)
        slot = take_slot(ctx, -1, taking.large_kind(word0) if large else taking.SMALL)
        narrow = slots.is_narrow(ctx, slot)  # all that goes out waits for commands
        if narrow:
            p2p = False
            mailbox = 0
        sync()
        send = 0
        recv = 0
        if leads():
            lane = lane_id()
            lanes = warp_lanes()
            mask = warp_mask()
            if slot >= 0:
                if out > 0 and column == 0:
                    send = place(
                        ctx, slot, LAYOUT_SEND, send_buffer, row, nbytes, lane, lanes, mask
                    )
                if nbytes > 0 and word0 & BACK != 0:
                    recv = place(
                        ctx, slot, LAYOUT_RECV, recv_buffer, row, nbytes, lane, lanes, mask
                    )
        slot, send, recv = broadcast_3(slot, send, recv)
        sync()  # the layouts are written; the next broadcast may begin
        if slot < 0:
            return no_slot(ctx, word0, slot, large)
        goes_to = 0
        if large:
            goes_to = place_of(ctx, buffers, mailbox, slot, out, send)
        packed = send
        if not p2p:  # else first the record, then the bytes
            first = out
            if narrow:
                out = 0
            elif out > wire.INLINE_BYTES:
                packed = commands.small_staging(ctx, slot)
                if large:
                    packed = goes_to
                    first = min(out, _chunk_bytes_of(out, chunk_bytes(ctx)))
            elif send == wire.SCATTERED or column != 0:
                packed = layouts.layout_of(ctx, slot, LAYOUT_INLINE)
            if column != 0:
                pack_column(packed, address, stride, column, out, rank(), size())
            elif packed != send:
                pack(ctx, slot, send, packed, 0, first)
            sync()
        handle = 0
        if leads():
            ticket, consumed = ring.begin_enter(ctx, lane_id() == 0)
            if large and lane_id() == 0:
                slots.open_commands(ctx, slot, send)
            if not p2p and (large or out > wire.INLINE_BYTES):
                # Release: staging before the record, layouts and commands before those who help.
                fence_sys()
            elif send == wire.SCATTERED or recv == wire.SCATTERED:
                fence_gpu()  # before the layouts of the slot's next owner, on another SM
            handle = enter(
                ctx, ticket, consumed, slot, large, word0, peer_tag, count, nbytes, packed, send,
                recv, room,
            )  # fmt: skip
        handle = broadcast(handle)
        if large and handle >> wire.HANDLE_ERROR_SHIFT == 0:
            send_bytes(ctx, handle, goes_to, send, out, 0 if p2p else 1)
        return handle

    # wide: what a record says
    @device
    def enter(
        ctx, ticket, consumed, slot, large, word0, peer_tag, count, nbytes, packed, send, recv,
        room,
    ):  # fmt: skip
        """``publish`` (leading warp): the handle."""
        inline = 0
        if word0 & OUT != 0 and nbytes <= wire.INLINE_BYTES:
            inline = nbytes
            word0 |= INLINE
        # No packets for a payload, however short: it is unpacked from staging.
        packets = 1
        if word0 & BACK != 0 or word0 & 0xFF == wire.OP_IRECV:
            packets = wire.STATUS_PACKETS
        buffer = recv if recv != 0 else send
        buffer = room if room != 0 else buffer
        return publish(
            ctx, ticket, consumed, slot, large, packets, word0, peer_tag, count, buffer, recv,
            packed, inline,
        )  # fmt: skip

    return open_scattered
