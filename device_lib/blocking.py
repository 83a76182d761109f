"""A small call that blocks, in one function: Send, Recv, Allreduce, Barrier and the like.

Nobody else ever sees the request, so it is not entered in its row and need not be claimed, and
between publishing and the first look there is no way back to the caller and in again: 0.3 us less
than ``open_inline`` and ``finish_small``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib import slots
from device_lib.closing import COMPLETED, collect, unit_address
from device_lib.opening import UNFINISHED, publish_inline
from device_lib.primitives import device, lane_id, load_unit, wait_cycles
from gmpi.wire import OP_IRECV, OP_ISEND

# Cycles from publishing to the first look, which takes 1.1 us: one that comes just before the
# answer costs another. An answer is in memory 0.8 us after its record was published, the one to a
# send when MPI has taken the message; when a message is received nobody knows.
FIRST_LOOK = 700
FIRST_LOOK_SEND = 1700


@device
def _first_look(word0):
    op = word0 & 0xFF
    if op == OP_IRECV:
        return 0
    if op == OP_ISEND:
        return FIRST_LOOK_SEND
    return FIRST_LOOK


@device
def transact(ctx, word0, count, send, peer_tag, recv):
    """Opens a request as ``open_inline`` and waits for it as ``finish_small``.

    Called by all lanes of one full warp, after a barrier of the scope.

    Returns:
        (outcome, count, origin, handle). Outcome 0: the request is not open, call ``open_any`` with
        the handle. STAGED and HELP: the request is entered in its row, unpack it or wait for it.
    """
    lane = lane_id()
    handle = publish_inline(ctx, lane, word0, count, send, peer_tag, recv, False)
    if handle & UNFINISHED != 0:
        return 0, 0, 0, handle
    address = unit_address(ctx, lane, handle)
    wait_cycles(_first_look(word0))
    low, word = load_unit(address)
    outcome, count, origin = collect(ctx, lane, handle, address, recv, low, word)
    if outcome & COMPLETED == 0 and lane == 0:
        slots.open_row(ctx, slots.slot_of(handle), handle, recv)
    return outcome, count, origin, handle
