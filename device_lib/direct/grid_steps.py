"""Steps and commands of a grid: see ``gmpi/contract/grid.py``. Nothing here waits for ever.

"All threads" are those of a block.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform.library import linked
from device_lib.platform.primitives import (
    SIMULATOR,
    add_gpu,
    ballot,
    block_id,
    block_threads,
    device,
    fence_gpu,
    fence_sys,
    get_block_row,
    grid_blocks,
    int64,
    lane_id,
    load_8,
    load_gpu,
    load_sys,
    opaque,
    pause,
    put_block_row,
    read_packet,
    store_8,
    store_gpu,
    thread_rank,
    write_packet,
)
from device_lib.platform.scope import warp_lanes, warp_mask
from gmpi.contract.grid import (
    COMMAND_BYTES,
    ENTERED,
    FAILED,
    GAVE_UP,
    KNOWN,
    LAST,
    LEFT,
    MOST_BLOCKS,
    RING,
    STEP_SHIFT,
    WORD_BYTES,
    WORDS,
    WORDS_AT,
)
from gmpi.contract.wire import CONTROL_ABORT, DEVICE_GRID, PACKET_BYTES

LOOKS = 2 if SIMULATOR else 2048  # of one thread, before all of its block meet
_AT_ONCE = 1 if SIMULATOR else 256  # of these, without a pause


@device
def abort_of(ctx):
    return load_sys(ctx.mapped + CONTROL_ABORT) & 0xFF


@device
def row_of_grid(ctx):
    return ctx.device + DEVICE_GRID


@device
def leads():
    """Whether the calling block is the leader."""
    return block_id() == 0


@device
def word_of(ctx, block):
    """Address of a block's word."""
    return ctx.device + DEVICE_GRID + WORDS_AT + min(block, MOST_BLOCKS - 1) * WORD_BYTES


@device
def own_step(ctx):
    """The last step of the calling block."""
    return load_8(word_of(ctx, int64(block_id()))) >> STEP_SHIFT


@device
def knows_step(ctx):
    """Whether the calling block was in the last launch, of as many blocks."""
    word = load_8(word_of(ctx, int64(block_id())))
    return word & (1 << STEP_SHIFT) - 1 == int64(grid_blocks())


@device
def come_to(ctx, step):
    """Stores the calling block's word; one thread."""
    store_gpu(word_of(ctx, int64(block_id())), step << STEP_SHIFT | int64(grid_blocks()))


@device
def step_left(ctx):
    """The step in which the calling block has left opening a request to the leader; 0: none that is
    not known to be open. Any thread."""
    return load_8(word_of(ctx, int64(block_id())) + LEFT)


@device
def leave(ctx, step):
    """Sets the same; one thread."""
    store_8(word_of(ctx, int64(block_id())) + LEFT, step)


@device
def _await_opened(ctx):
    step = step_left(ctx)
    looked = 0
    error = 0
    while load_gpu(word_of(ctx, int64(0))) >> STEP_SHIFT < step and error == 0:
        looked += 1
        if looked & LOOKS - 1 == 0:
            error = abort_of(ctx)
        pause(40)
    leave(ctx, 0)
    return 0


_await_linked = linked("gmpi_grid_await_opened", 3, 1, _await_opened)


@device
def await_opened(ctx):
    """Before a message of the calling block's own: those of its grid come first; one lane."""
    if step_left(ctx) != 0:
        _await_linked(ctx)


@device
def arrive(ctx, step, failed, remote):
    """The calling block has come to a step; one thread, after a barrier.

    Args:
        failed: whether a job has ended with an abort.
        remote: whether its threads have stored to other GPUs.
    """
    if failed != 0:
        store_gpu(row_of_grid(ctx) + FAILED, 1)
    if remote != 0:
        fence_sys()
    else:
        fence_gpu()
    come_to(ctx, step)


