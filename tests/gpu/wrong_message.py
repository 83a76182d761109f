"""What a wrong message of ``soak.py`` has in place of its bytes: where, and what it looks like."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_RUNS = 12  # runs of wrong bytes that are described


class Kept(NamedTuple):
    """Which message was kept."""

    block: int
    round: int
    kind: int
    nbytes: int
    at: int  # byte of its row that it begins at


def _runs(wrong: np.ndarray) -> list[tuple[int, int]]:
    """(begin, end) of the runs of true values; gaps of a few right bytes belong to a run, because
    one wrong byte in 256 is right by chance."""
    at = np.flatnonzero(wrong)
    breaks = np.flatnonzero(np.diff(at) > 16)
    begins = at[np.concatenate(([0], breaks + 1))]
    ends = at[np.concatenate((breaks, [len(at) - 1]))] + 1
    return [(int(b), int(e)) for b, e in zip(begins, ends)]


def _looks_like(found: np.ndarray, expected: np.ndarray, begin: int) -> str:
    """One line about a run of wrong bytes that begins at byte ``begin`` of the message."""
    if not found.any():
        return "zeros"
    shift = (found.astype(int) - expected) & 0xFF
    if (shift == shift[0]).all():
        return f"another message at the same position: all bytes differ by {shift[0]}"
    skip = -begin % 8
    whole = found[skip : skip + (len(found) - skip) // 8 * 8]
    if len(whole):
        numbers = np.frombuffer(whole.tobytes(), np.float64)
        plausible = np.isfinite(numbers) & (np.abs(numbers) < 1e7) & (numbers == np.rint(numbers))
        if plausible.mean() > 0.9:
            return f"doubles from byte {begin + skip} on: {numbers[:4].tolist()}"
    zeros = float((found == 0).mean())
    return f"bytes {found[:16].tolist()}, {zeros:.0%} zeros, differences {shift[:16].tolist()}"


def describe(kept: Kept, looks: np.ndarray, expected: np.ndarray, address: int) -> dict[str, Any]:
    """What is known of a wrong message.

    Args:
        looks: uint8 of shape (2, nbytes): as it was found, and a millisecond and a fence later.
        address: on the GPU, of its first byte.
    """
    found = looks[0]
    wrong = found != expected
    later = looks[1] != expected
    runs = _runs(wrong) if wrong.any() else []
    return {
        **kept._asdict(),
        "address_in_line": address % 128,
        "wrong": int(wrong.sum()),
        "wrong_later": int(later.sum()),
        "runs": len(runs),
        "first_runs": [
            {
                "begin": begin,
                "end": end,
                "begin_in_line": (address + begin) % 128,
                "looks_like": _looks_like(found[begin:end], expected[begin:end], begin),
            }
            for begin, end in runs[:_RUNS]
        ],
    }
