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
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from gmpi.contract import moves
from gmpi.contract.trace import SCOPES
from gmpi.host.requests import HostRequest
from gmpi.trace.events import Launch
from host_proxy.platform.operations import DEST, OPERATIONS, SOURCE, name_of

HOST, PROXY, MORE_HOST, FIRST_BLOCK = 1, 2, 10, 1000  # tracks
_SENDS = frozenset(("isend", "ibsend", "irsend", "issend", "send", "bsend", "rsend", "ssend"))
_RECEIVES = frozenset(("irecv", "recv"))
_COLLECTIVES = frozenset(
    prefix + name.lower()
    for name in ("Allreduce", "Bcast", "Barrier", *(row.name for row in moves.ALL_ROWS))
    for prefix in ("", "i")
)
_OF_ONE = frozenset(("wait", "test"))
_OF_SEVERAL = frozenset(
    ("waitall", "waitany", "waitsome", "testall", "testany", "testsome", "synchronize")
)
_SLACK_NS = 2000  # of the proxy's stamps beside the kernel's, where clocks are tied to each other


@dataclass
class Operation:
    """One message, at one of its ends, or one collective. Times are ns of the host's clock, 0 where
    they are not known.

    Attributes:
        kind: ``send``, ``receive`` or ``collective``.
        comm: what all ranks call the communicator.
        peer: rank of the context: the other end, as far as it is known.
        road: ``direct``, ``proxied`` or ``host``.
        track: where it began, and ``end_track`` where it was completed.
        begin, returned: of the call that started it.
        waited, end: of the call that completed it; of a blocking call both are its own.
        picked_up, called, arrived, completed: by the proxy (``host_proxy/platform/trace.py``).
    """

    name: str
    kind: str
    comm: str
    peer: int | None
    tag: int | None
    nbytes: int
    road: str
    track: int
    begin: int = 0
    returned: int = 0
    waited: int = 0
    end: int = 0
    end_track: int = 0
    picked_up: int = 0
    called: int = 0
    arrived: int = 0
    completed: int = 0
    error: int = 0
    block: int = -1
    launch: int = 0


class Groups(NamedTuple):
    """This rank, and of each communicator's handle its name and the ranks of its members."""

    rank: int
    groups: list[tuple[str, list[int]]]

    def name(self, comm: int) -> str:
        return self.groups[comm][0] if 0 <= comm < len(self.groups) else f"communicator {comm}"

    def rank_of(self, comm: int, peer: int) -> int | None:
        members = self.groups[comm][1] if 0 <= comm < len(self.groups) else []
        return members[peer] if 0 <= peer < len(members) else None


class Taken(NamedTuple):
    """What was recorded.

    Attributes:
        launches: each with its events.
        rows: of the proxy.
        host: operations of the host, and when they ended, ns.
        calls: names of calls by number.
    """

    launches: list[tuple[Launch, np.ndarray]]
    rows: np.ndarray
    host: list[tuple[HostRequest, int]]
    calls: list[str]


def kind_of(call: str) -> str:
    """Of a call, in lower case and without GMPI_."""
    if call in _SENDS:
        return "send"
    if call in _RECEIVES:
        return "receive"
    return "collective" if call in _COLLECTIVES else "other"


def join(groups: Groups, taken: Taken) -> dict[str, Any]:
    """``operations``, ``calls`` (what kernels called, a span each), ``tracks`` and ``launches``."""
    tracks = Tracks()
    joined = _Join(groups, taken, tracks)
    for launch, events in sorted(taken.launches, key=lambda each: each[0].number):
        if len(events):
            joined.take(launch, events, tracks.lane(launch, events))
    joined.close_the_rest()
    joined.add_rows()
    joined.add_host()
    return {
        "operations": [asdict(op) for op in joined.operations],
        "calls": joined.calls,
        "tracks": tracks.names,
        "launches": joined.launches,
    }


class Tracks:
    """Numbers and names of tracks: of the blocks and warps that call."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {HOST: "host", PROXY: "proxy"}
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._ends: list[int] = []  # of the last launch on each lane

    def lane(self, launch: Launch, events: np.ndarray) -> int:
        """Launches that run at the same time get lanes of their own: each has a block 0."""
        begin = min(launch.at, int(events["begin"].min()))
        end = int(events["end"].max())
        for lane, before in enumerate(self._ends):
            if before <= begin:
                self._ends[lane] = end
                return lane
        self._ends.append(end)
        return len(self._ends) - 1

    def of(self, lane: int, block: int, warp: int) -> int:
        """``warp``: -1 for calls of the whole block."""
        key = lane, block, warp
        if key not in self._numbers:
            self._numbers[key] = number = FIRST_BLOCK + len(self._numbers)
            name = f"block {block}" + (f" warp {warp}" if warp >= 0 else "")
            self.names[number] = name + (f" (launch {lane + 1} at a time)" if lane else "")
        return self._numbers[key]


class _Join:
    def __init__(self, groups: Groups, taken: Taken, tracks: Tracks) -> None:
        self.operations: list[Operation] = []
        self.calls: list[dict[str, Any]] = []
        self.launches: list[dict[str, Any]] = []
        self._groups = groups
        self._taken = taken
        self._tracks = tracks
        self._open: dict[int, Operation] = {}
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
            scope = SCOPES[int(event["scope"])]
            warp = int(event["warp"]) if scope == "warp" else -1
            track = self._tracks.of(lane, int(event["block"]), warp)
            suffix = "" if scope == "block" else f"_{scope}"
            call = {
                "name": f"GMPI_{name.capitalize()}{suffix}",
                "track": track,
                "begin": int(event["begin"]),
                "end": int(event["end"]),
                "launch": launch.number,
            }
            self.calls.append(call)
            self._one(name, event, call)
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
        elif name == "sendrecv":
            self._blocking("send", event, call)
            op = self._blocking("receive", event, call)
            op.peer = op.tag = None
            op.nbytes = 0
            self._learn(op, event)
        elif (kind := kind_of(name)) != "other":
            if request:
                op = self._start(kind, event, call)
                self._open[request] = op
                self._proxied(op, self._by_handle.get(request, ()))
            else:
                self._learn(self._blocking(kind, event, call), event)

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
        for i, (name, _) in enumerate(self._groups.groups):
            if name == comm:
                return self._groups.rank_of(i, rank)
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
