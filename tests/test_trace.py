"""Traces: clocks, the memory of events, joining, merging, what the summary says.

Programs that are traced are in ``ranks/traced.py``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trace_checks
from click.testing import CliRunner

from gmpi.__main__ import main
from gmpi.contract import moves
from gmpi.contract.trace import EVENT_BYTES, HEADER_PAIRS
from gmpi.trace import chrome, clock, cycles, events, merge, summary
from gmpi.trace.operations import Groups, Taken, join, kind_of
from gmpi.trace.started import Partitioned
from host_proxy.platform.trace import DTYPE

US = 1000
T0 = 10_000_000_000  # no time is 0


# --- clocks ---------------------------------------------------------------------------------------


def test_the_shortest_ping_ties_the_clocks() -> None:
    trips = np.array([(100, 900, 5500), (2000, 2200, 7110), (3000, 4000, 8000)])
    assert clock.best(trips) == (2100, 7110, 100)


def test_a_clock_that_goes_faster_is_slowed_down() -> None:
    """The other clock gains 1 in 1000, over a day: nothing is lost in float64."""
    day = 86_400 * 10**9
    first = clock.Point(5_000, 10**15, 40)
    last = clock.Point(5_000 + day + day // 1000, 10**15 + day, 60)
    line = clock.Line(first, last)
    assert line.error == 60
    there = np.array([5_000, 5_000 + (day + day // 1000) // 2, last.there], np.int64)
    assert np.abs(line.here(there) - [10**15, 10**15 + day // 2, 10**15 + day]).max() <= 1
    assert clock.same().here(np.array([123])).tolist() == [123]
    assert clock.Line(first, first).here(np.array([6_000])).tolist() == [10**15 + 1_000]


def test_kinds_of_calls() -> None:
    for row in moves.ALL_ROWS:
        assert kind_of(row.name.lower()) == kind_of(row.nonblocking.lower()) == "collective", row
    assert kind_of("ibsend") == "send" and kind_of("irecv") == "receive"
    assert kind_of("waitall") == "other"


# --- the memory of events -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rings", "free", "rows"),
    [(1, 1, 0), (1, 2, 1), (1, 1000, 256), (1, 16, 4), (100, 199, 0), (100, 200, 1),
     (4224, 1 << 14, 1), (4224, 1 << 16, 4)],
)  # fmt: skip
def test_how_much_a_launch_gets(rings: int, free: int, rows: int) -> None:
    assert events.rows_for(rings, free) == rows
    assert rings * (rows + 1) <= free or rows == 0


def stored(raw: np.ndarray, launch: events.Launch, ring: int, stamps: list[Any]) -> None:
    """Stores events as a warp does: (begin, its ns or 0, end, its ns or 0) of each."""
    first = launch.place + ring * (launch.rows + 1)
    rows = raw.view(events.STORED)
    header = raw.view(np.int64).reshape(-1, EVENT_BYTES // 8)[first, : 2 * HEADER_PAIRS]
    pairs = 0
    for number, (begin, begin_ns, end, end_ns) in enumerate(stamps):
        row = rows[first + 1 + number % launch.rows]
        row["begin"], row["end"], row["number"] = begin, end, number
        for k, pair in enumerate(((begin, begin_ns), (end, end_ns))):
            if pair[1]:
                row["pairs"][k] = pair
                header.reshape(-1, 2)[pairs % HEADER_PAIRS] = pair
                pairs += 1


def test_a_ring_keeps_the_last_events() -> None:
    """Two rings of four, of two blocks, of which one was written six times; behind another launch.
    None of its last events has a pair any more: its header has."""
    launch = events.Launch(1, "k", 2, 32, 0, place=3, rings=2, rows=4)
    raw = np.zeros(20 * EVENT_BYTES, np.uint8)
    stored(raw, launch, 0, [(100, 1000, 110, 0), *((100 + 20 * i, 0, 110, 0) for i in range(1, 6))])
    stored(raw, launch, 1, [(9000, 1015, 9010, 0), (9040, 0, 9050, 0)])
    found, lost, error = events.read(raw, launch, cycles.Rate(0.5, 0.0, 8))
    assert found["begin"].tolist() == [1015, 1020, 1030, 1035, 1040, 1050] and lost == 2
    assert found["block"].tolist() == [1, 0, 0, 1, 0, 0] and error == 8


def test_events_are_counted_modulo_two_to_the_32() -> None:
    numbers = np.array([2**32 - 2, 2**32 - 1, 0, 1], np.uint32)
    assert events._overwritten(numbers, 4) == 2**32 + 2 - 4
    assert events._overwritten(np.arange(3, dtype=np.uint32), 4) == 0


# --- cycles ---------------------------------------------------------------------------------------


def speeds(*parts: tuple[int, float]) -> Any:
    """A multiprocessor's clock that goes so many ns at so many cycles a ns: its cycles by ns."""
    ns = np.cumsum([0, *(length for length, _ in parts)])
    at = np.cumsum([10**12, *(length * rate for length, rate in parts)])
    return lambda t: np.int64(np.interp(np.asarray(t, float), ns, at))


