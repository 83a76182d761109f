"""Rows of persistent requests: who has which, and what is open of it."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.platform.context import context_id
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import (
    cas_gpu,
    device,
    lane_id,
    load_gpu,
    opaque,
    store_gpu,
)
from device_lib.platform.scope import Scope
from device_lib.proxied.slots import error_handle
from gmpi.contract import wire
from gmpi.contract.constants import ERR_REQUEST
from gmpi.contract.persistent import ACTIVE, INNER, OWNER, STATE, TAKEN


@device
def persistent_row(ctx, handle):
    """Address of the row that a handle, or an index, names."""
    index = handle & (wire.PERSISTENT_ROWS - 1)
    return ctx.device + wire.DEVICE_PERSISTENT + index * wire.PERSISTENT_ROW_BYTES


@device
def is_row_s(ctx, row, handle):
    """Whether a handle is that of the request in its row; one thread."""
    ours = handle >> wire.HANDLE_CONTEXT_SHIFT & wire.HANDLE_CONTEXT_MASK == context_id(ctx)
    return ours and load_gpu(row + OWNER) == handle


@device
def find_row(ctx):
    """Takes a free row: its index, or -1; one thread."""
    index = 0
    while index < wire.PERSISTENT_ROWS:
        row = persistent_row(ctx, index)
        if load_gpu(row + OWNER) == 0 and cas_gpu(row + OWNER, 0, TAKEN) == 0:
            return index
        index += opaque(1)
    return -1


@device
def is_inactive_row(ctx, handle):
    """Whether a wait for it has nothing to wait for; any thread."""
    row = persistent_row(ctx, handle)
    return is_row_s(ctx, row, handle) and load_gpu(row + STATE) != ACTIVE


def make_rounds(scope: Scope, report: Callable) -> SimpleNamespace:
    """For one scope, all of whose threads call these together.

    Args:
        report: of ``proxied.requests``.
    """
    leads = scope.leads
    sync = scope.sync
    broadcast = scope.broadcast
    part = parts_of(scope.name, "gmpi_persistent")

    @device
    def inner(ctx, request):
        """The request of its round; REQUEST_NULL: it is inactive."""
        sync()
        found = error_handle(ERR_REQUEST)
        row = persistent_row(ctx, request)
        if leads() and lane_id() == 0 and is_row_s(ctx, row, request):
            found = load_gpu(row + INNER) if load_gpu(row + STATE) == ACTIVE else wire.REQUEST_NULL
        found = broadcast(found)
        sync()
        if found == error_handle(ERR_REQUEST):
            report(ctx, wire.OP_WAIT, request, ERR_REQUEST)
        return found

    @device
    def end(ctx, request):
        """Its round is over."""
        sync()
        row = persistent_row(ctx, request)
        if leads() and lane_id() == 0 and is_row_s(ctx, row, request):
            store_gpu(row + STATE, 0)
        sync()
        return 0

    return SimpleNamespace(inner=part("inner", 4, 1, inner), end=part("end", 4, 1, end))
