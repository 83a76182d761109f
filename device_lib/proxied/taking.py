"""Taking a free slot: what a request is opened in.

Large slots are few, and requests hold them until their messages are matched. So a legal program may
hold all of them by requests that wait for messages whose sends find none. Then a request takes a
*narrow* slot: of the large class, but without chunk buffers (``gmpi/contract/wire.py``). That is
slower for sends, so these wait for a large slot for a moment, and receives leave some to them.

Called by one lane, except where it says otherwise.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache

from device_lib.platform import context
from device_lib.platform import primitives as gpu
from device_lib.platform.library import declared
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope, warp_mask
from device_lib.proxied import slots
from gmpi.contract.constants import GMPI_ERR_NO_RESOURCE
from gmpi.contract.wire import CONTROL_ABORT, CONTROL_RESOURCE_NS, LOW_32, OP_BSEND, OP_IRECV

BUSY = -256  # no slot is free now; beyond all error classes

# What a slot is wanted for.
SMALL = 0
LARGE = 1
LARGE_RECEIVE = 2
NARROW = 3  # whose bytes the proxy asks for, all of them

# How long a request waits for a large slot before it takes a narrow one: some messages' time. A
# receive on one node does not: it reads the sender's memory in any case.
_NARROW_NS = 1_000_000


@device
def large_kind(word0):
    """What a call of the large class wants a slot for; ``word0`` is of its record."""
    op = word0 & 0xFF
    if op == OP_BSEND:
        return NARROW
    return LARGE_RECEIVE if op == OP_IRECV else LARGE


@device
def most_open(ctx, large):
    """How many requests of a class can be open at once."""
    if large:
        return context.large_slots(ctx) + context.narrow_slots(ctx)
    return context.request_slots(ctx)


@device
def _search(ctx, first, begin, words, tries, allowed):
    """Tries words of ``begin .. begin + words`` cyclically from ``first``: the slot, or -1.

    Args:
        allowed: the bits of each word that may be taken.
    """
    tried = 0
    while tried < tries:
        word = begin + ((first + tried) & (words - 1))
        address = context.busy_address(ctx, word)
        free = ~gpu.load_gpu(address) & allowed
        while free != 0:
            bit = gpu.first_bit(free)
            old = gpu.or_32_gpu(address, 1 << bit)
            if old >> bit & 1 == 0:
                return word << 5 | bit
            free = ~old & allowed
        tried += gpu.opaque(1)
    return -1


@device
def try_some(ctx, lane, mask):
    """A small slot without waiting, by all lanes of a warp; -1 if it is not easily found."""
    slot = -1
    if lane == 0:
        slot = _search(ctx, slots.guess(ctx) >> 5, 0, context.request_words(ctx), 4, LOW_32)
    return gpu.shuffle(mask, slot, 0)


@device
def large_share(ctx, receives):
    """How many large slots of a word of busy bits a call may take: receives leave a quarter.

    Receives hold their slots until somebody sends, sends only as long as their receives are there.
    """
    most = min(context.large_slots(ctx), 32)
    return most - (most >> 2) if receives else 32


@device
def guess_large(ctx, share):
    """A large slot that may be free: different for each block and each time."""
    anywhere = slots.guess(ctx)
    word = context.request_words(ctx) + (anywhere >> 5 & context.large_words(ctx) - 1)
    return word << 5 | (anywhere & 31) * share >> 5


@device
def try_beside(ctx, slot, word, share):
    """Another slot of the same word of busy bits, which were ``word`` a moment ago; -1 if none."""
    free = ~word & (1 << share) - 1
    if free == 0:
        return -1
    bit = gpu.first_bit(free)
    beside = slot & ~31 | bit
    if slots.take_if_free(ctx, beside):
        return beside
    return -1


@device
def _find(ctx, kind):
    """A slot without waiting, by one lane; -1: there is none."""
    first = slots.guess(ctx) >> 5
    begin = 0
    words = context.request_words(ctx)
    share = 32
    likely = slots.guess(ctx)
    if kind != SMALL:
        begin = words
        words = context.large_words(ctx)
        share = large_share(ctx, kind == LARGE_RECEIVE)
        likely = guess_large(ctx, share)
    # Most likely one access to memory, at a bit of its own; else look around.
    if slots.take_if_free(ctx, likely):
        return likely
    return _search(ctx, first, begin, words, words, (1 << share) - 1)


@device
def acquire(ctx, lane, mask, kind, deadline):
    """A slot of a kind, by all lanes of a warp, from whoever closes a request.

    Args:
        deadline: what this has returned the time before, first 0.

    Returns:
        (slot, deadline). Slot BUSY: there is none now, help others and come again; minus an error
        class when none came free for ``CONTROL_RESOURCE_NS``, or waits were aborted.
    """
    slot = -1
    if lane == 0:
        if kind != NARROW:
            slot = _find(ctx, kind)
        if slot < 0:
            patience = gpu.load_sys(ctx.mapped + CONTROL_RESOURCE_NS)
            now = gpu.timer_ns()
            if deadline == 0:
                deadline = now + patience
            waited = now - (deadline - patience)
            at_once = kind == NARROW or (kind == LARGE_RECEIVE and context.has_p2p(ctx))
            if kind != SMALL and (at_once or waited >= min(patience, _NARROW_NS)):
                words = context.narrow_words(ctx)
                slot = _search(
                    ctx, slots.guess(ctx), context.first_narrow(ctx) >> 5, words, words, LOW_32
                )
            if slot < 0:
                error = gpu.load_sys(ctx.mapped + CONTROL_ABORT)
                if error == 0 and now > deadline:
                    error = GMPI_ERR_NO_RESOURCE
                slot = -error if error != 0 else BUSY
                gpu.pause(1000)
    return gpu.shuffle(mask, slot, 0), deadline


@device
def _close_none(ctx, patience):
    """In place of ``close_freed``."""
    return 0


@cache
def make_take_slot(scope: Scope, help_others: Callable, closes: bool = True) -> Callable:
    """``acquire`` for a scope, all of whose threads call it together.

    Args:
        closes: whether it closes requests that were freed; not where it is a part of doing that.
    """
    leads = scope.leads
    broadcast = scope.broadcast
    close_freed = _close_none
    if closes:  # device_lib/api/freeing.py
        close_freed = declared(f"gmpi_close_freed_{scope.name}", 4, 1)

    @device
    def take_slot(ctx, slot, kind):
        """A slot of a kind, or minus the error class; the same in all threads.

        While there is none, others' commands are executed: this is a wait like any other, and
        what it waits for may be waiting for them. Requests that were freed hold their slots until
        somebody closes them: who needs one does.

        Args:
            slot: one that the leading warp has already, or -1.
        """
        deadline = 0
        if leads() and slot < 0:
            slot, deadline = acquire(ctx, gpu.lane_id(), warp_mask(), kind, deadline)
        slot = broadcast(slot)
        while slot == BUSY:
            help_others(ctx)
            close_freed(ctx, 0)
            if leads():
                slot, deadline = acquire(ctx, gpu.lane_id(), warp_mask(), kind, deadline)
            slot = broadcast(slot)
        return slot

    return take_slot
