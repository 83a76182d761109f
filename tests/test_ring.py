"""The ring and completions, byte for byte, with a producer in Python in place of a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import CONTEXT, PACKET, Machine, seq_of

import gmpi
from gmpi.contract import wire
from host_proxy.platform import state as s
from host_proxy.records import completion, ring

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


# --- completions ----------------------------------------------------------------------------------


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
