"""Ranks that wait for each other in a circle, of calls that nobody answers. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

from gmpi.diagnose.tables import LISTED, Cause, Pending, ranks_text

_CIRCULAR = ("missing send", "missing receive", "follows")  # what a circle may be made of


class Stuck(NamedTuple):
    """A send or receive that nobody answers, and why as far as its two ranks show."""

    rank: int
    request: Pending
    cause: Cause


def of_circle(stuck: list[Stuck]) -> list[Cause]:
    """The causes of these; for ranks that wait for each other in a circle, the circle."""
    waits_for: dict[int, dict[int, Pending]] = {}
    for rank, request, cause in stuck:
        # Where something else is wrong with a call, its rank waits for that to be put right.
        other = request.peer
        if other not in (None, rank) and cause.kind in _CIRCULAR:
            waits_for.setdefault(rank, {}).setdefault(other, request)
    circle = _cycle({rank: list(others) for rank, others in waits_for.items()})
    causes = [cause for rank, _, cause in stuck if rank not in circle]
    if not circle:
        return causes
    path = " -> ".join(map(str, [*circle, circle[0]]))
    calls = [waits_for[rank][other] for rank, other in zip(circle, circle[1:] + circle[:1])]
    kinds = {call.kind for call in calls}
    if kinds == {"send"}:
        text = (
            f"{ranks_text(circle)} wait for sends in a circle, {path}, and none "
            "has posted its receive: post receives first, or use GMPI_Sendrecv"
        )
    elif kinds == {"receive"}:
        text = (
            f"{ranks_text(circle)} wait for messages in a circle, {path}: each waits for the "
            f"{'other' if len(circle) == 2 else 'next'} to send; send first, or use GMPI_Sendrecv"
        )
    else:
        text = f"{ranks_text(circle)} wait for each other in a circle, {path}"
    listed = [f"rank {rank} in {call}" for rank, call in zip(circle, calls)]
    more = ["..."] if len(listed) > LISTED else []
    text += f" ({'; '.join(listed[:LISTED] + more)})"
    return [Cause("cycle", text, tuple(circle)), *causes]


def _cycle(waits_for: dict[int, list[int]]) -> list[int]:
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
                if other in waits_for and other >= start:
                    stack.append((other, depth + 1))
    return []
