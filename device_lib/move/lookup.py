"""Where in the user's memory a packed position lies: the lookup that every thread makes alone.

It needs no state but the descriptor (``gmpi/datatypes/descriptor.py``), so packing can begin and
end at any position and any thread can take any word (paper 000 section 3.2). Four words at a time,
for their memory accesses to overlap and to share the reads of the descriptor.

Positions are counted in words of ``1 << shift`` bytes from the beginning of the part.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform.divide import LIMIT, divide, divide_wide
from device_lib.platform.primitives import device, load_4, load_8
from gmpi.datatypes.descriptor import (
    ALIGNMENT_SHIFT,
    D_ATOM,
    D_DELTAS,
    D_DIMS,
    D_HEAD,
    D_MAGIC,
    D_OFFSET,
    D_POSITIONS,
    D_SIZE,
    D_UNITS,
    DIM_BYTES,
    DIMS_SHIFT,
)
from gmpi.datatypes.parts import RUN_UNIT_BYTES

RUN_UNIT_SHIFT = RUN_UNIT_BYTES.bit_length() - 1


@device
def dims_of(descriptor, count):
    """Dimensions of a lookup of ``count`` elements: those of the part, and the repetition."""
    dims = load_8(descriptor + D_HEAD) >> DIMS_SHIFT & 0xFF
    return dims + 1 if count != 1 else dims


@device
def alignment_shift(descriptor):
    return load_8(descriptor + D_HEAD) >> ALIGNMENT_SHIFT & 0xFF


@device
def is_wide(descriptor, count, shift):
    """Whether positions have more than 31 bits."""
    return load_8(descriptor + D_SIZE) * count >> shift >= LIMIT


@device
def _split(number, divisor, magic, wide):
    if wide:
        return divide_wide(number, divisor)
    return divide(number, divisor, magic)


@device
def displacements_4(descriptor, dims, wide, i0, i1, i2, i3):
    """Displacements of four atoms, by their numbers."""
    at = load_8(descriptor + D_OFFSET)
    a0 = at
    a1 = at
    a2 = at
    a3 = at
    row = descriptor + D_DIMS
    left = dims
    while left > 0:
        magic = load_8(row)
        count = load_8(row + 8)
        stride = load_8(row + 16)
        table = load_8(row + 24)
        q0 = i0
        q1 = i1
        q2 = i2
        q3 = i3
        if left > 1:
            i0, q0 = _split(i0, count, magic, wide)
            i1, q1 = _split(i1, count, magic, wide)
            i2, q2 = _split(i2, count, magic, wide)
            i3, q3 = _split(i3, count, magic, wide)
        if table != 0:
            a0 += load_8(table + q0 * 8)
            a1 += load_8(table + q1 * 8)
            a2 += load_8(table + q2 * 8)
            a3 += load_8(table + q3 * 8)
        else:
            a0 += q0 * stride
            a1 += q1 * stride
            a2 += q2 * stride
            a3 += q3 * stride
        row += DIM_BYTES
        left -= 1
    return a0, a1, a2, a3


@device
def atoms_4(descriptor, dims, wide, shift, w0, w1, w2, w3):
    """(number of the atom, word in the atom) of four words."""
    if dims == 0:
        return 0, w0, 0, w1, 0, w2, 0, w3
    words = load_8(descriptor + D_ATOM) >> shift
    magic = load_8(descriptor + D_MAGIC + shift * 8)
    i0, r0 = _split(w0, words, magic, wide)
    i1, r1 = _split(w1, words, magic, wide)
    i2, r2 = _split(w2, words, magic, wide)
    i3, r3 = _split(w3, words, magic, wide)
    return i0, r0, i1, r1, i2, r2, i3, r3


@device
def strided_4(descriptor, dims, wide, shift, w0, w1, w2, w3):
    """Displacements of four words of a strided block, and how many bytes of the block are left
    from each on."""
    i0, r0, i1, r1, i2, r2, i3, r3 = atoms_4(descriptor, dims, wide, shift, w0, w1, w2, w3)
    a0, a1, a2, a3 = displacements_4(descriptor, dims, wide, i0, i1, i2, i3)
    r0 <<= shift
    r1 <<= shift
    r2 <<= shift
    r3 <<= shift
    atom = load_8(descriptor + D_ATOM)
    return a0 + r0, a1 + r1, a2 + r2, a3 + r3, atom - r0, atom - r1, atom - r2, atom - r3


@device
def _half(low, high, positions, scale, at):
    """One step of four searches: the half of low..high in which ``at`` lies."""
    middle = (low + high + 1) >> 1
    if load_4(positions + middle * 4) << scale <= at:
        return middle, high
    return low, middle - 1


@device
def runs_4(descriptor, dims, wide, shift, w0, w1, w2, w3):
    """As ``strided_4`` for a run list.

    The work unit says between which two runs to search; most of the time they are one, or few.
    """
    i0, r0, i1, r1, i2, r2, i3, r3 = atoms_4(descriptor, dims, wide, shift, w0, w1, w2, w3)
    a0, a1, a2, a3 = displacements_4(descriptor, dims, wide, i0, i1, i2, i3)
    positions = load_8(descriptor + D_POSITIONS)
    deltas = load_8(descriptor + D_DELTAS)
    units = load_8(descriptor + D_UNITS)
    scale = alignment_shift(descriptor)
    r0 <<= shift
    r1 <<= shift
    r2 <<= shift
    r3 <<= shift
    u0 = units + (r0 >> RUN_UNIT_SHIFT << 2)
    u1 = units + (r1 >> RUN_UNIT_SHIFT << 2)
    u2 = units + (r2 >> RUN_UNIT_SHIFT << 2)
    u3 = units + (r3 >> RUN_UNIT_SHIFT << 2)
    k0 = load_4(u0)
    h0 = load_4(u0 + 4)
    k1 = load_4(u1)
    h1 = load_4(u1 + 4)
    k2 = load_4(u2)
    h2 = load_4(u2 + 4)
    k3 = load_4(u3)
    h3 = load_4(u3 + 4)
    while k0 < h0 or k1 < h1 or k2 < h2 or k3 < h3:
        k0, h0 = _half(k0, h0, positions, scale, r0)
        k1, h1 = _half(k1, h1, positions, scale, r1)
        k2, h2 = _half(k2, h2, positions, scale, r2)
        k3, h3 = _half(k3, h3, positions, scale, r3)
    a0 += load_8(deltas + k0 * 8) + r0
    a1 += load_8(deltas + k1 * 8) + r1
    a2 += load_8(deltas + k2 * 8) + r2
    a3 += load_8(deltas + k3 * 8) + r3
    l0 = (load_4(positions + k0 * 4 + 4) << scale) - r0
    l1 = (load_4(positions + k1 * 4 + 4) << scale) - r1
    l2 = (load_4(positions + k2 * 4 + 4) << scale) - r2
    l3 = (load_4(positions + k3 * 4 + 4) << scale) - r3
    return a0, a1, a2, a3, l0, l1, l2, l3
