"""Every value of a record that is not allowed: the fault it is, and that MPI never sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from machine import PACKET, RANKS, SMALL, Machine, Posted, seq_of

import gmpi
from gmpi.contract import wire
from gmpi.contract.partitions import WANTED_BYTES, Wanted
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st

pytestmark = [pytest.mark.mpi, pytest.mark.quick]

SEND = {"flags": wire.FLAG_OUT | wire.FLAG_INLINE, "count": 8, "payload": bytes(8)}
RECV = {"flags": wire.FLAG_BACK, "count": 8, "packets": 3}
REDUCE = {
    "flags": wire.FLAG_OUT | wire.FLAG_BACK | wire.FLAG_INLINE, "count": 2, "packets": 3,
    "datatype": gmpi.INT, "payload": bytes(8),
}  # fmt: skip
WANTED = Wanted(1 << 40, 64, 2, 3, gmpi.INT, 1, 7, 0, 4, (0,) * 8)
INIT = {
    "flags": wire.FLAG_OUT | wire.FLAG_INLINE, "count": WANTED_BYTES,
    "payload": np.array([*WANTED[:-1], *WANTED.view], np.int64).tobytes(),
}  # fmt: skip
BCAST = {"flags": wire.FLAG_BACK, "count": 8, "packets": 3}
GOOD = {
    wire.OP_ISEND: SEND, wire.OP_IRECV: RECV, wire.OP_ALLREDUCE: REDUCE, wire.OP_BCAST: BCAST,
    wire.OP_BARRIER: {}, wire.OP_PING: {}, wire.OP_SYNCHRONIZE: {},
    wire.OP_PSEND_INIT: INIT, wire.OP_PRECV_INIT: INIT, wire.OP_REQUEST_FREE: {"count": 1 << 62},
}  # fmt: skip
MOST = wire.POSITION_MASK // 32
UB = (1 << 31) - 1

BAD: list[tuple[int, dict[str, int], int]] = []  # (operation, what is wrong, field)
for _op in (wire.OP_ISEND, wire.OP_IRECV, wire.OP_ALLREDUCE, wire.OP_BCAST):
    for _n in (-1, MOST + 1, -(1 << 63), (1 << 63) - 1):
        BAD.append((_op, {"count": _n}, ops.COUNT))
    for _datatype in (0, 0xFFFFFFFF, gmpi.INT + 256, gmpi.INT | 0xFF, gmpi.INT ^ (1 << 20)):
        BAD.append((_op, {"datatype": _datatype}, ops.DATATYPE))
    for _flaw in (2, 4, 8, 16, 30):
        BAD.append((_op, {"flags": GOOD[_op]["flags"] | _flaw}, ops.BUFFER))
for _op in (wire.OP_ISEND, wire.OP_IRECV, wire.OP_ALLREDUCE, wire.OP_BCAST, wire.OP_BARRIER):
    for _comm in (1, 255, 256, wire.NO_COMMUNICATOR):
        BAD.append((_op, {"comm": _comm}, ops.COMMUNICATOR))
for _peer in (RANKS, -77, (1 << 31) - 1, -(1 << 31)):
    BAD.append((wire.OP_ISEND, {"peer": _peer}, ops.DEST))
    BAD.append((wire.OP_IRECV, {"peer": _peer}, ops.SOURCE))
    BAD.append((wire.OP_BCAST, {"peer": _peer}, ops.ROOT))
BAD.append((wire.OP_ISEND, {"peer": gmpi.ANY_SOURCE}, ops.DEST))
BAD.append((wire.OP_BCAST, {"peer": gmpi.PROC_NULL}, ops.ROOT))
for _tag in (-2, -(1 << 31)):
    BAD.append((wire.OP_ISEND, {"tag": _tag}, ops.TAG))
    BAD.append((wire.OP_IRECV, {"tag": _tag}, ops.TAG))
BAD.append((wire.OP_ISEND, {"tag": gmpi.ANY_TAG}, ops.TAG))
for _reduction in (10, -1, 1 << 20):
    BAD.append((wire.OP_ALLREDUCE, {"tag": _reduction}, ops.REDUCTION))
for _unknown in (0, wire.OP_WAIT, wire.LAST_PLAIN + 1, 99, 255):
    BAD.append((_unknown, {}, ops.OPERATION))
# A size that does not fit the class of the slot, or the place of the payload.
BAD.append((wire.OP_ISEND, {"count": 257}, ops.REQUEST))
BAD.append((wire.OP_IRECV, {"count": 257}, ops.REQUEST))
BAD.append((wire.OP_ISEND, {"count": 145}, ops.REQUEST))
BAD.append((wire.OP_ISEND, {"flags": wire.FLAG_OUT}, ops.REQUEST))
for _op in (wire.OP_PSEND_INIT, wire.OP_PRECV_INIT):  # not the payload that they must have
    BAD.append((_op, {"flags": wire.FLAG_OUT}, ops.REQUEST))
    BAD.append((_op, {"count": WANTED_BYTES - 8}, ops.REQUEST))
    BAD.append((_op, {"datatype": gmpi.INT}, ops.REQUEST))


def call(m: Machine, op: int, slot: int = 0, **wrong: Any) -> int:
    fields = {**GOOD.get(op, {}), **wrong}
    return m.open(op, slot, **fields)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("op", GOOD, ids=ops.name_of)
def test_what_is_right_is_carried_out(op: int) -> None:
    m = Machine()
    call(m, op)
    m.step()
    assert m.faults == []
    expected = ops.OPERATIONS[op].fields != 0
    assert len(m.calls) == expected


@pytest.mark.parametrize("op", GOOD, ids=ops.name_of)
def test_mpi_begins_nothing_after_an_abort(op: int) -> None:
    """A call that was left out is followed by others: they would meet what it should have met."""
    m = Machine()
    before = call(m, wire.OP_PING, 1)
    m.step()
    m.mapped[wire.CONTROL_ABORT] = gmpi.GMPI_ERR_ABORTED
    handle = call(m, op)
    m.step()
    frees = op == wire.OP_REQUEST_FREE  # gives back what there is
    assert m.error_of(before) == gmpi.SUCCESS
    assert m.error_of(handle) == (gmpi.SUCCESS if frees else gmpi.GMPI_ERR_ABORTED)
    assert len(m.calls) == frees and m.faults == []


@pytest.mark.parametrize("op, wrong, field", BAD, ids=str)
def test_what_is_wrong_is_refused(
    machine: Machine, op: int, wrong: dict[str, int], field: int
) -> None:
    m = machine
    before, faults = len(m.calls), len(m.faults)
    handle = call(m, op, 0, block=9, **wrong)
    good = call(m, wire.OP_PING, 1)
    m.step()
    error = ops.FIELD_CLASSES[field]
    assert m.error_of(handle) == error
    assert m.error_of(good) == gmpi.SUCCESS
    assert len(m.calls) == before, m.calls[before:]
    assert len(m.faults) == faults + 1 or faults == st.FAULTS
    fault = m.faults[-1]
    assert (fault[st.E_FIELD], fault[st.E_CLASS], fault[st.E_BLOCK]) == (field, error, 9)
    if field not in (ops.OPERATION, ops.REQUEST, ops.BUFFER):
        assert fault[st.E_VALUE] == next(iter(wrong.values()))
    assert m.state.slots[0, st.S_STATE] != st.OPEN


def test_what_the_host_answers_is_told() -> None:
    m = Machine()
    m.host.busy = 3
    handle = call(m, wire.OP_PRECV_INIT, 1)
    m.step()
    assert m.error_of(handle) == gmpi.SUCCESS and m.host.busy == -1
    assert m.completions[1, 0]["low"] & wire.BYTES_MASK == 0xABCD1234
    place = WANTED.address, WANTED.count, WANTED.peer, WANTED.tag, WANTED.comm
    assert m.calls == [Posted("receive", *place)]
    m.host.fault = SimpleNamespace(error_class=gmpi.ERR_RANK)
    refused = [call(m, wire.OP_PSEND_INIT, 2), call(m, wire.OP_REQUEST_FREE, 3)]
    m.step()
    assert [m.error_of(h) for h in refused] == [gmpi.ERR_RANK] * 2
    fault = m.faults[-1]
    assert fault[st.E_FIELD] == ops.WORDED and m.state.notes[fault[st.E_VALUE]] is m.host.fault


def test_tags_above_the_limit_of_the_library(machine: Machine) -> None:
    m = machine
    limit = int(m.globals[st.G_TAG_UB])
    m.globals[st.G_TAG_UB] = 1000
    try:
        refused = [call(m, wire.OP_ISEND, 0, tag=1001), call(m, wire.OP_IRECV, 1, tag=1001)]
        m.step()
        assert [m.error_of(h) for h in refused] == [gmpi.ERR_TAG] * 2
        assert m.faults[-1][st.E_HIGH] == 1000
    finally:
        m.globals[st.G_TAG_UB] = limit


HANDLES = {
    "null": lambda m, h: 0,
    "negative": lambda m, h: h - (1 << 63),
    "claimed": lambda m, h: h | 1 << 59,
    "an error": lambda m, h: 1 << wire.HANDLE_ERROR_SHIFT | 7,
    "another context": lambda m, h: h ^ 1 << wire.HANDLE_CONTEXT_SHIFT,
    "no slot": lambda m, h: h | 0xFFFF << wire.HANDLE_SLOT_SHIFT,
    "another generation": lambda m, h: h + 2,
    "the wrong class": lambda m, h: h ^ 1 << wire.HANDLE_LARGE_SHIFT,
    "no units": lambda m, h: h & ~(0xF << wire.HANDLE_PACKETS_SHIFT),
}


@pytest.mark.parametrize("name", HANDLES)
def test_a_record_whose_handle_cannot_be_answered(name: str) -> None:
    m = Machine()
    handle = HANDLES[name](m, m.handle(m.ticket, 3))
    m.publish(wire.OP_ISEND, handle=handle, **SEND)
    m.step()
    assert m.calls == []
    assert [int(f[st.E_FIELD]) for f in m.faults] == [ops.REQUEST]
    assert (m.completions["seq"] == 0).all()  # nobody is told anything


def test_a_slot_is_not_opened_twice() -> None:
    m = Machine()
    first = call(m, wire.OP_IRECV, 3)
    second = call(m, wire.OP_IRECV, 3)
    m.step()
    assert len(m.calls) == 1 and m.error_of(second) == -1
    assert m.state.slots[3, st.S_HANDLE] == first


def test_faults_of_the_device_are_noted() -> None:
    m = Machine()
    m.publish(wire.OP_FAULT, flags=wire.OP_WAIT, count=0x1234, done=gmpi.ERR_REQUEST, block=6)
    m.publish(wire.OP_FAULT, flags=wire.OP_ISEND, count=32, done=gmpi.GMPI_ERR_NO_RESOURCE, block=7)
    m.step()
    rows = [(int(f[st.E_OP]), int(f[st.E_FIELD]), int(f[st.E_VALUE])) for f in m.faults]
    assert rows == [(wire.OP_WAIT, ops.REQUEST, 0x1234), (wire.OP_ISEND, ops.RESOURCE, 32)]


@pytest.mark.parametrize("op", [wire.OP_ISEND, wire.OP_IRECV, wire.OP_ALLREDUCE, wire.OP_BARRIER])
def test_errors_of_mpi_end_the_request_only(op: int) -> None:
    m = Machine()
    m.code = gmpi.ERR_OTHER
    handle = call(m, op)
    m.step()
    m.code = 0
    other = call(m, wire.OP_PING, 1)
    m.step()
    assert m.error_of(handle) == gmpi.ERR_OTHER and m.error_of(other) == 0
    assert [int(f[st.E_FIELD]) for f in m.faults] == [ops.MPI_CALL]
    assert m.globals[st.G_ACTIVE] == 0


# --- any bytes ------------------------------------------------------------------------------------


def check_invariants(m: Machine) -> None:
    """What holds whatever has come through the ring."""
    assert m.wrong == []
    assert m.globals[st.G_HEAD] == m.ticket
    slots = m.state.slots
    pending = int(m.globals[st.G_ACTIVE])
    assert pending == slots[slots[:, st.S_STATE] == st.OPEN, st.S_PENDING].sum()
    assert 0 <= pending <= len(m.state.pending)
    assert (slots[:, st.S_COMMANDS] >= 0).all()
    assert (
        m.globals[st.G_SERIAL] - m.globals[st.G_CLOSED] == (slots[:, st.S_STATE] == st.OPEN).sum()
    )


def put(m: Machine, packets: np.ndarray) -> None:
    """Publishes any content; its tags make it a record."""
    packets["seq"] = seq_of(m.ticket)
    m.ring[m.ticket % m.layout.ring_slots] = packets
    m.ticket += 1


def test_twenty_thousand_records_of_random_bytes() -> None:
    rng = np.random.default_rng(1)
    m = Machine(first=(1 << 31) - 5000)
    for _ in range(20_000 // 50):
        raw = rng.integers(0, 256, (50, wire.SLOT_BYTES), np.uint8)
        for row in raw:
            put(m, row.view(PACKET))
        m.step()
    check_invariants(m)
    assert len(m.faults) == st.FAULTS and m.calls == []


ANY_WORD = some.integers(-(1 << 63), (1 << 63) - 1)
LIMITS = some.sampled_from(
    [-1, 0, 143, 144, 145, 255, 256, 257, 511, 512, 513, 5000, MOST, MOST + 1]
)
MUTATIONS = some.fixed_dictionaries(
    {},
    optional={
        # But for the one that does what it says: it ends the process.
        "op": some.integers(0, 255).filter(lambda op: op != wire.OP_ABORT),
        "slot": some.integers(0, SMALL.slots + 2),
        "packets": some.integers(0, 15),
        "flags": some.integers(0, 255),
        "comm": some.sampled_from([1, 256, wire.NO_COMMUNICATOR]),
        "datatype": some.sampled_from([gmpi.C_LONG_DOUBLE_COMPLEX, gmpi.DOUBLE, 0, 1 << 31]),
        "peer": some.sampled_from([RANKS, gmpi.PROC_NULL, gmpi.ANY_SOURCE, -77, 1 << 30]),
        "tag": some.sampled_from([gmpi.ANY_TAG, -2, UB, 10]),
        "count": LIMITS | ANY_WORD,
        "handle": ANY_WORD,
    },
)
RECORDS = some.fixed_dictionaries(
    {
        "op": some.sampled_from([*GOOD, wire.OP_ISEND, wire.OP_IRECV, *[wire.OP_CHUNK] * 3]),
        "slot": some.integers(0, 3),
        "count": some.sampled_from([0, 1, 8, 100, 144, 145, 256, 257, 512, 2000, 5000]),
        "peer": some.integers(0, RANKS - 1),
        "tag": some.integers(0, 9),
        "mutations": some.one_of(some.just({}), some.just({}), MUTATIONS),
        "which": some.integers(0, 9),  # of the open requests, for a CHUNK
        "chunk": some.integers(0, 12),
        "index": some.integers(0, 4),
        "way": some.integers(0, 1),
        "arrives": some.booleans(),
        "length": some.integers(0, 300),
    }
)


def test_slots_between_large_and_narrow_ones_are_nobodys() -> None:
    m = Machine()
    first = m.layout.request_slots + m.layout.large_slots
    for slot in range(first - 1, m.layout.first_narrow + 1):
        m.open(wire.OP_IRECV, slot, 2, count=2000, flags=wire.FLAG_BACK)
        m.step()
        there = slot < first or slot >= m.layout.first_narrow
        assert (m.state.slots[slot, st.S_STATE] == st.OPEN) == there, slot


def nearly_right(m: Machine, r: dict[str, Any]) -> dict[str, Any]:
    """A valid record of the drawn size, but for the drawn mutations."""
    op, n = r["op"], r["count"]
    large = n > m.layout.eager_bytes
    flags = GOOD.get(op, {}).get("flags", 0) & ~wire.FLAG_INLINE
    if flags & wire.FLAG_OUT and n <= wire.INLINE_BYTES:
        flags |= wire.FLAG_INLINE
    packets = 1
    if flags & wire.FLAG_BACK:
        packets = wire.STATUS_PACKETS
        packets += wire.payload_packets(n) if n <= wire.INLINE_BYTES else 0
    slot = r["slot"] + (m.layout.request_slots if large else 0)
    fields = {
        "op": op, "slot": slot, "packets": packets, "flags": flags, "comm": 0, "peer": r["peer"],
        "datatype": gmpi.BYTE, "tag": r["tag"], "count": n, "payload": bytes(144),
        "done": (r["chunk"] * m.layout.chunk_bytes) << wire.CHUNK_POSITION_SHIFT
        | r["way"] << wire.CHUNK_DIRECTION_SHIFT | r["index"],
    } | r["mutations"]  # fmt: skip
    slot, packets = fields.pop("slot"), fields.pop("packets")
    fields.setdefault("handle", m.handle(m.ticket, slot, packets))
    if op == wire.OP_CHUNK:
        is_open = m.state.slots[m.state.slots[:, st.S_STATE] == st.OPEN, st.S_HANDLE]
        if len(is_open):
            fields["handle"] = int(is_open[r["which"] % len(is_open)])
    return fields


SEQUENCES = some.lists(RECORDS, min_size=15, max_size=60)


@pytest.mark.mpich
@settings(max_examples=60)
@given(SEQUENCES)
def test_some_sequences_of_nearly_right_records(records: list[dict[str, Any]]) -> None:
    serve(records)


@pytest.mark.full
@settings(max_examples=600)
@given(SEQUENCES)
def test_any_sequence_of_nearly_right_records(records: list[dict[str, Any]]) -> None:
    serve(records)


def serve(records: list[dict[str, Any]]) -> None:
    """Real handles, sizes at limits, chunks that nobody ordered, messages that come or do not."""
    m = Machine()
    for r in records:
        m.publish(**nearly_right(m, r))
        m.step()
        if r["arrives"] and m.globals[st.G_ACTIVE] > 0:
            arrive(m, r["length"])
            m.step()
        check_invariants(m)


def arrive(m: Machine, length: int) -> None:
    """MPI completes the oldest pending request; a receive has got a short message."""
    slot, kind = (int(v) for v in m.state.pending[0, :2])
    if kind == st.RECEIVE:
        at = m.layout.small + slot * m.layout.small_stride + wire.STAGING_LEAD - 32
        header = np.array([min(length, m.layout.eager_bytes), 0, wire.NOT_SHARED, 0], np.int64)
        m.mapped[at : at + 32] = header.view(np.uint8)
    m.finish(0, source=1, tag=5)
