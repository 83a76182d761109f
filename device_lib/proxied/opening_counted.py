"""Opening a collective whose blocks have counts of their own: Gatherv, Alltoallw, ...

As ``opening_blocks``, with tables: one tells the proxy of the blocks, one in device memory tells
whoever moves them where they lie (``gmpi/contract/counts.py``). Blocks that are one run in the
user's memory are moved as such. The request is staged whole where what comes back, or the table,
and what goes out fit small staging, and there are few blocks.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.blocks import pack_blocks
from device_lib.move.copy import copy_to_staging
from device_lib.move.layouts import (
    BUFFER_ADDRESS,
    BUFFER_BYTES,
    BUFFER_DIMS,
    finish_view,
    layout_of,
    write_view,
)
from device_lib.platform import primitives as gpu
from device_lib.platform.context import blocks_address, eager_bytes
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import commands, slots, taking
from device_lib.proxied.counted_blocks import write_blocks
from device_lib.proxied.counted_sides import REDUCES, is_long, make_survey_both, sides_of
from device_lib.proxied.opening_blocks import SHARED, publish_moved
from device_lib.proxied.publishing import make_no_slot
from gmpi.contract import counts
from gmpi.contract.constants import ERR_COUNT
from gmpi.contract.layouts import LAYOUT_OWN, LAYOUT_RECV, LAYOUT_SEND, LAYOUT_TYPE, LAYOUT_USER
from gmpi.contract.moves import BACK, OUT, out_offset
from gmpi.contract.wire import (
    FLAG_PRIVATE_BUFFER,
    LOW_32,
    POSITION_MASK,
    SCATTERED,
)

_most_blocks = device(counts.most_blocks)
_table_bytes = device(counts.table_bytes)
_out_offset = device(out_offset)
_PRIVATE = counts.FLAW_BUFFER | FLAG_PRIVATE_BUFFER << counts.FLAW_FLAGS_SHIFT


# wide: a layout from its parts
@device
def _in_blocks(ctx, slot, direction, side, nbytes, entries, lane, lanes, mask):
    """Writes a layout that says: so many blocks, whose table is at ``entries``; all lanes of the
    leading warp."""
    layout = layout_of(ctx, slot, direction)
    if lane == 0:
        if gpu.load_8(side.buffer + BUFFER_DIMS) != 0:
            write_view(layout, side.buffer, nbytes)
        gpu.store_gpu(layout + LAYOUT_USER, entries)
        gpu.store_gpu(layout + LAYOUT_TYPE, counts.IN_BLOCKS | (1 if side.joined else side.number))
    gpu.sync_warp(mask)
    if gpu.load_8(side.buffer + BUFFER_DIMS) != 0:
        finish_view(layout, lane, lanes)
    return SCATTERED


def make_open_counted(scope: Scope, help_others: Callable, report: Callable) -> Callable:
    """For one scope, all of whose threads call it."""
    rank = scope.rank
    size = scope.size
    take_slot = taking.make_take_slot(scope, help_others)
    no_slot = make_no_slot(report)
    leads = scope.leads
    sync = scope.sync
    survey_both = make_survey_both(scope)
    broadcast_3 = scope.broadcast_3
    broadcast = scope.broadcast

    # wide: what has been found out
    @device
    def write_tables(ctx, slot, large, out, back, sent, received, send, recv, flaw):
        """Both tables; all lanes of the leading warp: (REQUEST_SEND, REQUEST_RECV)."""
        lane = gpu.lane_id()
        lanes = warp_lanes()
        mask = warp_mask()
        table = commands.small_staging(ctx, slot)
        entries = blocks_address(ctx, slot)
        form = (counts.RUN_OUT if send != 0 else 0) | (counts.RUN_BACK if recv != 0 else 0)
        if lane == 0:
            room = gpu.load_8(
                (back if flaw >> counts.FLAW_WAY_SHIFT & 1 else out).buffer + BUFFER_BYTES
            )
            gpu.store_8(table + counts.TABLE_NUMBERS, out.number | back.number << 32)
            gpu.store_8(table + counts.TABLE_FLAW, flaw)
            gpu.store_8(table + counts.TABLE_ROOM, room)
            gpu.store_8(table + counts.TABLE_FORM, form)
        out_entries = entries if sent > 0 and send == 0 else 0
        back_entries = entries
        if out_entries != 0:
            back_entries += out.number * counts.BLOCK_ENTRY
            send = _in_blocks(
                ctx, slot, LAYOUT_SEND, out, POSITION_MASK, out_entries, lane, lanes, mask
            )
        if received > 0 and recv == 0:
            recv = _in_blocks(
                ctx, slot, LAYOUT_RECV, back, POSITION_MASK, back_entries, lane, lanes, mask
            )
        else:
            back_entries = 0
        if (
            flaw & counts.FLAW_MASK == counts.FLAW_ARRAY
            or flaw & counts.FLAW_MASK == counts.FLAW_LENGTH
        ):
            return send, recv  # there is nothing to read
        own = layout_of(ctx, slot, LAYOUT_SEND) + LAYOUT_OWN
        at = table + counts.TABLE_HEAD
        write_blocks(ctx, out, at, out_entries, own, sent, lane, lanes)
        own = layout_of(ctx, slot, LAYOUT_RECV) + LAYOUT_OWN
        at += out.number * counts.TABLE_ENTRY
        write_blocks(ctx, back, at, back_entries, own, received, lane, lanes)
        return send, recv

    # wide: MPI's arguments, as words
    @device
    def open_counted(
        ctx, word0, root_op, shape, numbers, send_count, send_type, send_buffer, recv_count,
        recv_type, recv_buffer, arrays,
    ):  # fmt: skip
        """The request.

        Args:
            word0: first word of the record.
            root_op: root and reduction, as in a record.
            shape: what ``shape_of`` says, and the rank.
            numbers: how many blocks go out | come back << 32.
            send_buffer, recv_buffer: what ``primitives.describe`` wrote.
            arrays: the arrays of both ways (``counted_blocks``).
        """
        sync()
        out, back, in_place, flaw = sides_of(
            ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
            recv_type, recv_buffer, arrays,
        )  # fmt: skip
        blocks = out.number + back.number
        if blocks > _most_blocks(eager_bytes(ctx)):
            report(ctx, word0, blocks, ERR_COUNT | _most_blocks(eager_bytes(ctx)) << 8)
            return slots.error_handle(ERR_COUNT)
        sent, received, send, recv, flaw = survey_both(ctx, out, back, shape, flaw)
        large = 1 if is_long(ctx, out, back, sent, received, send, recv) else 0
        if large:
            if sent > 0 and gpu.memory_space(gpu.load_8(out.buffer + BUFFER_ADDRESS)) == SHARED:
                flaw = _PRIVATE | OUT << counts.FLAW_WAY_SHIFT
            if (
                received > 0
                and gpu.memory_space(gpu.load_8(back.buffer + BUFFER_ADDRESS)) == SHARED
            ):
                flaw = _PRIVATE | BACK << counts.FLAW_WAY_SHIFT
        if flaw != 0:
            sent = 0
            received = 0
            large = 0
        if shape & REDUCES == 0:
            root_op = (root_op & LOW_32) | in_place << 32
        slot = take_slot(ctx, -1, taking.LARGE if large else taking.SMALL)
        sync()
        if leads() and slot >= 0:
            send, recv = write_tables(ctx, slot, large, out, back, sent, received, send, recv, flaw)
        slot, send, recv = broadcast_3(slot, send, recv)
        sync()  # the layouts are written; the next broadcast may begin
        if slot < 0:
            return no_slot(ctx, word0, slot, large)
        if sent > 0 and large == 0:
            packed = commands.small_staging(ctx, slot)
            packed += _out_offset(max(received, _table_bytes(blocks)))
            if send == SCATTERED:
                layout = layout_of(ctx, slot, LAYOUT_SEND)
                pack_blocks(layout, packed, 0, sent, rank(), size())
            else:
                copy_to_staging(packed, send, sent, rank(), size())
        sync()
        handle = 0
        if leads():
            handle = publish_moved(ctx, slot, large, word0, root_op, 0, send, recv, 0)
        return broadcast(handle)

    return open_counted
