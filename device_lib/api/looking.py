"""Looking for messages before they are received, and cancelling receives, for each scope.

The proxy does it: one record, and its answer.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.messages import make_refused
from device_lib.api.words import pair, word0_of
from device_lib.platform.context import row_address
from device_lib.platform.primitives import device, int64, load_gpu
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from device_lib.proxied.status import status_of
from gmpi.contract.constants import ERR_COMM, NO_MESSAGE
from gmpi.contract.wire import (
    ERROR_SHIFT,
    FLAG_BACK,
    HANDLE_ERROR_SHIFT,
    NONBLOCKING,
    OP_CANCEL,
    OP_PROBE,
    REQUEST_OWNER,
)


def make_looking(waiting: SimpleNamespace, report: Callable) -> SimpleNamespace:
    """The calls of one scope.

    Args:
        waiting: ``waiting``.
        report: of ``proxied.requests``.
    """
    perform = waiting.perform
    refused = make_refused(report)

    @device
    def look(ctx, op, source, tag, comm):
        if refused(ctx, op, comm):
            return status_of(COMPLETED | ERR_COMM << ERROR_SHIFT, 0, NO_ORIGIN)
        return perform(ctx, word0_of(op, FLAG_BACK, comm, 0), pair(source, tag), 0, 0, 0, 0)

    @device
    def probe(ctx, source, tag, comm):
        return look(ctx, OP_PROBE, source, tag, comm)

    @device
    def iprobe(ctx, source, tag, comm):
        status = look(ctx, OP_PROBE | NONBLOCKING, source, tag, comm)
        return status.tag != NO_MESSAGE, status

    @device
    def cancel(ctx, request):
        request = int64(request)
        if request >> HANDLE_ERROR_SHIFT == 0 and slots.names_slot(ctx, request):
            # One that was waited for has the slot's last handle, and the proxy does not know.
            owner = load_gpu(row_address(ctx, slots.slot_of(request)) + REQUEST_OWNER)
            if owner != request:
                request |= slots.CLAIMED
        return perform(ctx, OP_CANCEL, 0, request, 0, 0, 0).error

    return SimpleNamespace(probe=probe, iprobe=iprobe, cancel=cancel)
