"""Payloads in records, gathered from any address."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import gmpi
from device_lib.platform.context import DeviceContext
from device_lib.proxied import opening, ring
from gmpi.contract.sizes import SHAPE_RING_SHIFT
from gmpi.contract.wire import HEADER_PACKETS, INLINE_BYTES, PACKET_PAYLOAD, SLOT_BYTES

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

    monkeypatch.setattr(opening.gpu, "load_1_if", load(ctypes.c_uint8))
    monkeypatch.setattr(opening.gpu, "load_4_if", load(ctypes.c_uint32))
    for nbytes in range(1, INLINE_BYTES + 1):
        stop = begin + nbytes
        found = b""
        for offset in range(-PACKET_PAYLOAD, nbytes + 2 * PACKET_PAYLOAD, PACKET_PAYLOAD):
            words = opening._load_unaligned(begin, nbytes, offset)
            assert offset >= 0 or not any(words)
            if offset >= 0:
                found += np.array(words, np.uint32).tobytes()
        assert found[:nbytes] == ctypes.string_at(begin, nbytes), nbytes


@pytest.mark.parametrize("lanes", [1, 5, 20, 32])
def test_all_units_of_a_record_are_written_and_no_others(
    lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The way of warps that are not full, or whose payload is not at hand at once.
    monkeypatch.setattr(ring.gpu, "block_id", lambda: 3)
    packets = np.zeros((2, SLOT_BYTES // 16, 4), np.uint32)
    monkeypatch.setattr(ring, "record_address", lambda ctx, ticket: packets[1].ctypes.data)
    ctx = DeviceContext(0, 0, 1 << SHAPE_RING_SHIFT, 0)
    memory = np.arange(1, INLINE_BYTES + 20, dtype=np.uint8)
    ticket, mark = 77, ring.seq_of(77)
    for nbytes in range(INLINE_BYTES + 1):
        packets[:] = 0
        for lane in range(lanes):
            ring.write(
                ctx, lane, lanes, ticket, 1, 5 | 6 << 32, 7, 8, 9, memory.ctypes.data, nbytes
            )
        last = HEADER_PACKETS + -(-nbytes // PACKET_PAYLOAD)
        assert (packets[1, :last, 3] == mark).all() and not packets[1, last:].any(), nbytes
        assert packets[1, :HEADER_PACKETS, 0].tolist() == [1, 7, 8, 9]
        assert packets[1, [0, 1, 3], 2].tolist() == [5, 6, 3]
        found = packets[1, HEADER_PACKETS:, :3].tobytes()[:nbytes]
        assert found == memory[:nbytes].tobytes(), nbytes
        assert not packets[0].any()
