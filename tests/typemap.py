"""The type map of a datatype, byte by byte, straight from the definitions of MPI 4.1 chapter 5.

Slow and without any idea of its own, so that it can judge between a plan and an MPI library.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from mpi4py import MPI

Map = np.ndarray  # int64[size]: displacement of each packed byte


def _at(inner: Map, displacements: Any) -> Map:
    places = np.asarray(list(displacements), np.int64)
    return (places[:, None] + inner[None, :]).reshape(-1)


def _blocks(inner: Map, extent: int, lengths: Any, places: Any) -> Map:
    return _at(inner, (p + k * extent for n, p in zip(lengths, places) for k in range(n)))


def _named(datatype: MPI.Datatype) -> Map:
    size, extent = datatype.Get_size(), datatype.Get_extent()[1]
    if size == extent:
        return np.arange(size)
    integer = MPI.INT.Get_size()  # a pair of a value and an int
    value = size - integer
    second = {2: 4, 8: 8, 16: 16}[value]
    return np.concatenate([np.arange(value), second + np.arange(integer)])


def _coordinate(index: int, size: int, distribution: int, argument: int, parts: int) -> int:
    """Which process along one dimension has an index."""
    default = argument == MPI.DISTRIBUTE_DFLT_DARG
    if distribution == MPI.DISTRIBUTE_NONE:
        return 0
    if distribution == MPI.DISTRIBUTE_BLOCK:
        return index // (-(-size // parts) if default else argument)
    return index // (1 if default else argument) % parts


def typemap(datatype: MPI.Datatype) -> Map:
    """Displacement of each byte in packed order; extents of inner types are asked of MPI."""
    base, combiner, p = datatype.decode()
    if combiner == "NAMED":
        return _named(datatype)
    if combiner == "STRUCT":
        pieces = [
            _blocks(typemap(t), t.Get_extent()[1], [n], [at])
            for t, n, at in zip(p["datatypes"], p["blocklengths"], p["displacements"])
        ]
        return np.concatenate([np.zeros(0, np.int64), *pieces])
    inner, extent = typemap(base), base.Get_extent()[1]
    if combiner in ("DUP", "RESIZED"):
        return inner
    if combiner == "CONTIGUOUS":
        return _blocks(inner, extent, [p["count"]], [0])
    if combiner in ("VECTOR", "HVECTOR"):
        stride = p["stride"] * (extent if combiner == "VECTOR" else 1)
        n = p["count"]
        return _blocks(inner, extent, [p["blocklength"]] * n, [i * stride for i in range(n)])
    if "INDEXED" in combiner:
        unit = 1 if combiner.startswith("H") else extent
        places = [at * unit for at in p["displacements"]]
        lengths = p.get("blocklengths") or [p["blocklength"]] * len(places)
        return _blocks(inner, extent, lengths, places)
    sizes = p["sizes"] if combiner == "SUBARRAY" else p["gsizes"]
    rank = len(sizes)
    fast_last = p["order"] == MPI.ORDER_C
    order = range(rank) if fast_last else range(rank - 1, -1, -1)  # slowest first
    strides = dict.fromkeys(range(rank), extent)
    for d in reversed(list(order)):
        for slower in list(order)[: list(order).index(d)]:
            strides[slower] *= sizes[d]
    if combiner == "SUBARRAY":
        owned = [range(s, s + n) for s, n in zip(p["starts"], p["subsizes"])]
    else:
        assert combiner == "DARRAY"
        mine = np.unravel_index(p["rank"], p["psizes"])
        axes = list(zip(sizes, p["distribs"], p["dargs"], p["psizes"]))
        owned = [
            [i for i in range(axis[0]) if _coordinate(i, *axis) == mine[d]]
            for d, axis in enumerate(axes)
        ]
    indices = itertools.product(*(owned[d] for d in order))
    return _at(inner, (sum(i * strides[d] for i, d in zip(index, order)) for index in indices))
