"""What a rank is doing, for people and for programs: ``Context.report``.

``look`` reads the proxy's arrays, which the host can do at any time: nothing is added to the path
of a message. Ages are at least what they say: the watchdog notes when it first sees a request.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.contract import wire
from gmpi.contract.constants import (
    ANY_SOURCE,
    ANY_TAG,
    DATATYPE_NAMES,
    PROC_NULL,
    operation_name,
)
from gmpi.contract.pipelines import missing_of
from gmpi.diagnose.stacks import host_line, stacks
from gmpi.diagnose.tables import (
    Cause,
    Pending,
    Table,
    Unexpected,
    loses_any_source,
    ranks_text,
)
from gmpi.host.requests import HostRequest, type_name
from gmpi.observe.collectives import CollectivesLook
from gmpi.observe.messages import with_messages
from gmpi.observe.partitioned import PartitionedLook
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.platform.duplicate import Duplicate
from host_proxy.platform.flight import FUNCTIONS, Event, events
from host_proxy.records.ring import has_record
from host_proxy.reference.flows import flows_of

if TYPE_CHECKING:
    from gmpi.context import Context

LISTED = 20  # requests of a rank in a text
EVENTS_LISTED = 12  # of a rank in a text; JSON has all
_ERRORS = 5


class Group(NamedTuple):
    """A registered communicator, as every rank of it knows it.

    Attributes:
        identity: its name in reports, the same on all of its ranks.
        members: rank in the context of each of its ranks; negative for one that is not in it.
    """

    identity: str
    members: list[int]


def paths_text(paths: dict[str, list[int]]) -> str:
    """What ``Context.paths`` says, such as ``GPU staging to ranks 0, 1; MPI to ranks 2-7``."""
    return "; ".join(f"{path} to {ranks_text(ranks)}" for path, ranks in paths.items())


@dataclass
class RankReport:
    """One rank: what it waits for, and what state it is in.

    Attributes:
        counters: records taken, requests opened, completed, and the slots there are.
        proxy: what the proxy thread is doing, in words.
        stacks: the user's lines in the Python stacks of all threads.
        events: the last ones of the proxy, oldest first (``host_proxy/platform/flight.py``).
        time_s: CLOCK_MONOTONIC when it was made, as in the events.
        paths: how its long messages travel, to which ranks (``Context.paths``).
    """

    table: Table
    counters: dict[str, int] = field(default_factory=dict)
    proxy: str = ""
    stacks: str = ""
    events: list[Event] = field(default_factory=list)
    time_s: float = 0.0
    paths: dict[str, list[int]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        t, c = self.table, self.counters
        text = [
            f"rank {t.rank}: {len(t.pending)} pending, kernels: {t.kernels}, proxy: {self.proxy}",
            f"  {c['taken']} records taken{', more wait in the ring' if c['waiting'] else ''}; "
            f"{c['opened']} requests opened, {c['completed']} completed; "
            f"{c['open']} of {c['slots']} request slots open",
        ]
        if self.paths:
            text.append(f"  long messages by {paths_text(self.paths)}")
        for request in t.pending[:LISTED]:
            where = f"block {request.block}" if request.block >= 0 else "host"
            about = f"{where}, {request.age_s:.1f} s" if request.waits else "no thread waits for it"
            count = request.count_text()
            text.append(f"  {request} ({request.nbytes} bytes, {about}{count})")
        if len(t.pending) > LISTED:
            text.append(f"  and {len(t.pending) - LISTED} more")
        text += [f"  has come, nobody receives it: {message}" for message in t.unexpected]
        text += [f"  failed: {error}" for error in t.errors]
        if t.host:
            text.append(f"  its host is at {t.host}")
        if self.events:
            text.append(f"  last events of {len(self.events)}:")
            text += [f"    {event.text(self.time_s)}" for event in self.events[-EVENTS_LISTED:]]
        return text


@dataclass
class Report:
    """What a job is doing (``Context.report``).

    Attributes:
        rank: who made the report.
        reason: why.
        ranks: by rank; None for one that did not answer.
        causes: likely causes, the most telling first.
        gone: of ranks that have gone, what they said, to follow their number.
    """

    rank: int
    reason: str
    ranks: dict[int, RankReport | None]
    causes: list[Cause]
    gone: dict[int, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """For people."""
        lines = [f"GMPI report of rank {self.rank}: {self.reason}"]
        for cause in self.causes[:LISTED]:
            lines.append(f"likely cause ({cause.kind}): {cause.text}")
        if not self.causes:
            lines.append("no cause found among what is pending")
        for rank, report in sorted(self.ranks.items()):
            silent = f"rank {rank}{self.gone.get(rank, ': no answer')}"
            lines += ["", *(report.lines() if report else [silent])]
        own = self.ranks.get(self.rank)
        if own is not None and own.stacks:
            lines += ["", f"Python stacks of rank {self.rank}:", own.stacks.rstrip()]
        return "\n".join(lines)

    def json(self) -> str:
        """For programs: the same as a JSON object."""
        ranks = {
            rank: {**dataclasses.asdict(r), "events": [e._asdict() for e in r.events]} if r else r
            for rank, r in self.ranks.items()
        }
        content = {
            "rank": self.rank,
            "reason": self.reason,
            "causes": [cause._asdict() for cause in self.causes],
            "gone": self.gone,
            "ranks": ranks,
        }
        return json.dumps(content, indent=1)


# --- looking --------------------------------------------------------------------------------------


def _peer(rank: int, members: list[int]) -> int | None:
    if rank in (ANY_SOURCE, PROC_NULL) or not 0 <= rank < len(members):
        return None
    return members[rank]


def _missing_text(word: int, members: list[int]) -> str:
    """What a long direct collective waits for (``gmpi/contract/pipelines.py``)."""
    missing = missing_of(word & wire.LOW_32)
    what = "the result of piece" if missing.which else "piece"
    rank = members[missing.rank]
    return f"{what} {missing.piece} of {missing.pieces} has not come from rank {rank}"


def pending_of(row: np.ndarray, groups: list[Group], age_s: float, state: st.State) -> Pending:
    """Words one open row of the slots table."""
    op = int(row[st.S_OP])
    if op == wire.OP_SEND_CHANNEL:  # of a send that waits until the other rank's proxy answers
        op = wire.OP_ISEND
    operation = ops.OPERATIONS.get(op)
    fields = operation.fields if operation else 0
    kind = "other"
    if fields & ops.DEST:
        kind = "send"
    elif fields & ops.SOURCE:
        kind = "receive"
    elif operation and operation.collective:
        kind = "collective"
    comm = int(row[st.S_COMM])
    identity, members = groups[comm] if comm < len(groups) else Group(f"communicator {comm}", [])
    tag: int | None = int(row[st.S_TAG])
    reduction = ""
    if fields & ops.REDUCTION and tag is not None:
        reduction = operation_name(tag)
    if not fields & ops.TAG or tag == ANY_TAG:
        tag = None
    lacks = ""
    if op == wire.OP_GRID:
        lacks = (
            f"{row[st.S_PEER]} of the grid's {row[st.S_ELEMENTS]} blocks have come; all threads of "
            "all blocks make the call together, and all blocks must be resident"
        )
    if kind == "collective" and int(row[st.S_CALL]) == wire.PIECE >> wire.CALL_SHIFT:
        lacks = _missing_text(int(row[st.S_PEER]), members)
    has_peer = fields & (ops.DEST | ops.SOURCE | ops.ROOT)
    has_data = fields & ops.DATATYPE
    flows = flows_of(state, int(row[st.S_SLOT]))
    matched = kind == "receive" and int(row[st.S_SOURCE]) != ANY_SOURCE
    peer = int(row[st.S_SOURCE if matched else st.S_PEER])
    return Pending(
        ops.name_of(op, int(row[st.S_CALL])),
        kind,
        _peer(peer, members) if has_peer else None,
        tag,
        identity if kind != "other" else "",
        DATATYPE_NAMES.get(int(row[st.S_DATATYPE]), "") if has_data else "",
        int(row[st.S_ELEMENTS]) if has_data else 0,
        int(row[st.S_BYTES]),
        int(row[st.S_BLOCK]),
        int(row[st.S_SERIAL]),
        reduction,
        matched=matched,
        commands=int(row[st.S_COMMANDS]),
        age_s=age_s,
        lacks=lacks,
        gives=tuple(zip(members, flows.gives)),
        takes=tuple(zip(members, flows.takes)),
    )


def pending_of_host(request: HostRequest, groups: list[Group], age_s: float) -> Pending:
    """The same for an operation of the host."""
    asked = request.operation
    group = groups[asked.comm]
    name = asked.name if asked.name.startswith("GMPI_") else f"Context.host.{asked.name}"
    return Pending(
        name,
        asked.kind,
        None if asked.peer is None else _peer(asked.peer, group.members),
        None if asked.tag == ANY_TAG else asked.tag,
        group.identity,
        "" if asked.element is None else type_name(asked.element),
        asked.count,
        asked.nbytes,
        block=-1,
        serial=0,
        reduction=asked.reduction,
        matched=request.matched,
        age_s=age_s,
        gives=tuple(zip(group.members, asked.flows.gives)),
        takes=tuple(zip(group.members, asked.flows.takes)),
    )


def duplicates(state: st.State, groups: list[Group]) -> Iterator[tuple[Duplicate, Group]]:
    """Every duplicate on which first messages travel, and whose it is."""
    for communicator, group in zip(state.communicators, groups):
        if not communicator.is_free:
            for duplicate in communicator.all_messages:
                yield duplicate, group


def unexpected(state: st.State, groups: list[Group]) -> list[Unexpected]:
    """The first message of each source, on each duplicate, that no receive has asked for.

    Takes none of them.
    """
    found = []
    status = MPI.Status()
    for duplicate, (identity, members) in duplicates(state, groups):
        for one in list(duplicate.found):  # by a probe
            nbytes = max(one.nbytes - wire.MESSAGE_HEADER, 0) or None
            found.append(Unexpected(members[one.source], one.tag, identity, nbytes))
        if not duplicate.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            continue
        for source in range(duplicate.size):
            if duplicate.Iprobe(source, MPI.ANY_TAG, status):
                # A header alone may also be an empty message; long ones have to be told apart
                # from it by who is still sending.
                nbytes = status.Get_count(MPI.BYTE) - wire.MESSAGE_HEADER
                size = nbytes if nbytes > 0 else None
                found.append(Unexpected(members[source], status.Get_tag(), identity, size))
    return found


class Look:
    """Looks at one context again and again, and remembers since when things are as they are."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._seen: dict[tuple[int, int], float] = {}
        self._turns = -1
        self._turned = 0.0
        self.partitioned = PartitionedLook(context)
        self.collectives = CollectivesLook(context)

    @property
    def members(self) -> dict[str, list[int]]:
        """Which ranks each registered communicator has."""
        return {group.identity: group.members for group in self.context._communicators.groups}

    def open_rows(self) -> np.ndarray:
        """The open rows of the slots table, the oldest first."""
        table: np.ndarray = self.context._state.slots
        rows: np.ndarray = table[table[:, st.S_STATE] == st.OPEN]
        return rows[rows[:, st.S_SERIAL].argsort()]

    def note(self, now: float) -> bool:
        """Notes what is there for the first time; whether anything is pending."""
        g = self.context._state.globals
        turns = int(g[st.G_TURNS])
        if turns != self._turns:
            self._turns, self._turned = turns, now
        asks = self.partitioned.note(now, self.open_rows())
        asks = self.collectives.note(now) or asks
        host = bool(self.context._host_progress.open) or asks
        if g[st.G_SERIAL] == g[st.G_CLOSED]:
            self._seen.clear()
            return host or bool(has_record(self.context._state.address))
        keys = [(int(row[st.S_SERIAL]), int(row[st.S_HANDLE])) for row in self.open_rows()]
        self._seen = {key: self._seen.get(key, now) for key in keys}
        return True

    def ages(self, now: float) -> list[float]:
        """For how long each request that was seen has been open, s."""
        host = [now - request.began for request in list(self.context._host_progress.open)]
        return [*(now - since for since in list(self._seen.values())), *host]

    def proxy(self, now: float) -> str:
        """What the proxy thread is doing."""
        proxy = self.context._proxy
        if not proxy.alive:
            return f"dead ({proxy.failure!r})" if proxy.failure else "stopped"
        for_s = now - self._turned
        if for_s < 0.5 or int(self.context._state.globals[st.G_TURNS]) != self._turns:
            return "looks for work"
        inside = FUNCTIONS.get(int(self.context._state.globals[st.G_INSIDE]), "no MPI call")
        return f"has not turned for {for_s:.1f} s, last inside {inside}"

    def report(self, now: float) -> RankReport:
        """This rank."""
        context = self.context
        state = context._state
        rows = self.open_rows()
        groups = context._communicators.groups
        keys = [(int(row[st.S_SERIAL]), int(row[st.S_HANDLE])) for row in rows]
        ages = [now - self._seen.get(key, now) for key in keys]
        pending, theirs = self.partitioned.pending(rows, ages)
        pending += self.collectives.pending()
        ours = [i for i in range(len(rows)) if i not in theirs]
        told = {i: pending_of(rows[i], groups, ages[i], state) for i in ours}
        messages, come = with_messages(context, rows, told)
        pending += messages
        for request in list(context._host_progress.open):
            pending.append(pending_of_host(request, groups, now - request.began))
        table = Table(
            context.rank,
            context._kernels.state,
            pending,
            unexpected(state, groups) + come,
            self.members,
            [fault.text for fault in context.errors[-_ERRORS:]],
            context._waits.aborted,
            repr(failure) if (failure := context._proxy.failure) is not None else "",
            host=host_line(),
            loses_any_source=loses_any_source(
                MPI.Get_library_version(),
                os.environ.get("MPIR_CVAR_CH4_NETMOD"),
                bool((state.communicators[0].peers < 0).any()),
            ),
            ends=self.partitioned.ends(),
        )
        counters = {
            "taken": state.taken,
            "waiting": int(bool(has_record(state.address))),
            "opened": int(state.globals[st.G_SERIAL]),
            "completed": int(state.globals[st.G_CLOSED]),
            "open": len(rows),
            "slots": len(state.slots),
        }
        return RankReport(
            table, counters, self.proxy(now), stacks(), events(state), now, context.paths
        )
