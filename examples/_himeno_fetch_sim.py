"""The simulator's twin of ``_himeno_fetch``: a copy is complete when it has been started."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from numba import cuda


def prepare(full, freed, slots, warps):
    for slot in range(slots):
        full[slot] = 0
        freed[slot] = warps << 32 | warps  # of all warps, so many have not read yet


def expect(full, slot, elements):
    full[slot] += 1


def fetch(held, to, source, at, elements, full, slot):
    held[to : to + elements] = source[at : at + elements]


@cuda.jit(device=True)
def await_full(full, slot, phase):
    while full[slot] <= phase:
        cuda.nanosleep(20)


def prefetch(source, at, elements):
    pass


@cuda.jit(device=True)
def leave(freed, slot, phase):
    cuda.syncwarp()
    if cuda.laneid != 0:
        return False
    freed[slot] -= 1
    if freed[slot] & 0xFFFFFFFF:
        return False
    freed[slot] += freed[slot] >> 32
    return True


@cuda.jit(device=True)
def spin():
    cuda.nanosleep(20)
