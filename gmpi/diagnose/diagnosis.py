"""What a job that stands still waits for: from the tables of all ranks to likely causes.

Pure functions: a table (``gmpi/diagnose/tables.py``) says what one rank has pending, what has come
that nobody has received, and whether its kernels run. ``gmpi/lifetime/watchdog.py`` collects the
tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from gmpi.diagnose.circles import Stuck, of_circle
from gmpi.diagnose.differences import differences
from gmpi.diagnose.partitioned import of_partitions
from gmpi.diagnose.stacks import receives_by_mpi4py
from gmpi.diagnose.tables import (
    LISTED,
    Cause,
    Pending,
    Table,
    Tables,
    absence_of,
    ranks_text,
    silence_of,
)


def diagnose(tables: Tables) -> list[Cause]:
    """Likely causes, the most telling first; empty when nothing that is known explains a hang."""
    causes: list[Cause] = []
    stuck: list[Stuck] = []
    for rank, table in sorted(tables.items()):
        if table is None:
            continue
        if table.dead_proxy:
            text = f"the proxy thread of rank {rank} has ended with {table.dead_proxy}"
            causes.append(Cause("proxy", f"{text}: none of its calls can complete", (rank,)))
        causes += _of_mpi4py(tables, table)
        for communicator, calls in _collectives(table).items():
            if rank == min(_in_collective(tables, communicator)):
                causes += _of_collective(tables, communicator, table, calls)
        for request in table.pending:
            if request.commands or _is_waited_for(tables, table, request):
                causes.append(_of_commands(table, request))
            elif request.kind == "other" and request.lacks:
                causes.append(Cause("grid", f"rank {rank} waits in a {request}", (rank,)))
            elif request.end:
                stuck.append(Stuck(rank, request, of_partitions(tables, table, request)))
            elif request.kind == "receive" and request.matched:
                causes += _of_matched(tables, table, request)
            elif request.kind == "receive":
                cause = _counted(_of_receive(tables, table, request), rank, request)
                stuck.append(Stuck(rank, request, cause))
            elif request.kind == "send" and not _has_receiver(tables, rank, request):
                cause = _counted(_of_send(tables, rank, request), rank, request)
                stuck.append(Stuck(rank, request, cause))
    stuck.sort(key=lambda one: one.request.kind)  # receives say more
    return _ranked(causes + of_circle(stuck)) or _of_gone(tables)


def _ranked(causes: list[Cause]) -> list[Cause]:
    """Without doubles; a call that only waits for a rank that is itself stuck comes last."""
    strength = (
        "proxy", "error", "grid", "mpi4py", "missing wait", "cycle", "collective", "tag",
        "communicator", "peer", "order", "left", "not launched", "partitions", "missing send",
        "missing receive", "silent", "follows",
    )  # fmt: skip
    found: dict[tuple[str, str], Cause] = {}
    for cause in causes:
        found.setdefault((cause.kind, cause.text), cause)
    return sorted(found.values(), key=lambda cause: strength.index(cause.kind))


def _of_gone(tables: Tables) -> list[Cause]:
    """Where nothing that is pending says why: ranks that have gone while others are still there,
    which may wait for them where no call of ours is, such as in mpi4py."""
    here = [table for table in tables.values() if table is not None and not table.gone]
    idle = [table for table in here if not table.pending]
    rest = [f"nothing is pending on {ranks_text([t.rank for t in idle])}"] if idle else []
    rest += [f"the host of rank {t.rank} is at {t.host}" for t in idle[:LISTED] if t.host]
    causes = []
    for rank, table in sorted(tables.items()):
        if table is None:
            causes.append(Cause("silent", "; ".join([silence_of(rank), *rest]), (rank,)))
        elif table.gone and here:
            text = "; ".join([f"rank {rank} {table.gone}", *rest])
            causes.append(Cause("left", text, (rank,)))
    return causes


# --- what a rank is doing ------------------------------------------------------------------------


def _doing(table: Table) -> str:
    if not table.pending:
        return absence_of(table).text or "has nothing pending"
    oldest = min(table.pending, key=lambda request: request.serial)
    return f"is in {oldest}"


def _sends_to(tables: Tables, rank: int) -> Iterator[tuple[int, int | None, str, str]]:
    """(source, tag, communicator, words) of what has been sent to a rank and not received."""
    table = tables.get(rank)
    seen = set()
    if table is not None:
        for message in table.unexpected:
            seen.add((message.source, message.tag, message.communicator))
            yield message.source, message.tag, message.communicator, "has sent"
    for source, other in sorted(tables.items()):
        for request in other.messages if other is not None else []:
            key = (source, request.tag, request.communicator)
            if request.kind == "send" and request.peer == rank and key not in seen:
                yield source, request.tag, request.communicator, "is sending"


def _fits(request: Pending, source: int, tag: int | None, communicator: str) -> bool:
    return (
        request.communicator == communicator
        and request.peer in (None, source)
        and request.tag in (None, tag)
    )


def _counted(cause: Cause, rank: int, request: Pending) -> Cause:
    """The same, and how many messages there were, where that is known."""
    return cause._replace(text=cause.text + request.count_text(f"rank {rank}"))


def _of_mpi4py(tables: Tables, table: Table) -> list[Cause]:
    """A host that waits in mpi4py for what a kernel has sent it."""
    sent = list(_sends_to(tables, table.rank))
    if not sent or table.pending or not receives_by_mpi4py(table.host):
        return []
    source, tag, communicator, verb = sent[0]
    text = (
        f"rank {source} {verb} to {table.rank} tag {tag} on {communicator}, and the host of rank "
        f"{table.rank} is at {table.host}: what kernels send, a kernel receives, or Context.host "
        "(g.host.Recv), never mpi4py's own communicator"
    )
    return [Cause("mpi4py", text, (table.rank, source))]


# --- receives ------------------------------------------------------------------------------------


def _of_commands(table: Table, request: Pending) -> Cause:
    """A long message that is for this rank's threads to move, and none of them comes."""
    rank = table.rank
    what = "the bytes of a long message move" if request.waits else "it goes on"
    text = f"rank {rank} does not wait for its {request}: {what} only "
    text += f"while threads of rank {rank} wait for a request or test one, and "
    text += "its kernels have ended" if absence_of(table).kind == "left" else "none does"
    return Cause("missing wait", text, (rank,))


