"""The simulator's twin of ``_himeno_vector``: plain Python on NumPy arrays."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from numba import cuda

from device_lib.platform.primitives import block_id


def device(fn):
    """Only functions that name ``cuda`` need the simulator's own, which costs time in each call."""
    return cuda.jit(device=True)(fn) if "cuda" in fn.__code__.co_names else fn


multiprocessor = block_id  # each block has one to itself


def take(counter):
    number = int(counter[0])
    counter[0] = number + 1
    return number


def product(x, y):
    return x * y


def load1(array, offset):
    return array[min(offset, len(array) - 1)]  # the one behind the last is read, but not used


def load4(array, offset):
    return array[offset], array[offset + 1], array[offset + 2], array[offset + 3]


load4_once = load4


def arrive(words, index):
    words[index] += 1
    return int(words[index]) - 1


def peek(words, index):
    return int(words[index])


acquire = peek


def poke(words, index, value):
    words[index] = value


release = poke


load4_shared = load4


def store4(array, offset, a, b, c, d):
    array[offset] = a
    array[offset + 1] = b
    array[offset + 2] = c
    array[offset + 3] = d


store4_shared = store4
