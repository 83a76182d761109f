"""Request slots: who holds which, from the call that opens a request to the wait that closes it.

A slot is a completion in mapped memory, a small staging buffer and a row in device memory; large
slots also have chunk buffers. Having a slot *is* having staging: nothing else is
allocated on the way of a message. Which slots are free is a field of busy bits in device memory,
32 to a word, each word on its own line; a warp starts at a word of its own, so warps rarely meet.

A handle names slot and generation (the sequence number of the record that opened the request). The
row keeps the handle of the open request, so a stale, foreign or invented handle is told apart from
a valid one by one comparison, and two waits on one request cannot both win.

Called by one lane, except where it says otherwise.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives as gpu
from device_lib.platform.context import (
    all_slots,
    busy_address,
    context_id,
    first_narrow,
    row_address,
)
from device_lib.platform.primitives import device
from device_lib.proxied.ring import seq_of
from gmpi.contract import wire
from gmpi.contract.constants import SUCCESS
from gmpi.contract.sizes import SHAPE_REQUEST_SHIFT

CLAIMED = 1 << 59  # in REQUEST_OWNER: a wait is under way
_OTHERS = -1 << wire.HANDLE_ERROR_SHIFT  # in handles: of no request of the proxied road
NOBODY = 1 << 8  # in an error handle: of a message to or from PROC_NULL


@device
def make_handle(ctx, slot, ticket, packets, large):
    return (
        seq_of(ticket)
        | slot << wire.HANDLE_SLOT_SHIFT
        | packets << wire.HANDLE_PACKETS_SHIFT
        | large << wire.HANDLE_LARGE_SHIFT
        | context_id(ctx) << wire.HANDLE_CONTEXT_SHIFT
    )


@device
def error_handle(error_class):
    """The handle of a request that could not be opened; waiting for it returns the class."""
    return 1 << wire.HANDLE_ERROR_SHIFT | error_class


@device
def nobody_handle():
    """The handle of a message to or from PROC_NULL, which is complete (MPI 4.1 section 3.10)."""
    return error_handle(SUCCESS) | NOBODY


@device
def slot_of(handle):
    return handle >> wire.HANDLE_SLOT_SHIFT & wire.HANDLE_SLOT_MASK


@device
def packets_polled(handle):
    return handle >> wire.HANDLE_PACKETS_SHIFT & wire.HANDLE_PACKETS_MASK


@device
def is_large(handle):
    return handle >> wire.HANDLE_LARGE_SHIFT & 1


@device
def is_proxied(handle):
    """Whether it is the handle of a request of the proxied road."""
    return handle != 0 and handle & _OTHERS == 0


@device
def is_small(handle):
    """Whether it is one in a small slot."""
    return handle != 0 and handle & (_OTHERS | 1 << wire.HANDLE_LARGE_SHIFT) == 0


@device
def is_partitioned(handle):
    """Whether it is the handle of a partitioned request, of whichever context, or of a persistent
    one: both stay when they are complete."""
    return handle >> wire.HANDLE_PARTITIONED_SHIFT == 1


@device
def is_persistent(handle):
    """Whether it is the handle of a persistent request (``direct/persistent_rows.py``)."""
    return handle >> wire.HANDLE_DIRECT_SHIFT == 3


@device
def is_narrow(ctx, slot):
    """Whether a slot is of the large class and has no chunk buffers."""
    return slot >= first_narrow(ctx)


@device
def names_slot(ctx, handle):
    """Whether the handle is of this context and within its slots (any lane, no memory access)."""
    ours = handle >> wire.HANDLE_CONTEXT_SHIFT & wire.HANDLE_CONTEXT_MASK == context_id(ctx)
    return ours and handle > 0 and slot_of(handle) < all_slots(ctx)


@device
def guess(ctx):
    """A small slot that is probably free: different for each block and each time."""
    return gpu.scatter(ctx.shape >> SHAPE_REQUEST_SHIFT & 31)


@device
def take_bit(ctx, slot):
    """Tries to take a slot: the busy bits of its word before, for ``was_free``."""
    return gpu.or_32_gpu(busy_word(ctx, slot), busy_bit(slot))


@device
def was_free(slot, word):
    return word >> (slot & 31) & 1 == 0


@device
def take_if_free(ctx, slot):
    """Whether a slot was free: it is the caller's now. One access to memory."""
    return was_free(slot, take_bit(ctx, slot))


@device
def open_row(ctx, slot, handle, recv):
    """Enters a request: what the wait needs to know, in one store."""
    gpu.store_pair_gpu(row_address(ctx, slot) + wire.REQUEST_OWNER, handle, recv)


@device
def open_commands(ctx, slot, send):
    """What executing commands of a large request needs to know besides.

    Before ``open_row``, with a release between the two.
    """
    gpu.store_gpu(row_address(ctx, slot) + wire.REQUEST_SEND, send)
    gpu.store_gpu(row_address(ctx, slot) + wire.REQUEST_FINISHED, 0)
    gpu.store_gpu(row_address(ctx, slot) + wire.REQUEST_BLOCK, gpu.block_id())


@device
def claim(ctx, handle):
    """Reserves the request for the calling wait: its owner word before, ``handle`` on success."""
    return gpu.cas_gpu(
        row_address(ctx, slot_of(handle)) + wire.REQUEST_OWNER, handle, handle | CLAIMED
    )


@device
def begin_claim(ctx, handle, wanted):
    """``claim`` and ``receive_address`` in the lanes that want them; nobody waits for them yet."""
    row = row_address(ctx, slot_of(handle))
    return gpu.claim_if(
        row + wire.REQUEST_OWNER, handle, handle | CLAIMED, row + wire.REQUEST_RECV, wanted
    )


@device
def receive_address(ctx, slot):
    """Where the payload of the slot's open request goes (any lane)."""
    return gpu.load_gpu(row_address(ctx, slot) + wire.REQUEST_RECV)


@device
def unclaim(ctx, handle):
    gpu.store_gpu(row_address(ctx, slot_of(handle)) + wire.REQUEST_OWNER, handle)


@device
def open_seq(ctx, slot):
    """Tag of the request that is, or was last, open in the slot; 0 when there was none."""
    return gpu.load_gpu(row_address(ctx, slot) + wire.REQUEST_OWNER) & wire.LOW_32


@device
def release(ctx, slot):
    """Frees a slot whose claim the caller holds, after the last look at its staging.

    No fence: what was read from staging has been stored elsewhere, or has passed a barrier, so
    those loads are over; whoever gets the slot next cannot disturb them. The owner word stays as
    the claim left it, which no handle matches: a store to clear it could reach memory after the
    next owner's, which comes from another SM.
    """
    gpu.clear_bits_32_gpu(busy_word(ctx, slot), busy_bit(slot))


@device
def release_after(ctx, handle, error):
    """``release`` of a request that ended with an error class.

    A send that was refused may still have stores on their way to the receiver's mailbox, and
    no receiver has waited for them: they must not come after those of the slot's next message.
    """
    if error != SUCCESS and is_large(handle):
        gpu.fence_sys()
    release(ctx, slot_of(handle))


@device
def busy_word(ctx, slot):
    """Address of the word that has the slot's busy bit."""
    return busy_address(ctx, slot >> 5)


@device
def busy_bit(slot):
    return 1 << (slot & 31)
