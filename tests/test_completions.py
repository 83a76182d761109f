"""Completions and orders, byte for byte, with a producer in Python in place of a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from machine import Machine

import gmpi
from gmpi.contract import wire
from host_proxy.platform import state as s
from host_proxy.records import completion

pytestmark = [pytest.mark.mpi, pytest.mark.quick]


def test_a_completion_has_its_payload_and_the_tag_of_its_request() -> None:
    m = Machine()
    for n in range(wire.INLINE_BYTES + 1):
        packets = wire.STATUS_PACKETS + wire.payload_packets(n)
        slot = n % m.layout.request_slots
        handle = m.open(wire.OP_IRECV, slot, packets, count=n, tag=7, peer=1, flags=wire.FLAG_BACK)
        before = len(m.calls)
        m.step()
        assert m.completion(handle) is None and len(m.calls) == before + 1
        call = m.calls[-1]
        assert (call.name, call.peer, call.tag) == ("MPI_Irecv", 1, 7)
        assert call.nbytes == wire.MESSAGE_HEADER + m.layout.eager_bytes
        content = bytes((k * 5 + n) & 0xFF for k in range(n))
        place = call.address - m.address
        header = np.array([n, 0, wire.NOT_SHARED, 0], np.int64).view(np.uint8)
        m.mapped[place : place + 32] = header
        m.mapped[place + 32 : place + 32 + n] = np.frombuffer(content, np.uint8)
        m.finish(0, source=1, tag=7)
        m.step()
        found = m.completion(handle)
        assert found is not None
        status = int(found["low"][0])
        assert status & wire.BYTES_MASK == n and status >> wire.ERROR_SHIFT & 0xFF == 0
        assert status >> wire.KIND_SHIFT == wire.KIND_DONE
        assert int(found["high"][0]) == n  # elements
        assert int(found["low"][1]) == 1 | 7 << 32
        raw = b"".join(
            int(u["low"]).to_bytes(8, "little", signed=True) + int(u["high"]).to_bytes(4, "little")
            for u in found[wire.STATUS_PACKETS :]
        )
        assert raw[:n] == content


def test_a_completion_is_never_taken_for_that_of_a_later_request() -> None:
    m = Machine()
    handles = []
    for _ in range(5):  # the same slot again and again
        handle = m.open(wire.OP_PING, 3)
        assert m.completion(handle) is None
        m.step()
        assert m.completion(handle) is not None
        assert all(m.completion(h) is None for h in handles)
        handles.append(handle)


def test_negative_tags_and_sources_survive() -> None:
    m = Machine()
    handle = m.open(wire.OP_IRECV, 0, 2, peer=gmpi.PROC_NULL, tag=3)
    m.step()
    found = m.completion(handle)
    assert found is not None and m.calls == []
    origin = int(found["low"][1]) & 0xFFFFFFFFFFFFFFFF
    assert np.array([origin & 0xFFFFFFFF, origin >> 32], np.uint32).view(np.int32).tolist() == [
        gmpi.PROC_NULL,
        gmpi.ANY_TAG,
    ]


def test_synchronize_completes_after_what_was_opened_before_it() -> None:
    m = Machine()
    early = m.open(wire.OP_ISEND, 0, flags=wire.FLAG_INLINE, payload=b"", tag=1)
    sync = m.open(wire.OP_SYNCHRONIZE, 1)
    late = m.open(wire.OP_ISEND, 2, flags=wire.FLAG_INLINE, payload=b"", tag=2)
    m.step()
    assert [m.error_of(h) for h in (early, sync, late)] == [-1, -1, -1]
    m.finish(0)
    m.step()
    assert [m.error_of(h) for h in (early, sync, late)] == [0, 0, -1]
    m.finish(0)
    m.step()
    assert m.error_of(late) == 0


def _machine_with_receive() -> tuple[Machine, int, int]:
    """A long receive that block 70 has opened: (machine, handle, row)."""
    m = Machine()
    slot = m.layout.request_slots + 2
    handle = m.open(wire.OP_IRECV, slot, 2, count=2000, flags=wire.FLAG_BACK, block=70)
    m.step()
    return m, handle, m.state.row(slot)


def _control(m: Machine) -> list[int]:
    """Attention, abort, orders, blocks."""
    return [int(word) for word in m.mapped[:32].view(np.int64)]


def _soon(m: Machine) -> tuple[int, int]:
    """A time (ns), and how long nobody may come for an order."""
    return int(m.globals[s.G_QUIET_SINCE]) + 10**9, int(m.globals[s.G_PATIENCE_NS])


def _at(m: Machine, now_ns: int) -> None:
    m.globals[s.G_NOW] = now_ns
    completion.find_overdue(m.g)


def test_an_order_is_written_with_the_bits_of_its_slot_and_block() -> None:
    m, handle, row = _machine_with_receive()
    slot = m.layout.request_slots + 2
    completion.command(m.g, row, 3, 1536, 464, wire.UNPACK)
    assert _control(m) == [0, 0, 1 << 2, 1 << (70 & wire.BLOCK_BITS)]
    packet = m.completions[slot, wire.STATUS_PACKETS + 3]
    assert int(packet["seq"]) == handle & wire.LOW_32
    assert int(packet["low"]) & 0xFFFFFFFFFFFFFFFF == 1536 | wire.UNPACK << wire.DIRECTION_SHIFT
    assert int(packet["high"]) == 464
    completion.command_done(m.g, row)
    assert _control(m) == [0, 0, 0, 0]


def test_an_order_is_everybodys_when_nobody_has_come_for_it_for_a_while() -> None:
    # Else every wait in the grid would look for it, and be kept busy with a stranger's chunk.
    m, _, row = _machine_with_receive()
    start, patience = _soon(m)
    _at(m, start)
    completion.command(m.g, row, 0, 0, 512, wire.UNPACK)
    for later in (1, patience, patience + 1, 2 * patience - 1):  # one look at it, and a short time
        _at(m, start + later)
        assert _control(m)[0] == 0, later
    _at(m, start + 2 * patience)
    assert _control(m)[0] == 1 << 2
    completion.command_done(m.g, row)
    assert _control(m) == [0, 0, 0, 0]
    completion.command(m.g, row, 1, 512, 512, wire.UNPACK)  # nobody waits for this request
    assert _control(m)[0] == 1 << 2
    completion.complete(m.g, row, 0, 0, 0, 0)
    assert _control(m) == [0, 0, 0, 0]


def test_orders_of_narrow_slots_are_told_to_their_blocks_and_later_to_everybody() -> None:
    m = Machine()
    first, last = m.layout.first_narrow, m.layout.slots - 1
    rows = []
    for slot, block in ((first, 70), (last, 70), (first + 1, 3)):
        m.open(wire.OP_IRECV, slot, 2, count=2000, flags=wire.FLAG_BACK, block=block)
        m.step()
        rows.append(m.state.row(slot))
    shown = m.mapped[wire.CONTROL_NARROW :][: 8 * wire.NARROW_WORDS].view(np.uint64)
    of_70, of_3 = (1 << (block & wire.BLOCK_BITS) for block in (70, 3))

    def blocks() -> int:
        doorbell, _, commanded, found = _control(m)
        assert (doorbell, commanded, found & wire.LOW_32) == (0, 0, 0)
        return found >> wire.NARROW_SHIFT & wire.LOW_32

    start, patience = _soon(m)
    _at(m, start)
    for row in rows:
        completion.command(m.g, row, 0, 0, 256, wire.UNPACK)
    completion.command(m.g, rows[0], 1, 256, 256, wire.UNPACK)
    assert blocks() == of_70 | of_3
    assert int(shown[0]) == 1 | 2 | 1 << last - first and not shown[1:].any()
    _at(m, start + patience)  # a look at each
    completion.command_done(m.g, rows[0])
    completion.command_done(m.g, rows[2])
    assert blocks() == of_70 and int(shown[0]) == 1 | 1 << last - first
    completion.command_done(m.g, rows[1])
    _at(m, start + 2 * patience)  # of the first one, something was heard since
    assert blocks() == of_70
    _at(m, start + 3 * patience)
    assert blocks() == wire.LOW_32
    completion.command_done(m.g, rows[0])
    assert blocks() == 0 and not shown.any()
    completion.command(m.g, rows[2], 1, 512, 256, wire.UNPACK)
    assert blocks() == of_3
    completion.complete(m.g, rows[2], 0, 0, 0, 0)
    assert blocks() == 0 and not shown.any()


def test_orders_that_are_answered_one_by_one_are_nobody_elses() -> None:
    m, _, row = _machine_with_receive()
    now, patience = _soon(m)
    for k in range(4):
        completion.command(m.g, row, k, 512 * k, 512, wire.UNPACK)
    for _ in range(4):
        for _ in range(4):
            now += patience // 3
            _at(m, now)
        assert _control(m)[0] == 0
        completion.command_done(m.g, row)
