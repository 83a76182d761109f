"""Request slots: who holds which, from the call that opens a request to the wait that closes it.

A slot is a completion in mapped memory, a small staging buffer and a row in device memory; slots
of the large class also have chunk buffers. Having a slot *is* having staging: nothing else is
allocated on the way of a message. Which slots are free is a field of busy bits in device memory,
32 to a word, each word on its own line; a warp starts at a word of its own, so warps rarely meet.

A handle names slot and generation (the tag of the record that opened the request). The row keeps
the handle of the open request, so a stale, foreign or invented handle is told apart from a valid
one by one comparison, and two waits on one request cannot both win.

Called by one lane, except where it says otherwise.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.context import (
    all_slots,
    busy_address,
    context_id,
    large_words,
    request_words,
    row_address,
)
from device_lib.primitives import (
    block_id,
    block_threads,
    cas_gpu,
    clear_bits_release_gpu,
    clock,
    device,
    first_bit,
    load_gpu,
    load_sys,
    opaque,
    or_gpu,
    pause,
    shuffle,
    store_gpu,
    thread_rank,
    timer_ns,
)
from device_lib.ring import tag_of
from gmpi.constants import GMPI_ERR_NO_RESOURCE
from gmpi.wire import (
    BUSY_BITS,
    CONTROL_ABORT,
    HANDLE_CONTEXT_MASK,
    HANDLE_CONTEXT_SHIFT,
    HANDLE_ERROR_SHIFT,
    HANDLE_LARGE_SHIFT,
    HANDLE_SLOT_MASK,
    HANDLE_SLOT_SHIFT,
    HANDLE_UNITS_MASK,
    HANDLE_UNITS_SHIFT,
    REQUEST_BACK,
    REQUEST_OWNER,
    REQUEST_RECV,
    REQUEST_SEND,
    TAG_MASK,
)

CLAIMED = 1 << 59  # in REQUEST_OWNER: a wait is under way


@device
def make_handle(ctx, slot, ticket, units, large):
    return (
        tag_of(ticket)
        | slot << HANDLE_SLOT_SHIFT
        | units << HANDLE_UNITS_SHIFT
        | large << HANDLE_LARGE_SHIFT
        | context_id(ctx) << HANDLE_CONTEXT_SHIFT
    )


@device
def error_handle(error_class):
    """The handle of a request that could not be opened; waiting for it returns the class."""
    return 1 << HANDLE_ERROR_SHIFT | error_class


@device
def slot_of(handle):
    return handle >> HANDLE_SLOT_SHIFT & HANDLE_SLOT_MASK


@device
def units_of(handle):
    return handle >> HANDLE_UNITS_SHIFT & HANDLE_UNITS_MASK


@device
def is_large(handle):
    return handle >> HANDLE_LARGE_SHIFT & 1


@device
def names_slot(ctx, handle):
    """Whether the handle is of this context and within its slots (any lane, no memory access)."""
    ours = handle >> HANDLE_CONTEXT_SHIFT & HANDLE_CONTEXT_MASK == context_id(ctx)
    return ours and handle > 0 and slot_of(handle) < all_slots(ctx)


@device
def first_word(ctx):
    """The word of busy bits at which the calling warp starts to look."""
    warps = (block_threads() + 31) >> 5
    return (block_id() * warps + (thread_rank() >> 5)) & (request_words(ctx) - 1)


@device
def try_first(ctx):
    """One attempt, one atomic: the slot, or -1. Overlaps with taking a ticket."""
    word = first_word(ctx)
    bit = clock() >> 4 & (BUSY_BITS - 1)
    old = or_gpu(busy_address(ctx, word), 1 << bit)
    if old >> bit & 1:
        return -1
    return word * BUSY_BITS + bit


@device
def _search(ctx, first, begin, words):
    """Tries words ``begin .. begin + words`` cyclically from ``first``: the slot, or -1."""
    tried = 0
    while tried < words:
        word = begin + ((first + tried) & (words - 1))
        address = busy_address(ctx, word)
        free = ~load_gpu(address) & 0xFFFFFFFF
        while free != 0:
            bit = first_bit(free)
            old = or_gpu(address, 1 << bit)
            if old >> bit & 1 == 0:
                return word * BUSY_BITS + bit
            free = ~old & 0xFFFFFFFF
        tried += opaque(1)
    return -1


@device
def acquire(ctx, lane, mask, large):
    """A slot of the class, by all lanes of a warp; minus the error class when none came free.

    Waits at most ``ctx.resource_ns`` for other warps to close a request.
    """
    slot = -1
    if lane == 0:
        first = first_word(ctx)
        begin = 0
        words = request_words(ctx)
        if large:
            begin = words
            words = large_words(ctx)
        deadline = timer_ns() + ctx.resource_ns
        error = 0
        while slot < 0 and error == 0:
            slot = _search(ctx, first, begin, words)
            if slot < 0:
                error = load_sys(ctx.mapped + CONTROL_ABORT)
                if error == 0 and timer_ns() > deadline:
                    error = GMPI_ERR_NO_RESOURCE
                pause(1000)
        if slot < 0:
            slot = -error
    return shuffle(mask, slot, 0)


@device
def open_row(ctx, slot, handle, send, recv, back):
    """Enters a request: what the wait, and whoever carries out its orders, need to know."""
    address = row_address(ctx, slot)
    store_gpu(address + REQUEST_SEND, send)
    store_gpu(address + REQUEST_RECV, recv)
    store_gpu(address + REQUEST_BACK, back)
    store_gpu(address + REQUEST_OWNER, handle)


@device
def claim(ctx, handle):
    """Reserves the request for the calling wait: its owner word before, ``handle`` on success."""
    return cas_gpu(row_address(ctx, slot_of(handle)) + REQUEST_OWNER, handle, handle | CLAIMED)


@device
def receive_address(ctx, slot):
    """Where the payload of the slot's open request goes (any lane)."""
    return load_gpu(row_address(ctx, slot) + REQUEST_RECV)


@device
def unclaim(ctx, handle):
    store_gpu(row_address(ctx, slot_of(handle)) + REQUEST_OWNER, handle)


@device
def open_tag(ctx, slot):
    """Tag of the request that is open in the slot, 0 when it is free."""
    return load_gpu(row_address(ctx, slot) + REQUEST_OWNER) & TAG_MASK


@device
def release(ctx, slot):
    """Frees a slot whose claim the caller holds, after its last look at staging."""
    store_gpu(row_address(ctx, slot) + REQUEST_OWNER, 0)
    word = slot // BUSY_BITS
    clear_bits_release_gpu(busy_address(ctx, word), 1 << (slot & (BUSY_BITS - 1)))