def _is_waited_for(tables: Tables, table: Table, request: Pending) -> bool:
    """Whether the other end of a message of the direct road waits, and no thread of this rank does:
    one that waits for whichever request goes on with this one, too."""
    other = tables.get(request.peer) if request.peer is not None else None
    if request.waits or other is None or any(one.waits for one in table.pending):
        return False
    return any(
        one.waits
        and {one.kind, request.kind} == {"send", "receive"}
        and (one.peer, one.communicator) == (table.rank, request.communicator)
        and (one.tag, one.number) == (request.tag, request.number)
        for one in other.messages
    )


def _of_matched(tables: Tables, table: Table, request: Pending) -> list[Cause]:
    """A receive whose message has begun to come, and does not go on."""
    source = request.peer
    if source is None or source == table.rank:
        return []
    waits = f"rank {table.rank} waits in {request}, and its message has begun to come"
    sender = tables.get(source)
    pair = (table.rank, source)
    if sender is None:
        return [Cause("silent", f"{waits}; {silence_of(source)}", pair)]
    if sender.errors:
        text = f"{waits}; on rank {source} a call failed: {sender.errors[0]}"
        return [Cause("error", text, pair)]
    absence = absence_of(sender)
    if absence.kind and not sender.pending:
        return [Cause(absence.kind, f"{waits}, but rank {source} {absence.text}", pair)]
    return []


def _of_receive(tables: Tables, table: Table, request: Pending) -> Cause:
    rank, source = table.rank, request.peer
    waits = f"rank {rank} waits in {request}"
    sent = list(_sends_to(tables, rank))
    if any(_fits(request, *message[:3]) for message in sent):
        text = f"{waits}, and its message is on its way{_lost(table, request)}"
        return Cause("follows", text, (rank,))
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
    absent = [absence_of(t) for r in others if (t := tables.get(r)) is not None]
    waits = f"rank {table.rank} waits in {request}"
    if others and len(absent) == len(others) and all(a.kind for a in absent):
        if all(a.text == "has left its kernels" for a in absent):
            text = f"{waits}, but all other ranks have left their kernels"
            return Cause("left", text, tuple(others))
        idle = "; ".join(f"rank {r} {a.text}" for r, a in zip(others, absent))
        kind = "left" if all(a.kind == "left" for a in absent) else "not launched"
        return Cause(kind, f"{waits}, but {idle}", tuple(others))
    text = f"{waits}, but no rank has sent it anything{_lost(table, request)}"
    return Cause("missing send", text, (table.rank,))


def _lost(table: Table, request: Pending) -> str:
    """What to try where MPI may have lost the message, not the program."""
    if not table.loses_any_source or request.peer is not None:
        return ""
    return (
        "; or it was there: MPICH over UCX leaves receives from any source open when the message "
        "has come from another node before them. Set MPIR_CVAR_CH4_NETMOD=ofi"
    )


