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
    NOT_YET,
    arrive,
    give_command,
    have_arrived,
    last_command,
    leads,
    note_command,
    noted_command,
    put_words,
    read_command,
    row_of,
    words,
    write_command,
)
from device_lib.direct.grid_jobs import execute_any
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import warp_lanes, warp_mask
from device_lib.proxied import pacing, ring, slots, taking
from gmpi.contract import grid
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import CONTROL_ABORT, LOW_32, OP_GRID, OP_WAITED, OP_WAITS

HANDLE = 1  # what the first word of a result is: a request
ERROR = 0  # an error class

_ALL_HERE = -1  # in place of an error class: all others have come


def make_team() -> SimpleNamespace:
    """What a call of grid scope begins and ends with."""

    @device
    def tell(ctx, op, handle):
        """A record about blocks that have not come, or have come at last; one warp."""
        arrived = gpu.load_gpu(row_of(ctx) + grid.ARRIVED) & LOW_32
        led = (
            1 if leads() or gpu.load_gpu(row_of(ctx) + grid.ENTERED) == last_command(ctx) + 1 else 0
        )
        ring.post_about(
            ctx, gpu.lane_id(), warp_lanes(), warp_mask(), op | OP_GRID << 8, arrived + led,
            int64(gpu.grid_blocks()), handle, 0,
        )  # fmt: skip

    @device
    def begin_telling(ctx):
        """Reports that blocks are missing: the handle of the report; 0: no slot is free now. One
        warp."""
        slot = taking.try_some(ctx, gpu.lane_id(), warp_mask())
        if slot < 0:
            return 0
        handle = rows.direct_handle(ctx, slot, 0, 0)
        tell(ctx, OP_WAITS, handle)
        return handle

    @device
    def end_telling(ctx, handle):
        tell(ctx, OP_WAITED, handle)
        if gpu.lane_id() == 0:
            slots.release(ctx, slots.slot_of(handle))
        return 0

    begin_linked = linked("gmpi_grid_begin_telling", 3, 1, begin_telling)
    end_linked = linked("gmpi_grid_end_telling", 4, 1, end_telling)

    @device
    def gather_late(ctx):
        """0, or an error class: ``gather`` when it takes long; the warp that gathers."""
        mask = warp_mask()
        began = 0
        report = int64(0)
        state = 0
        while state == 0:
            late = 0
            if gpu.lane_id() == 0:
                late, state, began = pacing.long_wait_at_host(ctx, began)
                if state == 0 and have_arrived(ctx, LOOKS) != NOT_YET:
                    state = _ALL_HERE
            state = gpu.shuffle(mask, state, 0)
            if gpu.shuffle(mask, late, 0) != 0 and state == 0 and report == 0:
                report = begin_linked(ctx)
        if state > 0 and gpu.lane_id() == 0:
            gpu.fence_gpu()  # the result of the last call comes first
            gpu.store_gpu(row_of(ctx) + grid.ENTERED, grid.GAVE_UP)
        if report != 0:
            end_linked(ctx, report)
        return max(state, 0)

    gather_late_linked = linked("gmpi_grid_gather_late", 3, 1, gather_late)

    @device
    def gather_by_warp(ctx):
        """0, or an error class; the warp that gathers."""
        state = 0
        if gpu.lane_id() == 0:
            number = last_command(ctx)
            note_command(number)
            entered = gpu.max_gpu(row_of(ctx) + grid.ENTERED, number + 1)
            if have_arrived(ctx, LOOKS) != NOT_YET:
                state = _ALL_HERE
            if entered == grid.GAVE_UP:
                state = gpu.load_sys(ctx.mapped + CONTROL_ABORT) & 0xFF
        state = gpu.shuffle(warp_mask(), state, 0)
        if state == 0:
            state = gather_late_linked(ctx)
        if state > 0 and gpu.lane_id() == 0:
            note_command(-state)
        return max(state, 0)

    gather_linked = linked("gmpi_grid_gather", 3, 1, gather_by_warp)

    @device
    def gather(ctx):
        """Waits for all other blocks; the leader. An error class: then there are no commands."""
        gpu.sync_block()  # what its own threads have stored
        error = 0
        if gpu.thread_rank() < 32:
            error = gather_linked(ctx)
        if gpu.sync_block_or(error):
            error = gpu.broadcast_block(error)
            gpu.sync_block()
        return error

    @device
    def gather_beside(ctx):
        """``gather`` for a call that touches no buffer before the first barrier of its block: the
        second warp waits for the other blocks, while the leading one begins with the call.

        Returns:
            SUCCESS where ``release`` is to say whether the grid has given up.
        """
        error = int64(SUCCESS)
        if gpu.block_threads() <= 32:
            error = gather(ctx)
        else:
            gpu.sync_block()  # the last call is over, and what the block's threads have stored
        if gpu.thread_rank() < 32:
            gpu.fence_gpu()  # for ``write_command``
        elif gpu.thread_rank() >> 5 == 1:
            gather_linked(ctx)
        return error

    command_linked = linked("gmpi_grid_command", 10, 1, give_command)
    handle_linked = linked("gmpi_grid_handle", 10, 1, write_command)

    def make_release(tell_others: Callable) -> Callable:
        @device
        def release(ctx, a, b, c, d, e, f):
            """All blocks return from the call, with a result; the leader. An error class where the
            grid has given up: that is the result then."""
            gpu.sync_block()
            known = noted_command()
            if known < 0:
                return -known
            if gpu.thread_rank() < 32:
                tell_others(ctx, grid.RESULT, a, b, c, d, e, f)
            return SUCCESS

        return release  # type: ignore[no-any-return]

    release_started = make_release(handle_linked)

    @device
    def release_handle(ctx, handle):
        """The same at the end of a call that began with ``gather_beside`` and has only started a
        request."""
        return release_started(ctx, handle, 0, 0, 0, 0, 0)

    @device
    def give_up(ctx, first, number, began, report):
        """(error class with which a wait ends, or 0; when it began; whether to report that the
        leader is missing); one thread that has waited for some time.

        Args:
            first: number of the last command when its block came; -1: the leader has come since.
            number: of the last command that it has seen.
            report: 0: it has not been reported.
        """
        late, error, began = pacing.long_wait_at_host(ctx, began)
        entered = gpu.load_gpu(row_of(ctx) + grid.ENTERED)
        tells = 0
        if entered <= first:
            if error != 0:
                if gpu.cas_gpu(row_of(ctx) + grid.ENTERED, entered, grid.GAVE_UP) != entered:
                    error = 0  # the leader comes just now, or others give up
            elif late != 0 and report == 0:
                tells = 1 if gpu.cas_gpu(row_of(ctx) + grid.TELLER, 0, 1) == 0 else 0
        elif entered != grid.GAVE_UP:
            error = 0  # it will say so itself
        else:
            gpu.fence_gpu()
            if last_command(ctx) != number:
                error = 0  # that was in a later call: a command has come
        return error, began, tells

    @device
    def serve_late(ctx, what, first, number):
        """Waits until the command after ``number`` has come; the leading warp, after it has looked
        for a while. Then there is a command in the block's rows, which may be one that nobody has
        given: where the wait has ended with an error, a RESULT.

        Args:
            what: HANDLE or ERROR: what the first word of a result is.
            first, number: as of ``give_up``.
        """
        mask = warp_mask()
        began = 0
        report = int64(0)
        over = 0
        while over == 0:
            error = 0
            tells = 0
            if gpu.thread_rank() == 0:
                error, began, tells = give_up(ctx, first, number, began, report)
                if error != 0:
                    word = slots.error_handle(error) if what == HANDLE else error
                    put_words(grid.RESULT, word, -1, -1)
            over = gpu.shuffle(mask, error, 0)
            if gpu.shuffle(mask, tells, 0) != 0:
                report = begin_linked(ctx)
                if report == 0 and gpu.lane_id() == 0:
                    gpu.store_gpu(row_of(ctx) + grid.TELLER, 0)  # another time, or another block
            if over == 0:
                over = read_command(ctx, number, LOOKS)
        if report != 0:
            end_linked(ctx, report)
            if gpu.lane_id() == 0:
                gpu.store_gpu(row_of(ctx) + grid.TELLER, 0)
        return 0

    serve_late_linked = linked("gmpi_grid_serve_late", 6, 1, serve_late)

    @device
    def serve_next(ctx, what, first, failed):
        """Arrives, and waits for the next command, as ``serve_late``; the leading warp.

        Args:
            first: whether it is the first one of the call.
            failed: as of ``arrive``.
        """
        # Before it arrives: then there may be the next one.
        number = last_command(ctx) if first != 0 else noted_command()
        if gpu.thread_rank() == 0:
            arrive(ctx, failed)
        number = gpu.shuffle(warp_mask(), number, 0)
        if read_command(ctx, number, LOOKS) == 0:
            serve_late_linked(ctx, what, number if first != 0 else -1, number)
        return 0

    serve_next_linked = linked("gmpi_grid_serve_next", 6, 1, serve_next)

    @device
    def serve(ctx, what):
        """Does the leader's jobs until there is a result, which it returns; any other block.

        Args:
            what: HANDLE or ERROR: what the first word of a result is.
        """
        gpu.sync_block()  # what its own threads have stored
        if gpu.thread_rank() < 32:
            serve_next_linked(ctx, what, 1, 0)
        gpu.sync_block()
        kind, a, b, c, d, e, f = words()
        gpu.sync_block()
        while kind != grid.RESULT:
            failed = gpu.sync_block_or(execute_any(ctx, kind, a, b, c, d, e))
            if gpu.thread_rank() < 32:
                serve_next_linked(ctx, what, 0, 1 if failed else 0)
            gpu.sync_block()
            kind, a, b, c, d, e, f = words()
            gpu.sync_block()
        return a, b, c, d, e, f

    return SimpleNamespace(
        gather=gather,
        gather_beside=gather_beside,
        release=make_release(command_linked),
        release_handle=release_handle,
        serve=serve,
    )
