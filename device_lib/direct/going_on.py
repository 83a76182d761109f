"""Going on with requests of the direct road: one's own, and those of others.

MPI promises progress to all requests while a process waits for any.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import own, rows
from device_lib.direct.late import make_late
from device_lib.direct.pending import HELPS
from device_lib.direct.receives import make_advance_receive
from device_lib.direct.round_waits import ENTERED_ONLY
from device_lib.direct.sends import make_advance_send
from device_lib.platform.context import all_slots
from device_lib.platform.library import declared, parts_of
from device_lib.platform.primitives import device, lane_id, load_gpu, timer_ns
from device_lib.platform.scope import WARP, Scope
from device_lib.proxied import slots
from gmpi.contract.collectives import COMM_SHIFT
from gmpi.contract.wire import (
    COMMUNICATORS,
    DEVICE_ABORT,
    DEVICE_DIRECT_OPEN,
    DEVICE_LATE,
    DEVICE_PENDING,
)


def make_going_on(groups: SimpleNamespace) -> SimpleNamespace:
    """For a warp, all of whose lanes call these together.

    Args:
        groups: what ``make_groups`` returned.
    """
    leads = WARP.leads
    sync = WARP.sync
    broadcast = WARP.broadcast
    broadcast_3 = WARP.broadcast_3
    advance_send = make_advance_send()
    advance_receive = make_advance_receive()
    store_late = make_late(WARP, groups).store_late

    part = parts_of(WARP.name, "gmpi_direct")
    look_pending = declared("gmpi_direct_look_pending_warp", 8, 1)

    @device
    def advance(ctx, slot, sends, looks):
        """Whether a request that the caller has claimed is complete, after one step of it."""
        if sends:
            return advance_send(ctx, slot, looks)
        return advance_receive(ctx, slot, looks)

    @device
    def take_a_step(ctx, slot, handle, looks):
        """Goes on with a request that somebody else may have, if nobody has.

        Not once waits have been aborted: the kernel that has opened it may have ended, and its
        buffer may be gone.

        Args:
            looks: how often to look whether the other end has come so far.
        """
        ours = rows.FOREIGN
        stage = 0
        if leads() and lane_id() == 0 and load_gpu(ctx.device + DEVICE_ABORT) == 0:
            ours = rows.claim_to_help(ctx, handle)
            stage = rows.stage_of(ctx, slot)
        ours, stage, unused = broadcast_3(ours, stage, 0)
        sync()
        if ours == rows.MINE or ours == rows.RESUMED:
            if stage != rows.FINISHED:
                advance(ctx, slot, rows.is_send(handle), looks)
            if leads() and lane_id() == 0:
                if rows.stage_of(ctx, slot) != stage:
                    rows.put_back(ctx, handle)
                elif ours == rows.RESUMED:
                    rows.leave(ctx, handle | rows.TOUCHED)
                else:
                    rows.leave(ctx, handle)
        return 0

    go_on = part("go_on", 6, 1, take_a_step)

    @device
    def help_own(ctx, besides, first):
        """Goes on with a noted request of this block, where there is one; whether there is.

        Args:
            besides, first: as ``own.open_besides``.
        """
        handle = 0
        if leads() and lane_id() == 0:
            handle = own.open_besides(ctx, besides, first)
        handle = broadcast(handle)
        sync()
        if handle != 0:
            go_on(ctx, slots.slot_of(handle), handle, 1)
        return handle != 0

    @device
    def take_pending(ctx):
        """Takes what has come of collectives that do not block, on two communicators: the first,
        which is mostly the only one, and any other."""
        pending = 0
        comm = 0
        if leads() and lane_id() == 0 and load_gpu(ctx.device + DEVICE_ABORT) == 0:
            pending = load_gpu(ctx.device + DEVICE_PENDING)
            comm = timer_ns() >> 10 & (COMMUNICATORS - 1)
        pending, comm, unused = broadcast_3(pending, comm, 0)
        sync()
        if pending > 0:
            look_pending(ctx, 0, HELPS, 0, 0, ENTERED_ONLY)
            look_pending(ctx, comm << COMM_SHIFT, HELPS, 0, 0, ENTERED_ONLY)

    @device
    def help_one(ctx, first):
        """Goes on with a noted request of this block, and with one open request after slot
        ``first`` that nobody has come for; returns where to look next."""
        help_own(ctx, 0, first)
        slot = -1
        handle = 0
        late = 0
        if leads() and lane_id() == 0:
            slot = rows.next_open(ctx, first)
            late = load_gpu(ctx.device + DEVICE_LATE)
            if slot >= 0:
                handle = rows.left_alone(ctx, slot)
        slot, handle, late = broadcast_3(slot, handle, late)
        sync()
        if late > 0:
            store_late(ctx, 0)
        take_pending(ctx)
        if slot < 0:
            return first
        if handle != 0:
            go_on(ctx, slot, handle, 1)
        first = slot + 1
        return first if first < all_slots(ctx) else 0

    help_linked = part("help", 4, 1, help_one)

    return SimpleNamespace(
        advance=advance,
        go_on=go_on,
        help_own=help_own,
        help_one=help_linked,
    )


def make_go_on(scope: Scope, help_one: Callable) -> Callable:
    """(ctx, first) -> whether there are open requests: goes on with one; all threads of a scope.

    Args:
        help_one: (ctx, first) -> where to look next.
    """
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3

    @device
    def go_on_with_others(ctx, first):
        """Goes on with an open request; whether there are any."""
        there = 0
        sync()  # all have what was broadcast last
        if leads() and lane_id() == 0:
            there = load_gpu(ctx.device + DEVICE_DIRECT_OPEN)
        there, unused, ignored = broadcast_3(there, 0, 0)
        sync()
        if there != 0:
            help_one(ctx, first)
        return there != 0

    return go_on_with_others
