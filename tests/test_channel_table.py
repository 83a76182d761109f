"""The table of channels: keys that users have are spread over it."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from device_lib.direct import table
from device_lib.platform.context import DeviceContext
from gmpi.contract.channels import (
    KEY_COMM_SHIFT,
    KEY_MARK,
    KEY_PEER_SHIFT,
    KEY_RECEIVES_SHIFT,
    ROW_BYTES,
)
from gmpi.contract.wire import DEVICE_CHANNELS

ROWS = 8192  # of two ranks


def keys(peers: int, tags: int, comms: int) -> list[int]:
    return [
        KEY_MARK | way << KEY_RECEIVES_SHIFT | comm << KEY_COMM_SHIFT | peer << KEY_PEER_SHIFT | tag
        for way in (0, 1)
        for comm in range(comms)
        for peer in range(peers)
        for tag in range(tags)
    ]


@pytest.mark.parametrize(
    ("peers", "tags", "comms"),
    [(2, 1, 1), (8, 4, 1), (8, 1, 4), (64, 2, 1), (2, 256, 1), (4, 8, 8)],
)
def test_few_keys_meet(peers: int, tags: int, comms: int) -> None:
    """A lookup that is not the first to look costs 50 ns; send and receive with one tag met."""
    memory = np.zeros(DEVICE_CHANNELS + 16, np.uint8)
    rows = np.zeros(ROWS * ROW_BYTES, np.uint8)
    at = memory.ctypes.data
    ctypes.c_int64.from_address(at + DEVICE_CHANNELS).value = rows.ctypes.data
    ctypes.c_int64.from_address(at + DEVICE_CHANNELS + 8).value = ROWS - 1
    taken: set[int] = set()
    looks = 0
    wanted = keys(peers, tags, comms)
    for key in wanted:
        base, mask, row = table._begin(DeviceContext(0, at, 0, 0), key)
        assert base == rows.ctypes.data and 0 <= row <= mask == ROWS - 1
        looks += 1
        while row in taken:
            row = row + 1 & mask
            looks += 1
        taken.add(row)
    assert looks <= 1.1 * len(wanted)
