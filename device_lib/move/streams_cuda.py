"""Copies of aligned staging by one thread's share, with several loads of it under way.

Staging is read past L1, where lines of its previous message may still be (``_sys``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from numba import int32

from device_lib.platform.primitives import device, int64, opaque, uint32
from device_lib.platform.primitives_cuda import (
    load_1,
    load_4,
    load_8,
    load_16,
    load_16_if,
    load_16_sys_if,
    store_1,
    store_4,
    store_8,
    store_16,
    store_16_if,
)


@device
def gather_16(address):
    """16 bytes of a buffer, by the widest loads that its alignment allows."""
    if address & 15 == 0:
        return load_16(address)
    if address & 7 == 0:
        return load_8(address), load_8(address + 8)
    if address & 3 == 0:
        low = load_4(address) | load_4(address + 4) << 32
        return low, load_4(address + 8) | load_4(address + 12) << 32
    low = 0
    high = 0
    for i in range(8):
        low |= load_1(address + i) << (8 * i)
        high |= load_1(address + 8 + i) << (8 * i)
    return low, high


@device
def _scatter(address, low, high):
    """The reverse of ``gather_16``."""
    if address & 15 == 0:
        store_16(address, low, high)
    elif address & 7 == 0:
        store_8(address, low)
        store_8(address + 8, high)
    elif address & 3 == 0:
        store_4(address, low)
        store_4(address + 4, low >> 32)
        store_4(address + 8, high)
        store_4(address + 12, high >> 32)
    else:
        for i in range(8):
            store_1(address + i, low >> (8 * i))
            store_1(address + 8 + i, high >> (8 * i))


# wide: eight words in registers
@device
def _scatter_8(
    to, end, step, a0, b0, a1, b1, a2, b2, a3, b3, a4, b4, a5, b5, a6, b6, a7, b7
):  # fmt: skip
    k = 0
    while k < 8 and to < end:
        low = a0
        high = b0
        low, high = (a1, b1) if k == 1 else (low, high)
        low, high = (a2, b2) if k == 2 else (low, high)
        low, high = (a3, b3) if k == 3 else (low, high)
        low, high = (a4, b4) if k == 4 else (low, high)
        low, high = (a5, b5) if k == 5 else (low, high)
        low, high = (a6, b6) if k == 6 else (low, high)
        low, high = (a7, b7) if k == 7 else (low, high)
        _scatter(to, low, high)
        to += step
        k += opaque(1)


def _make_stream(load):
    """Copies aligned words of 16 bytes: every ``step`` bytes one, until ``to`` reaches ``end``.

    Eight words of each thread are under way at all times: a word is stored when it has come
    and the one eight steps on is asked for into the same registers. Words past the end are not
    asked for at all, so a remainder costs one latency. Addresses advance by one addition after
    each access: words under way cost their own registers and hardly any more.
    """

    @device
    def several(to, at, end, step):
        ahead = 8 * step
        a0, b0 = load(at, to < end)
        at += step
        a1, b1 = load(at, to + step < end)
        at += step
        a2, b2 = load(at, to + 2 * step < end)
        at += step
        a3, b3 = load(at, to + 3 * step < end)
        at += step
        a4, b4 = load(at, to + 4 * step < end)
        at += step
        a5, b5 = load(at, to + 5 * step < end)
        at += step
        a6, b6 = load(at, to + 6 * step < end)
        at += step
        a7, b7 = load(at, to + 7 * step < end)
        at += step
        while to < end:
            store_16_if(to, a0, b0, to < end)
            a0, b0 = load(at, to + ahead < end)
            at += step
            to += step
            store_16_if(to, a1, b1, to < end)
            a1, b1 = load(at, to + ahead < end)
            at += step
            to += step
            store_16_if(to, a2, b2, to < end)
            a2, b2 = load(at, to + ahead < end)
            at += step
            to += step
            store_16_if(to, a3, b3, to < end)
            a3, b3 = load(at, to + ahead < end)
            at += step
            to += step
            store_16_if(to, a4, b4, to < end)
            a4, b4 = load(at, to + ahead < end)
            at += step
            to += step
            store_16_if(to, a5, b5, to < end)
            a5, b5 = load(at, to + ahead < end)
            at += step
            to += step
            store_16_if(to, a6, b6, to < end)
            a6, b6 = load(at, to + ahead < end)
            at += step
            to += step
            store_16_if(to, a7, b7, to < end)
            a7, b7 = load(at, to + ahead < end)
            at += step
            to += step

    return several


def _make_lean_stream(load):
    """The same for many threads, by how many words are left: four of each thread are under way,
    and no more registers than a function of the library need not save for its caller."""

    @device
    def several(to, at, words, size):
        """
        Args:
            words: from the first one of the thread on, less than 2**31.
            size: threads.
        """
        left = int32(words)
        one = int32(size)
        step = int64(uint32(one)) << 4
        a0, b0 = load(at, left > 0)
        at += step
        a1, b1 = load(at, left > one)
        at += step
        a2, b2 = load(at, left > int32(one << 1))
        at += step
        a3, b3 = load(at, left > int32(int32(one << 1) + one))
        at += step
        ahead = int32(left - int32(one << 2))
        while int32(ahead + int32(one << 2)) > 0:
            store_16(to, a0, b0)
            a0, b0 = load(at, ahead > 0)
            at += step
            to += step
            ahead = int32(ahead - one)
            store_16_if(to, a1, b1, int32(ahead + int32(one << 2)) > 0)
            a1, b1 = load(at, ahead > 0)
            at += step
            to += step
            ahead = int32(ahead - one)
            store_16_if(to, a2, b2, int32(ahead + int32(one << 2)) > 0)
            a2, b2 = load(at, ahead > 0)
            at += step
            to += step
            ahead = int32(ahead - one)
            store_16_if(to, a3, b3, int32(ahead + int32(one << 2)) > 0)
            a3, b3 = load(at, ahead > 0)
            at += step
            to += step
            ahead = int32(ahead - one)

    return several


stream = _make_stream(load_16_if)
stream_sys = _make_stream(load_16_sys_if)
lean_stream = _make_lean_stream(load_16_if)
lean_stream_sys = _make_lean_stream(load_16_sys_if)


@device
def scatter_stream(to, at, end, step):
    while to < end:
        a0, b0 = load_16_sys_if(at, to < end)
        at += step
        a1, b1 = load_16_sys_if(at, to + step < end)
        at += step
        a2, b2 = load_16_sys_if(at, to + 2 * step < end)
        at += step
        a3, b3 = load_16_sys_if(at, to + 3 * step < end)
        at += step
        a4, b4 = load_16_sys_if(at, to + 4 * step < end)
        at += step
        a5, b5 = load_16_sys_if(at, to + 5 * step < end)
        at += step
        a6, b6 = load_16_sys_if(at, to + 6 * step < end)
        at += step
        a7, b7 = load_16_sys_if(at, to + 7 * step < end)
        at += step
        _scatter_8(
            to, end, step, a0, b0, a1, b1, a2, b2, a3, b3, a4, b4, a5, b5, a6, b6, a7, b7
        )  # fmt: skip
        to += 8 * step


@device
def lean_scatter_stream(to, at, end, step):
    while to < end:
        low, high = load_16_sys_if(at, to < end)
        _scatter(to, low, high)
        at += step
        to += step
