"""A plan carried out by NumPy: the reference that kernels are compared with, and the host's path.

Positions and displacements come from the parts, as in the kernels, not from the datatype.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gmpi.datatypes.nodes import Int64
from gmpi.datatypes.plans import Plan


def pack(plan: Plan, source: np.ndarray, count: int = 1, origin: int = 0) -> np.ndarray:
    """The packed bytes of ``count`` elements.

    Args:
        source: uint8[n], the memory.
        origin: index in it of the byte that displacements count from.

    Returns:
        uint8[plan.size * count].
    """
    length, begins = _uniform(plan, count, origin)
    if length:
        packed: np.ndarray = sliding_window_view(source, length)[begins].reshape(-1)
        return packed
    out = np.empty(plan.size * count, np.uint8)
    position = 0
    for at, length in zip(*_places(plan, count, origin)):
        out[position : position + length] = source[at : at + length]
        position += length
    return out


def unpack(
    plan: Plan, packed: np.ndarray, target: np.ndarray, count: int = 1, origin: int = 0
) -> None:
    """The reverse of ``pack``: writes ``packed`` to the places in ``target``, nothing else.

    Fewer packed bytes than the plan has are unpacked as far as they go.
    """
    length, begins = _uniform(plan, count, origin)
    if length and len(packed) == plan.size * count:
        windows = sliding_window_view(target, length, writeable=True)
        windows[begins] = packed.reshape(-1, length)
        return
    position = 0
    for at, length in zip(*_places(plan, count, origin)):
        piece = packed[position : position + length]
        target[at : at + len(piece)] = piece
        position += length


def _uniform(plan: Plan, count: int, origin: int) -> tuple[int, Int64]:
    """(length, begins) of runs that all have one length, which NumPy moves at once; else 0."""
    at, lengths = plan.runs(count)
    if len(lengths) and (lengths == lengths[0]).all():
        return int(lengths[0]), at + origin
    return 0, at


def _places(plan: Plan, count: int, origin: int) -> tuple[list[int], list[int]]:
    at, lengths = plan.runs(count)
    return (at + origin).tolist(), lengths.tolist()