@device
def missing(ctx, step, looks):
    """1 where one of the blocks that the calling thread looks at has not come to a step, else 0;
    all threads of the leader, and a barrier behind it."""
    blocks = int64(grid_blocks())
    wanted = step << STEP_SHIFT | blocks
    first = int64(thread_rank()) + 1
    block = first
    looked = 0
    while block < blocks and looked < looks:
        if load_gpu(word_of(ctx, block)) >= wanted:
            block += int64(block_threads())
        else:
            looked += 1
            if looked >= _AT_ONCE:
                pause(40)
    if first < blocks:
        fence_gpu()
    return 1 if block < blocks else 0


@device
def how_many(ctx, step):
    """How many of the other blocks have come to a step; one thread."""
    blocks = int64(grid_blocks())
    wanted = step << STEP_SHIFT | blocks
    come = 0
    block = int64(1)
    while block < blocks:
        if load_gpu(word_of(ctx, block)) >= wanted:
            come += 1
        block += opaque(1)
    return come


@device
def enter(ctx, step):
    """The leader is in a call from now on, and tells its result: an error class; one thread."""
    at = row_of_grid(ctx)
    before = load_8(at + LAST)
    found = add_gpu(at + ENTERED, step - before)
    store_8(at + LAST, step if found < GAVE_UP else GAVE_UP)
    return abort_of(ctx) if found >= GAVE_UP else 0


@device
def quit_calls(ctx):
    """There are no commands any more; one thread of the leader."""
    fence_gpu()  # the last command comes first
    store_gpu(row_of_grid(ctx) + ENTERED, GAVE_UP)
    store_8(row_of_grid(ctx) + LAST, GAVE_UP)


@device
def has_quit(ctx):
    """Whether the leader knows that there are no commands any more; any of its threads, after a
    barrier."""
    return load_8(row_of_grid(ctx) + LAST) >= GAVE_UP


@device
def all_know(ctx, step):
    """All are known to have come to a step; one thread of the leader."""
    store_8(row_of_grid(ctx) + KNOWN, step)


@device
def oldest_step(ctx):
    """What all must have come to before the next command is written: they have read the one that
    lies in its place."""
    return own_step(ctx) + 1 - RING + 1


@device
def known_step(ctx):
    """A step that all are known to have come to; any thread of the leader, after a barrier."""
    return load_8(row_of_grid(ctx) + KNOWN)


@device
def command(ctx, kind, a, b, c, d, e, f):
    """Tells all other blocks what to do; one thread of the leader, after a barrier."""
    step = own_step(ctx) + 1
    fence_gpu()
    at = command_at(ctx, step)
    write_packet(at, kind, step)
    write_packet(at + PACKET_BYTES, a, step)
    write_packet(at + 2 * PACKET_BYTES, b, step)
    write_packet(at + 3 * PACKET_BYTES, c, step)
    write_packet(at + 4 * PACKET_BYTES, d, step)
    write_packet(at + 5 * PACKET_BYTES, e, step)
    write_packet(at + 6 * PACKET_BYTES, f, step)
    come_to(ctx, step)
    return 0


@device
def command_at(ctx, step):
    return row_of_grid(ctx) + (step & RING - 1) * COMMAND_BYTES


@device
def read_command(ctx, step, looks):
    """1 where the command of a step has come, whose words are in the block's rows then, else 0; the
    leading warp.

    Each lane reads a packet, all of one line: many blocks look at it all the time.
    """
    lanes = warp_lanes()
    mask = warp_mask()
    lane = lane_id()
    looked = 0
    there = 0
    while there == 0 and looked < looks:
        differ = 0
        word = lane
        while word < WORDS:
            low, found = read_packet(command_at(ctx, step) + word * PACKET_BYTES)
            differ |= found ^ step
            put_block_row(word, low, 0, 0)
            word += opaque(lanes)
        if ballot(mask, differ != 0) == 0:
            there = 1
            fence_gpu()
        else:
            looked += 1
            if looked >= _AT_ONCE:
                pause(40)
    return there


@device
def word_of_command(index):
    """A word of the command that has come; after a barrier."""
    low, unused, ignored = get_block_row(index, 0, 0, 0)
    return low
