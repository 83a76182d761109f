"""The events that traced kernels have stored, as arrays of the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gmpi.contract.trace import EVENT_BYTES

#: An event as it lies in device memory (``gmpi/contract/trace.py``).
EVENT = np.dtype(
    [
        ("begin", np.int64), ("end", np.int64),
        ("call", np.uint16), ("scope", np.uint16), ("block", np.uint32),
        ("request", np.int64),
        ("comm", np.int32), ("datatype", np.int32),
        ("peer", np.int32), ("tag", np.int32),
        ("count", np.int64),
        ("error", np.int32), ("incomplete", np.int32),
        ("source", np.int32), ("source_tag", np.int32),
        ("nbytes", np.int64),
        ("warp", np.int64), ("spare", np.int64),
    ]
)  # fmt: skip
assert EVENT.itemsize == EVENT_BYTES


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


def read(raw: np.ndarray, launch: Launch) -> tuple[np.ndarray, int]:
    """The events of a launch by their begin, and how many were overwritten.

    Args:
        raw: uint8, the memory of all launches.
    """
    size = launch.rings * (launch.rows + 1)
    begin = launch.place * EVENT_BYTES
    part = raw[begin : begin + size * EVENT_BYTES]
    counts = part.view(np.int64).reshape(launch.rings, launch.rows + 1, -1)[:, 0, 0]
    rings = part.view(EVENT).reshape(launch.rings, launch.rows + 1)[:, 1:]
    there = np.arange(launch.rows) < counts[:, None]
    events = rings[there]
    lost = int(np.maximum(counts - launch.rows, 0).sum())
    return events[np.argsort(events["begin"], kind="stable")], lost
