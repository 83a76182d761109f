"""Where the time of an iteration goes: stamps of the GPU's timer, and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np

# Columns of the stamps of an iteration, in ns.
BEGIN = 0  # the iteration begins
REDUCED = 1  # the residual of the iteration before is known on all ranks
SENT = 2  # all points that neighbours wait for are updated: they are sent
HALO = 3  # all messages have arrived
SWEPT = 4  # the last block has updated its last tile
STAMPS = 5


def breakdown(stamps: np.ndarray) -> dict[str, Any]:
    """Medians in us over the iterations, the first two and the last left out.

    ``compute`` is from the begin to the last tile; ``halo`` from the moment the boundary is ready
    to the last message; ``convergence`` from the begin to the sum over all ranks. They overlap:
    ``exposed`` is the time of an iteration that is not ``compute``.
    """
    rows = stamps[2:] if len(stamps) > 4 else stamps
    begin = rows[:, BEGIN]
    each = np.diff(begin) if len(rows) > 1 else np.zeros(1)
    parts = {
        "iteration": each,
        "compute": (rows[:, SWEPT] - begin)[:-1],
        "boundary": (rows[:, SENT] - begin)[:-1],
        "halo": (rows[:, HALO] - rows[:, SENT])[:-1],
        "convergence": (rows[:, REDUCED] - begin)[:-1],
        "exposed": each - (rows[:, SWEPT] - begin)[:-1],
    }
    found: dict[str, Any] = {
        name: float(np.median(ns)) / 1000 for name, ns in parts.items() if len(ns)
    }
    middle = rows[len(rows) // 2]
    found["timeline"] = ((middle - middle[BEGIN]) / 1000).tolist()
    return found


def wave_breakdown(stamps: np.ndarray, stalled: float) -> dict[str, Any]:
    """The same for two iterations swept together, which have no begin in common: ``stalled`` ns an
    iteration is what a block has waited before its tiles, ``exposed``; ``compute`` is the rest."""
    # The sums of two iterations are complete at about the same time.
    each = float(np.ptp(stamps[:, REDUCED])) / max(1, len(stamps) - 1)
    # Every second halo comes before the own plane is done.
    late = (stamps[:, HALO] - stamps[:, SENT])[stamps[:, HALO] > stamps[:, SENT]]
    found = {
        "iteration": each,
        "compute": each - stalled,
        "halo": float(np.median(late)) if len(late) else 0.0,
        "convergence": float(np.median(stamps[:, REDUCED] - stamps[:, BEGIN])),
        "exposed": stalled,
    }
    return {name: ns / 1000 for name, ns in found.items()}
