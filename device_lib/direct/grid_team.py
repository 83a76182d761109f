"""How the blocks of a grid come to a call, and wait for each other in it.

See ``gmpi/contract/grid.py``. All threads of a block call these together.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import grid_steps as steps
from device_lib.direct import rows
from device_lib.direct.grid_jobs import execute_any
from device_lib.direct.grid_steps import leads, row_of_grid
from device_lib.platform.library import linked
from device_lib.platform.primitives import (
    broadcast_block_3,
    cas_gpu,
    count_gpu,
    device,
    fence_gpu,
    grid_blocks,
    int64,
    lane_id,
    load_8,
    load_gpu,
    opaque,
    pause,
    read_packet,
    store_8,
    store_gpu,
    sync_block,
    sync_block_or,
    thread_rank,
    timer_ns,
    write_packet,
)
from device_lib.platform.scope import BLOCK, warp_lanes, warp_mask
from device_lib.proxied import ring, slots, taking
from gmpi.contract.constants import ERR_OTHER, SUCCESS
from gmpi.contract.grid import (
    COLLECT,
    COME,
    ENTERED,
    GAVE_UP,
    MEETING,
    MOST,
    MOST_BLOCKS,
    PUSH,
    RESULT,
    TELLER,
    TRANSFER,
)
from gmpi.contract.wire import OP_GRID, OP_WAITED, OP_WAITS

HANDLE = 1  # what the first word of a result is: a request
ERROR = 0  # an error class
_MEETING = 0  # in place of a step: the meeting before the first call of a launch


def make_awaiting(take_slot: Callable) -> SimpleNamespace:
    """How the leader waits for others, and how blocks report that some have not come.

    Args:
        take_slot: of the block scope.
    """

    @device
    def tell(ctx, op, handle, step):
        """A record about blocks that have not come to a step, or have at last; the leading warp."""
        come = load_gpu(row_of_grid(ctx) + COME)
        led = leads()
        if step != _MEETING:
            come = steps.how_many(ctx, step)
            led = led or load_gpu(row_of_grid(ctx) + ENTERED) >= step
        ring.post_about(
            ctx, lane_id(), warp_lanes(), warp_mask(), op | OP_GRID << 8, come + (1 if led else 0),
            int64(grid_blocks()), handle, 0,
        )  # fmt: skip
        return 0

    tell_linked = linked("gmpi_grid_tell", 6, 1, tell)

    @device
    def begin_telling(ctx, step):
        """Reports that blocks are missing: the handle of the report; all threads of a block."""
        slot = take_slot(ctx, -1, taking.SMALL)
        sync_block()
        handle = int64(-1)
        if slot >= 0:
            handle = rows.direct_handle(ctx, slot, 0, False)
            if thread_rank() < 32:
                tell_linked(ctx, OP_WAITS, handle, step)
        return handle

    @device
    def end_telling(ctx, handle, step):
        if handle > 0:
            if thread_rank() < 32:
                tell_linked(ctx, OP_WAITED, handle, step)
            sync_block()
            if thread_rank() == 0:
                slots.release(ctx, slots.slot_of(handle))
        return 0

    begin_linked = linked("gmpi_grid_begin_telling", 4, 1, begin_telling)
    end_linked = linked("gmpi_grid_end_telling", 5, 1, end_telling)

    @device
    def absent(ctx, step):
        """Whether some have not come to a step, or to the meeting; all threads of the leader."""
        lacks = 0
        if step != _MEETING:
            lacks = steps.missing(ctx, step, steps.LOOKS)
        elif thread_rank() == 0:
            others = int64(grid_blocks()) - 1
            looked = 0
            while load_gpu(row_of_grid(ctx) + COME) != others and looked < steps.LOOKS:
                looked += 1
                pause(40)
            fence_gpu()
            lacks = 1 if looked >= steps.LOOKS else 0
        return sync_block_or(lacks)

    @device
    def await_all(ctx, step):
        """Waits until all have come to a step, or to the meeting: an error class; the leader."""
        error = SUCCESS
        began = 0
        handle = 0
        while error == SUCCESS and absent(ctx, step):
            late = 0
            if thread_rank() == 0:
                now = timer_ns()
                began = now if began == 0 else began
                late = 1 if now - began > rows.LATE_NS else 0
                error = steps.abort_of(ctx)
            error, late, unused = broadcast_block_3(error, late, 0)
            sync_block()
            if late != 0 and handle == 0 and error == SUCCESS:
                handle = begin_linked(ctx, step)
        if handle != 0:
            end_linked(ctx, handle, step)
        return error

    return SimpleNamespace(
        await_all=linked("gmpi_grid_await_all", 4, 1, await_all),
        begin_telling=begin_linked,
        end_telling=end_linked,
    )


def make_team(awaiting: SimpleNamespace) -> SimpleNamespace:
    """What a call of grid scope begins and ends with.

    Args:
        awaiting: what ``make_awaiting`` has returned.
    """
    await_all = awaiting.await_all
    begin_linked, end_linked = awaiting.begin_telling, awaiting.end_telling

    @device
    def give_up(ctx, first, at, wanted, began, telling):
        """(error class with which a wait ends, or 0; when it began; whether to report that the
        leader is missing); one thread that has waited for some time.

        Args:
            first: step of the call.
            at, wanted: packet that is waited for, and its number.
        """
        now = timer_ns()
        began = now if began == 0 else began
        error = steps.abort_of(ctx)
        entered = load_gpu(row_of_grid(ctx) + ENTERED)
        late = 0
        if entered < first:
            if error != 0:
                if cas_gpu(row_of_grid(ctx) + ENTERED, entered, GAVE_UP) != entered:
                    error = 0  # the leader comes just now, or others give up
            elif now - began > rows.LATE_NS and telling == 0:
                late = 1 if cas_gpu(row_of_grid(ctx) + TELLER, 0, 1) == 0 else 0
        elif entered < GAVE_UP:
            error = 0  # it will say so itself
        else:
            fence_gpu()
            low, number = read_packet(at)
            if number == wanted:
                error = 0  # it has come before
        return error, began, late

    @device
    def go_on_telling(ctx, handle, late, over, step):
        """The handle of a report that the leader is missing: 0, none. All threads of a block.

        Args:
            late: whether to begin one.
            over: whether to end it.
        """
        if handle != 0 and over:
            end_linked(ctx, handle, step)
            handle = 0
            if thread_rank() == 0:
                store_gpu(row_of_grid(ctx) + TELLER, 0)
        if late != 0:
            handle = begin_linked(ctx, step)
        return handle

    @device
    def follow(ctx):
        """Comes to the meeting, and waits for the leader: an error class; any other block."""
        at = row_of_grid(ctx) + MEETING
        number = int64(0)
        first = int64(0)
        if thread_rank() == 0:
            low, number = read_packet(at)
            first = load_gpu(row_of_grid(ctx) + ENTERED) + 1
            fence_gpu()
            count_gpu(row_of_grid(ctx) + COME, 1)
        error = SUCCESS
        began = 0
        handle = 0
        there = 0
        while there == 0 and error == SUCCESS:
            late = 0
            if thread_rank() == 0:
                looked = 0
                while there == 0 and looked < steps.LOOKS:
                    step, found = read_packet(at)
                    looked += 1
                    if found == number + 1:
                        fence_gpu()
                        steps.come_to(ctx, step)
                        there = 1
                    else:
                        pause(40)
                if there == 0:
                    error, began, late = give_up(ctx, first, at, number + 1, began, handle)
            there, error, late = broadcast_block_3(there, error, late)
            sync_block()
            handle = go_on_telling(ctx, handle, late, there != 0 or error != 0, _MEETING)
        return error

    @device
    def meet(ctx):
        """Before the first call of a launch of another number of blocks: an error class."""
        if int64(grid_blocks()) > MOST_BLOCKS:
            return ERR_OTHER
        if not leads():
            return follow(ctx)
        error = await_all(ctx, _MEETING)
        if thread_rank() == 0:
            if error != SUCCESS:
                steps.quit_calls(ctx)
            else:
                at = row_of_grid(ctx)
                blocks = int64(grid_blocks())
                store_gpu(at + COME, 0)  # nobody comes again before the next meeting
                block = blocks
                while block < load_8(at + MOST):  # who is not here meets the others next time
                    store_gpu(steps.word_of(ctx, block), 0)
                    block += opaque(1)
                store_8(at + MOST, max(blocks, load_8(at + MOST)))
                step = steps.own_step(ctx)
                steps.come_to(ctx, step)
                low, number = read_packet(at + MEETING)
                fence_gpu()
                write_packet(at + MEETING, step, number + 1)
        sync_block()
        return error

    meet_linked = linked("gmpi_grid_meet", 3, 1, meet)

    @device
    def begin(ctx):
        """Each block, before anything else: an error class."""
        sync_block()  # what its own threads have stored, their last step included
        if not steps.knows_step(ctx):
            return meet_linked(ctx)
        return SUCCESS

    @device
    def lead(ctx, opens, gathers):
        """Begins a call; the leader. An error class: then there are no commands.

        Args:
            opens: whether the others do not wait.
            gathers: whether it takes what others have stored before.
        """
        error = begin(ctx)
        step = steps.own_step(ctx) + 1
        if error == SUCCESS and steps.has_quit(ctx):
            error = steps.abort_of(ctx)
        entered = SUCCESS
        if error == SUCCESS and thread_rank() == 0 and opens == 0:
            entered = steps.enter(ctx, step)
        if error == SUCCESS and gathers != 0:
            error = await_all(ctx, step)
            if thread_rank() == 0:
                if error == SUCCESS:
                    steps.all_know(ctx, step)
                else:
                    steps.quit_calls(ctx)
        error, entered, unused = broadcast_block_3(error, entered, 0)
        sync_block()
        return entered if entered != SUCCESS else error

    @device
    def release(ctx, a, b, c, d, e, f):
        """All blocks return from the call, with a result; the leader. An error class: then they do
        so without."""
        sync_block()
        oldest = steps.oldest_step(ctx)
        error = SUCCESS
        if steps.known_step(ctx) < oldest:
            error = await_all(ctx, oldest)
        sync_block()
        if thread_rank() == 0:
            if error == SUCCESS:
                steps.all_know(ctx, max(oldest, steps.known_step(ctx)))
                steps.command(ctx, RESULT, a, b, c, d, e, f)
            else:
                steps.quit_calls(ctx)
        return error

    @device
    def come(ctx, opens):
        """(error class, step); any other block, which goes on at once.

        Args:
            opens: whether it returns from the call without a result.
        """
        error = begin(ctx)
        step = steps.own_step(ctx) + 1
        if thread_rank() == 0:
            steps.leave(ctx, step if opens != 0 else 0)
        sync_block()  # all have read it
        if error == SUCCESS and thread_rank() == 0:
            steps.arrive(ctx, step, 0, 0)
        return error, step

    @device
    def serve(ctx, what):
        """Does the leader's jobs until there is a result, which it returns; any other block.

        Args:
            what: HANDLE or ERROR: what the first word of a result is.
        """
        error, step = come(ctx, 0)
        first = step
        began = 0
        handle = 0
        while error == SUCCESS:
            there = 0
            late = 0
            if thread_rank() < 32:
                there = steps.read_command(ctx, step, steps.LOOKS)
                if thread_rank() == 0 and there == 0:
                    at = steps.command_at(ctx, step)
                    error, began, late = give_up(ctx, first, at, step, began, handle)
            there, error, late = broadcast_block_3(there, error, late)
            kind = steps.word_of_command(0)
            a, b, c = (
                steps.word_of_command(1), steps.word_of_command(2), steps.word_of_command(3)
            )  # fmt: skip
            d, e, f = (
                steps.word_of_command(4), steps.word_of_command(5), steps.word_of_command(6)
            )  # fmt: skip
            sync_block()
            handle = go_on_telling(ctx, handle, late, there != 0 or error != 0, first)
            if there != 0:
                if kind == RESULT:
                    return a, b, c, d, e, f
                step += 1
                failed = sync_block_or(execute_any(ctx, kind, a, b, c, d, e))
                if thread_rank() == 0:
                    remote = kind == PUSH or kind == COLLECT or kind == TRANSFER
                    steps.arrive(ctx, step, 1 if failed else 0, 1 if remote else 0)
        word = slots.error_handle(error) if what == HANDLE else error
        return word, -1, -1, 0, 0, 0

    return SimpleNamespace(
        lead=linked("gmpi_grid_lead", 5, 1, lead),
        release=linked("gmpi_grid_release", 9, 1, release),
        come=linked("gmpi_grid_come", 4, 2, come),
        serve=linked("gmpi_grid_serve", 4, 6, serve),
    )


def make_block_team(help_others: Callable) -> SimpleNamespace:
    """``make_team`` with what the block scope has.

    Args:
        help_others: executes commands of the proxied road.
    """
    return make_team(make_awaiting(taking.make_take_slot(BLOCK, help_others)))
