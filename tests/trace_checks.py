"""Whether a trace is what it must be: by the format, in time, and with each message joined."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

PHASES = {
    "M": {"name", "args"},
    "X": {"name", "cat", "ts", "dur", "args"},
    "i": {"name", "cat", "ts", "s"},
    "b": {"name", "cat", "ts", "id2"},
    "e": {"name", "cat", "ts", "id2"},
    "s": {"name", "cat", "ts", "id"},
    "f": {"name", "cat", "ts", "id", "bp"},
}


#: In the name of a span where an arrow begins, and where it ends.
_ACCESSES = ("Put", "Get", "Rput", "swap", "Accumulate")
_STARTS = {"message": ("end", "Sendrecv", "Start", "Pready"), "access": _ACCESSES}
_ENDS = {"message": ("Wait", "ecv", "Test"), "access": _ACCESSES}


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    assert isinstance(found, list)
    return found


def check_format(found: list[dict[str, Any]]) -> None:
    """Chrome's Trace Event Format: what each kind of event must have, and what must balance."""
    open_spans: dict[Any, int] = defaultdict(int)
    flows: dict[Any, list[str]] = defaultdict(list)
    names = {(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"}
    for event in found:
        kind = event["ph"]
        assert PHASES[kind] | {"pid", "tid"} <= event.keys(), event
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if kind == "M":
            continue
        assert event["ts"] > 0, event
        assert (event["pid"], event["tid"]) in names, f"a track without a name: {event}"
        if kind == "X":
            assert event["dur"] > 0, event
        elif kind in "be":
            key = event["pid"], event["cat"], event["id2"]["local"], event["name"]
            open_spans[key] += 1 if kind == "b" else -1
            assert open_spans[key] in (0, 1), event
        elif kind in "sf":
            flows[event["cat"], event["id"]].append(kind)
    assert not any(open_spans.values())
    assert all(each == ["s", "f"] for each in flows.values())


def check_nesting(found: list[dict[str, Any]]) -> None:
    """Two spans of a track are apart, or one is within the other."""
    tracks: dict[Any, list[tuple[int, int, str]]] = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            end = begin + round(event["dur"] * 1000)
            tracks[event["pid"], event["tid"]].append((begin, -end, event["name"]))
    for track, spans in tracks.items():
        within: list[int] = []
        for begin, negative_end, name in sorted(spans):
            while within and within[-1] <= begin:
                within.pop()
            assert not within or -negative_end <= within[-1], (track, name, begin)
            within.append(-negative_end)


def check_arrows(found: list[dict[str, Any]], error_us: float = 0) -> int:
    """Each arrow leaves from a span and ends in one, forward in time; how many there are.

    ``error_us``: by how much the clocks of two ranks may differ, as the traces say.
    """
    spans = [e for e in found if e["ph"] == "X"]

    def spans_at(event: dict[str, Any]) -> list[str]:
        return [
            s["name"]
            for s in spans
            if (s["pid"], s["tid"]) == (event["pid"], event["tid"])
            and s["ts"] <= event["ts"] <= s["ts"] + s["dur"]
        ]

    starts = {(e["cat"], e["id"]): e for e in found if e["ph"] == "s"}
    for end in (e for e in found if e["ph"] == "f"):
        start = starts[end["cat"], end["id"]]
        assert start["ts"] < end["ts"] + error_us and start["pid"] != end["pid"], (start, end)
        for event, words in ((start, _STARTS[start["cat"]]), (end, _ENDS[start["cat"]])):
            names = spans_at(event)
            assert any(word in name for name in names for word in words), (event, names)
    return len(starts)


def check_times(operations: list[dict[str, Any]]) -> None:
    """Stages follow each other; all on one clock."""
    for op in operations:
        known = [op[s] for s in ("begin", "picked_up", "arrived", "completed", "end") if op[s]]
        # What MPI has taken at once is complete before its call returns.
        assert known == sorted(known), op
        assert op["begin"] <= op["returned"], op
        assert op["picked_up"] <= op["called"] or not op["called"], op
        if op["waited"]:
            assert op["waited"] <= op["end"], op
