"""Packing any range of any part, chosen at run time: what running kernels call.

``pack_part`` and ``unpack_part`` look at the alignment of the pointers and of the part, move what
they can in the widest words that these allow and the ends of the range byte by byte. They are
linked, not inlined (``library``): one compiled body for each direction and kind of part.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.lookup import alignment_shift, dims_of, is_wide, runs_4, strided_4
from device_lib.move.pack_words import make_move, make_move_bytes
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, load_8, opaque
from gmpi.datatypes.descriptor import D_BEGIN, D_HEAD, RUN_LIST

_SIZE_SHIFT = 24
_REPEATED_SHIFT = 56


def _make_part(lookup: Callable, unpack: bool) -> Callable:
    move_16 = make_move(16, lookup, unpack, True)
    move_8 = make_move(8, lookup, unpack, True)
    move_4 = make_move(4, lookup, unpack, True)
    move_bytes = make_move_bytes(lookup, unpack, True)

    @device
    def part(descriptor, user, packed, begin, end, scope):
        rank = scope & (1 << _SIZE_SHIFT) - 1
        size = scope >> _SIZE_SHIFT & 0xFFFFFFFF
        count = 1 + (scope >> _REPEATED_SHIFT)
        dims = dims_of(descriptor, count)
        wide = is_wide(descriptor, count, 0) or end >= 1 << 31
        bits = user | packed | 1 << alignment_shift(descriptor)
        first = begin
        last = begin  # the range that has been moved in words
        if bits & 3 == 0:
            shift = 2
            if bits & 15 == 0:
                shift = 4
            elif bits & 7 == 0:
                shift = 3
            w = (begin + (1 << shift) - 1) >> shift
            e = end >> shift
            if w < e:
                first = w << shift
                last = e << shift
                if shift == 4:
                    move_16(descriptor, dims, wide, user, packed, w, e, rank, size)
                elif shift == 3:
                    move_8(descriptor, dims, wide, user, packed, w, e, rank, size)
                else:
                    move_4(descriptor, dims, wide, user, packed, w, e, rank, size)
        turn = 0
        while turn < 2:
            low = begin
            high = first
            if turn == 1:
                low = last
                high = end
            if low < high:
                move_bytes(descriptor, dims, wide, user, packed, low, high, rank, size)
            turn += opaque(1)
        return 0

    return part


_pack_strided = linked("gmpi_pack_strided", 6, 1, _make_part(strided_4, False))
_pack_runs = linked("gmpi_pack_runs", 6, 1, _make_part(runs_4, False))
_unpack_strided = linked("gmpi_unpack_strided", 6, 1, _make_part(strided_4, True))
_unpack_runs = linked("gmpi_unpack_runs", 6, 1, _make_part(runs_4, True))


@device
def pack_part(descriptor, user, packed, begin, end, count, rank, size):
    """Packs bytes ``begin..end`` of a part; all ``size`` threads of a scope call, with their rank.

    Args:
        descriptor: address of the part's descriptor.
        user: address that displacements count from.
        packed: address at which byte 0 of the part would be.
        count: repetitions of the whole part, at the extent of its datatype.
    """
    scope = rank | size << _SIZE_SHIFT | min(count - 1, 1) << _REPEATED_SHIFT
    if load_8(descriptor + D_HEAD) & 0xFF == RUN_LIST:
        _pack_runs(descriptor, user, packed, begin, end, scope)
    else:
        _pack_strided(descriptor, user, packed, begin, end, scope)


@device
def unpack_part(descriptor, user, packed, begin, end, count, rank, size):
    """The reverse of ``pack_part``; ``packed`` is read past L1."""
    scope = rank | size << _SIZE_SHIFT | min(count - 1, 1) << _REPEATED_SHIFT
    if load_8(descriptor + D_HEAD) & 0xFF == RUN_LIST:
        _unpack_runs(descriptor, user, packed, begin, end, scope)
    else:
        _unpack_strided(descriptor, user, packed, begin, end, scope)


@device
def part_begin(descriptor):
    """Packed position of a part."""
    return load_8(descriptor + D_BEGIN)
