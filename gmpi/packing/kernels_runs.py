"""Kernels that pack a list of runs of different lengths, for calls from the host (``gmpi.pack``).

A warp takes one work unit of packed bytes. Where one run fills it, which the first runs of this
unit and of the next one tell, all its words are moved along that run. Elsewhere each thread
searches the unit's runs, and only these, for its words. As in ``kernels_strided``, whatever is the
same for all threads is an argument of the launch.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache

from numba import cuda

from device_lib.move.words import LOAD_ONCE_IF, STORE_GLOBAL_IF, load_once_4, load_once_8
from device_lib.platform.primitives import device
from gmpi.datatypes.parts import RUN_UNIT_BYTES

THREADS = 256
REGISTERS = {16: 48, 8: 40, 4: 40}  # at most: 5 or 6 blocks of threads on each multiprocessor
ARGUMENTS = 7
_RUN_UNIT_SHIFT = RUN_UNIT_BYTES.bit_length() - 1
WARPS = THREADS // 32


def blocks_for(nbytes: int) -> int:
    """Blocks of threads for so many packed bytes."""
    return -(-nbytes // (RUN_UNIT_BYTES * WARPS))


@device
def _search(positions, scale, first, last, at0, at1, at2, at3):
    """The runs, of first..last, in which four packed positions lie.

    Each step looks ``step`` runs ahead, for all four before anything is decided: the reads overlap.
    """
    k0 = first
    k1 = first
    k2 = first
    k3 = first
    step = 1
    while 2 * step <= last - first:
        step *= 2
    while step > 0:
        h0 = min(k0 + step, last)
        h1 = min(k1 + step, last)
        h2 = min(k2 + step, last)
        h3 = min(k3 + step, last)
        b0 = load_once_4(positions + h0 * 4)
        b1 = load_once_4(positions + h1 * 4)
        b2 = load_once_4(positions + h2 * 4)
        b3 = load_once_4(positions + h3 * 4)
        k0 = h0 if b0 << scale <= at0 else k0
        k1 = h1 if b1 << scale <= at1 else k1
        k2 = h2 if b2 << scale <= at2 else k2
        k3 = h3 if b3 << scale <= at3 else k3
        step >>= 1
    return k0, k1, k2, k3


def _make_along(width: int, unpack: bool) -> Callable:
    load_if = LOAD_ONCE_IF[width]
    store_if = STORE_GLOBAL_IF[width]
    turn = 8 if width == 8 else 4
    step = 32 * width

    @device
    def along(user, packed, nbytes, lane):
        """Moves a unit of words that lie side by side at both addresses."""
        done = lane * width
        source = packed if unpack else user
        target = user if unpack else packed
        while done < nbytes:
            f = source + done
            t = target + done
            x0, y0 = load_if(f, True)
            x1, y1 = load_if(f + step, done + step < nbytes)
            x2, y2 = load_if(f + 2 * step, done + 2 * step < nbytes)
            x3, y3 = load_if(f + 3 * step, done + 3 * step < nbytes)
            if turn == 8:
                x4, y4 = load_if(f + 4 * step, done + 4 * step < nbytes)
                x5, y5 = load_if(f + 5 * step, done + 5 * step < nbytes)
                x6, y6 = load_if(f + 6 * step, done + 6 * step < nbytes)
                x7, y7 = load_if(f + 7 * step, done + 7 * step < nbytes)
            store_if(t, x0, y0, True)
            store_if(t + step, x1, y1, done + step < nbytes)
            store_if(t + 2 * step, x2, y2, done + 2 * step < nbytes)
            store_if(t + 3 * step, x3, y3, done + 3 * step < nbytes)
            if turn == 8:
                store_if(t + 4 * step, x4, y4, done + 4 * step < nbytes)
                store_if(t + 5 * step, x5, y5, done + 5 * step < nbytes)
                store_if(t + 6 * step, x6, y6, done + 6 * step < nbytes)
                store_if(t + 7 * step, x7, y7, done + 7 * step < nbytes)
            done += turn * step

    return along


def _make_across(width: int, unpack: bool) -> Callable:
    load_if = LOAD_ONCE_IF[width]
    store_if = STORE_GLOBAL_IF[width]
    step = 32 * width

    # wide: the tables of a list, in registers
    @device
    def across(user, packed, positions, deltas, scale, first, last, begin, nbytes, lane):
        """Moves a unit of words of runs first..last."""
        at = begin + lane * width
        end = begin + nbytes
        while at < end:
            at1 = at + step
            at2 = at1 + step
            at3 = at2 + step
            k0, k1, k2, k3 = _search(positions, scale, first, last, at, at1, at2, at3)
            f0 = user + load_once_8(deltas + k0 * 8) + at
            f1 = user + load_once_8(deltas + k1 * 8) + at1
            f2 = user + load_once_8(deltas + k2 * 8) + at2
            f3 = user + load_once_8(deltas + k3 * 8) + at3
            t0 = packed + at
            t1 = packed + at1
            t2 = packed + at2
            t3 = packed + at3
            if unpack:
                f0, t0 = t0, f0
                f1, t1 = t1, f1
                f2, t2 = t2, f2
                f3, t3 = t3, f3
            x0, y0 = load_if(f0, True)
            x1, y1 = load_if(f1, at1 < end)
            x2, y2 = load_if(f2, at2 < end)
            x3, y3 = load_if(f3, at3 < end)
            store_if(t0, x0, y0, True)
            store_if(t1, x1, y1, at1 < end)
            store_if(t2, x2, y2, at2 < end)
            store_if(t3, x3, y3, at3 < end)
            at = at3 + step

    return across


def make_move_unit(width: int, unpack: bool) -> Callable:
    """The mover of one work unit, for all lanes of a warp."""
    along = _make_along(width, unpack)
    across = _make_across(width, unpack)

    # wide: the tables of a list, in registers
    @device
    def move_unit(user, packed, unit, lane, size, positions, deltas, units, scale):
        """Moves a unit, by its number, of a list of ``size`` packed bytes.

        Args:
            positions, deltas, units: the list's tables, see ``gmpi/datatypes/descriptor.py``.
            scale: log2 of the bytes in which positions count.
        """
        begin = unit << _RUN_UNIT_SHIFT
        if begin < size:
            first = load_once_4(units + unit * 4)
            last = load_once_4(units + unit * 4 + 4)
            nbytes = min(size - begin, RUN_UNIT_BYTES)
            end = begin + nbytes
            if first == last or load_once_4(positions + first * 4 + 4) << scale >= end:
                shifted = user + load_once_8(deltas + first * 8) + begin
                along(shifted, packed + begin, nbytes, lane)
            else:
                across(user, packed, positions, deltas, scale, first, last, begin, nbytes, lane)

    return move_unit


@cache
def runs_body(width: int, unpack: bool) -> Callable:
    """The Python function of a kernel of ``THREADS`` threads; a warp of them moves one work unit.

    Its arguments, int64: addresses of the user's (where displacements count from) and of the packed
    memory; packed bytes; addresses of positions, of (displacement - position) and of the work
    units; log2 of the bytes in which positions count.
    """
    move_unit = make_move_unit(width, unpack)

    def kernel(user, packed, size, positions, deltas, units, scale):
        unit = cuda.blockIdx.x * WARPS + (cuda.threadIdx.x >> 5)
        lane = cuda.threadIdx.x & 31
        move_unit(user, packed, unit, lane, size, positions, deltas, units, scale)

    return kernel
