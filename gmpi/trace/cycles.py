"""Stamps of a multiprocessor's clock, in cycles, by the GPU's timer, in ns.

What ties one to the other are pairs: cycles and ns that a warp has read one after the other
(``gmpi/contract/trace.py``). Between two of them the clock is taken to go evenly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Rate(NamedTuple):
    """What is known of the clocks beforehand.

    Attributes:
        ns: of a cycle.
        spread: by how much that may be wrong, as a part of it.
        resolution: of the timer, ns.
    """

    ns: float
    spread: float
    resolution: int


def rate_of(cycles: np.ndarray, ns: np.ndarray) -> Rate:
    """Of readings of both, one after the other, int64."""
    steps = np.diff(np.unique(ns))
    if len(steps) == 0 or cycles[-1] <= cycles[0]:
        return Rate(1.0, 1.0, 1)
    return Rate(
        float(ns[-1] - ns[0]) / float(cycles[-1] - cycles[0]), 0.0, int(np.gcd.reduce(steps))
    )


def both(first: Rate, last: Rate) -> Rate:
    """The later one, which may be wrong by as much as it differs from the earlier one."""
    spread = abs(last.ns - first.ns) / last.ns
    return Rate(last.ns, spread, max(first.resolution, last.resolution))


def to_ns(stamps: np.ndarray, pairs: np.ndarray, rate: Rate) -> tuple[np.ndarray, int]:
    """(The stamps by the timer, how wrong they may be, ns), of one warp.

    Where two neighbouring stretches between pairs do not go at the same rate, the clock has changed
    somewhere: a stamp may be wrong by that, for as long as it is away from the next pair.

    Args:
        stamps: int64, cycles.
        pairs: int64[n, 2], (cycles, ns), at least one.
        rate: for stamps before and after the pairs, if these say too little.
    """
    pairs = pairs[np.unique(pairs[:, 0], return_index=True)[1]]
    cycles, ns = pairs[:, 0], pairs[:, 1]
    found, wrong = np.zeros(len(stamps), np.int64), np.zeros(len(stamps))
    before, after = stamps < cycles[0], stamps > cycles[-1]
    found[before], wrong[before] = _beyond(stamps[before], pairs, rate)
    mirrored, wrong[after] = _beyond(-stamps[after], -pairs[::-1], rate)
    found[after] = -mirrored
    inside = ~(before | after)
    if len(pairs) == 1:
        found[inside] = ns[0]
        return found, rate.resolution + int(wrong.max(initial=0))
    # From the first pair on: float64 holds 2**53 ns, 104 days.
    found[inside] = ns[0] + np.int64(
        np.interp((stamps[inside] - cycles[0]).astype(float), cycles - cycles[0], ns - ns[0])
    )
    stretch = np.clip(np.searchsorted(cycles, stamps[inside], "right") - 1, 0, len(pairs) - 2)
    away = np.minimum(stamps[inside] - cycles[stretch], cycles[stretch + 1] - stamps[inside])
    wrong[inside] = away * _disagreement(cycles, ns, rate.resolution)[stretch]
    return found, rate.resolution + int(wrong.max(initial=0))


def _beyond(stamps: np.ndarray, pairs: np.ndarray, rate: Rate) -> tuple[np.ndarray, np.ndarray]:
    """Stamps before the first pair, by the rate over as much time after it.

    Returns:
        (ns, how wrong they may be).
    """
    away = pairs[0, 0] - stamps
    last = np.minimum(np.searchsorted(pairs[:, 0], pairs[0, 0] + away), len(pairs) - 1)
    span, ns = (pairs[last] - pairs[0]).T
    known = span * 4 > away
    slope = np.where(known, ns / np.maximum(span, 1), rate.ns)
    off = np.where(known, rate.resolution / np.maximum(span, 1), rate.spread * rate.ns)
    return pairs[0, 1] - np.int64(away * slope), away * off


def _disagreement(cycles: np.ndarray, ns: np.ndarray, resolution: int) -> np.ndarray:
    """For each stretch between two pairs, by how many ns a cycle its rate and that of a neighbour
    differ, beyond what the timer's steps explain."""
    span, length = np.diff(cycles), np.diff(ns)
    least, most = (length - resolution) / span, (length + resolution) / span
    low = np.concatenate((least[:1], least, least[-1:]))
    high = np.concatenate((most[:1], most, most[-1:]))
    largest = np.maximum(np.maximum(low[:-2], low[1:-1]), low[2:])
    smallest = np.minimum(np.minimum(high[:-2], high[1:-1]), high[2:])
    found: np.ndarray = np.maximum(largest - smallest, 0.0)
    return found
