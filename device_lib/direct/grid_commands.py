"""What the leading block of a grid tells the others, and how it has them move bytes.

See ``gmpi/contract/grid.py``; how calls begin and end is in ``grid_team``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct.grid_jobs import execute, transfer
from device_lib.platform import primitives as gpu
from device_lib.platform.context import leads_grid
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from gmpi.contract import grid
from gmpi.contract.wire import DEVICE_GRID, LOW_32, PACKET_BYTES

LOOKS = 2 if gpu.SIMULATOR else 2048  # of one warp, before it looks whether to go on waiting
NOT_YET = -1
_AT_ONCE = 1 if gpu.SIMULATOR else 256  # of these, without a pause
_LEAST_OTHERS = 1 if gpu.SIMULATOR else 7  # blocks, without the leader, to move a message alone


@device
def row_of(ctx):
    return ctx.device + DEVICE_GRID


@device
def last_command(ctx):
    """The number of the last command (any thread)."""
    low, number = gpu.read_packet(row_of(ctx) + grid.COMMAND)
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
def have_arrived(ctx, looks):
    """How many of the other blocks have not done their part of a job, if all wait for a command:
    then what they have stored is there; else NOT_YET. One thread of the leader."""
    at = row_of(ctx) + grid.ARRIVED
    looked = 1
    arrived = gpu.acquire_gpu(at)
    while arrived & LOW_32 != _others():
        if looked >= looks:
            return NOT_YET
        if looked >= _AT_ONCE:
            gpu.pause(40)
        looked += 1
        arrived = gpu.acquire_gpu(at)
    gpu.store_gpu(at, 0)  # nobody arrives again before the next command
    return arrived >> grid.FAILED_SHIFT


@device
def note_command(number):
    """Keeps the number of the last command for the block's next one, in this call; where the grid
    has given up, the error class in its place, negative. One lane; others read it after a
    barrier."""
    gpu.put_block_note(gpu.COMMAND_NOTE, number)


@device
def noted_command():
    return gpu.get_block_note(gpu.COMMAND_NOTE)


@device
def write_command(ctx, kind, a, b, c, d, e, f):
    """``give_command`` where the block's threads have stored nothing for the others since its
    leading warp had a fence: in a call that began with ``gather_beside``."""
    number = noted_command() + 1
    if number <= 0:
        return 0
    lanes = warp_lanes()
    word = gpu.lane_id()
    while word < grid.WORDS:
        value = kind if word == 0 else a if word == 1 else b if word == 2 else c
        if word > 3:
            value = d if word == 4 else e if word == 5 else f
        gpu.write_packet(row_of(ctx) + grid.COMMAND + word * PACKET_BYTES, value, number)
        word += gpu.opaque(lanes)
    gpu.sync_warp(warp_mask())  # all have read the note
    if gpu.lane_id() == 0:
        note_command(number)
    return 0


@device
def give_command(ctx, kind, a, b, c, d, e, f):
    """Tells all other blocks what to do, unless the grid has given up; the leading warp, after a
    barrier. Each lane stores a packet, all of one line."""
    gpu.fence_gpu()
    return write_command(ctx, kind, a, b, c, d, e, f)


@device
def read_command(ctx, number, looks):
    """1 where the command after ``number`` has come, whose words are in the block's rows then, else
    0; the leading warp. What was stored before the command is there.

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
            low, found = gpu.acquire_packet_gpu(row_of(ctx) + grid.COMMAND + word * PACKET_BYTES)
            differ |= found ^ wanted
            gpu.put_block_row(word, low, 0, 0)
            word += gpu.opaque(lanes)
        if gpu.ballot(mask, differ != 0) == 0:
            there = 1
            if lane == 0:
                note_command(wanted)
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
def put_words(kind, a, b, c):
    """A command that nobody has given, for the threads of the block; one thread."""
    gpu.put_block_row(0, kind, 0, 0)
    gpu.put_block_row(1, a, 0, 0)
    gpu.put_block_row(2, b, 0, 0)
    gpu.put_block_row(3, c, 0, 0)
    gpu.put_block_row(4, 0, 0, 0)
    gpu.put_block_row(5, 0, 0, 0)
    gpu.put_block_row(6, 0, 0, 0)


@device
def words():
    """The command that has come: its kind, and what it is about; after a barrier."""
    return _word(0), _word(1), _word(2), _word(3), _word(4), _word(5), _word(6)


@device
def await_blocks(ctx):
    """Waits until all other blocks have done a job: 1 where one's part has ended with an abort, or
    the grid has given up, else 0; the leading warp of the leader."""
    failed = int64(NOT_YET)
    if gpu.lane_id() == 0:  # who has noted the number
        if noted_command() < 0:
            failed = int64(1)
        while failed == NOT_YET:
            failed = have_arrived(ctx, LOOKS)
    return min(gpu.shuffle(warp_mask(), failed, 0), 1)


@device
def arrive(ctx, failed):
    """The calling block waits for the next command; one thread, after a barrier.

    What its threads have stored before, to memory of other GPUs, too, comes before what the leader
    stores when it has seen this: a fence of this GPU is enough here, if the leader has one of the
    system before it tells another rank.

    Args:
        failed: 1 after a job that has ended with an abort, else 0.
    """
    gpu.fence_gpu()
    gpu.count_gpu(row_of(ctx) + grid.ARRIVED, 1 | int64(failed) << grid.FAILED_SHIFT)


def _make_share(name: str, execute: Callable) -> Callable:
    @device
    def share(ctx, kind, a, b, c, d, e):
        """Has all blocks do a job, its own part included; the leader. 1 where it was aborted, else
        0.

        When it returns, all is done, and the calling block may say so to others.
        """
        gpu.sync_block()
        if gpu.thread_rank() < 32:
            give_command(ctx, kind, a, b, c, d, e, 0)
        failed = 1 if gpu.sync_block_or(execute(ctx, kind, a, b, c, d, e)) else 0
        if gpu.thread_rank() < 32:
            failed |= await_blocks(ctx)
        return 1 if gpu.sync_block_or(failed) else 0

    return linked(name, 9, 1, share)  # type: ignore[no-any-return]


@device
def _store_straight(ctx, place, address, nbytes):
    write_command(ctx, grid.STRAIGHT, place, address, nbytes, 0, 0, 0)
    return await_blocks(ctx)


# 1 where waits were aborted before, else 0: has the other blocks store a long message to the user's
# buffer on another rank, at ``place``. The leading warp of the leader, after a barrier, in a call
# that began with ``gather_beside``, as all calls do that send.
store_straight = linked("gmpi_grid_store_straight", 6, 1, _store_straight)


@device
def others_move(ctx):
    """Whether the other blocks of a grid are enough to move a long message alone."""
    return leads_grid(ctx) != 0 and gpu.grid_blocks() > _LEAST_OTHERS


share = _make_share("gmpi_grid_share", execute)
share_transfer = _make_share("gmpi_grid_share_transfer", transfer)
