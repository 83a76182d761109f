"""From an MPI datatype to its node, by the envelope and contents that MPI keeps (MPI 4.1 5.1.13).

Extents are asked of MPI at every level, so ``resized``, negative lower bounds and the padding of
structs are whatever the library says they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from gmpi.datatypes.nodes import Node, dense, group, runs, shift, stream, table
from gmpi.errors import DatatypeError


def _known(names: str) -> list[MPI.Datatype]:
    """Those of the named datatypes that this MPI library has."""
    found = [getattr(MPI, name, MPI.DATATYPE_NULL) for name in names.split()]
    return [datatype for datatype in found if datatype != MPI.DATATYPE_NULL]


# Pairs for MINLOC and MAXLOC: a value, then an int at its natural alignment.
_PAIRS = _known("FLOAT_INT DOUBLE_INT LONG_INT TWOINT SHORT_INT LONG_DOUBLE_INT")
_FORTRAN = _known(
    "CHARACTER LOGICAL INTEGER REAL DOUBLE_PRECISION COMPLEX DOUBLE_COMPLEX LOGICAL1 LOGICAL2 "
    "LOGICAL4 LOGICAL8 INTEGER1 INTEGER2 INTEGER4 INTEGER8 INTEGER16 REAL2 REAL4 REAL8 REAL16 "
    "COMPLEX4 COMPLEX8 COMPLEX16 COMPLEX32"
)

Params = dict[str, Any]


def decode(datatype: MPI.Datatype) -> Node:
    """The node of a datatype, predefined or derived, committed or not.

    Raises:
        DatatypeError: it is DATATYPE_NULL, a Fortran type, or made by an unknown constructor.
    """
    if datatype == MPI.DATATYPE_NULL:
        raise DatatypeError("the datatype is DATATYPE_NULL; was it freed? Pass a live datatype")
    base, combiner, params = datatype.decode()
    if combiner == "NAMED":
        return _named(datatype)
    constructor = _CONSTRUCTORS.get(combiner)
    if constructor is None:
        raise DatatypeError(
            f"datatypes made by {combiner} are not supported; supported are "
            f"{', '.join(sorted(_CONSTRUCTORS))} over C types"
        )
    children = params.pop("datatypes", None) or [base]
    try:
        return constructor(children, params)
    finally:
        for child in children:
            if not child.is_predefined:
                child.Free()


def _named(datatype: MPI.Datatype) -> Node:
    size = datatype.Get_size()
    lower, extent = datatype.Get_extent()
    if datatype in _FORTRAN:
        raise DatatypeError(
            f"{datatype.Get_name()} is a Fortran type, whose layout only a Fortran compiler knows; "
            "use the C type of the same size, for example MPI.DOUBLE for DOUBLE PRECISION"
        )
    if datatype in _PAIRS:
        integer = MPI.INT.Get_size()
        value = size - integer
        return group([dense(0, value), dense(-(-value // integer) * integer, integer)])
    if size != extent or lower != 0:
        raise DatatypeError(
            f"the predefined datatype {datatype.Get_name()!r} has size {size} but extent {extent}, "
            "so its layout is not known; use a struct of C types"
        )
    return dense(0, size)


def _child(children: list[MPI.Datatype]) -> tuple[Node, int]:
    """(node, extent) of the only child."""
    return decode(children[0]), extent_of(children[0])[1]


def extent_of(datatype: MPI.Datatype) -> tuple[int, int]:
    """(lower bound, extent) in bytes."""
    lower, extent = datatype.Get_extent()
    return int(lower), int(extent)


def _dup(children: list[MPI.Datatype], params: Params) -> Node:
    return decode(children[0])


def _contiguous(children: list[MPI.Datatype], params: Params) -> Node:
    node, extent = _child(children)
    return stream(node, params["count"], extent)


def _vector(children: list[MPI.Datatype], params: Params) -> Node:
    node, extent = _child(children)
    block = stream(node, params["blocklength"], extent)
    return stream(block, params["count"], params["stride"] * extent)


def _hvector(children: list[MPI.Datatype], params: Params) -> Node:
    node, extent = _child(children)
    return stream(stream(node, params["blocklength"], extent), params["count"], params["stride"])


def _blocks(node: Node, extent: int, lengths: np.ndarray, displacements: np.ndarray) -> Node:
    """Blocks of ``lengths`` elements at displacements in bytes."""
    if node.is_dense and (extent == node.size or (lengths <= 1).all()):
        return runs(displacements + node.offset, lengths * node.size)
    kept = lengths > 0
    lengths, displacements = lengths[kept], displacements[kept]
    if len(lengths) == 0:
        return dense(0, 0)
    if (lengths == lengths[0]).all():
        return table(stream(node, int(lengths[0]), extent), displacements)
    total = int(lengths.sum())
    if total <= 16 * len(lengths):
        # Every element by itself: the rows that table() finds are found whatever the blocks were.
        ends = np.cumsum(lengths)
        within = np.arange(total) - np.repeat(ends - lengths, lengths)
        return table(node, np.repeat(displacements, lengths) + within * extent)
    pairs = zip(lengths.tolist(), displacements.tolist())
    return group([shift(stream(node, length, extent), at) for length, at in pairs])


def _array(values: Any) -> np.ndarray:
    return np.asarray(values, np.int64).reshape(-1)


def _indexed(children: list[MPI.Datatype], params: Params) -> Node:
    node, extent = _child(children)
    at = _array(params["displacements"]) * extent
    return _blocks(node, extent, _array(params["blocklengths"]), at)


def _hindexed(children: list[MPI.Datatype], params: Params) -> Node:
    node, extent = _child(children)
    at = _array(params["displacements"])
    return _blocks(node, extent, _array(params["blocklengths"]), at)


def _indexed_block(children: list[MPI.Datatype], params: Params) -> Node:
    node, extent = _child(children)
    at = _array(params["displacements"]) * extent
    return _blocks(node, extent, np.full(len(at), params["blocklength"], np.int64), at)


def _hindexed_block(children: list[MPI.Datatype], params: Params) -> Node:
    node, extent = _child(children)
    at = _array(params["displacements"])
    return _blocks(node, extent, np.full(len(at), params["blocklength"], np.int64), at)


def _struct(children: list[MPI.Datatype], params: Params) -> Node:
    known: dict[int, tuple[Node, int]] = {}  # children are often the same type many times
    nodes = []
    for child, count, at in zip(children, params["blocklengths"], params["displacements"]):
        if child.handle not in known:
            known[child.handle] = _child([child])
        node, extent = known[child.handle]
        nodes.append(shift(stream(node, count, extent), at))
    return group(nodes)


def _subarray(children: list[MPI.Datatype], params: Params) -> Node:
    node, stride = _child(children)
    axes = list(zip(params["sizes"], params["subsizes"], params["starts"]))
    if params["order"] == MPI.ORDER_C:
        axes.reverse()
    for size, subsize, start in axes:  # the fastest first
        node = shift(stream(node, subsize, stride), start * stride)
        stride *= size
    return node


def _owned(size: int, distribution: int, argument: int, parts: int, part: int) -> np.ndarray:
    """Indices of one dimension of a distributed array that a process has (MPI 4.1 5.1.4)."""
    if distribution == MPI.DISTRIBUTE_NONE:
        return np.arange(size)
    if distribution == MPI.DISTRIBUTE_BLOCK:
        block = -(-size // parts) if argument == MPI.DISTRIBUTE_DFLT_DARG else argument
        return np.arange(min(part * block, size), min((part + 1) * block, size))
    block = 1 if argument == MPI.DISTRIBUTE_DFLT_DARG else argument
    indices = np.arange(size)
    owned: np.ndarray = indices[indices // block % parts == part]
    return owned


def _darray(children: list[MPI.Datatype], params: Params) -> Node:
    node, stride = _child(children)
    place = np.unravel_index(params["rank"], params["psizes"])  # process grids are row-major
    axes = list(zip(params["gsizes"], params["distribs"], params["dargs"], params["psizes"], place))
    if params["order"] == MPI.ORDER_C:
        axes.reverse()
    for size, distribution, argument, parts, part in axes:
        owned = _owned(size, distribution, argument, parts, int(part))
        node = table(node, owned * np.int64(stride))
        stride *= size
    return node


_CONSTRUCTORS: dict[str, Callable[[list[MPI.Datatype], Params], Node]] = {
    "DUP": _dup,
    "RESIZED": _dup,
    "CONTIGUOUS": _contiguous,
    "VECTOR": _vector,
    "HVECTOR": _hvector,
    "INDEXED": _indexed,
    "HINDEXED": _hindexed,
    "INDEXED_BLOCK": _indexed_block,
    "HINDEXED_BLOCK": _hindexed_block,
    "STRUCT": _struct,
    "SUBARRAY": _subarray,
    "DARRAY": _darray,
}
