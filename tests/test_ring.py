"""The ring, byte for byte, with a producer in Python in place of a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import CONTEXT, PACKET, Machine, seq_of

import gmpi
from gmpi.contract import wire
from host_proxy.platform import state as s
from host_proxy.records import ring

pytestmark = [pytest.mark.mpi, pytest.mark.quick]

SLOTS = 64
#: Tickets at which something could go wrong: the start, exact laps, the wrap of the 31-bit tag.
FIRST = [0, 1, SLOTS - 1, SLOTS, 5 * SLOTS, (1 << 31) - 3, (1 << 31) - SLOTS, (1 << 40) + 17]


def decoded(m: Machine) -> dict[str, int]:
    names = (
        "OP",
        "FLAGS",
        "COMM",
        "CALL",
        "DATATYPE",
        "PEER",
        "ELEMENTS",
        "TAG",
        "HANDLE",
        "DONE",
        "BLOCK",
    )
    return {name: int(m.state.record[getattr(s, f"R_{name}")]) for name in names}


def test_nothing_is_read_from_cleared_memory() -> None:
    m = Machine()
    assert not ring.has_record(m.g) and not ring.decode(m.g)


@pytest.mark.parametrize("first", FIRST)
def test_every_field_arrives(first: int) -> None:
    m = Machine(first=first)
    for k in range(2 * SLOTS + 3):  # two laps, and a bit
        sent = {
            "OP": 1 + k % 8, "FLAGS": k * 7 & 0xFF, "COMM": k * 37 & 0x1FF,
            "CALL": k * 5 & 0x7F,
            "DATATYPE": (k * 0x1234567) & 0xFFFFFFFF, "PEER": (-1) ** k * k,
            "ELEMENTS": (-1) ** k * (k << 50), "TAG": -k if k % 3 else (1 << 31) - 1 - k,
            "HANDLE": (1 << 62) - k, "DONE": k << 40, "BLOCK": k * 1000,
        }  # fmt: skip
        m.publish(
            sent["OP"], flags=sent["FLAGS"], comm=sent["COMM"] | sent["CALL"] << 9,
            datatype=sent["DATATYPE"],
            peer=sent["PEER"], count=sent["ELEMENTS"], tag=sent["TAG"], handle=sent["HANDLE"],
            done=sent["DONE"], block=sent["BLOCK"],
        )  # fmt: skip
        assert ring.decode(m.g)
        assert decoded(m) == sent
        assert int(m.state.record[s.R_SEQ]) == seq_of(first + k)
        ring.take(m.g)
        assert not ring.has_record(m.g)


@pytest.mark.parametrize("first", FIRST)
def test_records_of_zeros_are_ordinary(first: int) -> None:
    # Nothing is cleared and no word is a flag: only the tag says whether a packet is there.
    m = Machine(first=first)
    for _ in range(3 * SLOTS):
        m.publish(0, datatype=0)
        assert ring.decode(m.g) and set(decoded(m).values()) == {0}
        ring.take(m.g)


@settings(max_examples=150)
@given(st.data())
def test_records_are_taken_in_order_and_never_early(data: st.DataObject) -> None:
    """Many producers: packets of all records that have room in the ring arrive in any order."""
    first = data.draw(st.sampled_from(FIRST))
    m = Machine(first=first)
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    m.ring["seq"] = rng.integers(0, 1 << 32, (SLOTS, wire.SLOT_PACKETS))  # any history but our tags
    ours = {seq_of(first + k) for k in range(4 * SLOTS)}
    m.ring["seq"][np.isin(m.ring["seq"], list(ours))] = 0
    total = data.draw(st.integers(1, 3 * SLOTS))
    waiting: list[tuple[int, int, np.void]] = []  # (ticket, packet number, packet)
    there: dict[int, int] = {}  # header packets written, by ticket
    published, taken = 0, 0
    while taken < total:
        while published < min(total, taken + SLOTS) and (not waiting or rng.random() < 0.5):
            ticket = first + published
            packets = m.packets_of(ticket, 3, count=ticket, handle=ticket, peer=published)
            waiting += [(ticket, k, packets[k]) for k in range(wire.HEADER_PACKETS)]
            published += 1
        ticket, k, packet = waiting.pop(int(rng.integers(0, len(waiting))))
        m.ring[ticket % SLOTS, k] = packet
        there[ticket] = there.get(ticket, 0) + 1
        while there.get(first + taken) == wire.HEADER_PACKETS:
            assert ring.decode(m.g)
            assert decoded(m)["ELEMENTS"] == first + taken
            assert decoded(m)["PEER"] == taken
            ring.take(m.g)
            taken += 1
        assert not ring.decode(m.g)


@pytest.mark.parametrize("first", FIRST)
def test_a_full_ring_of_the_lap_before_is_not_taken_again(first: int) -> None:
    m = Machine(first=first)
    for _ in range(SLOTS):
        m.publish(wire.OP_NULL, count=1)
    for _ in range(SLOTS):
        assert ring.has_record(m.g)
        ring.take(m.g)
    assert not ring.has_record(m.g)  # the next slot holds the packet of one lap ago


def test_consumed_records_are_returned_to_producers() -> None:
    m = Machine()
    consumed = m.mapped[wire.CONTROL_CONSUMED : wire.CONTROL_CONSUMED + 8].view(np.int64)
    for lap in range(3):
        for _ in range(SLOTS):
            m.publish(wire.OP_NULL, count=3)
        m.step()
        assert consumed[0] == (lap + 1) * SLOTS
    assert m.globals[s.G_NULLS] == 3 * SLOTS and m.globals[s.G_NULL_SUM] == 9 * SLOTS


@pytest.mark.parametrize("first", [0, SLOTS - 1, (1 << 31) - 2])
def test_payload_of_every_length(first: int) -> None:
    m = Machine(first=first)
    target = np.zeros(wire.INLINE_BYTES + 64, np.uint8)
    for n in range(wire.INLINE_BYTES + 1):
        content = bytes((k * 13 + n) & 0xFF for k in range(n))
        m.publish(3, payload=content)
        assert ring.decode(m.g)
        target[:] = 0xEE
        assert ring.payload_to(m.g, m.state.record.ctypes.data, target.ctypes.data, n)
        assert target[:n].tobytes() == content
        # Whole packets: up to 11 bytes more, no further.
        assert (target[n + wire.PACKET_PAYLOAD - 1 :] == 0xEE).all()
        ring.take(m.g)


def test_late_payload_is_waited_for() -> None:
    """The header may be complete while the payload is still on its way."""
    m = Machine()
    content = bytes(range(100))
    packets = m.packets_of(0, wire.OP_ISEND, flags=wire.FLAG_INLINE, count=100, payload=content)
    m.ring[0, :4] = packets[:4]
    for k in (12, 4, 9, 5, 6, 11, 7, 10, 8):
        assert ring.has_record(m.g) and not ring.decode(m.g)
        m.ring[0, k] = packets[k]
    assert ring.decode(m.g)
    target = np.zeros(128, np.uint8)
    assert ring.payload_to(m.g, m.state.record.ctypes.data, target.ctypes.data, len(content))
    assert target[:100].tobytes() == content


@pytest.mark.parametrize("op", [wire.OP_WAITS, wire.OP_WAITED, wire.OP_FAULT])
def test_an_opcode_in_place_of_flags_announces_no_payload(op: int) -> None:
    """The opcode of a send has the bit of FLAG_INLINE: each report of one held up all records
    behind it for five seconds."""
    m = Machine()
    m.publish(op, flags=wire.OP_ISEND, count=100)
    m.ring[0, wire.HEADER_PACKETS :]["seq"] = 0
    assert ring.decode(m.g)


@pytest.mark.parametrize("op", [wire.OP_ISEND, wire.OP_BCAST])
def test_a_payload_that_never_comes_fails_its_own_request_only(op: int) -> None:
    m = Machine()
    before = m.open(wire.OP_IRECV, 1, peer=0, count=8, tag=3)
    m.step()
    late = m.handle(m.ticket, 2)
    packets = m.packets_of(
        m.ticket, op, flags=wire.FLAG_INLINE, count=20, handle=late, payload=bytes(20)
    )
    m.ring[m.ticket] = packets
    m.ring[m.ticket, wire.HEADER_PACKETS + 1 :] = 0  # of two packets, one comes
    m.ticket += 1
    after = m.open(wire.OP_BARRIER, 3)
    # What others wait for goes on meanwhile, and the loop takes no second for its look.
    m.finish(0)
    m.step()
    assert m.completion(before) is not None and m.completion(late) is None
    assert m.globals[s.G_LATE_SINCE] > 0 and m.completion(after) is None
    m.globals[s.G_LATE_SINCE] -= ring.PATIENCE_NS
    m.step()
    assert m.error_of(late) == gmpi.ERR_REQUEST and m.globals[s.G_LATE_SINCE] == 0
    assert [call.name for call in m.calls] == ["MPI_Irecv", "MPI_Ibarrier"]


@pytest.mark.parametrize("first", [SLOTS + 6, 5 * SLOTS + 1, (1 << 30) - 1, (1 << 30) + 3 * SLOTS])
def test_a_payload_of_two_to_the_31_records_ago_is_not_taken_for_new(first: int) -> None:
    # Minutes of traffic at full rate: the same ring slot, and the same tag.
    m = Machine(first=first)
    m.publish(wire.OP_ISEND, flags=wire.FLAG_INLINE, payload=b"\1" * wire.INLINE_BYTES)
    room = m.state.buffer(256)
    record = int(m.state.record.ctypes.data)
    assert ring.decode(m.g) and ring.payload_to(m.g, record, room, wire.INLINE_BYTES)
    ring.take(m.g)
    since = first >> 30 << 30
    # Of what lies between, two laps; records without payload.
    for begin in (since + (1 << 30), since + (2 << 30)):
        m.globals[s.G_HEAD] = begin
        for ticket in range(begin, begin + SLOTS):
            header = m.packets_of(ticket, wire.OP_NULL)[: wire.HEADER_PACKETS]
            m.ring[ticket % SLOTS, : wire.HEADER_PACKETS] = header
            assert ring.decode(m.g)
            ring.take(m.g)
    again = first + (1 << 31)
    m.globals[s.G_HEAD] = again
    header = m.packets_of(again, wire.OP_ISEND, flags=wire.FLAG_INLINE, count=12)
    m.ring[again % SLOTS, : wire.HEADER_PACKETS] = header[: wire.HEADER_PACKETS]
    assert not ring.decode(m.g)
    assert not ring.payload_to(m.g, record, room, 12)


def test_units_are_sixteen_bytes() -> None:
    assert PACKET.itemsize == wire.PACKET_BYTES and CONTEXT <= wire.HANDLE_CONTEXT_MASK
