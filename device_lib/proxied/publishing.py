"""Publishing a request that is not tuned for latency: its row, then its record.

What ``opening.publish_inline`` and ``opening_long`` do in as few instructions as they can, for all
other requests: whatever is staged, in whichever class of slots.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache

from device_lib.platform.primitives import device, lane_id, shuffle
from device_lib.platform.scope import warp_lanes, warp_mask
from device_lib.proxied import ring, slots, taking
from gmpi.contract.constants import GMPI_ERR_NO_RESOURCE
from gmpi.contract.wire import FLAG_BACK, FLAG_INLINE, FLAG_OUT

FLAGS_SHIFT = 8  # of the flags in the first word of a record
OUT = FLAG_OUT << FLAGS_SHIFT
BACK = FLAG_BACK << FLAGS_SHIFT
INLINE = FLAG_INLINE << FLAGS_SHIFT


# wide: what a record says
@device
def publish(
    ctx, ticket, consumed, slot, large, packets, word0, peer_tag, count, buffer, recv, payload,
    inline,
):  # fmt: skip
    """Opens the row of ``slot`` and writes the record; all lanes of the leading warp.

    Of a large request ``slots.open_commands`` comes before, and of all that others read before the
    record says so, a release.

    Args:
        ticket, consumed: what ``ring.begin_enter`` has returned to lane 0.
        packets: of the completion.
        buffer: what the record says of the user's buffer.
        recv: what the row says of it: where to, 0 or SCATTERED.
        payload, inline: where the bytes are that travel in the record, and how many.

    Returns:
        The handle; one of an error where waits have been aborted.
    """
    lane = lane_id()
    mask = warp_mask()
    ticket = shuffle(mask, ticket, 0)
    consumed = shuffle(mask, consumed, 0)
    handle = slots.make_handle(ctx, slot, ticket, packets, large)
    if lane == 0:
        slots.open_row(ctx, slot, handle, recv)
    aborted = ring.wait_for_room(ctx, lane, mask, ticket, consumed)
    if aborted != 0:
        return slots.error_handle(aborted)
    ring.write(
        ctx, lane, warp_lanes(), ticket, word0, peer_tag, count, handle, buffer, payload, inline
    )
    return handle


@cache
def make_no_slot(report: Callable) -> Callable:
    """What a call ends with that has found no slot; all threads of the scope call it.

    Args:
        report: ``closing.make_report``.
    """

    @device
    def no_slot(ctx, word0, slot, large):
        """The handle of an error; ``slot`` is what ``take_slot`` has returned."""
        if -slot == GMPI_ERR_NO_RESOURCE:
            report(ctx, word0, taking.most_open(ctx, large), GMPI_ERR_NO_RESOURCE)
        return slots.error_handle(-slot)

    return no_slot
