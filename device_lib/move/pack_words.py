"""Packing by words of 4, 8 or 16 bytes, and byte by byte where alignment allows no more.

One body for both directions, every scope and every layout: ``make_move(width, lookup, unpack)``.
All threads of a scope call it with their rank; it moves any range of words of a part. Each turn
moves eight words a thread (four of 16 bytes): all loads are under way before the first store, which
is what fills the memory system; positions past the end are looked up as the last one and not
stored.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.words import LOAD, LOAD_STAGED, STORE_IF, gather, gather_staged, scatter
from device_lib.platform.primitives import device

WIDTHS = (16, 8, 4)


def turn_words(width: int) -> int:
    """Words a thread moves in one turn."""
    return 4 if width == 16 else 8


def make_move(width: int, lookup: Callable, unpack: bool, staged: bool) -> Callable:
    """The mover of words of one width: for parts, pointers and ranges that are aligned to it.

    Args:
        staged: the packed side is staging, which an unpack must read past L1.
    """
    load = LOAD_STAGED[width] if unpack and staged else LOAD[width]
    store_if = STORE_IF[width]
    shift = width.bit_length() - 1
    eight = turn_words(width) == 8

    # long: four words a turn, each step for all before the next
    # wide: every mover has these
    @device
    def move(descriptor, dims, wide, user, packed, first, last, rank, size):
        """Moves the calling thread's share of words ``first..last`` of a part.

        Args:
            user: address that displacements count from.
            packed: address of the part's first packed byte.
        """
        w = first + rank
        end = last - 1
        while w < last:
            w1 = w + size
            w2 = w1 + size
            w3 = w2 + size
            c1 = min(w1, end)
            c2 = min(w2, end)
            c3 = min(w3, end)
            a0, a1, a2, a3, l0, l1, l2, l3 = lookup(descriptor, dims, wide, shift, w, c1, c2, c3)
            f0 = user + a0
            f1 = user + a1
            f2 = user + a2
            f3 = user + a3
            t0 = packed + (w << shift)
            t1 = packed + (c1 << shift)
            t2 = packed + (c2 << shift)
            t3 = packed + (c3 << shift)
            if unpack:
                f0, t0 = t0, f0
                f1, t1 = t1, f1
                f2, t2 = t2, f2
                f3, t3 = t3, f3
            if eight:
                w4 = w3 + size
                w5 = w4 + size
                w6 = w5 + size
                w7 = w6 + size
                c4 = min(w4, end)
                c5 = min(w5, end)
                c6 = min(w6, end)
                c7 = min(w7, end)
                a4, a5, a6, a7, l4, l5, l6, l7 = lookup(
                    descriptor, dims, wide, shift, c4, c5, c6, c7
                )
                f4 = user + a4
                f5 = user + a5
                f6 = user + a6
                f7 = user + a7
                t4 = packed + (c4 << shift)
                t5 = packed + (c5 << shift)
                t6 = packed + (c6 << shift)
                t7 = packed + (c7 << shift)
                if unpack:
                    f4, t4 = t4, f4
                    f5, t5 = t5, f5
                    f6, t6 = t6, f6
                    f7, t7 = t7, f7
                x0, y0 = load(f0)
                x1, y1 = load(f1)
                x2, y2 = load(f2)
                x3, y3 = load(f3)
                x4, y4 = load(f4)
                x5, y5 = load(f5)
                x6, y6 = load(f6)
                x7, y7 = load(f7)
                store_if(t0, x0, y0, True)
                store_if(t1, x1, y1, w1 < last)
                store_if(t2, x2, y2, w2 < last)
                store_if(t3, x3, y3, w3 < last)
                store_if(t4, x4, y4, w4 < last)
                store_if(t5, x5, y5, w5 < last)
                store_if(t6, x6, y6, w6 < last)
                store_if(t7, x7, y7, w7 < last)
                w = w7 + size
            else:
                x0, y0 = load(f0)
                x1, y1 = load(f1)
                x2, y2 = load(f2)
                x3, y3 = load(f3)
                store_if(t0, x0, y0, True)
                store_if(t1, x1, y1, w1 < last)
                store_if(t2, x2, y2, w2 < last)
                store_if(t3, x3, y3, w3 < last)
                w = w3 + size

    return move


def make_move_pairs(lookup: Callable, unpack: bool) -> Callable:
    """The mover of words of 8 bytes of a run list, two neighbours at a time.

    Finding a run costs more than moving a word, and the next word is nearly always in the same run.
    For an even first word, and a packed side that is aligned to 16.
    """
    load_user = LOAD[8]
    load_packed = LOAD[16]
    store_user = STORE_IF[8]
    store_packed = STORE_IF[16]

    # long: four words a turn, each step for all before the next
    # wide: every mover has these
    @device
    def move(descriptor, dims, wide, user, packed, first, last, rank, size):
        """As the mover of ``make_move``."""
        w = first + 2 * rank
        end = last - 1
        step = 2 * size
        while w < last:
            w1 = w + step
            w2 = w1 + step
            w3 = w2 + step
            c0 = min(w, end)
            c1 = min(w1, end)
            c2 = min(w2, end)
            c3 = min(w3, end)
            a0, a1, a2, a3, l0, l1, l2, l3 = lookup(descriptor, dims, wide, 3, c0, c1, c2, c3)
            b0 = a0 + 8
            b1 = a1 + 8
            b2 = a2 + 8
            b3 = a3 + 8
            if min(min(l0, l1), min(l2, l3)) <= 8:
                n0 = min(c0 + 1, end)
                n1 = min(c1 + 1, end)
                n2 = min(c2 + 1, end)
                n3 = min(c3 + 1, end)
                b0, b1, b2, b3, l0, l1, l2, l3 = lookup(descriptor, dims, wide, 3, n0, n1, n2, n3)
            # The last pair may lack its second word, which is then the first once more.
            b0 = a0 if c0 == end else b0
            b1 = a1 if c1 == end else b1
            b2 = a2 if c2 == end else b2
            b3 = a3 if c3 == end else b3
            t0 = packed + (c0 << 3)
            t1 = packed + (c1 << 3)
            t2 = packed + (c2 << 3)
            t3 = packed + (c3 << 3)
            if unpack:
                if w3 < end:
                    x0, y0 = load_packed(t0)
                    x1, y1 = load_packed(t1)
                    x2, y2 = load_packed(t2)
                    x3, y3 = load_packed(t3)
                else:
                    x0, y0 = load_pair(t0, c0 < end)
                    x1, y1 = load_pair(t1, c1 < end)
                    x2, y2 = load_pair(t2, c2 < end)
                    x3, y3 = load_pair(t3, c3 < end)
                store_user(user + a0, x0, 0, True)
                store_user(user + b0, y0, 0, w < end)
                store_user(user + a1, x1, 0, w1 < last)
                store_user(user + b1, y1, 0, w1 < end)
                store_user(user + a2, x2, 0, w2 < last)
                store_user(user + b2, y2, 0, w2 < end)
                store_user(user + a3, x3, 0, w3 < last)
                store_user(user + b3, y3, 0, w3 < end)
            else:
                x0, z0 = load_user(user + a0)
                y0, z0 = load_user(user + b0)
                x1, z1 = load_user(user + a1)
                y1, z1 = load_user(user + b1)
                x2, z2 = load_user(user + a2)
                y2, z2 = load_user(user + b2)
                x3, z3 = load_user(user + a3)
                y3, z3 = load_user(user + b3)
                store_packed(t0, x0, y0, w < end)
                store_packed(t1, x1, y1, w1 < end)
                store_packed(t2, x2, y2, w2 < end)
                store_packed(t3, x3, y3, w3 < end)
                # One word alone, at the very end.
                store_user(t0, x0, 0, w == end)
                store_user(t1, x1, 0, w1 == end)
                store_user(t2, x2, 0, w2 == end)
                store_user(t3, x3, 0, w3 == end)
            w = w3 + step

    @device
    def load_pair(address, both):
        low, none = load_user(address)
        high = low
        if both:
            high, none = load_user(address + 8)
        return low, high

    return move


def make_move_bytes(lookup: Callable, unpack: bool, staged: bool) -> Callable:
    """The mover for any alignment of lengths, displacements, pointers and ranges.

    Threads take aligned 8-byte words of the packed side, put together from (or spread over) the
    runs they touch. A word at either end of the range may be partial.
    """
    gather_packed = gather_staged if staged else gather

    @device
    def rest(descriptor, dims, wide, user, position, done, count, word):
        """The bytes of a word beyond the run it begins in."""
        while done < count:
            at = position + done
            a0, a1, a2, a3, l0, l1, l2, l3 = lookup(descriptor, dims, wide, 0, at, at, at, at)
            take = min(l0, count - done)
            if unpack:
                scatter(user + a0, take, word >> (done << 3))
            else:
                word |= gather(user + a0, take) << (done << 3)
            done += take
        return word

    # wide: every mover has these
    @device
    def move(descriptor, dims, wide, user, packed, first, last, rank, size):
        """Moves the calling thread's share of bytes ``first..last`` of a part."""
        lead = (packed + first) & 7
        w = first - lead + (rank << 3)
        step = size << 3
        while w < last:
            w1 = w + step
            w2 = w1 + step
            w3 = w2 + step
            p0 = max(w, first)
            n0 = min(w + 8, last) - p0
            p1 = min(w1, last - 1)
            n1 = max(min(w1 + 8, last) - w1, 0)
            p2 = min(w2, last - 1)
            n2 = max(min(w2 + 8, last) - w2, 0)
            p3 = min(w3, last - 1)
            n3 = max(min(w3 + 8, last) - w3, 0)
            a0, a1, a2, a3, l0, l1, l2, l3 = lookup(descriptor, dims, wide, 0, p0, p1, p2, p3)
            l0 = min(l0, n0)
            l1 = min(l1, n1)
            l2 = min(l2, n2)
            l3 = min(l3, n3)
            if unpack:
                x0 = gather_packed(packed + p0, n0)
                x1 = gather_packed(packed + p1, n1)
                x2 = gather_packed(packed + p2, n2)
                x3 = gather_packed(packed + p3, n3)
                scatter(user + a0, l0, x0)
                scatter(user + a1, l1, x1)
                scatter(user + a2, l2, x2)
                scatter(user + a3, l3, x3)
                rest(descriptor, dims, wide, user, p0, l0, n0, x0)
                rest(descriptor, dims, wide, user, p1, l1, n1, x1)
                rest(descriptor, dims, wide, user, p2, l2, n2, x2)
                rest(descriptor, dims, wide, user, p3, l3, n3, x3)
            else:
                x0 = gather(user + a0, l0)
                x1 = gather(user + a1, l1)
                x2 = gather(user + a2, l2)
                x3 = gather(user + a3, l3)
                x0 = rest(descriptor, dims, wide, user, p0, l0, n0, x0)
                x1 = rest(descriptor, dims, wide, user, p1, l1, n1, x1)
                x2 = rest(descriptor, dims, wide, user, p2, l2, n2, x2)
                x3 = rest(descriptor, dims, wide, user, p3, l3, n3, x3)
                scatter(packed + p0, n0, x0)
                scatter(packed + p1, n1, x1)
                scatter(packed + p2, n2, x2)
                scatter(packed + p3, n3, x3)
            w = w3 + step

    return move
