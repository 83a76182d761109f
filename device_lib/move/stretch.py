"""Copying bytes between the user's buffer and another GPU's memory, wherever both begin.

An element of up to 8 bytes that lies at a multiple of its size on both sides is loaded and stored
in one piece. MPI does not ask for that of a Put or a Get, but a flag may be such an element.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.copy import copy_from_staging, copy_to_staging
from device_lib.move.words import gather, gather_staged, scatter
from device_lib.platform.primitives import device, int64, load_8, load_sys, opaque, store_8

_WORD = 15  # bytes before a multiple of 16


@device
def _shift_of(bits):
    """log2 of the largest power of two, at most 8, of which all these are multiples."""
    if bits & 7 == 0:
        return 3
    if bits & 3 == 0:
        return 2
    if bits & 1 == 0:
        return 1
    return 0


def _make(load_8: Callable, gather: Callable) -> Callable:
    @device
    def elements(target, source, nbytes, shift, rank, size):
        """Copies elements of ``1 << shift`` bytes, one for each thread in turn."""
        at = int64(rank) << shift
        while at < nbytes:
            if shift == 3:
                store_8(target + at, load_8(source + at))
            else:
                scatter(target + at, 1 << shift, gather(source + at, 1 << shift))
            at += opaque(int64(size) << shift)

    return elements


_put_elements = _make(load_8, gather)
_take_elements = _make(load_sys, gather_staged)


@device
def put_stretch(target, source, nbytes, rank, size):
    """Stores the calling thread's share of ``nbytes`` of a buffer to another GPU's memory.

    All ``size`` threads of a scope call, each with its ``rank``.
    """
    shift = _shift_of(target | source | nbytes)
    if nbytes <= int64(size) << shift:
        _put_elements(target, source, nbytes, shift, rank, size)
    else:
        head = min(-target & _WORD, nbytes)
        body = (nbytes - head) & ~_WORD
        tail = head + body
        _put_elements(target, source, head, shift, rank, size)
        _put_elements(target + tail, source + tail, nbytes - tail, shift, rank, size)
        # Last: what is needed after a call is in registers that all threads must save.
        copy_to_staging(target + head, source + head, body, rank, size)


@device
def take_stretch(target, source, nbytes, rank, size):
    """The reverse: from another GPU's memory, past L1, to a buffer."""
    shift = _shift_of(target | source | nbytes)
    if nbytes <= int64(size) << shift:
        _take_elements(target, source, nbytes, shift, rank, size)
    else:
        head = min(-source & _WORD, nbytes)
        body = (nbytes - head) & ~_WORD
        tail = head + body
        _take_elements(target, source, head, shift, rank, size)
        _take_elements(target + tail, source + tail, nbytes - tail, shift, rank, size)
        copy_from_staging(target + head, source + head, body, rank, size)
