"""Operations: what a kernel's calls, the proxy's stamps and the host's calls say of one message or
collective, joined.

A request's number joins what names it: the call that returned it, the proxy's row, the wait. A
blocking call returns no request; the proxy's row of the same call and block that was picked up
while it lasted is its own. Calls that complete several requests name none: a request that no other
call has completed was completed by the first of them, in its block, that ended after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from gmpi.contract import moves
from gmpi.contract.trace import PART_OF_STARTALL, SCOPES
from gmpi.host.requests import HostRequest
from gmpi.trace import accesses, started
from gmpi.trace.events import Launch
from gmpi.trace.operation import Operation
from gmpi.trace.tracks import HOST, MORE_HOST, PROXY, Tracks
from host_proxy.platform.operations import DEST, OPERATIONS, SOURCE, name_of

_SENDS = frozenset(("isend", "ibsend", "irsend", "issend", "send", "bsend", "rsend", "ssend"))
_RECEIVES = frozenset(("irecv", "recv"))
_BOTH = frozenset(("sendrecv", "sendrecv_replace"))
_STARTED_BOTH = frozenset(("isendrecv", "isendrecv_replace"))
_COLLECTIVES = frozenset(
    prefix + name.lower()
    for name in ("Allreduce", "Bcast", "Barrier", *(row.name for row in moves.ALL_ROWS))
    for prefix in ("", "i")
) | {"win_fence"}
_OF_ONE = frozenset(("wait", "test"))
_OF_SEVERAL = frozenset(
    ("waitall", "waitany", "waitsome", "testall", "testany", "testsome", "synchronize")
)
_SLACK_NS = 2000  # of the proxy's stamps beside the kernel's, where clocks are tied to each other


Group = tuple[str, list[int]]  # a communicator's name, and the ranks of its members


class Groups(NamedTuple):
    """This rank, the groups of its communicators by their handles, and those of its windows."""

    rank: int
    groups: list[Group]
    windows: dict[int, Group]

    def find(self, comm: int) -> Group:
        """``comm``: the handle of a communicator or a window."""
        if 0 <= comm < len(self.groups):
            return self.groups[comm]
        return self.windows.get(comm, (f"communicator {comm}", []))

    def name(self, comm: int) -> str:
        return self.find(comm)[0]

    def rank_of(self, comm: int, peer: int) -> int | None:
        members = self.find(comm)[1]
        return members[peer] if 0 <= peer < len(members) else None


class Taken(NamedTuple):
    """What was recorded.

    Attributes:
        launches: each with its events.
        rows: of the proxy.
        host: operations of the host, and when they ended, ns.
        calls: names of calls by number.
        partitioned: requests by their handles.
    """

    launches: list[tuple[Launch, np.ndarray]]
    rows: np.ndarray
    host: list[tuple[HostRequest, int]]
    calls: list[str]
    partitioned: dict[int, started.Partitioned]


def kind_of(call: str) -> str:
    """Of a call, in lower case and without GMPI_."""
    if call in _SENDS:
        return "send"
    if call in _RECEIVES:
        return "receive"
    if call in accesses.CALLS:
        return "access"
    return "collective" if call in _COLLECTIVES else "other"


def join(groups: Groups, taken: Taken) -> dict[str, Any]:
    """``operations``, ``calls`` (what kernels called, a span each), ``tracks`` and ``launches``."""
    tracks = Tracks()
    joined = _Join(groups, taken, tracks)
    for launch, events in sorted(taken.launches, key=lambda each: each[0].number):
        if len(events):
            joined.take(launch, events, tracks.lane(launch, events))
    joined.close_the_rest()
    joined.accesses.close()
    joined.add_rows()
    joined.add_host()
    return {
        "operations": [asdict(op) for op in joined.operations],
        "calls": joined.calls,
        "tracks": tracks.names,
        "launches": joined.launches,
    }


class _Join:
    def __init__(self, groups: Groups, taken: Taken, tracks: Tracks) -> None:
        self.operations: list[Operation] = []
        self.calls: list[dict[str, Any]] = []
        self.launches: list[dict[str, Any]] = []
        self._groups = groups
        self._taken = taken
        self._tracks = tracks
        self._open: dict[int, Operation] = {}
        self.accesses = accesses.Accesses()
        self._made: dict[int, started.Made] = {}  # persistent requests
        self._rounds: dict[int, Operation] = {}  # of partitioned requests, the last one
        self._several: list[tuple[int, int, dict[str, Any]]] = []  # (launch, block, call)
        self._by_handle: dict[int, list[int]] = defaultdict(list)
        self._by_call: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._used: set[int] = set()
        for i, row in enumerate(taken.rows):
            self._by_handle[int(row["handle"])].append(i)
            name = name_of(int(row["op"]), int(row["call"])).lower()
            self._by_call[name, int(row["block"])].append(i)

    def take(self, launch: Launch, events: np.ndarray, lane: int) -> None:
        """The events of one launch, by their begin."""
        for event in events:
            name = self._taken.calls[int(event["call"])]
            is_part = name == PART_OF_STARTALL
            scope = SCOPES[int(event["scope"])]
            warp = int(event["warp"]) if scope == "warp" else -1
            track = self._tracks.of(lane, int(event["block"]), warp)
            suffix = "" if scope == "block" else f"_{scope}"
            call = {
                "name": f"GMPI_{'Startall' if is_part else name.capitalize()}{suffix}",
                "track": track,
                "begin": int(event["begin"]),
                "end": int(event["end"]),
                "launch": launch.number,
            }
            if not is_part:
                self.calls.append(call)
            self._one("start" if is_part else name, event, call)
        self.launches.append(
            {
                "number": launch.number, "kernel": launch.kernel, "at": launch.at,
                "blocks": launch.blocks, "threads": launch.threads,
                "begin": int(events["begin"].min()), "end": int(events["end"].max()),
            }
        )  # fmt: skip

    def _one(self, name: str, event: np.ndarray, call: dict[str, Any]) -> None:
        request = int(event["request"])
        if name in _OF_ONE:
            op = self._open.get(request)
            if op is not None and not event["incomplete"]:
                del self._open[request]
                _close(op, call)
                self._learn(op, event)
        elif name in _OF_SEVERAL:
            self._several.append((call["launch"], int(event["block"]), call))
        elif name in started.KINDS:
            self._made[request] = started.Made(name, event)
        elif name == "start":
            self._begin(request, event, call)
        elif name in ("pready", "pready_range", "pready_list"):
            if (op := self._rounds.get(request)) is not None and call["begin"] > op.ready:
                op.ready, op.ready_track = call["begin"], call["track"]
        elif name in _BOTH or name in _STARTED_BOTH:
            self._two(request, event, call)
        elif (kind := kind_of(name)) == "access":
            op = self._start(kind, event, call)
            self.accesses.take(name, op, int(event["comm"]), int(event["peer"]))
        elif kind != "other":
            if request:
                self._nonblocking(kind, request, event, call)
            else:
                self._learn(self._blocking(kind, event, call), event)
        if name in accesses.COMPLETING:
            only = int(event["peer"]) if name == "win_flush" else None
            self.accesses.complete(int(event["comm"]), only, call)

    def _begin(self, request: int, event: np.ndarray, call: dict[str, Any]) -> None:
        """A Start: an operation whose arguments were said before."""
        made = self._made.get(request)
        if made is not None:
            op = self._start(made.kind, made.event, call)
            op.block = int(event["block"])
            self._proxied_round(op, made)
        elif (end := self._taken.partitioned.get(request)) is not None:
            op = Operation(
                call["name"], "send" if end.sends else "receive", end.comm, end.peer, end.tag,
                end.nbytes, "proxied" if end.proxied else "direct", call["track"], call["begin"],
                call["end"], block=int(event["block"]), launch=call["launch"],
                channel=f"partitioned {end.order}",
            )  # fmt: skip
            self.operations.append(op)
            self._rounds[request] = op
        else:
            return
        self._open[request] = op

    def _proxied_round(self, op: Operation, made: started.Made) -> None:
        """Finds the proxy's row of a round of a persistent request: it was picked up after the
        Start, in the order of the Starts of its block."""
        asked = made.event
        for i in self._by_call.get((f"gmpi_{made.call}", op.block), ()):
            row = self._taken.rows[i]
            same = all(int(row[name]) == int(asked[name]) for name in ("comm", "peer", "tag"))
            if op.kind == "collective":
                same = int(row["comm"]) == int(asked["comm"])
            if i not in self._used and same and row["picked_up"] >= op.begin - _SLACK_NS:
                self._used.add(i)
                self._fill(op, row)
                return

    def _two(self, request: int, event: np.ndarray, call: dict[str, Any]) -> None:
        """A call that sends, and receives or, where it returns a request, starts to."""
        self._blocking("send", event, call)
        if request:
            op = self._nonblocking("receive", request, event, call)
        else:
            op = self._blocking("receive", event, call)
        if op.error or not op.completed:  # the event has the send's; a status says what has come
            op.peer = op.tag = None
            op.nbytes = 0
        if not request:
            self._learn(op, event)

    def _nonblocking(
        self, kind: str, request: int, event: np.ndarray, call: dict[str, Any]
    ) -> Operation:
        op = self._start(kind, event, call)
        self._open[request] = op
        self._proxied(op, self._by_handle.get(request, ()))
        return op

    def _start(self, kind: str, event: np.ndarray, call: dict[str, Any]) -> Operation:
        comm = int(event["comm"])
        collective = kind == "collective"
        op = Operation(
            call["name"], kind, self._groups.name(comm),
            self._groups.rank_of(comm, int(event["peer"])),
            None if collective or event["tag"] < 0 else int(event["tag"]),
            _bytes(event), "direct", call["track"], call["begin"], call["end"],
            block=int(event["block"]), launch=call["launch"],
        )  # fmt: skip
        self.operations.append(op)
        return op

    def _blocking(self, kind: str, event: np.ndarray, call: dict[str, Any]) -> Operation:
        op = self._start(kind, event, call)
        op.waited, op.end, op.end_track = call["begin"], call["end"], call["track"]
        base = call["name"].removesuffix("_warp").removesuffix("_grid").lower()
        base = "gmpi_barrier" if base == "gmpi_win_fence" else base  # it is one, among other things
        self._proxied(op, self._by_call.get((base, op.block), ()), call)
        return op

    def _proxied(
        self, op: Operation, candidates: Iterable[int], call: dict[str, Any] | None = None
    ) -> None:
        """Finds the proxy's row; ``call``: that lasted while it was picked up."""
        for i in candidates:
            row = self._taken.rows[i]
            if i in self._used or _kind(int(row["op"])) != op.kind:
                continue
            if call is not None:
                if not call["begin"] - _SLACK_NS <= row["picked_up"] <= call["end"] + _SLACK_NS:
                    continue
            self._used.add(i)
            self._fill(op, row)
            return

    def _fill(self, op: Operation, row: np.ndarray) -> None:
        op.road = "proxied"
        for stage in ("picked_up", "called", "arrived", "completed"):
            setattr(op, stage, int(row[stage]))
        op.nbytes = int(row["nbytes"])
        op.error = int(row["error"])
        if op.kind == "receive" and op.completed and op.error == 0:
            op.peer = self._groups.rank_of(int(row["comm"]), int(row["source"]))
            op.tag = int(row["source_tag"])

    def _learn(self, op: Operation, event: np.ndarray) -> None:
        """What a status says."""
        op.error = int(event["error"])
        if op.kind == "receive" and op.error == 0:
            found = self._groups.rank_of(int(event["comm"]), int(event["source"]))
            if found is None:  # a wait names no communicator
                found = self._member(op.comm, int(event["source"]))
            op.peer, op.tag = found, int(event["source_tag"])
            op.nbytes = int(event["nbytes"])

    def _member(self, comm: str, rank: int) -> int | None:
        for name, members in self._groups.groups:
            if name == comm:
                return members[rank] if 0 <= rank < len(members) else None
        return None

    def close_the_rest(self) -> None:
        """By calls that complete several requests."""
        by_block: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        for launch, block, call in self._several:
            by_block[launch, block].append(call)
        for op in self._open.values():
            for call in by_block.get((op.launch, op.block), ()):
                if call["begin"] >= op.returned and call["end"] >= op.completed - _SLACK_NS:
                    _close(op, call)
                    break

    def add_rows(self) -> None:
        """The proxy's rows that no call in a kernel is known for."""
        for i, row in enumerate(self._taken.rows):
            kind = _kind(int(row["op"]))
            if i in self._used or kind == "other":
                continue
            comm = int(row["comm"])
            op = Operation(
                name_of(int(row["op"]), int(row["call"])), kind, self._groups.name(comm),
                self._groups.rank_of(comm, int(row["peer"])),
                int(row["tag"]) if kind != "collective" and row["tag"] >= 0 else None,
                0, "proxied", PROXY, block=int(row["block"]),
            )  # fmt: skip
            self._fill(op, row)
            op.begin = op.returned = op.picked_up
            op.end, op.end_track = op.completed, PROXY
            self.operations.append(op)

    def add_host(self) -> None:
        """What the host has called; several that were under way at once on tracks of their own."""
        ends: list[int] = []
        for request, ended in sorted(self._taken.host, key=lambda each: each[0].began):
            asked, status = request.operation, request.outcome
            peer, tag, nbytes = asked.peer, asked.tag, asked.nbytes
            if asked.kind == "receive" and status.error == 0:
                peer, tag, nbytes = status.source, status.tag, status.nbytes
            began = int(request.began * 1e9)
            lane = next((i for i, end in enumerate(ends) if end <= began), len(ends))
            ends[lane : lane + 1] = [ended]
            track = HOST if lane == 0 else MORE_HOST + lane
            self._tracks.names[track] = f"host {lane + 1}" if lane else "host"
            rank = None if peer is None else self._groups.rank_of(asked.comm, peer)
            self.operations.append(
                Operation(
                    f"host.{asked.name}", asked.kind, self._groups.name(asked.comm), rank, tag,
                    nbytes, "host", track, began, ended, began, ended, track, error=status.error,
                )
            )  # fmt: skip


def _kind(op: int) -> str:
    """Of an opcode."""
    operation = OPERATIONS.get(op)
    if operation is None:
        return "other"
    if operation.collective:
        return "collective"
    return (
        "send" if operation.fields & DEST else "receive" if operation.fields & SOURCE else "other"
    )


def _close(op: Operation, call: dict[str, Any]) -> None:
    op.waited, op.end, op.end_track = call["begin"], call["end"], call["track"]


def _bytes(event: np.ndarray) -> int:
    """Of a predefined datatype; the proxy knows others."""
    size = int(event["datatype"]) >> 8 & 0xFF
    return max(0, int(event["count"])) * size


def in_flight(operations: list[Operation]) -> Iterator[Operation]:
    """Those that were started, and completed by another call."""
    return (op for op in operations if op.returned and op.waited >= op.returned)
