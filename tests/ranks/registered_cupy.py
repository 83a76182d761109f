"""Registered arrays that are not Numba's: of CuPy's pool, and any with the CUDA array interface.

    mpiexec -n 2 python3 tests/ranks/registered_cupy.py    on GPUs

The simulator has neither.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from common import WORLD, end, pattern, run
from numba import cuda
from registered import LONG, NEXT, PREVIOUS, ROOM, STRIDE, pass_on

import gmpi


class Foreign:
    """Somebody's own array."""

    def __init__(self, array: Any) -> None:
        self.kept = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


def _into(g: gmpi.Context, back: Any, seed: int) -> None:
    """A long message into an array, registered and no more."""
    region = cuda.as_cuda_array(back)
    for step, change in enumerate((g.register, g.unregister)):
        change(back)
        out = cuda.to_device(pattern(LONG, seed + step + WORLD.rank))
        found = cuda.to_device(np.zeros(3, np.int64))
        pass_on[1, 256](g.device, out, LONG, gmpi.BYTE, region, LONG, NEXT, PREVIOUS, found)
        g.synchronize()
        expected = pattern(LONG, seed + step + PREVIOUS)
        sums = expected[::STRIDE].astype(np.int64).sum()
        assert found.copy_to_host().tolist() == [LONG, gmpi.SUCCESS, sums]
        assert (region.copy_to_host()[:LONG] == expected).all()
        WORLD.Barrier()


def of_a_pool() -> None:
    """Arrays that share an allocation: the peer maps all of it, and stores to the right one."""
    with gmpi.Context(WORLD, wildcards=False) as g:
        beside = [cupy.zeros(ROOM, cupy.uint8) for _ in range(3)]
        _into(g, beside[1], 0)
        assert not beside[0].any() and not beside[2].any()


def of_somebody() -> None:
    with gmpi.Context(WORLD, wildcards=False) as g:
        _into(g, Foreign(cupy.zeros(ROOM, cupy.uint8)), 20)


run([of_a_pool, of_somebody])
end()
