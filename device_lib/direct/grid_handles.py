"""Handles of requests that a grid has opened: what they stand for is in a table.

See ``gmpi/contract/grid.py``. The leader writes the table; threads of any scope read it.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct import grid_steps as steps
from device_lib.direct.grid_steps import row_of_grid
from device_lib.platform.context import context_id
from device_lib.platform.grid_scope import leads_grid
from device_lib.platform.library import linked, parts_of
from device_lib.platform.primitives import (
    block_threads,
    cas_gpu,
    device,
    fence_gpu,
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
    write_packet,
)
from device_lib.platform.scope import Scope
from device_lib.proxied.slots import error_handle
from gmpi.contract.constants import SUCCESS
from gmpi.contract.grid import (
    CHECKED,
    CHECKS,
    HANDLES,
    HANDLES_AT,
    OLD,
    OLD_AT,
    OLD_USED,
    STEP_IN_HANDLE,
)
from gmpi.contract.wire import (
    HANDLE_CONTEXT_MASK,
    HANDLE_CONTEXT_SHIFT,
    HANDLE_ERROR_SHIFT,
    HANDLE_GRID,
    PACKET_BYTES,
    REQUEST_NULL,
)

_SHORT_SHIFT = HANDLE_CONTEXT_SHIFT - 1  # of one of a grid
_STEP_MASK = (1 << _SHORT_SHIFT) - 1
_REFUSED = 1 << HANDLE_ERROR_SHIFT
_STEP_IN_REFUSED = (1 << HANDLE_CONTEXT_SHIFT - STEP_IN_HANDLE) - 1
_LOOKS = 64  # between two at the abort word


@device
def is_of_grid(handle):
    """Whether it stands for a handle in a table."""
    return handle >> HANDLE_ERROR_SHIFT == HANDLE_GRID


@device
def handle_of_step(ctx, step, short):
    """What a call of grid scope returns that opens a request: every block works it out itself.

    Args:
        short: whether the leader completes it alone.
    """
    kind = HANDLE_GRID << HANDLE_ERROR_SHIFT | short << _SHORT_SHIFT
    return kind | context_id(ctx) << HANDLE_CONTEXT_SHIFT | step


@device
def is_short(request):
    """Whether the leader completes it alone: one of a short message, or none."""
    if is_of_grid(request):
        return request >> _SHORT_SHIFT & 1 != 0
    return request == REQUEST_NULL


@device
def _place(ctx, step):
    return row_of_grid(ctx) + HANDLES_AT + (step & HANDLES - 1) * PACKET_BYTES


@device
def _old_place(ctx, index):
    return row_of_grid(ctx) + OLD_AT + index * PACKET_BYTES


@device
def _marked(handle, step):
    """What is in the table for a handle: like no other."""
    if handle == REQUEST_NULL:
        handle = error_handle(SUCCESS)
    if handle >> HANDLE_ERROR_SHIFT == 1:
        return handle | (step & _STEP_IN_REFUSED) << STEP_IN_HANDLE
    return handle


@device
def _plain(marked):
    """The handle again."""
    if marked >> HANDLE_ERROR_SHIFT == 1:
        return marked & (_REFUSED | 0xFF)
    return marked


@device
def _keep(ctx, handle, step):
    """Enters a handle among the old ones; one thread of the leader."""
    at = row_of_grid(ctx)
    used = load_gpu(at + OLD_USED)
    index = int64(0)
    while index < used and read_packet(_old_place(ctx, index))[0] != 0:
        index += opaque(1)
    if index >= OLD:
        index = step & OLD - 1  # more are open than there can be: of sends nobody waits for
    write_packet(_old_place(ctx, index), handle, step)
    fence_gpu()
    store_gpu(at + OLD_USED, max(used, index + 1))


@device
def _check(ctx, step):
    """Makes room in the table for some steps, from ``step`` on; all threads of the leader."""
    number = int64(thread_rank())
    there = 0
    while number < CHECKS:
        handle, old = read_packet(_place(ctx, step + number))
        there |= handle
        number += int64(block_threads())
    if sync_block_or(1 if there != 0 else 0) and thread_rank() == 0:
        number = int64(0)
        while number < CHECKS:
            place = _place(ctx, step + number)
            handle, old = read_packet(place)
            if handle != 0:
                _keep(ctx, handle, old)
                write_packet(place, 0, old + 1)  # look among the old ones
            number += opaque(1)
        fence_gpu()
    if thread_rank() == 0:
        store_8(row_of_grid(ctx) + CHECKED, step + CHECKS - 1)
    sync_block()
    return 0


_check_linked = linked("gmpi_grid_check_handles", 4, 1, _check)


@device
def record(ctx, handle):
    """Enters the handle of the request that the leader has opened, as its next step; all its
    threads, after a barrier. The step."""
    step = steps.own_step(ctx) + 1
    if step > load_8(row_of_grid(ctx) + CHECKED):
        _check_linked(ctx, step)
    sync_block()  # all have read it
    if thread_rank() == 0:
        if handle >> HANDLE_ERROR_SHIFT != 1:
            fence_gpu()  # what others find in its row
        write_packet(_place(ctx, step), _marked(handle, step), step)
        steps.come_to(ctx, step)
    return step


@device
def _find_old(ctx, step):
    """Where a handle is that has left its place, 0: nowhere; one thread."""
    fence_gpu()
    used = load_gpu(row_of_grid(ctx) + OLD_USED)
    index = int64(0)
    while index < used:
        marked, found = read_packet(_old_place(ctx, index))
        if found == step:
            return _old_place(ctx, index)
        index += opaque(1)
    return int64(0)


@device
def _where(ctx, request):
    """(where the handle is that one of a grid stands for, 0: it has never been; error class); one
    thread. Waits until the leader has written it."""
    step = request & _STEP_MASK
    if request >> HANDLE_CONTEXT_SHIFT & HANDLE_CONTEXT_MASK != context_id(ctx):
        return int64(0), 0
    place = _place(ctx, step)
    marked, found = read_packet(place)
    looked = 0
    error = 0
    while found < step and error == 0:
        looked += 1
        if looked & _LOOKS - 1 == 0:
            error = steps.abort_of(ctx)
        pause(40)
        marked, found = read_packet(place)
    if found != step and error == 0:
        place = _find_old(ctx, step)
    return place, error


@device
def _look_up(ctx, request):
    """The handle that one of a grid stands for; one thread. ``request`` itself where there is none
    any more."""
    place, error = _where(ctx, request)
    if error != 0:
        return error_handle(error)
    if place == 0:
        return request
    marked, found = read_packet(place)
    if found != request & _STEP_MASK or marked == 0:
        return request
    if leads_grid(ctx) == 0:  # the leader has written it itself
        fence_gpu()
    return _plain(marked)


@device
def _forget(ctx, request):
    """The request is none any more; one thread."""
    step = request & _STEP_MASK
    if leads_grid(ctx) != 0 and step + HANDLES > load_8(row_of_grid(ctx) + CHECKED):
        store_gpu(_place(ctx, step), 0)  # it has not moved: only the leader moves handles
        return 0
    place, error = _where(ctx, request)
    while error == 0 and place != 0:
        marked, found = read_packet(place)
        if found == step and (marked == 0 or cas_gpu(place, marked, 0) == marked):
            return 0
        place = _find_old(ctx, step)  # the leader has moved it just now
    return 0


_look_up_linked = linked("gmpi_grid_look_up_handle", 4, 1, _look_up)
_forget_linked = linked("gmpi_grid_forget_handle", 4, 1, _forget)


def make_handles(scope: Scope) -> SimpleNamespace:
    """For one scope, all of whose threads call these."""
    leads, sync, broadcast = scope.leads, scope.sync, scope.broadcast
    part = parts_of(scope.name, "gmpi_grid")

    @device
    def resolve(ctx, request):
        """The handle that one of a grid stands for, or ``request`` where there is none any more."""
        handle = request
        sync()
        if leads() and lane_id() == 0:
            handle = _look_up_linked(ctx, request)
        handle = broadcast(handle)
        sync()
        return handle

    @device
    def forget(ctx, request):
        """The request is none any more."""
        if leads() and lane_id() == 0:
            _forget_linked(ctx, request)
        return 0

    return SimpleNamespace(
        resolve=part("resolve", 4, 1, resolve), forget=part("forget", 4, 1, forget)
    )
