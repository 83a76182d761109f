"""A rank's trace as Chrome's trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing
draw.

JSON as the Trace Event Format describes it: ``pid`` is the rank, a track (``tid``) is a block, the
proxy or the host. What MPI does for a request is an asynchronous span, since many overlap. ``ts``
and ``dur`` are microseconds of one clock, with three decimals. Beside ``traceEvents`` stands what
they were made of, under ``gmpi``, for ``gmpi trace merge`` and ``summary``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from gmpi.trace.operation import Operation
from gmpi.trace.tracks import HOST, PROXY

Event = dict[str, Any]


def us(ns: int) -> float:
    return ns / 1000


def text_of(facts: Event) -> str:
    """The file of one rank. ``facts``: what ``Recorder`` has, with times of its own node."""
    facts = on_the_clock_of_rank_0(facts)
    return file_of([facts], list(events_of(facts)))


def on_the_clock_of_rank_0(facts: Event) -> Event:
    """The same with ``offset_ns`` added to all times, and then 0."""
    offset = facts["offset_ns"]
    times = ("at", "begin", "returned", "waited", "end", "picked_up", "called", "arrived",
             "completed", "ready")  # fmt: skip

    def moved(row: Event) -> Event:
        return {k: v + offset if k in times and v else v for k, v in row.items()}

    lists = {name: list(map(moved, facts[name])) for name in ("operations", "calls", "launches")}
    return {**facts, **lists, "offset_ns": 0}


def file_of(ranks: list[Event], events: Iterable[Event]) -> str:
    """A file: an event a line, so that it can be searched."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    kept = json.dumps(ranks, separators=(",", ":"))
    return f'{{"displayTimeUnit":"ns","gmpi":{kept},\n"traceEvents":[\n{lines}\n]}}\n'


def operations_of(facts: Event) -> list[Operation]:
    return [Operation(**row) for row in facts["operations"]]


def events_of(facts: Event) -> Iterator[Event]:
    """All but the arrows."""
    rank = facts["rank"]
    where = "simulator" if facts["simulator"] else "GPU"
    yield _meta(rank, 0, "process_name", name=f"rank {rank} ({facts['host']}, {where})")
    yield _meta(rank, 0, "process_sort_index", sort_index=rank)
    for track, name in facts["tracks"].items():
        yield thread_name(rank, int(track), name)
        yield _meta(rank, int(track), "thread_sort_index", sort_index=int(track))
    for launch in facts["launches"]:
        args = {key: launch[key] for key in ("blocks", "threads", "number")}
        name = f"launch {launch['kernel']}"
        yield {"ph": "i", "s": "t", "pid": rank, "tid": HOST, "ts": us(launch["at"]),
               "name": name, "cat": "launch", "args": args}  # fmt: skip
    for call in facts["calls"]:
        yield _span(rank, call["track"], call["name"], "kernel", call["begin"], call["end"])
    for number, op in enumerate(operations_of(facts)):
        yield from _of_operation(rank, number, op)


def _of_operation(rank: int, number: int, op: Operation) -> Iterator[Event]:
    if op.road == "host":
        yield _span(rank, op.track, op.name, "host", op.begin, op.end, _args(op))
        return
    if op.picked_up:
        if op.called:
            yield _span(rank, PROXY, op.name, "proxy", op.picked_up, op.called, _args(op))
        if op.completed:
            yield _span(rank, PROXY, f"{op.name} complete", "proxy", op.completed, op.completed + 1)
        begin = op.called or op.picked_up
        if op.arrived > begin:
            yield from _asynchronous(rank, f"m{number}", f"MPI {op.name}", "MPI", begin, op.arrived)
    end = op.end or op.completed
    if op.begin and end > op.begin:
        identity = f"r{number}"
        yield from _asynchronous(rank, identity, op.name, "request", op.begin, end, _args(op))


def _args(op: Operation) -> Event:
    args: Event = {"road": op.road, "bytes": op.nbytes, "communicator": op.comm}
    for name in ("peer", "tag"):
        if getattr(op, name) is not None:
            args[name] = getattr(op, name)
    legs = {name: us(ns) for name, ns in legs_of(op).items()}
    return {**args, **({"error": op.error} if op.error else {}), **({"us": legs} if legs else {})}


#: The stages of an operation of the proxied road, and what lies between each and the one before.
STAGES = (
    ("begin", ""), ("picked_up", "to the proxy"), ("called", "call of MPI"), ("arrived", "MPI"),
    ("completed", "completion"), ("end", "to the kernel"),
)  # fmt: skip


def legs_of(op: Operation) -> dict[str, int]:
    """ns of each leg between the stages that are known.

    What MPI takes at once is complete before its call returns: there is no leg of MPI's.
    """
    if op.road != "proxied":
        return {}
    stages = dict(STAGES)
    if op.called and 0 < op.completed <= op.called:
        stages = {**stages, "completed": stages["called"]}
        del stages["called"], stages["arrived"]
    known = [(getattr(op, stage), leg) for stage, leg in stages.items() if getattr(op, stage)]
    return {leg: now - before for (before, _), (now, leg) in pairwise(known)}


def thread_name(rank: int, track: int, name: str) -> Event:
    return _meta(rank, track, "thread_name", name=name)


def _meta(rank: int, track: int, what: str, **args: Any) -> Event:
    return {"ph": "M", "pid": rank, "tid": track, "name": what, "args": args}


def _span(
    rank: int, track: int, name: str, category: str, begin: int, end: int, args: Event | None = None
) -> Event:
    return {
        "ph": "X", "pid": rank, "tid": track, "ts": us(begin), "dur": us(max(end - begin, 1)),
        "name": name, "cat": category, "args": args or {},
    }  # fmt: skip


def _asynchronous(
    rank: int, identity: str, name: str, category: str, begin: int, end: int,
    args: Event | None = None,
) -> Iterator[Event]:  # fmt: skip
    both = {"pid": rank, "tid": PROXY, "id2": {"local": identity}, "cat": category, "name": name}
    yield {**both, "ph": "b", "ts": us(begin), "args": args or {}}
    yield {**both, "ph": "e", "ts": us(max(end, begin + 1))}
