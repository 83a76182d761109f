"""The claim of a request of the direct road by the wait that wants to end it.

Called by one lane.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import own, packets, rows, table
from device_lib.direct.words import peer_tag_of
from device_lib.platform.primitives import device, load_8, load_16, spin
from device_lib.proxied import slots
from device_lib.proxied.closing import NO_ORIGIN
from gmpi.contract.channels import NUMBERS, ROW_KEY, ROW_LOCAL
from gmpi.contract.wire import SCATTERED

# What has become of a wait, in place of COMPLETED.
NOT_YET = 0  # nobody has the request
CLAIMED = 1  # it is ours, and nothing has been done for it
RESUMED = 2  # the same, but somebody has gone on with it before
FOREIGN = 3
LOST = 4  # somebody else had it when we looked


@device
def claim(ctx, handle):
    """(CLAIMED, RESUMED or FOREIGN | mark << 8, where its slot is, the user's buffer, LENGTH,
    origin, where the other end is) of a receive; lane 0.

    SCATTERED in place of the buffer: there is no quick way for it.
    """
    claimed = rows.BUSY
    length = 0
    target = SCATTERED
    stamp = 0
    while claimed == rows.BUSY:
        claimed, length, target, stamp = rows.claim_and_read(ctx, handle)
        if claimed == rows.BUSY:
            spin()
    if claimed == rows.FOREIGN:
        return FOREIGN, 0, SCATTERED, 0, NO_ORIGIN, 0
    if claimed == rows.RESUMED:
        return RESUMED, 0, SCATTERED, 0, NO_ORIGIN, 0
    if target == SCATTERED:
        return CLAIMED, 0, SCATTERED, 0, NO_ORIGIN, 0
    channel = table.row_of(ctx, stamp >> 32 & rows.INDEX_MASK)
    key, remote = load_16(channel + ROW_KEY)
    number = stamp >> 1 & NUMBERS
    at = packets.inbox_slot(load_8(channel + ROW_LOCAL), number)
    if length >> rows.LENGTH_BITS + 8 & 0xFF == 0:
        target = SCATTERED
    if packets.refreshed(number):
        target = SCATTERED
    return CLAIMED | packets.mark_of(number) << 8, at, target, length, peer_tag_of(key), remote


@device
def claim_again(ctx, handle):
    """A request that somebody had: CLAIMED, RESUMED or FOREIGN; one lane."""
    ours = rows.claim(ctx, handle, slots.CLAIMED)
    while ours == rows.BUSY:  # a helper has it: soon
        spin()
        ours = rows.claim(ctx, handle, slots.CLAIMED)
    if ours == rows.FOREIGN:
        return FOREIGN
    return RESUMED if ours == rows.RESUMED else CLAIMED


@device
def end(ctx, handle, remote):
    """The message has been taken: its slot and the request's are free; one lane."""
    own.forget(handle)
    packets.give_back(remote, handle >> 1 & NUMBERS, False)
    rows.close_row(ctx, handle)
