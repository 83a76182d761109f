"""Who is to execute commands of narrow requests, whose slots have no bits in the control packets.

These have a bit for each large slot; narrow slots are too many. Blocks that have
opened narrow requests with commands are told by the other half of ``CONTROL_BLOCKS``, and find them
by ``CONTROL_NARROW``, a bit a slot, which nobody reads while there are none. When nobody has come
for a command for as long as with those of large slots, all blocks are told.

    G_NARROW    for each bit of CONTROL_BLOCKS, how many such requests there are
                words as those of CONTROL_NARROW: of which of these nothing was heard
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract.wire import (
    BLOCK_BITS,
    CONTROL_BLOCKS,
    CONTROL_NARROW,
    LOW_32,
    NARROW_SHIFT,
    NARROW_WORDS,
)
from host_proxy.platform import state as st
from host_proxy.platform.native import bump, get, jit, load, put, store, store_release


@jit
def is_narrow(g, row):
    """Whether the slot is of the large class and has no chunk buffers."""
    return get(row, st.S_SLOT) >= get(g, st.G_FIRST_NARROW)


@jit
def show_blocks(g):
    """Tells all that wait which blocks have opened requests that have commands."""
    narrow = LOW_32 if get(g, st.G_NARROW_HELPED) else get(g, st.G_NARROW_BLOCKS)
    store_release(
        get(g, st.G_CONTROL) + CONTROL_BLOCKS, get(g, st.G_BLOCKS) | narrow << NARROW_SHIFT
    )


@jit
def _place(g, row):
    """(offset of the word in which the slot has its bit, bit)."""
    number = get(row, st.S_SLOT) - get(g, st.G_FIRST_NARROW)
    return number // 64 * 8, 1 << number % 64


@jit
def _quiet(g, word):
    """Address of one of the words that say of which requests nothing was heard."""
    return get(g, st.G_NARROW) + (BLOCK_BITS + 1) * 8 + word


@jit
def _count(g, row, change):
    """One request more, or less, of a block that has commands."""
    block = get(row, st.S_BLOCK) & BLOCK_BITS
    bump(get(g, st.G_NARROW), block, change)
    bits = get(g, st.G_NARROW_BLOCKS) & ~(1 << block)
    if get(get(g, st.G_NARROW), block) > 0:
        bits |= 1 << block
    put(g, st.G_NARROW_BLOCKS, bits)


@jit
def show_narrow(g, row):
    """A narrow request has a command."""
    word, bit = _place(g, row)
    shown = get(g, st.G_CONTROL) + CONTROL_NARROW + word
    if load(shown) & bit == 0:
        store(_quiet(g, word), load(_quiet(g, word)) & ~bit)
        store_release(shown, load(shown) | bit)
        _count(g, row, 1)
        show_blocks(g)


@jit
def hear_narrow(g, row):
    """A command of a narrow request has been executed."""
    word, bit = _place(g, row)
    store(_quiet(g, word), load(_quiet(g, word)) & ~bit)


@jit
def forget_narrow(g, row):
    """A narrow request has no command any more."""
    word, bit = _place(g, row)
    shown = get(g, st.G_CONTROL) + CONTROL_NARROW + word
    if load(shown) & bit:
        store_release(shown, load(shown) & ~bit)
        _count(g, row, -1)
        if get(g, st.G_NARROW_BLOCKS) == 0:
            put(g, st.G_NARROW_HELPED, 0)
        show_blocks(g)


@jit
def find_overdue_narrow(g):
    """``completion.find_overdue`` for narrow requests."""
    if get(g, st.G_NARROW_BLOCKS) == 0:
        return
    overdue = 0
    for word in range(0, NARROW_WORDS * 8, 8):
        shown = load(get(g, st.G_CONTROL) + CONTROL_NARROW + word)
        overdue |= load(_quiet(g, word)) & shown
        store(_quiet(g, word), shown)
    helped = 1 if overdue else 0
    if get(g, st.G_NARROW_HELPED) != helped:
        put(g, st.G_NARROW_HELPED, helped)
        show_blocks(g)