def test_between_pairs_the_clock_goes_evenly() -> None:
    """It changes at 400 us, in the middle of a stretch of 100 us: wrong by less than is said."""
    of = speeds((430_000, 1.98), (600_000, 1.5))
    taken = np.arange(0, 1_000_001, 100_000)
    pairs = np.c_[of(taken), T0 + taken // 32 * 32]
    t = np.arange(0, 1_000_000, 777)
    found, error = cycles.to_ns(of(t), pairs[::-1], cycles.Rate(1.0, 1.0, 32))
    off = np.abs(found - T0 - t)
    assert off[(t < 400_000) | (t > 500_000)].max() <= 32
    assert 2_000 < off.max() <= error < 20_000
    assert (np.diff(found) >= 0).all()
    # A clock that goes evenly is as good as the timer.
    even = speeds((1_000_000, 1.755))
    found, error = cycles.to_ns(even(t), np.c_[even(taken), T0 + taken], cycles.Rate(1.0, 1.0, 32))
    assert np.abs(found - T0 - t).max() <= 1 and error == 32


def test_before_and_after_the_pairs_it_goes_on_as_there() -> None:
    """By pairs as far apart as the stamps are away, not by two neighbours and the timer's steps."""
    of = speeds((400_000, 1.9))
    taken = np.array([100_000, 100_500, 200_000, 299_500, 300_000])
    pairs = np.c_[of(taken), T0 + np.array([100_000, 100_600, 200_000, 299_400, 300_000])]
    t = np.array([50_000, 99_000, 301_000, 360_000])
    found, error = cycles.to_ns(of(t), pairs, cycles.Rate(9.0, 1.0, 32))
    assert np.abs(found - T0 - t)[[0, 3]].max() <= 2
    assert np.abs(found - T0 - t).max() <= 220 and error < 500
    # One pair says nothing of the rate.
    found, error = cycles.to_ns(of(t), pairs[2:3], cycles.Rate(1 / 1.9, 0.01, 32))
    assert np.abs(found - T0 - t).max() <= 2 and error == 32 + 1600


def test_the_rate_of_a_clock_and_the_steps_of_the_timer() -> None:
    readings = np.arange(0, 320_000, 3_200)
    slow = cycles.rate_of(readings * 2, readings // 32 * 32)
    assert slow.ns == pytest.approx(0.5, rel=1e-3) and slow.resolution == 3200
    fast = cycles.rate_of(readings * 2, readings // 2)
    assert cycles.both(slow, fast) == pytest.approx((fast.ns, 1.0, 3200), rel=1e-2)
    assert cycles.rate_of(readings[:1], readings[:1]).spread == 1.0


# --- joining --------------------------------------------------------------------------------------

CALLS = [
    "isend", "irecv", "wait", "send", "recv", "waitall", "test", "start", "pready", "put",
    "win_flush", "win_flush_all",
]  # fmt: skip
PARTITIONED = {5: Partitioned(True, "COMM_WORLD", 1, 3, 0, 64, False)}


def event(call: str, begin: int, end: int, **words: int) -> np.ndarray:
    row = np.zeros((), events.EVENT)
    row["call"], row["begin"], row["end"] = CALLS.index(call), begin, end
    words = {"comm": -1 if call.startswith(("wait", "test")) else 0, **words}
    for name, value in words.items():
        row[name] = value
    return row


def taken(rows: list[np.ndarray], proxy: np.ndarray) -> Taken:
    launch = events.Launch(1, "k", 1, 32, 1, 0, 1, 64)
    return Taken([(launch, np.array(rows, events.EVENT))], proxy, [], CALLS, PARTITIONED)


GROUPS = Groups(0, [("COMM_WORLD", [0, 1]), ("turned", [1, 0])], {77: ("a window's", [1, 0])})


def test_a_request_number_that_is_used_again_joins_its_own_calls() -> None:
    rows = [
        event("isend", 10, 20, request=7, peer=1, tag=3, count=2, datatype=4 << 8),
        event("wait", 30, 40, request=7),
        event("isend", 50, 60, request=7, peer=1, tag=4),
        event("test", 62, 64, request=7, incomplete=1),
        event("test", 70, 80, request=7),
    ]
    proxy = np.zeros(2, DTYPE)
    proxy["handle"], proxy["op"], proxy["nbytes"] = 7, 3, [8, 9]
    proxy["picked_up"], proxy["completed"] = [22, 65], [28, 68]
    first, second = join(GROUPS, taken(rows, proxy))["operations"]
    assert (first["tag"], first["waited"], first["end"], first["picked_up"]) == (3, 30, 40, 22)
    assert (second["tag"], second["waited"], second["end"], second["picked_up"]) == (4, 70, 80, 65)
    assert (first["nbytes"], second["nbytes"]) == (8, 9)


def test_blocking_calls_find_the_rows_that_were_picked_up_while_they_lasted() -> None:
    """Of calls of the same block; one row was overwritten, and no other one takes its place."""
    far = 10 * US
    rows = [event("send", k * far, k * far + US, peer=1, tag=k) for k in range(3)]
    proxy = np.zeros(2, DTYPE)
    proxy["handle"], proxy["op"], proxy["call"], proxy["tag"] = [8, 9], 3, 1, [1, 2]
    proxy["picked_up"] = [far + 500, 2 * far + 500]
    found = join(GROUPS, taken(rows, proxy))["operations"]
    assert [op["picked_up"] for op in found] == [0, far + 500, 2 * far + 500]
    assert [op["road"] for op in found] == ["direct", "proxied", "proxied"]


def test_a_status_says_what_a_wildcard_has_got_in_another_communicator() -> None:
    rows = [
        event("irecv", 10, 20, request=7, comm=1, peer=-2, tag=-1, count=9),
        event("wait", 30, 40, request=7, source=0, source_tag=5, nbytes=12),
    ]
    (op,) = join(GROUPS, taken(rows, np.zeros(0, DTYPE)))["operations"]
    assert (op["comm"], op["peer"], op["tag"], op["nbytes"]) == ("turned", 1, 5, 12)


def test_a_wait_for_several_closes_what_no_other_call_has_closed() -> None:
    rows = [
        event("isend", 10, 20, request=7, peer=1),
        event("irecv", 21, 25, request=8, peer=1),
        event("wait", 26, 30, request=8, source=1),
        event("waitall", 31, 40),
        event("waitall", 41, 50),
    ]
    found = join(GROUPS, taken(rows, np.zeros(0, DTYPE)))["operations"]
    assert [op["end"] for op in found] == [40, 30]


def test_the_last_partition_may_be_made_ready_after_the_wait_began() -> None:
    rows = [
        event("start", 10, 11, request=5), event("pready", 12, 13, request=5),
        event("wait", 14, 30, request=5), event("pready", 20, 21, request=5),
        event("start", 40, 41, request=5), event("pready", 50, 51, request=5),
        event("start", 60, 61, request=6), event("pready", 70, 71, request=6),  # nobody's
    ]  # fmt: skip
    first, second = join(GROUPS, taken(rows, np.zeros(0, DTYPE)))["operations"]
    assert (first["begin"], first["ready"], first["waited"], first["end"]) == (10, 20, 14, 30)
    assert (second["begin"], second["ready"], second["end"]) == (40, 50, 0)
    assert first["nbytes"] == 64 and first["channel"] == "partitioned 0"


def test_stores_are_complete_after_a_flush_of_their_target() -> None:
    """Whose rank is one of the window's; an earlier flush, and one of another window, are none."""
    rows = [
        event("win_flush_all", 1, 2, comm=77),
        event("put", 10, 20, comm=77, peer=0, count=2, datatype=4 << 8),
        event("win_flush_all", 21, 22, comm=78),
        event("win_flush", 23, 24, comm=77, peer=1),
        event("win_flush", 30, 40, comm=77, peer=0),
        event("put", 50, 60, comm=77, peer=1),
    ]
    first, second = join(GROUPS, taken(rows, np.zeros(0, DTYPE)))["operations"]
    assert (first["comm"], first["peer"], first["nbytes"]) == ("a window's", 1, 8)
    assert (first["waited"], first["end"]) == (30, 40)
    assert (second["peer"], second["end"]) == (0, 0)


# --- merging and the summary ----------------------------------------------------------------------


def rank_of(number: int, rows: list[np.ndarray], **more: Any) -> dict[str, Any]:
    found = join(Groups(number, [("COMM_WORLD", [0, 1])], {}), taken(rows, np.zeros(0, DTYPE)))
    lost = {"events": 0, "requests": 0, "launches": 0}
    facts = {
        "version": 1, "rank": number, "size": 2, "host": "node", "simulator": False,
        "offset_ns": 0, "clock_error_ns": 0, "lost": lost,
    }  # fmt: skip
    return {**facts, **found, **more}


def late_pair(folder: Path, **more: Any) -> list[Path]:
    """Rank 0 sends twice; rank 1 waits 30 us for the first, and receives the second late."""
    send = [
        event("isend", T0 + 50 * US, T0 + 51 * US, request=7, peer=1, tag=1, count=8,
              datatype=1 << 8),
        event("wait", T0 + 61 * US, T0 + 62 * US, request=7),
        event("send", T0 + 70 * US, T0 + 71 * US, peer=1, tag=1, count=8, datatype=1 << 8),
    ]  # fmt: skip
    receive = [
        event("irecv", T0, T0 + US, request=9, peer=0, tag=1),
        event("wait", T0 + 20 * US, T0 + 55 * US, request=9, source=0, source_tag=1, nbytes=8),
        event("recv", T0 + 90 * US, T0 + 92 * US, peer=0, tag=1, source=0, source_tag=1, nbytes=8),
    ]
    paths = []
    for rank, rows in enumerate((send, receive)):
        paths.append(folder / f"run.{rank}.json")
        paths[-1].write_text(chrome.text_of(rank_of(rank, rows, **more)))
    return paths


def test_who_was_late_and_what_was_overlapped(tmp_path: Path) -> None:
    found = summary.summarize(merge.read(late_pair(tmp_path)))
    assert found["messages"] == 2 and found["without_other_end"] == 0
    (late,) = found["late_senders"]
    assert late == {"sender": 0, "receiver": 1, "messages": 1, "waited": 30.0, "longest": 30.0}
    (peer,) = found["by_peer"]
    # The first took from 50 to 55, the second from 90, when it was received, to 92.
    assert (peer["messages"], peer["bytes"], peer["mean"]) == (2, 16, 3.5)
    sender, receiver = found["by_rank"]
    # Under way 12 us, of which 2 in the calls; 55 us, of which 36.
    assert sender["overlap"] == pytest.approx(10 / 12)
    assert receiver["overlap"] == pytest.approx(19 / 55)
    assert sender["in_calls"] == 3.0 and receiver["in_calls"] == 38.0
    assert receiver["imbalance"] == pytest.approx(38 / 20.5)
    calls = {row["operation"]: (row["calls"], row["total"]) for row in found["by_operation"]}
    assert calls["GMPI_Wait"] == (2, 36.0) and calls["GMPI_Recv"] == (1, 2.0)


def test_times_of_another_node_are_put_on_the_clock_of_rank_0(tmp_path: Path) -> None:
    paths = late_pair(tmp_path)
    facts = json.loads(paths[1].read_text())["gmpi"][0]
    for rows in ("operations", "calls", "launches"):  # as if its clock were 1 ms behind
        for row in facts[rows]:
            for name in ("at", "begin", "returned", "waited", "end"):
                if row.get(name):
                    row[name] -= 1000 * US
    facts["offset_ns"] = 1000 * US
    paths[1].write_text(chrome.text_of(facts))
    assert summary.summarize(merge.read(paths))["late_senders"][0]["waited"] == 30.0


def test_a_merged_trace_is_one(tmp_path: Path) -> None:
    paths = late_pair(tmp_path)
    output = tmp_path / "run.json"
    done = CliRunner().invoke(main, ["trace", "merge", *map(str, paths), "-o", str(output)])
    assert done.exit_code == 0 and "2 ranks, 2 messages" in done.output, done.output
    found = trace_checks.events(output)
    trace_checks.check_format(found)
    trace_checks.check_nesting(found)
    assert trace_checks.check_arrows(found) == 2
    # It is read like its parts.
    done = CliRunner().invoke(main, ["trace", "summary", str(output), "--json"])
    assert json.loads(done.output) == summary.summarize(merge.read(paths))
    text = CliRunner().invoke(main, ["trace", "summary", str(output)]).output
    assert "Late senders" in text and "83 %" in text


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    """A rank's file, and room; times of the simulator."""
    lost = {"events": 5, "requests": 0, "launches": 2}
    paths = late_pair(tmp_path, lost=lost, simulator=True)
    text = CliRunner().invoke(main, ["trace", "summary", str(paths[0])]).output
    assert "1 of 2 ranks, 0 messages, 2 without their other end" in text
    assert "no room for 5 events, 2 launches: set GMPI_TRACE to a larger number" in text
    assert "these times mean nothing" in text


@pytest.mark.parametrize(
    ("text", "told"),
    [("{}", "is no trace of GMPI"), ("not JSON", "is no trace of GMPI"),
     ('{"gmpi": [{"version": 9}]}', "has version 9, known is 1"),
     (None, "is a second trace of rank 0")],
)  # fmt: skip
def test_what_is_no_trace_is_refused(text: str | None, told: str, tmp_path: Path) -> None:
    first, second = late_pair(tmp_path)
    second.write_text(first.read_text() if text is None else text)
    with pytest.raises(merge.TraceError, match=told):
        merge.read([first, second])


def test_checks_of_traces_find_what_is_wrong() -> None:
    span = {"ph": "X", "pid": 0, "tid": 1, "name": "a", "cat": "c", "args": {}}
    name = {"ph": "M", "pid": 0, "tid": 1, "name": "thread_name", "args": {}}
    apart = [{**span, "ts": 1.0, "dur": 1.0}, {**span, "ts": 2.0, "dur": 1.0}]
    trace_checks.check_nesting(apart)
    with pytest.raises(AssertionError):
        trace_checks.check_nesting([apart[0], {**span, "ts": 1.5, "dur": 1.0}])
    trace_checks.check_format([name, *apart])
    for wrong in ({**span, "ts": 1.0, "dur": 0}, {**span, "ts": 1.0, "dur": 1, "tid": 2},
                  {**span, "ph": "s", "ts": 1.0, "id": 1}):  # fmt: skip
        with pytest.raises(AssertionError):
            trace_checks.check_format([name, wrong])
