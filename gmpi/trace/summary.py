"""Where the time goes, from the traces of all ranks: by operation, peer and phase; who was late.

A receive has a *late sender* when its wait began before the send did (Wolf and Mohr, Automatic
performance analysis of hybrid MPI/OpenMP applications, 2003). *Overlap* is the part of the time
that messages were under way in which their block did not wait for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from gmpi.trace.chrome import Event, legs_of, operations_of, us
from gmpi.trace.merge import Pair, pairs
from gmpi.trace.operation import Operation
from gmpi.trace.operations import in_flight

Row = dict[str, Any]


def summarize(ranks: list[Event]) -> Row:
    """All of it, times in microseconds."""
    found, alone = pairs(ranks)
    each = {facts["rank"]: operations_of(facts) for facts in ranks}
    return {
        "ranks": len(ranks),
        "size": ranks[0]["size"],
        "simulator": any(facts["simulator"] for facts in ranks),
        "clock_error_us": us(max(facts["clock_error_ns"] for facts in ranks)),
        "lost": {key: sum(f["lost"][key] for f in ranks) for key in ranks[0]["lost"]},
        "messages": len(found),
        "without_other_end": len(alone),
        "by_operation": _by_operation(ranks),
        "by_peer": _by_peer(found),
        "by_access": _by_access(each),
        "by_phase": _by_phase(op for ops in each.values() for op in ops),
        "late_senders": _late_senders(found),
        "collectives": _collectives(each),
        "by_rank": _by_rank(ranks, each),
    }


def _by_operation(ranks: list[Event]) -> list[Row]:
    """Calls of kernels and of the host: how many, and how long they took."""
    times: dict[str, list[int]] = defaultdict(list)
    nbytes: dict[str, int] = defaultdict(int)
    for facts in ranks:
        for call in facts["calls"]:
            times[call["name"]].append(call["end"] - call["begin"])
        for op in operations_of(facts):
            nbytes[op.name] += op.nbytes
            if op.road == "host":
                times[op.name].append(op.end - op.begin)
    rows = [
        {"operation": name, "calls": len(t), "total": us(sum(t)), "mean": us(sum(t)) / len(t),
         "longest": us(max(t)), "bytes": nbytes[name]}
        for name, t in times.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["total"])


def _by_peer(found: list[Pair]) -> list[Row]:
    rows: dict[tuple[int, int], list[Pair]] = defaultdict(list)
    for pair in found:
        rows[pair.sender, pair.receiver].append(pair)
    return [
        {
            "from": sender, "to": receiver, "messages": len(of),
            "bytes": sum(pair.receive.nbytes for pair in of),
            "mean": us(sum(_flight(pair) for pair in of)) / len(of),
            "roads": sorted({pair.send.road for pair in of}),
        }
        for (sender, receiver), of in sorted(rows.items())
    ]  # fmt: skip


def _by_access(each: dict[int, list[Operation]]) -> list[Row]:
    """One-sided calls: how many, and how long from the call to their completion, where it is
    known."""
    rows: dict[tuple[int, int, str], list[Operation]] = defaultdict(list)
    for rank, operations in each.items():
        for op in operations:
            if op.kind == "access" and op.peer is not None:
                rows[rank, op.peer, op.name].append(op)
    return [
        {
            "from": origin, "to": target, "operation": name, "calls": len(of),
            "bytes": sum(op.nbytes for op in of),
            "mean": us(sum((op.end or op.returned) - op.begin for op in of)) / len(of),
            "not_completed": sum(not op.end for op in of),
        }
        for (origin, target, name), of in sorted(rows.items())
    ]  # fmt: skip


def _flight(pair: Pair) -> int:
    """From the call of the send, or of the receive if that was later, to the receive's end."""
    begin = max(pair.send.left[0], pair.receive.begin)
    return max(0, (pair.receive.end or pair.receive.completed or begin) - begin)


def _by_phase(operations: Iterable[Operation]) -> list[Row]:
    """The legs of what went by the proxies."""
    legs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for op in operations:
        for name, ns in legs_of(op).items():
            legs[op.kind, name].append(ns)
    return [
        {"operations": kind, "phase": name, "total": us(sum(ns)), "mean": us(sum(ns)) / len(ns)}
        for (kind, name), ns in legs.items()
    ]


def _late_senders(found: list[Pair]) -> list[Row]:
    """For each sender and receiver: how often, and how long the receiver waited for the send to
    begin."""
    late: dict[tuple[int, int], list[int]] = defaultdict(list)
    for pair in found:
        begin = pair.send.left[0]
        if pair.receive.waited and begin > pair.receive.waited:
            end = min(begin, pair.receive.end or begin)
            late[pair.sender, pair.receiver].append(end - pair.receive.waited)
    rows = [
        {"sender": sender, "receiver": receiver, "messages": len(ns), "waited": us(sum(ns)),
         "longest": us(max(ns))}
        for (sender, receiver), ns in late.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row["waited"])


def _collectives(each: dict[int, list[Operation]]) -> list[Row]:
    """The k-th collective of a communicator is the same one on all of its ranks: how far apart
    they came, and who came last how often."""
    calls: dict[str, dict[int, list[Operation]]] = defaultdict(dict)
    for rank, operations in each.items():
        for op in operations:
            if op.kind == "collective":
                calls[op.comm].setdefault(rank, []).append(op)
    rows: dict[tuple[str, str], Row] = {}
    for comm, ranks in calls.items():
        for of in ranks.values():
            of.sort(key=lambda op: op.picked_up or op.begin)
        if len(ranks) < 2:
            continue
        for same in zip(*ranks.values()):
            begins = {rank: op.begin for rank, op in zip(ranks, same)}
            spread = max(begins.values()) - min(begins.values())
            last = max(begins, key=lambda rank: begins[rank])
            empty = {"spread": 0.0, "largest": 0.0, "calls": 0, "last": defaultdict(int)}
            row = rows.setdefault((same[0].name, comm), empty)
            row["calls"] += 1
            row["spread"] += us(spread)
            row["largest"] = max(row["largest"], us(spread))
            row["last"][last] += 1
    return [
        {
            "operation": name, "communicator": comm, "calls": row["calls"],
            "mean_spread": row["spread"] / row["calls"], "largest_spread": row["largest"],
            "often_last": max(row["last"], key=lambda rank: row["last"][rank]),
        }
        for (name, comm), row in rows.items()
    ]  # fmt: skip


def _by_rank(ranks: list[Event], each: dict[int, list[Operation]]) -> list[Row]:
    """Time in calls, summed over blocks, and the overlap achieved."""
    rows = []
    for facts in ranks:
        calls = facts["calls"]
        begin = min((call["begin"] for call in calls), default=0)
        end = max((call["end"] for call in calls), default=0)
        flying = list(in_flight([op for op in each[facts["rank"]] if op.road != "host"]))
        under_way = sum(op.end - op.begin for op in flying)
        within = sum((op.end - op.waited) + (op.returned - op.begin) for op in flying)
        rows.append(
            {
                "rank": facts["rank"], "calls": len(calls),
                "in_calls": us(sum(call["end"] - call["begin"] for call in calls)),
                "kernels": us(end - begin),
                "overlap": (under_way - within) / under_way if under_way else None,
            }
        )  # fmt: skip
    mean = sum(row["in_calls"] for row in rows) / len(rows)
    for row in rows:
        row["imbalance"] = row["in_calls"] / mean if mean else None
    return rows
