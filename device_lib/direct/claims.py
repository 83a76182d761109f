"""The claim of a request of the direct road by the wait that wants to end it.

Called by one lane.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import rows
from device_lib.platform.primitives import device, spin
from device_lib.proxied import slots

# What has become of a wait, in place of COMPLETED.
NOT_YET = 0  # nobody has the request
CLAIMED = 1  # it is ours, and nothing has been done for it
RESUMED = 2  # the same, but somebody has gone on with it before
FOREIGN = 3
LOST = 4  # somebody else had it when we looked


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
