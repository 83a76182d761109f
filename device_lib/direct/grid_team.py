"""How the blocks of a grid meet in a call, and how all return its result.

See ``gmpi/contract/grid.py``. All threads of a block call these together. What most calls need is
done by the leading warp, in functions of its own, while the others wait at barriers of the user's
kernel: a function that all call saves registers of each thread, and when all called these a call
took 2 to 3 times as long with 1024 threads.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import rows
from device_lib.direct.grid_commands import (
    LOOKS,
    arrive,
    give_command,
    have_arrived,
    last_command,
    leads,
    put_words,
    read_command,
    row_of,
    words,
)
from device_lib.direct.grid_jobs import execute_any
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import BLOCK, warp_lanes, warp_mask
from device_lib.proxied import pacing, ring, slots, taking
from gmpi.contract import grid
from gmpi.contract.wire import CONTROL_ABORT, OP_GRID, OP_WAITED, OP_WAITS

HANDLE = 1  # what the first word of a result is: a request
ERROR = 0  # an error class

_LATE = -1  # in place of an error class: others are to be told that blocks are missing
_TELL = -1  # in place of a command: the same of the leader


def make_team(take_slot: Callable) -> SimpleNamespace:
    """What a call of grid scope begins and ends with.

    Args:
        take_slot: of the block scope.
    """

    @device
    def tell(ctx, op, handle):
        """A record about blocks that have not come, or have come at last; the leading warp."""
        arrived = gpu.load_gpu(row_of(ctx) + grid.ARRIVED)
        led = (
            1 if leads() or gpu.load_gpu(row_of(ctx) + grid.ENTERED) == last_command(ctx) + 1 else 0
        )
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
    def await_others(ctx, began, telling):
        """(0, an error class, or _LATE; when the wait began): for all other blocks; one thread.

        Args:
            began: 0: now.
            telling: whether it has been reported that blocks are missing.
        """
        there = 0
        error = 0
        late = 0
        while there == 0 and error == 0 and late == 0:
            there = have_arrived(ctx, LOOKS)
            if there == 0:
                late, error, began = pacing.long_wait_at_host(ctx, began)
                if telling != 0:
                    late = 0
        if error != 0:
            gpu.fence_gpu()  # the result of the last call comes first
            gpu.store_gpu(row_of(ctx) + grid.ENTERED, grid.GAVE_UP)
        elif there == 0:
            error = _LATE
        return error, began

    @device
    def gather_first(ctx):
        """The same, at the beginning of a call; the leading warp, whose first lane knows."""
        error = 0
        began = 0
        if gpu.thread_rank() == 0:
            gpu.store_gpu(row_of(ctx) + grid.FAILED, 0)
            before = gpu.load_gpu(row_of(ctx) + grid.ENTERED)
            if (
                gpu.cas_gpu(row_of(ctx) + grid.ENTERED, before, max(before, last_command(ctx) + 1))
                == grid.GAVE_UP
            ):
                error = gpu.load_sys(ctx.mapped + CONTROL_ABORT) & 0xFF
            if error == 0:
                error, began = await_others(ctx, 0, 0)
        return error, began

    @device
    def gather_late(ctx, began):
        """``gather`` when it takes long; all threads."""
        error = 0
        handle = begin_linked(ctx)
        if gpu.thread_rank() == 0:
            error, began = await_others(ctx, began, 1)
        error = gpu.broadcast_block(error)
        gpu.sync_block()
        end_linked(ctx, handle)
        return error

    gather_first_linked = linked("gmpi_grid_gather", 3, 2, gather_first)
    gather_late_linked = linked("gmpi_grid_gather_late", 4, 1, gather_late)

    @device
    def gather(ctx):
        """Waits for all other blocks; the leader. An error class: then there are no commands."""
        gpu.sync_block()  # what its own threads have stored
        error = 0
        began = 0
        if gpu.thread_rank() < 32:
            error, began = gather_first_linked(ctx)
        error = gpu.broadcast_block(error)
        gpu.sync_block()
        if error == _LATE:
            error = gather_late_linked(ctx, began)
        return error

    command_linked = linked("gmpi_grid_command", 10, 1, give_command)

    @device
    def release(ctx, a, b, c, d, e, f):
        """All blocks return from the call, with a result; the leader."""
        gpu.sync_block()
        if gpu.thread_rank() < 32:
            command_linked(ctx, grid.RESULT, a, b, c, d, e, f)
        return 0

    @device
    def give_up(ctx, first, number, began, telling):
        """(error class with which a wait ends, or 0; when it began; whether to report that the
        leader is missing); one thread that has waited for some time.

        Args:
            first: number of the last command when its block came; -1: the leader has come since.
            number: of the last command that it has seen.
        """
        late, error, began = pacing.long_wait_at_host(ctx, began)
        entered = gpu.load_gpu(row_of(ctx) + grid.ENTERED)
        tells = 0
        if entered <= first:
            if error != 0:
                if gpu.cas_gpu(row_of(ctx) + grid.ENTERED, entered, grid.GAVE_UP) != entered:
                    error = 0  # the leader comes just now, or others give up
            elif late != 0 and telling == 0:
                tells = 1 if gpu.cas_gpu(row_of(ctx) + grid.TELLER, 0, 1) == 0 else 0
        elif entered != grid.GAVE_UP:
            error = 0  # it will say so itself
        else:
            gpu.fence_gpu()
            if last_command(ctx) != number:
                error = 0  # that was in a later call: a command has come
        return error, began, tells

    @device
    def await_command(ctx, what, first, number, began, telling):
        """Waits until the command after ``number`` has come; the leading warp. In the block's rows
        is then a command, which may be one that nobody has given: a RESULT where the wait has ended
        with an error, or _TELL, with ``number`` and when the wait began.

        Args:
            what: HANDLE or ERROR: what the first word of a result is.
            first, number, began, telling: as of ``give_up``.
        """
        mask = warp_mask()
        there = 0
        ends = 0
        while there == 0 and ends == 0:
            there = read_command(ctx, number, LOOKS)
            if there == 0:
                error = 0
                tells = 0
                if gpu.thread_rank() == 0:
                    error, began, tells = give_up(ctx, first, number, began, telling)
                    if error != 0:
                        word = slots.error_handle(error) if what == HANDLE else error
                        put_words(grid.RESULT, word, -1, -1)
                    elif tells != 0:
                        put_words(_TELL, number, began, 0)
                ends = gpu.shuffle(mask, error | tells, 0)
        return 0

    @device
    def serve_next(ctx, what, first, failed, remote):
        """Arrives, and waits for the next command; the leading warp.

        Args:
            first: whether it is the first one of the call.
            failed, remote: as of ``arrive``.
        """
        number = last_command(ctx)  # before it arrives: then there may be the next one
        if gpu.thread_rank() == 0:
            arrive(ctx, failed, remote)
        number = gpu.shuffle(warp_mask(), number, 0)
        return await_command(ctx, what, number if first != 0 else -1, number, 0, 0)

    @device
    def serve_late(ctx, what, number, began):
        """Reports that the leader is missing, and waits for the first command all the same; all
        threads."""
        handle = begin_linked(ctx)
        if gpu.thread_rank() < 32:
            await_command(ctx, what, number, number, began, handle)
        gpu.sync_block()
        kind, a, b, c, d, e, f = words()
        gpu.sync_block()
        end_linked(ctx, handle)
        if gpu.thread_rank() == 0:
            gpu.store_gpu(row_of(ctx) + grid.TELLER, 0)
        return kind, a, b, c, d, e, f

    serve_next_linked = linked("gmpi_grid_serve_next", 7, 1, serve_next)
    serve_late_linked = linked("gmpi_grid_serve_late", 6, 7, serve_late)

    @device
    def do_jobs(ctx, what, kind, a, b, c, d, e):
        """The rest of ``serve``, from a job on; all threads."""
        f = int64(0)
        while kind != grid.RESULT:
            failed = gpu.sync_block_or(execute_any(ctx, kind, a, b, c, d, e))
            if gpu.thread_rank() < 32:
                remote = kind == grid.PUSH or kind == grid.COLLECT or kind == grid.TRANSFER
                serve_next_linked(ctx, what, 0, 1 if failed else 0, 1 if remote else 0)
            gpu.sync_block()
            kind, a, b, c, d, e, f = words()
            gpu.sync_block()
        return a, b, c, d, e, f

    do_jobs_linked = linked("gmpi_grid_do_jobs", 10, 6, do_jobs)

    @device
    def serve(ctx, what):
        """Does the leader's jobs until there is a result, which it returns; any other block.

        Args:
            what: HANDLE or ERROR: what the first word of a result is.
        """
        gpu.sync_block()  # what its own threads have stored
        if gpu.thread_rank() < 32:
            serve_next_linked(ctx, what, 1, 0, 0)
        gpu.sync_block()
        kind, a, b, c, d, e, f = words()
        gpu.sync_block()
        if kind == _TELL:
            kind, a, b, c, d, e, f = serve_late_linked(ctx, what, a, b)
        if kind != grid.RESULT:
            a, b, c, d, e, f = do_jobs_linked(ctx, what, kind, a, b, c, d, e)
        return a, b, c, d, e, f

    return SimpleNamespace(gather=gather, release=release, serve=serve)


def make_block_team(help_others: Callable) -> SimpleNamespace:
    """``make_team`` with what the block scope has.

    Args:
        help_others: executes commands of the proxied road.
    """
    return make_team(taking.make_take_slot(BLOCK, help_others))
