"""Executing a command: the bytes of a chunk between the user's buffer and staging, or from a
mailbox, by all threads of the scope that has claimed it (``commands.py``), and the answer.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache

from device_lib.move.blocks import pack_any, unpack_any
from device_lib.move.copy import copy_from_staging, copy_to_staging
from device_lib.move.layouts import layout_of, unpack_layout
from device_lib.move.mailbox import take_commanded
from device_lib.platform.context import chunk_buffers, chunk_bytes, gpu_staging
from device_lib.platform.primitives import device, lane_id, load_sys
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import commands, ring
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND
from gmpi.contract.wire import CONTROL_ABORT, IN_SMALL, MAILED_MARK, PACK, SCATTERED

# Bytes that a thread may move while its scope holds a ticket, for which the ring waits.
_TICKET_BYTES = 256


_EVENT_SHIFT = 40  # of what a wait has found, above a place, where both travel in one word


@cache
def make_tell_event(scope: Scope) -> Callable:
    """What a wait's leading warp has found, for all threads of the scope, who then may execute."""
    sync = scope.sync
    broadcast_5 = scope.broadcast_5

    @device
    def tell_event(kind, place, command, length, buffers, target):
        """The arguments of the leading warp, in all threads."""
        place, command, length, buffers, target = broadcast_5(
            kind << _EVENT_SHIFT | place, command, length, buffers, target
        )
        sync()
        kind = place >> _EVENT_SHIFT
        return kind, place & (1 << _EVENT_SHIFT) - 1, command, length, buffers, target

    return tell_event


@cache
def make_execute(scope: Scope) -> Callable:
    """Moves the bytes of a claimed command; all threads of the scope call it together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or

    @device
    def answer(ctx, slot, index, command, own, ticket, consumed):
        """Says that a command has been executed; the leading warp, after a barrier."""
        lane = lane_id()
        if own != 0:
            commands.answer_last(
                ctx, lane, warp_lanes(), warp_mask(), ticket, consumed, own, index, command
            )
        else:
            commands.answer(ctx, lane, warp_lanes(), warp_mask(), slot, index, command)

    # wide: what a command says
    @device
    def take_in(ctx, slot, index, command, length, buffers, places, own, address):
        """``execute`` for a message in a mailbox."""
        target = address
        scattered = address & SCATTERED != 0
        if scattered:  # by way of our own chunk buffer
            target = chunk_buffers(ctx, gpu_staging(ctx), slot)
        failed = take_commanded(ctx, places, buffers, target, length, rank(), size())
        ticket = 0
        consumed = 0
        if leads() and own != 0:
            # The ring waits for this ticket while other warps' packets are still on their way: for
            # stores of the sender, which wait for nobody.
            ticket, consumed = ring.begin_enter(ctx, lane_id() == 0)
        aborted = 0
        if sync_or(failed):
            aborted = load_sys(ctx.mapped + CONTROL_ABORT)
        elif scattered:
            begin = commands.position_of(command)
            layout = layout_of(ctx, slot, LAYOUT_RECV)
            unpack_layout(layout, target, begin, begin + length, rank(), size())
            sync()
        if leads() and (own != 0 or aborted == 0):
            answer(ctx, slot, index, command, own, ticket, consumed)
        sync()
        return aborted

    @device
    def execute(ctx, place, command, length, buffers, places, own, recv):
        """Executes a command.

        Args:
            place: slot << 8 | index of the staging buffer.
            places: what ``our_mailboxes`` returned.
            own: handle of the request if this is its last command and the caller waits for it; else
                0. Only the leading warp needs it.
            recv: address of the user's buffer that the command is about; 0: it is in the request.

        Returns:
            0, or the class of an abort that came before the bytes.
        """
        slot = place >> 8
        index = place & 0xFF
        staging = buffers + index * chunk_bytes(ctx)
        if buffers == IN_SMALL:
            staging = commands.small_staging(ctx, slot)
        ticket = 0
        consumed = 0
        mailed = buffers & MAILED_MARK != 0
        early = own != 0 and length <= size() * _TICKET_BYTES and not mailed
        if leads() and early:
            ticket, consumed = ring.begin_enter(ctx, lane_id() == 0)
        address = recv + commands.position_of(command)
        if recv == 0:
            address = commands.user_address(ctx, slot, command)
        if mailed:
            return take_in(ctx, slot, index, command, length, buffers, places, own, address)
        if address & SCATTERED != 0:
            begin = commands.position_of(command)
            end = begin + length
            if commands.direction_of(command) == PACK:
                layout = layout_of(ctx, slot, LAYOUT_SEND)
                pack_any(layout, staging, begin, end, rank(), size())
            else:
                layout = layout_of(ctx, slot, LAYOUT_RECV)
                unpack_any(layout, staging, begin, end, rank(), size())
        elif commands.direction_of(command) == PACK:
            copy_to_staging(staging, address, length, rank(), size())
        else:
            copy_from_staging(address, staging, length, rank(), size())
        sync()
        if leads():
            if own != 0 and not early:
                ticket, consumed = ring.begin_enter(ctx, lane_id() == 0)
            answer(ctx, slot, index, command, own, ticket, consumed)
        sync()
        return 0

    return execute
