"""The simulator's twin of ``_himeno_fetch``: a copy is complete when it has been started."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from numba import cuda


def prepare(full, slots):
    for slot in range(slots):
        full[slot] = 0


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
def leave(freed, slot):
    cuda.syncwarp()
    if cuda.laneid == 0:
        freed[slot] += 1
        return int(freed[slot])
    return 0


@cuda.jit(device=True)
def spin():
    cuda.nanosleep(20)
