"""How timings become choices. Pure functions: timings are given, so tests can make them up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

Value = TypeVar("Value", int, str)

#: A setting is changed only where that brings so much: less is noise.
WORTH = 0.03
NEAR = 0.10  # a choice counts as good within so much of the best
MOST_ROWS = 1 << 31

#: By (bytes, rows) of a layout: us by a kernel, us by a copy.
PackTimings = Mapping[tuple[int, int], tuple[float, float]]


def copy_rows(timings: PackTimings) -> list[int]:
    """Up to how many rows a copy is at least as quick as a kernel, by log2 of the bytes.

    Between two sizes that were measured, the smaller one counts; above the largest, no copy is
    taken, and below the smallest, that one counts. Where a copy has won for all rows that were
    tried, more rows are not known, so a kernel takes them.
    """
    by_size: dict[int, dict[int, bool]] = {}
    for (nbytes, rows), (kernel, copy) in timings.items():
        by_size.setdefault(nbytes.bit_length() - 1, {})[rows] = copy <= kernel
    limits: dict[int, int] = {}
    for size, wins in by_size.items():
        limits[size] = 0
        for rows in sorted(wins):
            if not wins[rows]:
                break
            limits[size] = rows
    found: list[int] = []
    sizes = sorted(limits)
    for log in range(sizes[-1] + 1 if sizes else 0):
        below = [size for size in sizes if size <= log] or sizes[:1]
        found.append(limits[below[-1]])
    return found


def takes_copy(limits: Sequence[int], nbytes: int, rows: int) -> bool:
    """The choice for a layout, by what ``copy_rows`` has found."""
    log = nbytes.bit_length() - 1
    return 0 <= log < len(limits) and rows <= limits[log]


def good_share(timings: PackTimings, limits: Sequence[int]) -> float:
    """The part of cases in which the choice is within NEAR of the best."""
    good = 0
    for (nbytes, rows), (kernel, copy) in timings.items():
        chosen = copy if takes_copy(limits, nbytes, rows) else kernel
        good += chosen <= (1 + NEAR) * min(kernel, copy)
    return good / len(timings) if timings else 1.0


def best(times: Mapping[Value, Mapping[int, float]], default: Value) -> Value:
    """The value of a setting with the least geometric mean of times over the sizes that all have;
    the default, unless another is better by WORTH.

    Args:
        times: by value, then by size: us.
    """
    sizes = set.intersection(*(set(by_size) for by_size in times.values())) if times else set()
    if not sizes or default not in times:
        return default

    def mean(value: Value) -> float:
        return math.fsum(math.log(times[value][n]) for n in sizes) / len(sizes)

    least = min(times, key=mean)
    return least if mean(least) < mean(default) + math.log(1 - WORTH) else default
