"""Packing any range of any part, chosen at run time: what running kernels call.

``pack_part`` and ``unpack_part`` look at the alignment of the pointers and of the part, move what
they can in the widest words that these allow and the ends of the range byte by byte. Each kind of
word and of part has a mover of its own, which is linked, not inlined (``library``): a function
saves registers of each thread that calls it, and those of 1024 threads are more than L1 holds, so
the mover that is called has nothing in it that is not needed. What is so long that positions in
words have more than 31 bits is moved byte by byte.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move import lookup
from device_lib.move.lookup import alignment_shift, dims_of, is_wide
from device_lib.move.pack_words import make_move, make_move_bytes
from device_lib.platform.divide import LIMIT
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, load_8, opaque
from gmpi.datatypes.descriptor import D_BEGIN, D_HEAD, RUN_LIST

_SIZE_SHIFT = 24
_REPEATED_SHIFT = 56
_LOOKUPS = {"strided": lookup.strided_4, "runs": lookup.runs_4}


@device
def _threads(scope):
    """(rank, size, repetitions, of which 2 are many) of a mover's last word."""
    size = scope >> _SIZE_SHIFT & 0xFFFFFFFF
    return scope & (1 << _SIZE_SHIFT) - 1, size, 1 + (scope >> _REPEATED_SHIFT)


def _make_words(width: int, kind: str, unpack: bool) -> Callable:
    """The mover of words ``first`` to ``last`` - 1 of a part."""
    move = make_move(width, _LOOKUPS[kind], unpack, True)

    @device
    def words(descriptor, user, packed, first, last, scope):
        rank, size, count = _threads(scope)
        move(descriptor, dims_of(descriptor, count), False, user, packed, first, last, rank, size)
        return 0

    name = f"gmpi_{'unpack' if unpack else 'pack'}_{kind}_{width}"
    return linked(name, 6, 1, words)  # type: ignore[no-any-return]


def _make_bytes(kind: str, unpack: bool) -> Callable:
    """The mover of bytes ``begin`` to ``end`` - 1."""
    move = make_move_bytes(_LOOKUPS[kind], unpack, True)

    @device
    def move_bytes(descriptor, user, packed, begin, end, scope):
        rank, size, count = _threads(scope)
        wide = is_wide(descriptor, count, 0) or end >= LIMIT
        dims = dims_of(descriptor, count)
        move(descriptor, dims, wide, user, packed, begin, end, rank, size)
        return 0

    name = f"gmpi_{'unpack' if unpack else 'pack'}_{kind}_bytes"
    return linked(name, 6, 1, move_bytes)  # type: ignore[no-any-return]


def _make_part(unpack: bool) -> Callable:
    strided_16, strided_8, strided_4 = (_make_words(n, "strided", unpack) for n in (16, 8, 4))
    runs_16, runs_8, runs_4 = (_make_words(n, "runs", unpack) for n in (16, 8, 4))
    strided_bytes, runs_bytes = _make_bytes("strided", unpack), _make_bytes("runs", unpack)

    @device
    def words(descriptor, runs, shift, user, packed, first, last, scope):
        if shift == 4:
            if runs:
                runs_16(descriptor, user, packed, first, last, scope)
            else:
                strided_16(descriptor, user, packed, first, last, scope)
        elif shift == 3:
            if runs:
                runs_8(descriptor, user, packed, first, last, scope)
            else:
                strided_8(descriptor, user, packed, first, last, scope)
        elif runs:
            runs_4(descriptor, user, packed, first, last, scope)
        else:
            strided_4(descriptor, user, packed, first, last, scope)

    @device
    def ends(descriptor, user, packed, begin, first, last, end, scope):
        """The bytes before and behind a range that is moved in words."""
        runs = load_8(descriptor + D_HEAD) & 0xFF == RUN_LIST
        turn = 0
        low, high = begin, first
        while turn < 2:
            if low < high:
                if runs:
                    runs_bytes(descriptor, user, packed, low, high, scope)
                else:
                    strided_bytes(descriptor, user, packed, low, high, scope)
            low, high = last, end
            turn += opaque(1)
        return 0

    name = "gmpi_unpack" if unpack else "gmpi_pack"
    ends_linked = linked(f"{name}_ends", 8, 1, ends)

    @device
    def part(descriptor, user, packed, begin, end, scope):
        count = _threads(scope)[2]
        runs = load_8(descriptor + D_HEAD) & 0xFF == RUN_LIST
        bits = user | packed | 1 << alignment_shift(descriptor)
        shift = 4 if bits & 15 == 0 else 3 if bits & 7 == 0 else 2
        first = begin
        last = begin  # the range that is moved in words
        if bits & 3 == 0 and not is_wide(descriptor, count, shift) and end >> shift < LIMIT:
            w = (begin + (1 << shift) - 1) >> shift
            e = end >> shift
            if w < e:
                first = w << shift
                last = e << shift
        if begin < first or last < end:
            ends_linked(descriptor, user, packed, begin, first, last, end, scope)
        if first < last:
            words(descriptor, runs, shift, user, packed, first >> shift, last >> shift, scope)
        return 0

    part_linked = linked(f"{name}_part", 6, 1, part)

    @device
    def call(descriptor, user, packed, begin, end, count, rank, size):
        scope = rank | size << _SIZE_SHIFT | min(count - 1, 1) << _REPEATED_SHIFT
        part_linked(descriptor, user, packed, begin, end, scope)

    return call


_pack, _unpack = _make_part(False), _make_part(True)


@device
def pack_part(descriptor, user, packed, begin, end, count, rank, size):
    """Packs bytes ``begin..end`` of a part; all ``size`` threads of a scope call, with their rank.

    Args:
        descriptor: address of the part's descriptor.
        user: address that displacements count from.
        packed: address at which byte 0 of the part would be.
        count: repetitions of the whole part, at the extent of its datatype.
    """
    _pack(descriptor, user, packed, begin, end, count, rank, size)


@device
def unpack_part(descriptor, user, packed, begin, end, count, rank, size):
    """The reverse of ``pack_part``; ``packed`` is read past L1."""
    _unpack(descriptor, user, packed, begin, end, count, rank, size)


@device
def part_begin(descriptor):
    """Packed position of a part."""
    return load_8(descriptor + D_BEGIN)
