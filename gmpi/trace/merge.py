"""All ranks in one trace, with an arrow from each send to its receive, and from one-sided calls to
the memory that they access.

Messages match by counting: of one sender, one receiver, one communicator and one tag, the k-th send
meets the k-th receive that got such a message, because messages do not overtake each other
(MPI 4.1 section 3.5). Partitioned requests have a channel each, and their rounds match by counting.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gmpi.trace import accesses
from gmpi.trace.chrome import Event, events_of, file_of, operations_of, thread_name, us
from gmpi.trace.operation import Operation
from gmpi.trace.tracks import PROXY, WINDOWS


class TraceError(Exception):
    """A file is no trace of ours, or does not belong to the others."""


class Pair(NamedTuple):
    """A message: the ranks and operations of its ends."""

    sender: int
    send: Operation
    receiver: int
    receive: Operation


def read(paths: list[Path]) -> list[Event]:
    """What each rank recorded, by rank.

    Raises:
        TraceError: naming the file.
    """
    found: dict[int, Event] = {}
    for path in paths:
        try:
            ranks = json.loads(path.read_text())["gmpi"]
        except OSError as exc:
            raise TraceError(f"{path}: {exc.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise TraceError(f"{path} is no trace of GMPI (GMPI_TRACE_FILE writes them)") from None
        for facts in ranks:
            if facts.get("version") != 1:
                raise TraceError(f"{path} has version {facts.get('version')}, known is 1")
            if facts["rank"] in found:
                raise TraceError(f"{path} is a second trace of rank {facts['rank']}")
            found[facts["rank"]] = facts
    sizes = {facts["size"] for facts in found.values()}
    if len(sizes) != 1:
        raise TraceError(f"these are traces of jobs of {sorted(sizes)} ranks: name those of one")
    return [found[rank] for rank in sorted(found)]


def pairs(ranks: list[Event]) -> tuple[list[Pair], list[tuple[int, Operation]]]:
    """(Messages, operations that have no other end among these ranks)."""
    sends: dict[tuple[object, ...], list[tuple[int, Operation]]] = defaultdict(list)
    receives: dict[tuple[object, ...], list[tuple[int, Operation]]] = defaultdict(list)
    for facts in ranks:
        rank = facts["rank"]
        for op in operations_of(facts):
            if op.peer is None or op.kind not in ("send", "receive") or op.error:
                continue
            ends = (rank, op.peer) if op.kind == "send" else (op.peer, rank)
            key = op.comm, op.channel, *ends, op.tag
            (sends if op.kind == "send" else receives)[key].append((rank, op))
    found, alone = [], []
    for key in {**sends, **receives}:
        left, right = (sorted(each.get(key, []), key=_order) for each in (sends, receives))
        found += [Pair(*a, *b) for a, b in zip(left, right)]
        common = min(len(left), len(right))
        alone += [*left[common:], *right[common:]]
    return sorted(found, key=lambda pair: pair.send.begin), alone


def _order(end: tuple[int, Operation]) -> int:
    """In which order a rank's operations reach MPI: that of their records."""
    return end[1].picked_up or end[1].begin


def arrows(found: list[Pair]) -> Iterator[Event]:
    """The flow events: from the span in which a send began to that which completed the receive."""
    for number, pair in enumerate(found):
        both = {"cat": "message", "name": "message", "id": number}
        send, receive = pair.send, pair.receive
        moment, track = send.left
        yield {**both, "ph": "s", "pid": pair.sender, "tid": track, "ts": us(moment)}
        yield {**both, "ph": "f", "bp": "e", "pid": pair.receiver,
               "tid": receive.end_track or receive.track, "ts": us(_last(receive))}  # fmt: skip


def _last(op: Operation) -> int:
    """A moment within the span that has completed it."""
    if op.end_track == PROXY:
        return op.completed
    end = op.end or op.returned
    return max(end - 1, op.waited or op.begin)


def accessed(ranks: list[Event]) -> Iterator[Event]:
    """One-sided calls: a mark on the target's track of windows where they reach its memory, and an
    arrow to it, or from it to a call that only loads.

    The mark stands where the call completes what it stores, or in the middle of what it was.
    """
    there = {facts["rank"] for facts in ranks}
    number = 0
    named: set[int] = set()
    for facts in ranks:
        origin = facts["rank"]
        for op in operations_of(facts):
            if op.kind != "access" or op.peer is None or op.peer not in there or op.error:
                continue
            if op.peer not in named:
                named.add(op.peer)
                yield thread_name(op.peer, WINDOWS, "windows")
            kind = accesses.kind_of(op)
            at = op.begin if kind == "load" else op.begin + (op.returned - op.begin) // 2
            at = max(op.end, op.returned) if kind == "store" else at
            call = op.name.removeprefix("GMPI_")
            yield {"ph": "X", "pid": op.peer, "tid": WINDOWS, "ts": us(at), "dur": us(1),
                   "name": f"{call} of rank {origin}", "cat": "access",
                   "args": {"bytes": op.nbytes, "communicator": op.comm}}  # fmt: skip
            if op.peer == origin:
                continue
            number += 1
            both = {"cat": "access", "name": "access", "id": number}
            call_end = max(op.returned - 1, op.begin)
            ends = [(origin, op.track, op.begin), (op.peer, WINDOWS, at)]
            if kind == "load":
                ends = [ends[1], (origin, op.track, call_end)]
            for phase, (pid, tid, moment) in zip("sf", ends):
                bound = {"bp": "e"} if phase == "f" else {}
                yield {**both, **bound, "ph": phase, "pid": pid, "tid": tid, "ts": us(moment)}


def text_of(ranks: list[Event]) -> str:
    """The merged file."""
    found, _ = pairs(ranks)
    events = [event for facts in ranks for event in events_of(facts)]
    return file_of(ranks, [*events, *arrows(found), *accessed(ranks)])
