"""What rank programs need to try how numbers of the direct road's messages wrap."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

import gmpi
from gmpi.contract.channels import (
    CELL_BYTES,
    COUNTER_BYTES,
    COUNTER_FREE,
    COUNTER_NUMBER,
    COUNTER_WIDE,
    DEPTH,
    HALF_TURN,
    NUMBERS,
    ROW_BYTES,
    ROW_KEY,
    ROW_LOCAL,
    WIDE_REFRESHES,
)
from gmpi.contract.wire import DEVICE_CHANNELS, DEVICE_CHANNELS_MASK, LOW_32


def move_on(g: gmpi.Context, chosen: Callable[[np.ndarray], np.ndarray], number: int) -> None:
    """Both ends of some channels go on with message ``number``, a multiple of DEPTH.

    As if all before had been exchanged: what the sender looks for is the credit of message
    ``number - DEPTH``.

    Args:
        chosen: (their keys) -> which of them, bool[].
    """
    for key, row, counters_at in _rows(g, chosen):
        both = (number & NUMBERS) << 8 * COUNTER_FREE | (number & LOW_32) << 8 * COUNTER_NUMBER
        _store(g, counters_at, both)
        # After half a turn, the last of those that write all of the wide slot.
        ended = number + DEPTH + WIDE_REFRESHES - 2
        _store(g, counters_at + COUNTER_WIDE, number if number > HALF_TURN else ended)
        if key >> 61 & 1 == 0:  # ours are the cells
            cells = _words(g, row + ROW_LOCAL, 1)[0]
            for k in range(DEPTH):
                mark = (number - DEPTH + k << 1 | 1) & 0xFFFFFFFF
                _store(g, cells + k * CELL_BYTES + 8, mark << 32)


def counters(g: gmpi.Context, chosen: Callable[[np.ndarray], np.ndarray], which: int) -> list[int]:
    """A counter, COUNTER_*, of each of these channels."""
    return [int(_words(g, counters_at + which, 1)[0]) for _, _, counters_at in _rows(g, chosen)]


def _rows(
    g: gmpi.Context, chosen: Callable[[np.ndarray], np.ndarray]
) -> list[tuple[int, int, int]]:
    """(key, where its row is, where its counters are) of each."""
    memory = g._memory
    rows = int(_words(g, memory.device + DEVICE_CHANNELS_MASK, 1)[0]) + 1
    table = int(_words(g, memory.device + DEVICE_CHANNELS, 1)[0])
    keys = _words(g, table, rows * ROW_BYTES // 8).reshape(rows, -1)[:, ROW_KEY // 8]
    begin = table + rows * ROW_BYTES
    return [
        (int(keys[i]), table + int(i) * ROW_BYTES, begin + int(i) * COUNTER_BYTES)
        for i in np.flatnonzero((keys != 0) & chosen(keys))
    ]


def _words(g: gmpi.Context, address: int, count: int) -> np.ndarray:
    """Words of GPU memory."""
    return g._memory.fetch(int(address), 8 * count).view(np.int64)


def _store(g: gmpi.Context, address: int, word: int) -> None:
    data = np.array([word], np.uint64)
    if gmpi.SIMULATOR:
        ctypes.memmove(int(address), data.ctypes.data, 8)
    else:
        from cuda.bindings import driver

        assert int(driver.cuMemcpyHtoD(int(address), data.ctypes.data, 8)[0]) == 0
