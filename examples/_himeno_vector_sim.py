"""The simulator's twin of ``_himeno_vector``: plain Python on NumPy arrays."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from numba.cuda.simulator import kernel as _kernel


def device(fn):
    return fn


def grid_blocks():
    return _kernel._get_kernel_context().gridDim.x


def take(counter):
    number = int(counter[0])
    counter[0] = number + 1
    return number


def product(x, y):
    return x * y


def load1(array, offset):
    return array[offset]


def load4(array, offset):
    return array[offset], array[offset + 1], array[offset + 2], array[offset + 3]


load4_once = load4
load4_shared = load4


def store4(array, offset, a, b, c, d):
    array[offset] = a
    array[offset + 1] = b
    array[offset + 2] = c
    array[offset + 3] = d


def prefetch(array, offset, count):
    array[offset + count - 1]  # so that a range outside the array is an error here


def barrier_init(bars, index):
    bars[index] = 0  # phases that have ended


def barrier_expect(bars, index, nbytes):
    bars[index] += 1  # the copies that follow are immediate, and no other thread runs meanwhile


def barrier_done(bars, index, parity):
    return int(bars[index]) & 1 != parity


def bulk_copy(target, target_offset, source, offset, count, bars, index):
    target[target_offset : target_offset + count] = source[offset : offset + count]
