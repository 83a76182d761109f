"""How the blocks of a grid meet in a call, and how the leading one tells the others what to do.

See ``gmpi/contract/grid.py``. All threads of a block call these together.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import rows
from device_lib.direct.grid_jobs import execute, execute_any, transfer
from device_lib.platform import primitives as gpu
from device_lib.platform.context import leads_grid
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import BLOCK, Scope, warp_lanes, warp_mask
from device_lib.proxied import pacing, ring, slots, taking
from gmpi.contract import grid
from gmpi.contract.wire import (
    CONTROL_ABORT,
    DEVICE_GRID,
    OP_GRID,
    OP_WAITED,
    OP_WAITS,
    PACKET_BYTES,
)

_LOOKS = 2 if gpu.SIMULATOR else 2048  # of one thread, before all of its block meet
_AT_ONCE = 1 if gpu.SIMULATOR else 256  # of these, without a pause

HANDLE = 1  # what the first word of a result is: a request
ERROR = 0  # an error class


@device
def _row(ctx):
    return ctx.device + DEVICE_GRID


@device
def _last(ctx):
    """The number of the last command (any thread)."""
    low, number = gpu.read_packet(_row(ctx) + grid.COMMAND)
    return number


@device
def leads():
    """Whether the calling block is the leader."""
    return gpu.block_id() == 0


@device
def _never(ctx):
    return 0


def shares_of(scope: Scope) -> Callable:
    """(context) -> whether a scope's long messages are moved by all blocks of its grid: by a leader
    only, which is a block."""
    return leads_grid if scope.name == "block" else _never


@device
def _others():
    return int64(gpu.grid_blocks()) - 1


@device
def _have_arrived(ctx, looks):
    """Whether all other blocks wait for a command; one thread of the leader."""
    at = _row(ctx) + grid.ARRIVED
    looked = 0
    while gpu.load_gpu(at) != _others():
        looked += 1
        if looked >= looks:
            return 0
        if looked >= _AT_ONCE:
            gpu.pause(40)
    gpu.store_gpu(at, 0)  # nobody arrives again before the next command
    gpu.fence_gpu()
    return 1


@device
def _command(ctx, kind, a, b, c, d, e, f):
    """Tells all other blocks what to do; one thread, after a barrier."""
    number = _last(ctx) + 1  # under way before the fence
    gpu.fence_gpu()
    at = _row(ctx) + grid.COMMAND
    gpu.write_packet(at, kind, number)
    gpu.write_packet(at + PACKET_BYTES, a, number)
    gpu.write_packet(at + 2 * PACKET_BYTES, b, number)
    gpu.write_packet(at + 3 * PACKET_BYTES, c, number)
    gpu.write_packet(at + 4 * PACKET_BYTES, d, number)
    gpu.write_packet(at + 5 * PACKET_BYTES, e, number)
    gpu.write_packet(at + 6 * PACKET_BYTES, f, number)
    return 0


@device
def _read(ctx, number, looks):
    """1 where the command after ``number`` has come, whose words are in the block's rows then, else
    0; the leading warp.

    Each lane reads a packet, all of one line: many blocks look at it all the time.
    """
    lanes = warp_lanes()
    mask = warp_mask()
    lane = gpu.lane_id()
    wanted = number + 1
    looked = 0
    there = 0
    while there == 0 and looked < looks:
        differ = 0
        word = lane
        while word < grid.WORDS:
            low, found = gpu.read_packet(_row(ctx) + grid.COMMAND + word * PACKET_BYTES)
            differ |= found ^ wanted
            gpu.put_block_row(word, low, 0, 0)
            word += gpu.opaque(lanes)
        if gpu.ballot(mask, differ != 0) == 0:
            there = 1
            gpu.fence_gpu()
        else:
            looked += 1
            if looked >= _AT_ONCE:
                gpu.pause(40)
    return there


@device
def _word(index):
    """A word of the command that has come; after a barrier."""
    low, unused, ignored = gpu.get_block_row(index, 0, 0, 0)
    return low


@device
def _arrive(ctx, failed, remote):
    """The calling block waits for the next command; one thread, after a barrier.

    Args:
        failed: whether a job has ended with an abort.
        remote: whether its threads have stored to other GPUs.
    """
    if failed != 0:
        gpu.store_gpu(_row(ctx) + grid.FAILED, 1)
    if remote != 0:
        gpu.fence_sys()
    else:
        gpu.fence_gpu()
    gpu.count_gpu(_row(ctx) + grid.ARRIVED, 1)


def _make_share(name: str, execute: Callable) -> Callable:
    @device
    def share(ctx, kind, a, b, c, d, e):
        """Has all blocks do a job, its own part included; the leader. 1 where it was aborted, else
        0.

        When it returns, all is done, and the calling block may say so to others.
        """
        gpu.sync_block()
        if gpu.thread_rank() == 0:
            _command(ctx, kind, a, b, c, d, e, 0)
        failed = gpu.sync_block_or(execute(ctx, kind, a, b, c, d, e))
        aborted = 0
        if gpu.thread_rank() == 0:
            while _have_arrived(ctx, _LOOKS) == 0:
                gpu.pause(40)
            aborted = gpu.load_gpu(_row(ctx) + grid.FAILED)
        aborted = gpu.broadcast_block(aborted)
        gpu.sync_block()
        return 1 if failed or aborted != 0 else 0

    return linked(name, 9, 1, share)  # type: ignore[no-any-return]


share = _make_share("gmpi_grid_share", execute)
share_transfer = _make_share("gmpi_grid_share_transfer", transfer)


def make_team(take_slot: Callable) -> SimpleNamespace:
    """What a call of grid scope begins and ends with.

    Args:
        take_slot: of the block scope.
    """

    @device
    def tell(ctx, op, handle):
        """A record about blocks that have not come, or have come at last; the leading warp."""
        arrived = gpu.load_gpu(_row(ctx) + grid.ARRIVED)
        led = 1 if leads() or gpu.load_gpu(_row(ctx) + grid.ENTERED) == _last(ctx) + 1 else 0
        ring.post_about(
            ctx, gpu.lane_id(), warp_lanes(), warp_mask(), op | OP_GRID << 8, arrived + led,
            int64(gpu.grid_blocks()), handle, 0,
        )  # fmt: skip
        return 0

    tell_linked = linked("gmpi_grid_tell", 5, 1, tell)

    @device
    def begin_telling(ctx):
        """Reports that blocks are missing: the handle of the report; all threads of a block."""
        slot = take_slot(ctx, -1, taking.SMALL)
        gpu.sync_block()
        handle = int64(-1)
        if slot >= 0:
            handle = rows.direct_handle(ctx, slot, 0, 0)
            if gpu.thread_rank() < 32:
                tell_linked(ctx, OP_WAITS, handle)
        return handle

    @device
    def end_telling(ctx, handle):
        if handle > 0:
            if gpu.thread_rank() < 32:
                tell_linked(ctx, OP_WAITED, handle)
            gpu.sync_block()
            if gpu.thread_rank() == 0:
                slots.release(ctx, slots.slot_of(handle))
        return 0

    begin_linked = linked("gmpi_grid_begin_telling", 3, 1, begin_telling)
    end_linked = linked("gmpi_grid_end_telling", 4, 1, end_telling)

    @device
    def gather(ctx):
        """Waits for all other blocks; the leader. An error class: then there are no commands."""
        gpu.sync_block()  # what its own threads have stored
        error = 0
        if gpu.thread_rank() == 0:
            gpu.store_gpu(_row(ctx) + grid.FAILED, 0)
            before = gpu.load_gpu(_row(ctx) + grid.ENTERED)
            if (
                gpu.cas_gpu(_row(ctx) + grid.ENTERED, before, max(before, _last(ctx) + 1))
                == grid.GAVE_UP
            ):
                error = gpu.load_sys(ctx.mapped + CONTROL_ABORT) & 0xFF
        began = 0
        there = 0
        handle = 0
        error = gpu.broadcast_block(error)
        gpu.sync_block()
        while there == 0 and error == 0:
            late = 0
            if gpu.thread_rank() == 0:
                there = _have_arrived(ctx, _LOOKS)
                if there == 0:
                    late, error, began = pacing.long_wait_at_host(ctx, began)
            there, error, late = gpu.broadcast_block_3(there, error, late)
            gpu.sync_block()
            if late != 0 and handle == 0 and error == 0:
                handle = begin_linked(ctx)
        if handle != 0:
            end_linked(ctx, handle)
        if error != 0 and gpu.thread_rank() == 0:
            gpu.fence_gpu()  # the result of the last call comes first
            gpu.store_gpu(_row(ctx) + grid.ENTERED, grid.GAVE_UP)
        return error

    @device
    def release(ctx, a, b, c, d, e, f):
        """All blocks return from the call, with a result; the leader."""
        gpu.sync_block()
        if gpu.thread_rank() == 0:
            _command(ctx, grid.RESULT, a, b, c, d, e, f)
        return 0

    @device
    def give_up(ctx, first, number, began, telling):
        """(error class with which a wait ends, or 0; when it began; whether to report that the
        leader is missing); one thread that has waited for some time.

        Args:
            first: number of the last command when its block came.
            number: of the last command that it has seen.
        """
        late, error, began = pacing.long_wait_at_host(ctx, began)
        entered = gpu.load_gpu(_row(ctx) + grid.ENTERED)
        tells = 0
        if entered <= first:
            if error != 0:
                if gpu.cas_gpu(_row(ctx) + grid.ENTERED, entered, grid.GAVE_UP) != entered:
                    error = 0  # the leader comes just now, or others give up
            elif late != 0 and telling == 0:
                tells = 1 if gpu.cas_gpu(_row(ctx) + grid.TELLER, 0, 1) == 0 else 0
        elif entered != grid.GAVE_UP:
            error = 0  # it will say so itself
        else:
            gpu.fence_gpu()
            if _last(ctx) != number:
                error = 0  # that was in a later call: a command has come
        return error, began, tells

    @device
    def serve(ctx, what):
        """Does the leader's jobs until there is a result, which it returns; any other block.

        Args:
            what: HANDLE or ERROR: what the first word of a result is.
        """
        number = int64(0)
        if gpu.thread_rank() < 32:  # before it arrives: then there may be the next one
            number = _last(ctx)
        gpu.sync_block()  # what its own threads have stored
        if gpu.thread_rank() == 0:
            _arrive(ctx, 0, 0)
        first = number
        began = 0
        handle = 0
        error = 0
        while error == 0:
            there = 0
            late = 0
            if gpu.thread_rank() < 32:
                there = _read(ctx, number, _LOOKS)
                if gpu.thread_rank() == 0 and there == 0:
                    error, began, late = give_up(ctx, first, number, began, handle)
            there, error, late = gpu.broadcast_block_3(there, error, late)
            kind = _word(0)
            a, b, c, d, e, f = _word(1), _word(2), _word(3), _word(4), _word(5), _word(6)
            gpu.sync_block()
            if handle != 0 and (there != 0 or error != 0):
                end_linked(ctx, handle)
                handle = 0
                if gpu.thread_rank() == 0:
                    gpu.store_gpu(_row(ctx) + grid.TELLER, 0)
            if late != 0:
                handle = begin_linked(ctx)
            if there != 0:
                if kind == grid.RESULT:
                    return a, b, c, d, e, f
                number += 1
                failed = gpu.sync_block_or(execute_any(ctx, kind, a, b, c, d, e))
                if gpu.thread_rank() == 0:
                    remote = kind == grid.PUSH or kind == grid.COLLECT or kind == grid.TRANSFER
                    _arrive(ctx, 1 if failed else 0, 1 if remote else 0)
        word = slots.error_handle(error) if what == HANDLE else error
        return word, -1, -1, 0, 0, 0

    return SimpleNamespace(
        gather=linked("gmpi_grid_gather", 3, 1, gather),
        release=linked("gmpi_grid_release", 9, 1, release),
        serve=linked("gmpi_grid_serve", 4, 6, serve),
    )


def make_block_team(help_others: Callable) -> SimpleNamespace:
    """``make_team`` with what the block scope has.

    Args:
        help_others: executes commands of the proxied road.
    """
    return make_team(taking.make_take_slot(BLOCK, help_others))
