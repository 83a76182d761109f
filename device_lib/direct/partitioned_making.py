"""Making and freeing partitioned requests in kernels: the proxy does it, and answers.

Rare and slow: a record on the proxied road for each call, by the functions that can do everything.
All threads of a scope call these.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.platform.context import context_id
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from device_lib.proxied import slots
from device_lib.proxied.opening import NOTHING_TAKEN
from gmpi.contract import wire
from gmpi.contract.constants import BYTE, SUCCESS
from gmpi.contract.partitions import WANTED_BYTES


def make_making(scope: Scope, requests: SimpleNamespace) -> SimpleNamespace:
    """For one scope.

    Args:
        requests: of the proxied road (``proxied.requests``).
    """
    open_any, finish_any = requests.open_any, requests.finish_any
    part = parts_of(scope.name, "gmpi_partitioned")

    @device
    def ask(ctx, word0, count, payload):
        """(error class, answer) of the proxy."""
        handle = open_any(ctx, word0, 0, count, payload, 0, NOTHING_TAKEN)
        if handle >> wire.HANDLE_ERROR_SHIFT == 1:
            return handle & 0xFF, 0
        outcome, _count, _origin = finish_any(ctx, handle, 0)
        return outcome >> wire.ERROR_SHIFT & 0xFF, outcome & wire.BYTES_MASK

    @device
    def make(ctx, op, wanted):
        """The handle of a new request, or one that says why there is none.

        Args:
            op: OP_PSEND_INIT or OP_PRECV_INIT.
            wanted: where the words of ``Wanted`` are (WANTED_BYTES); each thread may have its own.
        """
        word0 = op | wire.FLAG_OUT << 8 | BYTE << wire.DATATYPE_SHIFT
        error, number = ask(ctx, word0, WANTED_BYTES, wanted)
        if error != SUCCESS:
            return slots.error_handle(error)
        return (
            number
            | context_id(ctx) << wire.HANDLE_CONTEXT_SHIFT
            | 1 << wire.HANDLE_PARTITIONED_SHIFT
        )

    @device
    def free(ctx, request):
        error, _number = ask(ctx, wire.OP_REQUEST_FREE, request, 0)
        return error

    return SimpleNamespace(make=part("make", 5, 1, make), free=part("free", 4, 1, free))
