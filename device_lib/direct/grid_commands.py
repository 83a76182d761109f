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
from gmpi.contract.wire import DEVICE_GRID, PACKET_BYTES

LOOKS = 2 if gpu.SIMULATOR else 2048  # of one warp, before it looks whether to go on waiting
_AT_ONCE = 1 if gpu.SIMULATOR else 256  # of these, without a pause


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
    """Whether all other blocks wait for a command; one thread of the leader."""
    at = row_of(ctx) + grid.ARRIVED
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
def give_command(ctx, kind, a, b, c, d, e, f):
    """Tells all other blocks what to do; the leading warp, after a barrier. Each lane stores a
    packet, all of one line."""
    number = last_command(ctx) + 1  # under way before the fence
    gpu.fence_gpu()
    number = gpu.shuffle(warp_mask(), number, 0)  # before any lane has stored the next one
    lanes = warp_lanes()
    word = gpu.lane_id()
    while word < grid.WORDS:
        value = kind if word == 0 else a if word == 1 else b if word == 2 else c
        if word > 3:
            value = d if word == 4 else e if word == 5 else f
        gpu.write_packet(row_of(ctx) + grid.COMMAND + word * PACKET_BYTES, value, number)
        word += gpu.opaque(lanes)
    return 0


@device
def read_command(ctx, number, looks):
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
            low, found = gpu.read_packet(row_of(ctx) + grid.COMMAND + word * PACKET_BYTES)
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
    """Waits until all other blocks have done a job: whether one's part has ended with an abort; one
    thread of the leader."""
    while have_arrived(ctx, LOOKS) == 0:
        gpu.pause(40)
    return gpu.load_gpu(row_of(ctx) + grid.FAILED)


@device
def arrive(ctx, failed, remote):
    """The calling block waits for the next command; one thread, after a barrier.

    Args:
        failed: whether a job has ended with an abort.
        remote: whether its threads have stored to other GPUs.
    """
    if failed != 0:
        gpu.store_gpu(row_of(ctx) + grid.FAILED, 1)
    if remote != 0:
        gpu.fence_sys()
    else:
        gpu.fence_gpu()
    gpu.count_gpu(row_of(ctx) + grid.ARRIVED, 1)


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
        failed = gpu.sync_block_or(execute(ctx, kind, a, b, c, d, e))
        aborted = 0
        if gpu.thread_rank() == 0:
            aborted = await_blocks(ctx)
        aborted = gpu.broadcast_block(aborted)
        gpu.sync_block()
        return 1 if failed or aborted != 0 else 0

    return linked(name, 9, 1, share)  # type: ignore[no-any-return]


share = _make_share("gmpi_grid_share", execute)
share_transfer = _make_share("gmpi_grid_share_transfer", transfer)
