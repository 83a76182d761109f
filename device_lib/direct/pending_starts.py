"""Starting collectives of the direct road that do not block: Iallreduce, Ibcast, Ireduce, ...

A start stores the call's packets and a record of it, and is over: it waits for nobody, unless 49
or more calls of the communicator are open. ``pending.py`` has what comes then. One warp does this;
of a block, the leading one.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import block_rounds, rounds
from device_lib.direct.block_jobs import make_led
from device_lib.direct.collectives import barrier_word
from device_lib.direct.pending import (
    count_pending,
    gives_to,
    handle_of,
    takes_from,
)
from device_lib.direct.pending_rows import has_room, packed_at, pending_place, record_at
from device_lib.direct.round_waits import ENTERED_ONLY
from device_lib.direct.rounds import NOBODY, kind_of, row_of, signature_of
from device_lib.direct.scattered_collectives import allreduce_word, bcast_word, make_take_placed
from device_lib.move.layouts import layout_of, pack_layout
from device_lib.move.message import is_sound
from device_lib.platform import primitives as gpu
from device_lib.platform.context import may_collect_direct
from device_lib.platform.library import declared, parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import WARP, Scope, warp_lanes
from device_lib.proxied import slots
from gmpi.contract import collectives, wire
from gmpi.contract.collectives import NOT_OURS
from gmpi.contract.constants import SUCCESS
from gmpi.contract.layouts import LAYOUT_SEND

NOT_AT_ONCE = -2  # in place of a handle


@device
def has_no_root(what, ranks):
    """Whether no rank is the root of a Bcast: the proxy refuses it."""
    return kind_of(what) == collectives.BCAST and what & collectives.ROOT_MASK >= ranks


def link_pending_starts(help_others: Callable) -> None:
    """Gives the library these functions.

    Args:
        help_others: executes commands of the proxied road, by a warp.
    """
    rank = WARP.rank
    size = WARP.size
    leads = WARP.leads
    sync = WARP.sync
    sync_or = WARP.sync_or
    broadcast_3 = WARP.broadcast_3
    take_placed = make_take_placed(WARP, help_others)
    wait = declared("gmpi_direct_wait_pending_warp", 8, 1)
    part = parts_of(WARP.name, "gmpi_direct")

    @device
    def start_short(ctx, what, send, recv, nbytes):
        """The handle of a call that moves no blocks, of buffers in one piece; NOT_AT_ONCE: it is
        for ``start``. It calls nothing: that costs registers, which would have to be saved."""
        sync()  # what other threads wrote to the buffer
        row = row_of(ctx, what)
        number = gpu.load_gpu(row + collectives.STARTED)  # all under way together
        known, broken = gpu.load_pair_gpu(row + collectives.KNOWN)
        area, where = gpu.load_16(row + collectives.AREA)
        peers = gpu.load_16(row + collectives.PEERS)
        low = rounds.load_packet(send, nbytes, gpu.lane_id())
        ranks = where >> collectives.RANKS_SHIFT
        # Other blocks may change these: what one lane has found, all go by.
        late = 1 if broken != SUCCESS or number - known >= collectives.PENDING else 0
        if sync_or(late) or has_no_root(what, ranks):
            return NOT_AT_ONCE
        out = nbytes if gives_to(what, where & wire.LOW_32, ranks) != 0 else 0
        lane = gpu.lane_id()
        rounds.put(
            row, ranks, number, what, send, out, NOBODY, lane, warp_lanes(), low, peers,
            pending_place(number),
        )  # fmt: skip
        if lane == 0:
            gpu.write_packet(record_at(area, ranks, number), recv, what)
            gpu.store_gpu(row + collectives.STARTED, number + 1)
            count_pending(ctx, 1)
        sync()
        return handle_of(ctx, what, number)

    part("start_short", 7, 1, start_short)

    @device
    def pack_and_put(ctx, row, number, what, slot, nbytes, shift):
        """Stores a call's packets, of bytes that do not lie in one piece."""
        area, where = gpu.load_16(row + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        packed = packed_at(area, ranks, number)
        layout = layout_of(ctx, slot, LAYOUT_SEND)
        stride = block_rounds.stride_out(what, nbytes)
        gives = gives_to(what, where & wire.LOW_32, ranks)
        peer = 0
        while peer < ranks:
            begin = shift + peer * stride
            pack_layout(layout, packed, begin, begin + nbytes, rank(), size())
            sync()
            to = 1 << peer if stride != 0 else -1  # else the same block goes to all of them
            block_rounds.put(
                row, ranks, number, what, to, gives, packed, 0, nbytes, rank(), size(), False,
                pending_place(number),
            )  # fmt: skip
            sync()  # all have read what is there
            peer = ranks if stride == 0 else peer + gpu.opaque(1)

    @device
    def start(ctx, what, slot, send, recv, nbytes, shift):
        """The handle of a call.

        Args:
            slot: with the layouts of what is SCATTERED; -1: nothing is.
            shift: bytes before the first block that goes out, of a SCATTERED buffer.
        """
        sync()  # what other threads wrote to the buffer
        row = row_of(ctx, what)
        area, where = gpu.load_16(row + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        if has_no_root(what, ranks):
            return NOT_OURS
        number = error = room = 0
        if leads() and gpu.lane_id() == 0:
            number = gpu.load_gpu(row + collectives.STARTED)
            error = gpu.load_gpu(row + collectives.BROKEN)
            known = gpu.load_gpu(row + collectives.KNOWN)
            room = 1 if has_room(row, number, known) else 0
        number, error, room = broadcast_3(number, error, room)
        sync()  # before the next broadcast
        if error == SUCCESS and room == 0:
            mode = nbytes << 1 | ENTERED_ONLY
            error = wait(ctx, what, number, signature_of(what), 0, mode)
        if error != SUCCESS:
            if slot >= 0 and leads() and gpu.lane_id() == 0:
                slots.release(ctx, slot)
            return slots.error_handle(error)
        if leads() and gpu.lane_id() == 0:
            target = recv | slot if recv == wire.SCATTERED else recv
            gpu.write_packet(record_at(area, ranks, number), target, what)
        if send == wire.SCATTERED:
            pack_and_put(ctx, row, number, what, slot, nbytes, shift)
        else:
            gives = gives_to(what, where & wire.LOW_32, ranks)
            block_rounds.put(
                row, ranks, number, what, -1, gives, send,
                block_rounds.stride_out(what, nbytes), nbytes, rank(), size(), False,
                pending_place(number),
            )  # fmt: skip
        sync()
        if leads() and gpu.lane_id() == 0:
            if slot >= 0 and recv != wire.SCATTERED:
                slots.release(ctx, slot)
            gpu.store_gpu(row + collectives.STARTED, number + 1)
            count_pending(ctx, 1)
        sync()  # the caller may wait for it at once
        return handle_of(ctx, what, number)

    start_linked = part("start_pending", 9, 1, start)

    @device
    def place_and_start(ctx, what, nbytes, type_row, send_buffer, recv_buffer):
        where = gpu.load_16(row_of(ctx, what) + collectives.AREA)[1]
        ranks = where >> collectives.RANKS_SHIFT
        if has_no_root(what, ranks):
            return 0
        me = where & wire.LOW_32
        sends, receives = gives_to(what, me, ranks) != 0, takes_from(what, me, ranks) != 0
        sent, received = nbytes if sends else 0, nbytes if receives else 0
        slot, send, recv = take_placed(ctx, type_row, send_buffer, sent, recv_buffer, received)
        if slot < 0:
            return slots.error_handle(-slot)
        return start_linked(ctx, what, slot, send, recv, nbytes, 0)

    part("place_and_start", 8, 1, place_and_start)


def make_pending_starts(scope: Scope) -> SimpleNamespace:
    """For one scope, all of whose threads call them: each returns the handle of a call, or
    NOT_OURS: it goes by the proxies."""
    start = make_led(scope, declared("gmpi_direct_start_pending_warp", 9, 1), 1)
    short = make_led(scope, declared("gmpi_direct_start_short_warp", 7, 1), 1)
    place_and_start = make_led(scope, declared("gmpi_direct_place_and_start_warp", 8, 1), 1)

    @device
    def start_scattered(ctx, what, nbytes, type_row, send_buffer, recv_buffer):
        """A call of which a buffer does not lie in one piece: its handle; 0: not ours.

        Args:
            what: its word, as of one that blocks.
        """
        if nbytes > collectives.PENDING_ROOM:
            return 0
        what |= collectives.NONBLOCKING_CALL
        return place_and_start(ctx, what, nbytes, type_row, send_buffer, recv_buffer)

    # --- calls ------------------------------------------------------------------------------------

    @device
    def may_be(ctx, word0, count, nbytes):
        fits = nbytes <= collectives.PENDING_ROOM
        return fits and may_collect_direct(ctx, word0) and is_sound(word0, count)

    @device
    def start_call(ctx, what, send, recv, nbytes):
        if what == NOT_OURS:
            return NOT_OURS
        what |= collectives.NONBLOCKING_CALL
        handle = short(ctx, what, send, recv, nbytes)
        if handle == NOT_AT_ONCE:
            handle = start(ctx, what, -1, send, recv, nbytes, 0)
        return handle

    @device
    def iallreduce(ctx, word0, op, count, nbytes, send, recv):
        if not may_be(ctx, word0, count, nbytes):
            return NOT_OURS
        return start_call(ctx, allreduce_word(word0, op, nbytes), send, recv, nbytes)

    @device
    def ibcast(ctx, word0, root, count, nbytes, buffer):
        if not may_be(ctx, word0, count, nbytes):
            return NOT_OURS
        return start_call(ctx, bcast_word(word0, root, nbytes), buffer, buffer, nbytes)

    @device
    def ibarrier(ctx, word0):
        if not may_collect_direct(ctx, word0):
            return NOT_OURS
        return start_call(ctx, barrier_word(word0), 0, 0, 0)

    return SimpleNamespace(
        iallreduce=iallreduce,
        ibarrier=ibarrier,
        ibcast=ibcast,
        start=start,
        start_scattered=start_scattered,
    )