def _source_does_not_send(
    tables: Tables, request: Pending, rank: int, source: int, waits: str
) -> Cause:
    sender = tables.get(source)
    pair = (rank, source)
    if sender is None:
        return Cause("silent", f"{waits}; {silence_of(source)}", pair)
    # What it has sent elsewhere with this tag, and nobody there asked for.
    for other in sorted(tables):
        if other == rank:
            continue
        for origin, tag, communicator, verb in _sends_to(tables, other):
            there = tables.get(other)
            wanted = there is not None and any(
                r.kind == "receive" and _fits(r, origin, tag, communicator) for r in there.messages
            )
            if origin == source and _fits(request, source, tag, communicator) and not wanted:
                told = f"rank {source} {verb} tag {tag} to {other}, which does not ask for it"
                return Cause("peer", f"{waits}; {told}: the destination differs", (*pair, other))
    if source == rank:
        return Cause("missing send", f"{waits}: a rank waits for itself to send", (rank,))
    if sender.errors:
        return Cause("error", f"{waits}; on rank {source} a call failed: {sender.errors[0]}", pair)
    absence = absence_of(sender)
    if absence.kind:
        return Cause(absence.kind, f"{waits}, but rank {source} {absence.text}", pair)
    collective = [r for r in sender.pending if r.kind == "collective"]
    if collective:
        text = f"{waits}; rank {source} is in {collective[0]}: the order of calls differs"
        return Cause("order", text, pair)
    if sender.pending:
        return Cause("follows", f"{waits}; rank {source} {_doing(sender)}", pair)
    return Cause("missing send", f"{waits}; rank {source} has not sent it", pair)


# --- sends ---------------------------------------------------------------------------------------


def _has_receiver(tables: Tables, rank: int, request: Pending) -> bool:
    table = tables.get(request.peer) if request.peer is not None else None
    if table is None:
        return False
    return any(
        r.kind == "receive" and _fits(r, rank, request.tag, request.communicator)
        for r in table.messages
    )


def _of_send(tables: Tables, rank: int, request: Pending) -> Cause:
    waits = f"rank {rank} waits in {request}"
    dest = request.peer
    assert dest is not None
    pair = (rank, dest)
    table = tables.get(dest)
    if table is None:
        return Cause("silent", f"{waits}; {silence_of(dest)}", pair)
    for other in table.messages:
        if other.kind == "receive" and not other.matched:
            text = f"{waits}; rank {dest} waits in {other}"
            if other.communicator == request.communicator and other.peer in (None, rank):
                return Cause("tag", f"{text}: the tags differ", pair)
            if other.communicator == request.communicator and other.tag in (None, request.tag):
                return Cause("peer", f"{text}: the source differs", pair)
            if other.peer in (None, rank) and other.tag in (None, request.tag):
                return Cause("communicator", f"{text}: the communicators differ", pair)
    if dest == rank:
        text = f"{waits}: it has posted no receive for what it sends itself; post that first"
        return Cause("missing receive", text, (rank,))
    if table.errors:
        return Cause("error", f"{waits}; on rank {dest} a call failed: {table.errors[0]}", pair)
    absence = absence_of(table)
    if absence.kind:
        text = f"{waits}, but rank {dest} {absence.text} and has not received it"
        return Cause(absence.kind, text, pair)
    text = f"{waits}; rank {dest} {_doing(table)} and has not posted a receive for it"
    return Cause("missing receive", text, pair)


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


def _of_collective(tables: Tables, communicator: str, table: Table, call: Pending) -> list[Cause]:
    inside = _in_collective(tables, communicator)
    different = differences(inside)
    if different:
        return [Cause("collective", f"calls differ: {different}", tuple(inside))]
    members = table.members.get(communicator, sorted(tables))
    who = f"{ranks_text(list(inside))} {'wait' if len(inside) > 1 else 'waits'} in {call}"
    absent = [rank for rank in members if rank not in inside]
    if not absent:  # bytes of a long one do not come
        lacking = [(rank, inside[rank]) for rank in inside if inside[rank].lacks]
        return [
            Cause("follows", f"rank {rank} waits in {call}; all ranks are in this call", (rank,))
            for rank, call in lacking[:LISTED]
        ]
    return [_of_absent(tables, rank, who, call) for rank in absent[: 2 * LISTED]]


def _of_absent(tables: Tables, rank: int, who: str, call: Pending) -> Cause:
    table = tables.get(rank)
    if table is None:
        return Cause("silent", f"{who}; {silence_of(rank)}", (rank,))
    if table.errors:
        return Cause("error", f"{who}; on rank {rank} a call failed: {table.errors[0]}", (rank,))
    absence = absence_of(table)
    if absence.kind:
        return Cause(absence.kind, f"{who}, but rank {rank} {absence.text}", (rank,))
    text = f"{who}; rank {rank} {_doing(table)}"
    for other in _collectives(table).values():
        if other.function == call.function:
            return Cause("communicator", f"{text}: the communicators differ", (rank,))
        return Cause("order", f"{text}: the order of collectives differs", (rank,))
    if any(not r.matched for r in table.pending if r.kind == "receive"):
        return Cause("order", f"{text}: the order of calls differs", (rank,))
    return Cause("follows", text, (rank,))
