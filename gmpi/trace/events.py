"""The events that traced kernels have stored, as arrays of the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gmpi.contract.trace import EVENT_BYTES, HEADER_PAIRS
from gmpi.trace.cycles import Rate, to_ns

_GIVEN = [
    ("request", np.int64),
    ("comm", np.int32), ("datatype", np.int32), ("peer", np.int32), ("tag", np.int32),
    ("count", np.int64),
]  # fmt: skip
_RETURNED = [
    ("error", np.int32), ("incomplete", np.int32), ("source", np.int32), ("source_tag", np.int32),
    ("nbytes", np.int64),
]  # fmt: skip
#: An event as it lies in device memory (``gmpi/contract/trace.py``).
STORED = np.dtype(
    [
        ("begin", np.int64),
        ("call", np.uint16), ("scope", np.uint8), ("no_status", np.uint8), ("number", np.uint32),
        *_GIVEN, ("end", np.int64), *_RETURNED, ("pairs", np.int64, (2, 2)),
    ]
)  # fmt: skip
assert STORED.itemsize == EVENT_BYTES
#: The same with times in ns of the GPU's timer, and who has made the call.
EVENT = np.dtype(
    [
        ("begin", np.int64), ("end", np.int64),
        ("call", np.uint16), ("scope", np.uint8), ("block", np.int64), ("warp", np.int64),
        *_GIVEN, *_RETURNED,
    ]
)  # fmt: skip


class Launch(NamedTuple):
    """A launch that is traced, and where its events are.

    Attributes:
        number: of the launches of the context.
        kernel: its name.
        at: CLOCK_MONOTONIC ns when it was launched.
        place: of its first ring, in rows from the begin of the memory.
        rings, rows: how many rings, and events in each.
    """

    number: int
    kernel: str
    blocks: int
    threads: int
    at: int
    place: int
    rings: int
    rows: int


def rows_for(rings: int, free: int) -> int:
    """How many events each of ``rings`` gets of ``free`` rows, a power of two; 0: none.

    A launch takes half of what is free, so that others run beside it, or all for one event.
    """
    if 2 * rings > free:
        return 0
    return 1 << (max(free // 2 // rings - 1, 1).bit_length() - 1)


def read(raw: np.ndarray, launch: Launch, rate: Rate) -> tuple[np.ndarray, int, int]:
    """(The events of a launch by their begin, how many were overwritten, how wrong their times may
    be, ns).

    Args:
        raw: uint8, the memory of all launches.
        rate: of the GPU's clocks.
    """
    size = launch.rings * (launch.rows + 1)
    begin = launch.place * EVENT_BYTES
    rings = raw[begin : begin + size * EVENT_BYTES].reshape(launch.rings, -1)
    warps = launch.rings // launch.blocks
    found, lost, error = [np.empty(0, EVENT)], 0, 0
    for i in np.flatnonzero(rings[:, EVENT_BYTES:].any(1)):
        stored = rings[i, EVENT_BYTES:].view(STORED)
        stored = stored[stored["end"] != 0]
        if len(stored) == 0:
            continue
        events = np.empty(len(stored), EVENT)
        for name, _ in _GIVEN + _RETURNED + [("call", 0), ("scope", 0)]:
            events[name] = stored[name]
        events["block"], events["warp"] = divmod(int(i), warps)
        for name in ("source", "source_tag", "nbytes"):
            events[name][stored["no_status"] != 0] = -1
        stamps = np.concatenate((stored["begin"], stored["end"]))
        header = rings[i, : 16 * HEADER_PAIRS].view(np.int64).reshape(-1, 2)
        pairs = np.concatenate((header, stored["pairs"].reshape(-1, 2)))
        times, wrong = to_ns(stamps, pairs[pairs[:, 1] != 0], rate)
        events["begin"], events["end"] = np.split(times, 2)
        found.append(events)
        lost += _overwritten(stored["number"], launch.rows)
        error = max(error, wrong)
    events = np.concatenate(found)
    return events[np.argsort(events["begin"], kind="stable")], lost, error


def _overwritten(numbers: np.ndarray, rows: int) -> int:
    """``numbers``: uint32, of the events that are there. All is counted modulo 2**32."""
    after_first = (numbers - numbers[0]).view(np.int32)
    newest = int(numbers[0]) + int(after_first.max())
    return max(0, newest + 1 - rows)
