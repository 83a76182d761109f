"""The order in which two iterations are swept together, plane by plane (``_himeno_wave.py``).

A *stage* is what a block does with the coefficients of one plane, a *round* all stages of two
iterations: the *leading* half of a block computes the even one, the *trailing* half the odd one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from _himeno_grid import GridError

# Of the word of a stage.
TRAILS = 3  # 0 for no odd iteration, else 2 more than ``Stage.trails``
LEADS = 4
FRESH = 8  # the planes before are not in the registers of the leading half
FRESH_TRAILING = 16  # nor of the trailing one
PLANE = 5  # shift
WORDS = 3  # for each stage: this one, and what the leading and the trailing half wait for


class Stage(NamedTuple):
    """Of one plane: whether the even iteration is computed, and which odd one: that of the round
    (1), the one before (-1), or none (0)."""

    plane: int
    leads: bool
    trails: int


def stages(planes: int, left: bool) -> list[Stage]:
    """A round, in order.

    The left neighbour's last plane of an iteration is done when its round ends, so what follows
    from it must not be at the begin of ours: the first planes wait for the middle, and plane 0
    of the odd iteration for the middle of the round after.

    Raises:
        GridError: there are too few planes.
    """
    if planes < (4 if left else 2):
        raise GridError(
            f"{planes} planes that change cannot be swept in two iterations at a time; "
            f"{4 if left else 2} can"
        )
    if not left:
        return [Stage(plane, True, 1) for plane in range(planes)]
    order = [Stage(plane, True, int(plane > 2)) for plane in range(2, planes)]
    late = [Stage(0, False, -1), Stage(0, True, 0), Stage(1, True, 1), Stage(2, False, 1)]
    at = len(order) // 2
    for stage in late:
        order.insert(min(at, len(order)), stage)
        at += 3  # so that no two of them are in shared memory together
    return order


def words(order: list[Stage]) -> np.ndarray:
    """int64[stages, WORDS]: a stage in one word; and for the leading and the trailing half how many
    stages the other halves must have ended before, counted from the begin of the round."""
    count = len(order)
    leads = {stage.plane: at for at, stage in enumerate(order) if stage.leads}
    trails = {
        stage.plane: at - count * (stage.trails > 0)
        for at, stage in enumerate(order)
        if stage.trails
    }
    found = np.zeros((count, WORDS), np.int64)
    before = Stage(-2, False, 0)
    for row, stage in zip(found, order):
        plane, lead, trail = stage
        around = [i for i in (plane - 1, plane, plane + 1) if i in leads]
        follows = plane == before.plane + 1
        row[0] = plane << PLANE | LEADS * lead | (trail + 2 if trail else 0)
        row[0] |= FRESH * (not (follows and before.leads))
        row[0] |= FRESH_TRAILING * (not (follows and before.trails == trail))
        row[1] = 1 + max(trails[i] for i in around)
        row[2] = 1 + max(leads[i] for i in around) - count * (trail < 0)
        before = stage
    return found
