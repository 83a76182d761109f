"""Reducing a segment: what all ranks have of it, in their order, and the result to all of them.

A thread has two words of 16 bytes of each of two ranks under way at once. They lie far apart, so a
warp reads and writes whole lines. More would not fit into the 64 registers that blocks of 1024
threads leave to each.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.reduce import combine
from device_lib.move.words import gather_staged, scatter
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, load_8, load_16_sys_if, opaque, store_16_if
from gmpi.contract.pipelines import TARGET

_WORD = 16


@device
def _combine_four(what, a, b):
    """Four words of 8 bytes with four others, by one copy of the code."""
    a0, a1, a2, a3 = a
    b0, b1, b2, b3 = b
    turns = 4
    while turns > 0:
        result = combine(what, a0, b0)
        a0, a1, a2, a3 = a1, a2, a3, result
        b0, b1, b2 = b1, b2, b3
        turns -= opaque(1)
    return a0, a1, a2, a3


@device
def _load_two(at, left, step):
    """Words of 16 bytes, ``step`` apart, as far as there are ``left`` bytes."""
    a0, a1 = load_16_sys_if(at, left > 0)
    a2, a3 = load_16_sys_if(at + step, left > step)
    return a0, a1, a2, a3


@device
def _store_two(at, left, step, words):
    a0, a1, a2, a3 = words
    store_16_if(at, a0, a1, left > 0)
    store_16_if(at + step, a2, a3, left > step)


# Each in a function of its own, with as few arguments as it needs: so the first loop has enough
# registers.


@device
def _reduce_words(table, stride, what, ranks, at, end, rank, size):
    step = size * _WORD
    at += rank * _WORD
    while at < end:
        words = _load_two(load_8(table) + at, end - at, step)
        source = 1
        while source < ranks:
            more = _load_two(load_8(table + source * stride) + at, end - at, step)
            words = _combine_four(what, words, more)
            source += opaque(1)
        peer = 0
        while peer < ranks:
            _store_two(load_8(table + peer * stride + TARGET) + at, end - at, step, words)
            peer += opaque(1)
        at += opaque(2 * step)
    return 0


@device
def _reduce_rest(table, stride, what, ranks, at, end, rank, size):
    at += rank * 8
    while at < end:
        count = min(end - at, 8)
        word = gather_staged(load_8(table) + at, count)
        source = 1
        while source < ranks:
            other = gather_staged(load_8(table + source * stride) + at, count)
            word = combine(what, word, other)
            source += opaque(1)
        peer = 0
        while peer < ranks:
            scatter(load_8(table + peer * stride + TARGET) + at, count, word)
            peer += opaque(1)
        at += opaque(size * 8)
    return 0


_words_linked = linked("gmpi_direct_reduce_words", 8, 1, _reduce_words)
_rest_linked = linked("gmpi_direct_reduce_rest", 8, 1, _reduce_rest)


# wide: what all threads have read already
@device
def reduce_segment(table, stride, what, ranks, begin, nbytes, by_words, rank, size):
    """Reduces bytes of a segment.

    Args:
        table: for each rank, ``stride`` bytes apart, where bytes are read from, and, TARGET bytes
            further, where the result is stored.
        begin: of the bytes, from these places on.
        by_words: whether all places, and ``begin``, are multiples of 16.
    """
    end = begin + nbytes
    if by_words:
        words = nbytes & ~(_WORD - 1)
        _words_linked(table, stride, what, ranks, begin, begin + words, rank, size)
        begin += words
    if begin < end:
        _rest_linked(table, stride, what, ranks, begin, end, rank, size)
