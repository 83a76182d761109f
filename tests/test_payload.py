"""Payloads in records, gathered from any address."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import gmpi
from device_lib import opening
from gmpi.wire import INLINE_BYTES, UNIT_PAYLOAD

pytestmark = [
    pytest.mark.skipif(not gmpi.SIMULATOR, reason="calls device code from Python"),
    pytest.mark.quick,
]


@pytest.mark.parametrize("skew", range(4))
def test_bytes_come_from_any_address(skew: int, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = np.arange(1, 260, dtype=np.uint8)
    first = memory.ctypes.data
    begin = first + -first % 16 + skew
    stop = 0

    def load(kind: type[ctypes.c_uint8 | ctypes.c_uint32]) -> object:
        def load_if(address: int, wanted: bool) -> int:
            if not wanted:
                return 0
            size = ctypes.sizeof(kind)
            assert address % size == 0
            assert begin & ~3 <= address <= stop - size, "past the end of the memory"
            return kind.from_address(address).value

        return load_if

    monkeypatch.setattr(opening, "load_1_if", load(ctypes.c_uint8))
    monkeypatch.setattr(opening, "load_4_if", load(ctypes.c_uint32))
    for nbytes in range(1, INLINE_BYTES + 1):
        stop = begin + nbytes
        found = b""
        for offset in range(-UNIT_PAYLOAD, nbytes + 2 * UNIT_PAYLOAD, UNIT_PAYLOAD):
            words = opening._load_unaligned(begin, nbytes, offset)
            assert offset >= 0 or not any(words)
            if offset >= 0:
                found += np.array(words, np.uint32).tobytes()
        assert found[:nbytes] == ctypes.string_at(begin, nbytes), nbytes
