"""Requests of data with gaps.

A send is packed into a staging buffer by all threads of its scope, and leaves from there as what
lies in one piece does; the buffer is free again when the call returns. What cannot leave at once is
packed when its turn has come: nobody holds a staging buffer while it waits for others.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import staging, table
from device_lib.direct.one_warp import PROXIED_ROAD
from device_lib.move.column import find_column, pack_column
from device_lib.move.layouts import BUFFER_ADDRESS, pack_elements
from device_lib.platform.primitives import device, lane_id, load_8, load_gpu
from device_lib.platform.scope import FULL_WARP, Scope
from gmpi.contract import wire
from gmpi.contract.channels import WIDE_ROOM
from gmpi.contract.constants import BYTE
from gmpi.contract.layouts import TYPE_SIZE

_OTHERS = (1 << wire.DATATYPE_SHIFT) - 1  # fields of a record's first word but the datatype
_BYTES = BYTE << wire.DATATYPE_SHIFT


def _make_send_packed(scope: Scope, quick: SimpleNamespace) -> Callable:
    """For one scope, all of whose threads call it together.

    Args:
        quick: what ``make_one_warp`` returned.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    leading_lanes = scope.leading_lanes
    sync = scope.sync
    broadcast = scope.broadcast
    try_send = quick.try_send

    @device
    def pack(type_row, buffer, address, stride, column, packed, nbytes):
        if column != 0:
            pack_column(packed, address, stride, column, nbytes, rank(), size())
        else:
            user = load_8(buffer + BUFFER_ADDRESS)
            pack_elements(user, type_row, packed, 0, nbytes, rank(), size())

    @device
    def send_packed(ctx, word0, peer_tag, nbytes, buffer, type_row):
        """(handle, row, where the other end is, number), as ``one_warp.try_send``; row NOBODY:
        nothing has been drawn.

        Args:
            nbytes: packed.
            buffer, type_row: as of ``proxied.scattered.place``. A view is packed only where it is a
                column: others need a row in memory.
        """
        if nbytes <= 0 or nbytes > WIDE_ROOM or leading_lanes() < FULL_WARP:
            return 0, table.NOBODY, 0, 0
        count = 1
        if type_row != 0 and load_gpu(type_row + TYPE_SIZE) != nbytes:
            count = 0  # of several elements
        address, stride, column = find_column(buffer, type_row, count, nbytes)
        if type_row == 0 and column == 0:
            return 0, table.NOBODY, 0, 0
        sync()  # what other threads wrote to the buffer
        taken = -1
        if leads() and lane_id() == 0:
            taken = staging.take(ctx)
        taken = broadcast(taken)
        if taken < 0:
            sync()  # before the next broadcast
            return 0, table.NOBODY, 0, 0
        packed = staging.address_of(ctx, taken)
        pack(type_row, buffer, address, stride, column, packed, nbytes)
        word0 = word0 & _OTHERS | _BYTES
        handle, row, remote, number = try_send(ctx, word0, peer_tag, nbytes, nbytes, packed)
        if leads() and lane_id() == 0:
            staging.give_back_packed(ctx, taken)
        return handle, row, remote, number

    return send_packed  # type: ignore[no-any-return]


def make_open_scattered(scope: Scope, quick: SimpleNamespace, open_linked: Callable) -> Callable:
    """For one scope, all of whose threads call it together.

    Args:
        quick: what ``make_one_warp`` returned.
        open_linked: ``requests.open_rest``.
    """
    sync = scope.sync
    send_packed = _make_send_packed(scope, quick)

    @device
    def open_scattered(ctx, word0, peer_tag, nbytes, buffer, type_row):
        """The handle of a request; PROXIED_ROAD: it is not ours."""
        key = table.key_of(word0, peer_tag)
        if key == table.NO_KEY:
            return table.without_channel(ctx, word0, peer_tag)
        handle = 0
        row = table.NOBODY
        remote = 0
        number = 0
        if word0 & 0xFF == wire.OP_ISEND:
            handle, row, remote, number = send_packed(
                ctx, word0, peer_tag, nbytes, buffer, type_row
            )
        if handle != 0:
            return handle
        if row == table.NO_ROW:
            return PROXIED_ROAD
        sync()  # what other threads wrote to the buffer, or still read from it
        address = wire.SCATTERED if nbytes > 0 else 0
        return open_linked(
            ctx, word0, peer_tag, nbytes, address, buffer, type_row, row, remote, number
        )

    return open_scattered  # type: ignore[no-any-return]
