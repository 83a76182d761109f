"""Whether a datatype has bytes twice: MPI forbids to receive into such memory (MPI 4.1 3.2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gmpi.datatypes.nodes import Dense

if TYPE_CHECKING:
    from gmpi.datatypes.plans import Plan

UNLIMITED = 1 << 62
_MOST_RUNS = 1 << 22  # beyond, nobody waits for the answer
_MOST_WORK = 1 << 22  # runs compared for repetitions


def distinct_elements(plan: Plan) -> int:
    """How many elements, one after the other, have no byte in common; 0 when one overlaps itself.

    Returns:
        ``UNLIMITED`` for any number, and where it would take too long to find out.
    """
    if plan.size == 0:
        return UNLIMITED
    found = _nested(plan)
    if found is None:
        found = _compared(plan)
    return found


def _nested(plan: Plan) -> int | None:
    """The answer where every repetition steps over, or stays between, all smaller ones."""
    core, extent = plan.node.core, abs(plan.extent)
    if not isinstance(core, Dense) or any(dim.table is not None for dim in plan.node.dims):
        return None
    dims = sorted((abs(dim.stride), dim.count) for dim in plan.node.dims)
    span = core.length  # bytes from the first to the last of what is inside
    room = UNLIMITED
    placed = False
    for stride, count in [*dims, (UNLIMITED, 1)]:
        if not placed and extent <= stride:
            placed = True
            if extent < span:
                return None
            room = (stride - span) // extent + 1 if stride < UNLIMITED else UNLIMITED
        if stride < span:
            return None
        if count > 1:
            span += (count - 1) * stride
    return room


def _compared(plan: Plan) -> int:
    """The answer by comparing runs: of one element, then of one with each that can reach it."""
    if plan.node.run_count() > _MOST_RUNS:
        return UNLIMITED
    at, lengths = plan.runs()
    order = np.argsort(at, kind="stable")
    at, ends = at[order], (at + lengths)[order]
    if (at[1:] < ends[:-1]).any():
        return 0
    extent = abs(plan.extent)
    if extent == 0:
        return 1
    reach = -(-int(ends[-1] - at[0]) // extent)  # the first element that is beyond the last byte
    if reach * len(at) > _MOST_WORK:
        return UNLIMITED
    for k in range(1, reach):
        moved = at + k * extent
        before = np.searchsorted(at, moved, side="right") - 1
        after = np.minimum(before + 1, len(at) - 1)
        hits = ends[before] > moved
        hits |= (at[after] > moved) & (at[after] < moved + (ends - at))
        if hits.any():
            return k
    return UNLIMITED
