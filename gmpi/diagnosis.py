"""What a job that stands still waits for: from the tables of all ranks to likely causes.

Pure functions: a table (``gmpi/tables.py``) says what one rank has pending, what has come that
nobody has received, and whether its kernels run. ``gmpi/watchdog.py`` collects the tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from gmpi.tables import LISTED, Cause, Pending, Table, Tables, ranks_text


def diagnose(tables: Tables) -> list[Cause]:
    """Likely causes, the most telling first; empty when nothing that is known explains a hang."""
    causes: list[Cause] = []
    for rank, table in sorted(tables.items()):
        if table is None:
            continue
        if table.dead_proxy:
            text = f"the proxy thread of rank {rank} has ended with {table.dead_proxy}"
            causes.append(Cause("proxy", f"{text}: none of its calls can complete", (rank,)))
        for communicator, calls in _collectives(table).items():
            if rank == min(_in_collective(tables, communicator)):
                causes += _of_collective(tables, communicator, table, calls)
        for request in table.pending:
            if request.kind == "receive":
                if request.matched:
                    causes += _of_matched(tables, table, request)
                else:
                    causes.append(_of_receive(tables, table, request))
    causes += _of_sends(tables)
    return _ranked(causes)


def _ranked(causes: list[Cause]) -> list[Cause]:
    """Without doubles; a call that only waits for a rank that is itself stuck comes last."""
    strength = (
        "proxy", "error", "cycle", "collective", "tag", "communicator", "peer", "order", "left",
        "missing send", "missing receive", "silent", "follows",
    )  # fmt: skip
    found: dict[tuple[str, str], Cause] = {}
    for cause in causes:
        found.setdefault((cause.kind, cause.text), cause)
    return sorted(found.values(), key=lambda cause: strength.index(cause.kind))


# --- what a rank is doing ------------------------------------------------------------------------


def _doing(table: Table) -> str:
    if not table.pending:
        return "has left its kernels" if _idle(table) else "has nothing pending"
    oldest = min(table.pending, key=lambda request: request.serial)
    return f"is in {oldest}"


def _idle(table: Table) -> bool:
    return not table.pending and table.kernels == "none running"


def _sends_to(tables: Tables, rank: int) -> Iterator[tuple[int, int | None, str, str]]:
    """(source, tag, communicator, words) of what has been sent to a rank and not received."""
    table = tables.get(rank)
    seen = set()
    if table is not None:
        for message in table.unexpected:
            seen.add((message.source, message.tag, message.communicator))
            yield message.source, message.tag, message.communicator, "has sent"
    for source, other in sorted(tables.items()):
        for request in other.pending if other is not None else []:
            key = (source, request.tag, request.communicator)
            if request.kind == "send" and request.peer == rank and key not in seen:
                yield source, request.tag, request.communicator, "is sending"


def _fits(request: Pending, source: int, tag: int | None, communicator: str) -> bool:
    return (
        request.communicator == communicator
        and request.peer in (None, source)
        and request.tag in (None, tag)
    )


# --- receives ------------------------------------------------------------------------------------


def _of_matched(tables: Tables, table: Table, request: Pending) -> list[Cause]:
    """A receive whose message has begun to come, and does not go on."""
    source = request.peer
    if source is None or source == table.rank:
        return []
    waits = f"rank {table.rank} waits in {request}, and its message has begun to come"
    sender = tables.get(source)
    pair = (table.rank, source)
    if sender is None:
        return [Cause("silent", f"{waits}; {_silence(source)}", pair)]
    if sender.errors:
        text = f"{waits}; on rank {source} a call failed: {sender.errors[0]}"
        return [Cause("error", text, pair)]
    if _idle(sender):
        return [Cause("left", f"{waits}, but rank {source} has left its kernels", pair)]
    return []


def _of_receive(tables: Tables, table: Table, request: Pending) -> Cause:
    rank, source = table.rank, request.peer
    waits = f"rank {rank} waits in {request}"
    sent = list(_sends_to(tables, rank))
    if any(_fits(request, *message[:3]) for message in sent):
        return Cause("follows", f"{waits}, and its message is on its way", (rank,))
    for other, tag, communicator, verb in sent:
        told = f"rank {other} {verb} to {rank} tag {tag} on {communicator}"
        same = communicator == request.communicator
        if same and source in (None, other):
            return Cause("tag", f"{waits}; {told}: the tags differ", (rank, other))
        if same and request.tag in (None, tag):
            return Cause("peer", f"{waits}; {told}: the source differs", (rank, other))
        if not same and source in (None, other) and request.tag in (None, tag):
            return Cause(
                "communicator", f"{waits}; {told}: the communicators differ", (rank, other)
            )
    if source is None:
        return _nobody_sends(tables, table, request)
    return _source_does_not_send(tables, request, rank, source, waits)


def _nobody_sends(tables: Tables, table: Table, request: Pending) -> Cause:
    members = table.members.get(request.communicator, sorted(tables))
    others = [r for r in members if r != table.rank]
    idle = [r for r in others if (t := tables.get(r)) is not None and _idle(t)]
    waits = f"rank {table.rank} waits in {request}"
    if others and idle == others:
        return Cause("left", f"{waits}, but all other ranks have left their kernels", tuple(idle))
    return Cause("missing send", f"{waits}, but no rank has sent it anything", (table.rank,))


def _source_does_not_send(
    tables: Tables, request: Pending, rank: int, source: int, waits: str
) -> Cause:
    sender = tables.get(source)
    pair = (rank, source)
    if sender is None:
        return Cause("silent", f"{waits}; {_silence(source)}", pair)
    # What it has sent elsewhere with this tag, and nobody there asked for.
    for other in sorted(tables):
        if other == rank:
            continue
        for origin, tag, communicator, verb in _sends_to(tables, other):
            there = tables.get(other)
            wanted = there is not None and any(
                r.kind == "receive" and _fits(r, origin, tag, communicator) for r in there.pending
            )
            if origin == source and _fits(request, source, tag, communicator) and not wanted:
                told = f"rank {source} {verb} tag {tag} to {other}, which does not ask for it"
                return Cause("peer", f"{waits}; {told}: the destination differs", (*pair, other))
    if sender.errors:
        return Cause("error", f"{waits}; on rank {source} a call failed: {sender.errors[0]}", pair)
    if _idle(sender):
        return Cause("left", f"{waits}, but rank {source} has left its kernels", pair)
    mine = [r for r in sender.pending if r.kind == "receive" and not r.matched]
    if any(r.peer == rank for r in mine):
        text = f"{waits}; rank {source} {_doing(sender)}: each waits for the other to send"
        return Cause("missing send", text, pair)
    collective = [r for r in sender.pending if r.kind == "collective"]
    if collective:
        text = f"{waits}; rank {source} is in {collective[0]}: the order of calls differs"
        return Cause("order", text, pair)
    if sender.pending:
        return Cause("follows", f"{waits}; rank {source} {_doing(sender)}", pair)
    return Cause("missing send", f"{waits}; rank {source} has not sent it", pair)


def _silence(rank: int) -> str:
    return (
        f"rank {rank} does not answer: its context is closed, its process has died, or it is stuck "
        "in a call that holds Python or MPI"
    )


# --- sends ---------------------------------------------------------------------------------------


def _of_sends(tables: Tables) -> list[Cause]:
    """Long messages that nobody receives."""
    stuck: dict[int, list[Pending]] = {}
    for rank, table in sorted(tables.items()):
        for request in table.pending if table is not None else []:
            if request.kind == "send" and not _has_receiver(tables, rank, request):
                stuck.setdefault(rank, []).append(request)
    cycle = _cycle({rank: [r.peer for r in sends] for rank, sends in stuck.items()})
    causes = []
    if cycle:
        path = " -> ".join(map(str, [*cycle, cycle[0]]))
        text = (
            f"{ranks_text(cycle)} wait for sends of long messages in a circle, {path}, and none "
            "has posted its receive: post receives first, or use GMPI_Sendrecv"
        )
        causes.append(Cause("cycle", text, tuple(cycle)))
    for rank, sends in stuck.items():
        if rank not in cycle:
            causes += [_of_send(tables, rank, request) for request in sends]
    return causes


def _has_receiver(tables: Tables, rank: int, request: Pending) -> bool:
    table = tables.get(request.peer) if request.peer is not None else None
    if table is None:
        return False
    return any(
        r.kind == "receive" and _fits(r, rank, request.tag, request.communicator)
        for r in table.pending
    )


def _of_send(tables: Tables, rank: int, request: Pending) -> Cause:
    waits = f"rank {rank} waits in {request}"
    dest = request.peer
    assert dest is not None
    pair = (rank, dest)
    table = tables.get(dest)
    if table is None:
        return Cause("silent", f"{waits}; {_silence(dest)}", pair)
    for other in table.pending:
        if other.kind == "receive" and not other.matched:
            text = f"{waits}; rank {dest} waits in {other}"
            if other.communicator == request.communicator and other.peer in (None, rank):
                return Cause("tag", f"{text}: the tags differ", pair)
            if other.communicator == request.communicator and other.tag in (None, request.tag):
                return Cause("peer", f"{text}: the source differs", pair)
            if other.peer in (None, rank) and other.tag in (None, request.tag):
                return Cause("communicator", f"{text}: the communicators differ", pair)
    if table.errors:
        return Cause("error", f"{waits}; on rank {dest} a call failed: {table.errors[0]}", pair)
    if _idle(table):
        text = f"{waits}, but rank {dest} has left its kernels without receiving it"
        return Cause("left", text, pair)
    text = f"{waits}; rank {dest} {_doing(table)} and has not posted a receive for it"
    return Cause("missing receive", text, pair)


def _cycle(waits_for: dict[int, list[int | None]]) -> list[int]:
    """The ranks of a circle in a graph, in order, from the lowest; empty when there is none."""
    for start in sorted(waits_for):
        path: list[int] = []
        stack: list[tuple[int, int]] = [(start, 0)]
        visited = set()
        while stack:
            rank, depth = stack.pop()
            del path[depth:]
            if rank == start and path:
                return path
            if rank in visited:
                continue
            visited.add(rank)
            path.append(rank)
            for other in waits_for.get(rank, []):
                if other is not None and other in waits_for and other >= start:
                    stack.append((other, depth + 1))
    return []


# --- collectives ---------------------------------------------------------------------------------


def _collectives(table: Table) -> dict[str, Pending]:
    """The oldest open collective on each communicator: those behind it wait for it."""
    oldest: dict[str, Pending] = {}
    for request in sorted(table.pending, key=lambda request: request.serial):
        if request.kind == "collective":
            oldest.setdefault(request.communicator, request)
    return oldest


def _in_collective(tables: Tables, communicator: str) -> dict[int, Pending]:
    found = {}
    for rank, table in sorted(tables.items()):
        if table is not None and communicator in (calls := _collectives(table)):
            found[rank] = calls[communicator]
    return found


def _signature(request: Pending) -> tuple[object, ...]:
    """What the calls of one collective must have in common (MPI 4.1 section 6.1)."""
    return request.operation, request.peer, request.reduction, request.nbytes


def _of_collective(tables: Tables, communicator: str, table: Table, call: Pending) -> list[Cause]:
    inside = _in_collective(tables, communicator)
    groups: dict[tuple[object, ...], list[int]] = {}
    for rank, request in inside.items():
        groups.setdefault(_signature(request), []).append(rank)
    if len(groups) > 1:
        parts = [f"{ranks_text(ranks)} in {inside[ranks[0]]}" for ranks in groups.values()]
        return [Cause("collective", f"calls differ: {'; '.join(parts)}", tuple(inside))]
    members = table.members.get(communicator, sorted(tables))
    who = f"{ranks_text(list(inside))} {'wait' if len(inside) > 1 else 'waits'} in {call}"
    absent = [rank for rank in members if rank not in inside]
    return [_of_absent(tables, rank, who, call) for rank in absent[: 2 * LISTED]]


def _of_absent(tables: Tables, rank: int, who: str, call: Pending) -> Cause:
    table = tables.get(rank)
    if table is None:
        return Cause("silent", f"{who}; {_silence(rank)}", (rank,))
    if table.errors:
        return Cause("error", f"{who}; on rank {rank} a call failed: {table.errors[0]}", (rank,))
    if _idle(table):
        return Cause("left", f"{who}, but rank {rank} has left its kernels", (rank,))
    text = f"{who}; rank {rank} {_doing(table)}"
    for other in _collectives(table).values():
        if other.operation == call.operation:
            return Cause("communicator", f"{text}: the communicators differ", (rank,))
        return Cause("order", f"{text}: the order of collectives differs", (rank,))
    if any(not r.matched for r in table.pending if r.kind == "receive"):
        return Cause("order", f"{text}: the order of calls differs", (rank,))
    return Cause("follows", text, (rank,))
