"""Requests that a block has opened and must go on with: noted in its shared memory.

A send that has not found its slot free, and what is longer than a slot, move only while a thread
goes on with the request. A block that waits for another one goes on with these in each turn, so
that Isend, Irecv, Wait, Wait costs no more than Waitall. It need not leave them alone
(``rows.left_alone``): what the block itself has stored before is in order. Where there is no place
for a note, it takes that of an earlier one, which is then like a request of another block.

Warps that call by themselves read and write these notes at the same time, without a barrier:
racecheck reports it. A note is one word, and says only where to look: what it names is checked in
the request's row before anything is done, and a note that another one has replaced is like one for
which there was no place.

Called by one lane, where it does not say so.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import rows
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device
from device_lib.proxied import slots
from gmpi.contract.wire import HANDLE_CONTEXT_SHIFT


@device
def note(ctx, handle):
    """A request that has just been opened."""
    index = slots.slot_of(handle) & gpu.NOTES - 1
    tried = 0
    while tried < gpu.NOTES and _is_taken(ctx, index):
        index = index + 1 & gpu.NOTES - 1
        tried += gpu.opaque(1)
    gpu.put_block_note(index, handle)


@device
def _is_taken(ctx, index):
    """What was never noted is anything."""
    handle = gpu.get_block_note(index)
    return rows.is_direct_handle(handle) and rows.names_request(ctx, handle)


@device
def forget(handle):
    """A request that has been waited for."""
    index = 0
    while index < gpu.NOTES:
        if gpu.get_block_note(index) == handle:
            gpu.put_block_note(index, 0)
        index += gpu.opaque(1)


@device
def forget_by_lanes(handle):
    """The same, by all lanes of a full warp."""
    lane = gpu.lane_id()
    if lane < gpu.NOTES and gpu.get_block_note(lane) == handle:
        gpu.put_block_note(lane, 0)


@device
def are_noted_besides(handle):
    """Whether there may be noted requests besides this one that are not mere receives of what fits
    the wide slot: those keep nobody waiting for long. Any lane, without device memory."""
    found = False
    index = 0
    while index < gpu.NOTES:
        other = gpu.get_block_note(index)
        ours = (other ^ handle) >> HANDLE_CONTEXT_SHIFT == 0  # the same context, and road
        found = found or (ours and other != handle and not rows.is_wide(other))
        index += gpu.opaque(1)
    return found


@device
def open_besides(ctx, besides, first):
    """The handle of a noted request that nobody has, from note ``first`` on; 0: there is none.

    Args:
        besides: not this one.
    """
    k = 0
    while k < gpu.NOTES:
        index = first + k & gpu.NOTES - 1
        handle = gpu.get_block_note(index)
        k += gpu.opaque(1)
        if handle != besides and _is_taken(ctx, index):
            owner, state = gpu.read_packet(rows.row_of(ctx, handle) + rows.OWNER)
            if owner & ~rows.TOUCHED == handle and not rows.is_finished(state):
                return owner & ~rows.TOUCHED
            if owner & ~(rows.HELPED | rows.TOUCHED | slots.CLAIMED) != handle:
                gpu.put_block_note(index, 0)
    return 0
