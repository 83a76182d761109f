"""Why a partitioned request is not complete, as far as both ends show. Pure functions."""

from __future__ import annotations

from gmpi.diagnose.tables import (
    Cause,
    Ended,
    Pending,
    Table,
    Tables,
    absence_of,
    silence_of,
)


def of_partitions(tables: Tables, table: Table, request: Pending) -> Cause:
    """Why it is not.

    Args:
        table: of the rank that waits.
    """
    rank, peer = table.rank, request.peer
    waits = f"rank {rank} waits in {request}"
    mine = next((end for end in table.ends if end.number == request.end), None)
    if mine is None or peer is None:
        return Cause("follows", waits, (rank,))
    if mine.sends and mine.left:
        text = f"{waits}: rank {rank} has made {_ready(mine)} (GMPI_Pready)"
        return Cause("partitions", text, (rank,))
    pair = (rank,) if peer == rank else (rank, peer)
    other = tables.get(peer)
    if other is None:
        return Cause("silent", f"{waits}; {silence_of(peer)}", pair)
    if other.errors:
        return Cause("error", f"{waits}; on rank {peer} a call failed: {other.errors[0]}", pair)
    kind, text = _of_both(rank, mine, other)
    absence = absence_of(other)
    if absence.kind and kind != "follows":
        return Cause(absence.kind, f"{waits}, but rank {peer} {absence.text}; {text}", pair)
    return Cause(kind, f"{waits}; {text}", pair)


def _of_both(rank: int, mine: Ended, other: Table) -> tuple[str, str]:
    """(kind of cause, what the other end is like)."""
    lacks = "missing receive" if mine.sends else "missing send"
    what, call = ("receive", "Precv_init") if mine.sends else ("send", "Psend_init")
    peer = f"rank {other.rank}"
    there = [end for end in other.ends if end.sends != mine.sends and end.peer == rank]
    theirs = next((end for end in there if mine.number == end.other), None)
    theirs = theirs or next((end for end in there if end.number == mine.other), None)
    if theirs is None:
        lone = [end for end in there if end.other < 0 and end.communicator == mine.communicator]
        if lone and lone[0].tag != mine.tag:
            text = f"{peer} has a partitioned {what} with tag {lone[0].tag}: the tags differ"
            return "tag", text
        return lacks, f"{peer} has made no partitioned {what} for it (Context.{call})"
    if theirs.rounds < mine.rounds:
        text = f"{peer} has started its {what} {theirs.rounds} times, rank {rank} waits for round "
        return lacks, f"{text}{mine.rounds} (GMPI_Start)"
    if theirs.rounds == mine.rounds and theirs.left and theirs.sends:
        return "partitions", f"{peer} has made {_ready(theirs)}"
    return "follows", f"{peer} has done its part of round {mine.rounds}"


def _ready(end: Ended) -> str:
    ready = end.partitions - end.left
    return f"{ready} of {end.partitions} partitions ready; missing: {end.missing}"
