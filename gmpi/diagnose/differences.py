"""Where ranks differ in what must be the same on all of them, in words. Pure functions."""

from __future__ import annotations

from gmpi.diagnose.tables import LISTED, Pending, ranks_text


def by_value(values: dict[int, str]) -> dict[str, str]:
    """Each value, and in words which ranks have it."""
    ranks: dict[str, list[int]] = {}
    for rank, value in values.items():
        ranks.setdefault(value, []).append(rank)
    return {value: ranks_text(found) for value, found in ranks.items()}


def of_field(name: str, values: dict[int, object]) -> str:
    """``count is 10 on rank 0 and 11 on ranks 1-3``; empty where all have the same value."""
    found = by_value({rank: str(value) for rank, value in values.items()})
    if len(found) < 2:
        return ""
    return f"{name} is {' and '.join(f'{value} on {ranks}' for value, ranks in found.items())}"


def differences(calls: dict[int, Pending]) -> str:
    """Where the calls of one collective differ, by rank (MPI 4.1 section 6.1); empty: nowhere."""
    functions = by_value({rank: call.function for rank, call in calls.items()})
    if len(functions) > 1:
        named = {rank: str(call) for rank, call in calls.items()}
        return "; ".join(f"{ranks} in {text}" for text, ranks in by_value(named).items())
    first = next(iter(calls.values()))
    fields = {"root": "peer", "op": "reduction", "datatype": "datatype", "count": "count"}
    if any(call.block < 0 for call in calls.values()):  # the host knows a NumPy dtype at most
        del fields["datatype"]
    if not first.reduction:  # of other collectives the bytes have to be the same
        fields = {"root": "peer", "length in bytes": "nbytes"}
    found = []
    for name, attribute in fields.items():
        text = of_field(name, {rank: getattr(call, attribute) for rank, call in calls.items()})
        found += [text] if text else []
    found += _counted(calls)
    return f"{'; '.join(found)} ({first})" if found else ""


def _counted(calls: dict[int, Pending]) -> list[str]:
    """The same of the counts of each rank: what one sends is what the other receives."""
    if all(call.reduction for call in calls.values()):
        counts = {rank: [n for _, n in call.gives] for rank, call in calls.items() if call.gives}
        text = of_field("bytes of each rank", dict(counts))
        return [text] if text else []
    found = []
    for rank, call in calls.items():
        for other, nbytes in call.gives:
            if other not in calls or not calls[other].takes:
                continue
            room = dict(calls[other].takes).get(rank, 0)
            if room != nbytes:
                whom = f"rank {other}, which receives {room}"
                found.append(f"rank {rank} sends {nbytes} bytes to {whom}")
    more = [f"and {len(found) - LISTED} more"] if len(found) > LISTED else []
    return [*found[:LISTED], *more]
