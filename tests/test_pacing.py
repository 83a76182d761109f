"""How long warps rest between two looks at host memory, by how many wait (in the simulator)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import cuda

import gmpi
from device_lib.platform.context import DeviceContext
from device_lib.proxied import pacing
from gmpi.contract.wire import DEVICE_WAITS

pytestmark = pytest.mark.skipif(not gmpi.SIMULATOR, reason="needs the simulator")
ROUNDS = 3
ALL_LANES = 0xFFFFFFFF


@cuda.jit
def _periods(ctx: Any, rests: Any) -> None:
    """Each block is a warp that waits for so many periods."""
    grid = cuda.cg.this_grid()
    counted = pacing.NOT_COUNTED
    for turn in range(ROUNDS):
        counted, rest = pacing.count(ctx, counted, cuda.threadIdx.x, ALL_LANES)
        rests[cuda.blockIdx.x, turn, cuda.threadIdx.x] = rest
        grid.sync()


def rests_of(warps: int) -> np.ndarray:
    """[warps, periods]; ns, the same in all lanes."""
    memory = np.zeros(DEVICE_WAITS + 8, np.uint8)
    found = np.zeros((warps, ROUNDS, 32), np.int64)
    _periods[warps, 32](DeviceContext(0, memory.ctypes.data, 0, 0), found)
    assert (found == found[:, :, :1]).all()
    return found[:, :, 0]


def test_short_waits_and_those_of_few_do_not_rest() -> None:
    assert not rests_of(64)[:, 0].any()
    assert not rests_of(pacing.FEW // 2).any()


@pytest.mark.parametrize("warps", [64, 132])
def test_all_together_look_as_often_as_a_few(warps: int) -> None:
    """At 0afb4d3, 128 blocks that waited made the user's copies sixty times slower."""
    rests = rests_of(warps)[:, 1:]
    # A look takes FEW * 70 ns: so many are under way when each warp rests so long between two.
    look = pacing.FEW * 70
    under_way = warps * look / (look + rests.mean())
    assert pacing.FEW / 2 < under_way <= pacing.FEW * 1.1


def test_who_has_ended_does_not_count() -> None:
    memory = np.zeros(DEVICE_WAITS + 8, np.uint8)
    ctx = DeviceContext(0, memory.ctypes.data, 0, 0)
    _periods[132, 32](ctx, np.zeros((132, ROUNDS, 32), np.int64))
    found = np.zeros((4, ROUNDS, 32), np.int64)
    _periods[4, 32](ctx, found)
    assert not found.any()
