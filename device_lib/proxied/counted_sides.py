"""What a collective with counts is about to move, by MPI's arguments: what goes out of a rank, and
what comes back (``counted_blocks.Side``). For both roads.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache

from device_lib.move.layouts import BUFFER_ADDRESS
from device_lib.platform import primitives as gpu
from device_lib.platform.context import eager_bytes
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from device_lib.proxied import neighbours
from device_lib.proxied.counted_blocks import ARRAYS_BYTES, Side, survey
from gmpi.contract import counts
from gmpi.contract.constants import IN_PLACE
from gmpi.contract.moves import BACK, OUT, Row, out_offset
from gmpi.contract.wire import FLAG_NULL_BUFFER, LOW_32

_table_bytes = device(counts.table_bytes)
_out_offset = device(out_offset)
_NULL = counts.FLAW_BUFFER | FLAG_NULL_BUFFER << counts.FLAW_FLAGS_SHIFT

# What a call is, beside its arguments: bits
OUT_COUNTS = 1  # the arrays of that way say its blocks
BACK_COUNTS = 2
REDUCES = 4
SHIFTED = 8
MAY_OUT = 16  # which buffer may be IN_PLACE
MAY_BACK = 32
OF_NEIGHBOURS = 64
SHAPE_ME_SHIFT = 32  # rank


def shape_of(row: Row) -> int:
    """These bits of an operation, but for the rank."""
    presence = (OUT_COUNTS if row.counts >> OUT & 1 else 0) | (
        BACK_COUNTS if row.counts >> BACK & 1 else 0
    )
    may = {OUT: MAY_OUT, BACK: MAY_BACK}.get(row.in_place_way, OF_NEIGHBOURS)
    return presence | REDUCES * row.reduces | SHIFTED * row.shifted | may


# wide: MPI's arguments, as words
@device
def sides_of(
    ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count, recv_type,
    recv_buffer, arrays,
):  # fmt: skip
    """(what goes out, what comes back, whether a buffer is IN_PLACE, a flaw or 0)."""
    me = shape >> SHAPE_ME_SHIFT
    outs = numbers & LOW_32
    backs = numbers >> 32
    reduced = 1 if shape & REDUCES != 0 else 0
    out_arrays = arrays if shape & OUT_COUNTS != 0 else 0
    back_arrays = arrays + ARRAYS_BYTES if shape & BACK_COUNTS != 0 else 0
    missing = neighbours.missing(ctx, word0) if shape & OF_NEIGHBOURS != 0 else 0
    unsent = missing if outs > 1 else 0  # one block goes to all of them
    out = Side(send_buffer, out_arrays, 0, outs, send_count, send_type, reduced, 0, unsent)
    back = Side(recv_buffer, back_arrays, 0, backs, recv_count, recv_type, 0, 1, missing)
    if reduced != 0:  # of which this rank gets one
        back = Side(recv_buffer, out_arrays, me, backs, recv_count, recv_type, 1, 1, 0)
    in_place = 0
    flaw = 0
    if outs > 0 and gpu.load_8(send_buffer + BUFFER_ADDRESS) == IN_PLACE:
        in_place = 1
        if shape & MAY_OUT == 0 or (shape & SHIFTED != 0 and backs == 0):
            flaw = _NULL | OUT << counts.FLAW_WAY_SHIFT
        elif reduced != 0:
            out = Side(recv_buffer, out_arrays, 0, outs, send_count, send_type, 1, 0, 0)
        else:
            first = me if shape & SHIFTED != 0 else 0
            out = Side(recv_buffer, back_arrays, first, outs, recv_count, recv_type, 0, 0, 0)
    elif backs > 0 and gpu.load_8(recv_buffer + BUFFER_ADDRESS) == IN_PLACE:
        in_place = 1
        if shape & MAY_BACK == 0 or outs == 0:
            flaw = _NULL | BACK << counts.FLAW_WAY_SHIFT
        back = Side(recv_buffer, 0, 0, 0, recv_count, recv_type, 0, 1, 0)
    return out, back, in_place, flaw


@device
def _survey_both(ctx, out, back, shape, flaw):
    """(bytes out, bytes back, runs of them, the flaw or 0); one thread."""
    reduced = shape & REDUCES != 0
    sent = 0
    received = 0
    send = 0
    recv = 0
    if flaw == 0:
        sent, send, flaw = survey(ctx, out, reduced)
        flaw = flaw | OUT << counts.FLAW_WAY_SHIFT if flaw != 0 else 0
    if flaw == 0:
        received, recv, flaw = survey(ctx, back, reduced)
        flaw = flaw | BACK << counts.FLAW_WAY_SHIFT if flaw != 0 else 0
    if flaw != 0:
        return 0, 0, 0, 0, flaw
    return sent, received, send, recv, 0


@cache
def make_survey_both(scope: Scope) -> Callable:
    """(context, what goes out, what comes back, shape, flaw) -> (bytes out, bytes back, runs of
    them, the flaw or 0), for all threads of a scope."""
    leads, sync, broadcast_5 = scope.leads, scope.sync, scope.broadcast_5

    @device
    def survey_both(ctx, out, back, shape, flaw):
        sent = 0
        received = 0
        send = 0
        recv = 0
        if leads() and gpu.lane_id() == 0:
            sent, received, send, recv, flaw = _survey_both(ctx, out, back, shape, flaw)
        sent, received, send, recv, flaw = broadcast_5(sent, received, send, recv, flaw)
        sync()
        return sent, received, send, recv, flaw

    return survey_both  # type: ignore[no-any-return]


@device
def is_long(ctx, out, back, sent, received, send, recv):
    """Whether the request takes a slot of the large class."""
    table = _table_bytes(out.number + back.number)
    scattered = 0
    scattered += out.number if sent > 0 and send == 0 else 0
    scattered += back.number if received > 0 and recv == 0 else 0
    need = _out_offset(max(received, table)) + sent
    return sent + received > 0 and (need > eager_bytes(ctx) or scattered > counts.FEW_BLOCKS)
