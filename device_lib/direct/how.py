"""How to finish a request of the direct road, and what comes of it."""

from __future__ import annotations

WAIT = 0
ONE_LOOK = 1  # and one at the requests of others
QUICK = 2
KEEP = 3  # as ONE_LOOK, and a request that is complete stays open for a wait to come
HOLD = 4  # as QUICK, and the caller keeps the claim of what takes several steps: HELD
HOLD_LONGER = 5  # the same, with several looks

HELD = 1  # in place of COMPLETED: the caller passes handle | slots.CLAIMED from now on
