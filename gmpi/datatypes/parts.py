"""What kernels carry out: a plan is a list of parts, one after the other in the packed bytes.

Each part is one of two things that a thread can look up alone, from a packed position:

* ``StridedBlock``: blocks of one length, repeated along up to ``MAX_DIMS`` dimensions; at most one
  of them takes its displacements from a table (blocks of equal length at irregular places).
* ``RunList``: a list of runs of different lengths, with the packed position of each, the whole
  repeated along up to ``MAX_DIMS`` dimensions; a table of work units says at which run each
  ``RUN_UNIT_BYTES`` of packed bytes begins, so a lookup searches a few runs and never the whole
  list.
"""

from __future__ import annotations

from functools import cached_property
from math import gcd, prod

import numpy as np

from gmpi.datatypes.nodes import Dense, Dim, Group, Int64, Node, Runs, collapse, join, runs, shift

MAX_DIMS = 7  # of one part; further ones become a table
RUN_UNIT_BYTES = 2048  # packed bytes of one work unit of a run list
MAX_WIDTH = 16
_MAX_PARTS = 1024
_MANY_RUNS = 32  # a node with more than these gets a part of its own


class Part:
    """What both kinds share.

    Attributes:
        begin: packed position of its first byte.
        offset: displacement of everything, bytes.
        dims: repetitions, innermost first.
        atom: packed bytes of what is repeated.
        size: packed bytes of all.
        alignment: largest power of two, at most 16, that divides every displacement, every length
            and ``begin``.
    """

    def __init__(self, begin: int, offset: int, dims: tuple[Dim, ...], atom: int) -> None:
        self.begin = begin
        self.offset = offset
        self.dims = dims
        self.atom = atom
        self.size = atom * prod(d.count for d in dims)

    def _common(self) -> int:
        common = gcd(self.begin, self.offset, self.atom)
        for dim in self.dims:
            if dim.table is None:
                common = gcd(common, dim.stride)
            else:
                common = gcd(common, int(np.gcd.reduce(dim.table)))
        return common

    @cached_property
    def alignment(self) -> int:
        common = gcd(self._common(), MAX_WIDTH)
        return common & -common

    @cached_property
    def key(self) -> tuple[object, ...]:
        return self.begin, self.offset, tuple(d.key for d in self.dims), self.atom

    @property
    def table(self) -> Int64 | None:
        for dim in self.dims:
            if dim.table is not None:
                return dim.table
        return None

    @property
    def device_bytes(self) -> int:
        """Device memory that the lookup needs, besides its constants."""
        return 0 if self.table is None else self.table.nbytes

    def _repeat(self, at: Int64) -> Int64:
        for dim in self.dims:
            at = (dim.displacements()[:, None] + at[None, :]).reshape(-1)
        return at + self.offset

    def segments(self) -> tuple[Int64, Int64]:
        """(displacements, lengths) in packed order, adjacent ones not joined."""
        raise NotImplementedError


class StridedBlock(Part):
    """Blocks of ``atom`` bytes at regular, or tabulated, displacements."""

    def segments(self) -> tuple[Int64, Int64]:
        at = self._repeat(np.zeros(1, np.int64))
        return at, np.full(len(at), self.atom, np.int64)


class RunList(Part):
    """Runs of different lengths.

    Attributes:
        displacements: where each run begins, relative to ``offset``; int64[n].
        lengths: their bytes; int64[n].
    """

    def __init__(
        self, begin: int, offset: int, dims: tuple[Dim, ...], at: Int64, lengths: Int64
    ) -> None:
        super().__init__(begin, offset, dims, int(lengths.sum()))
        self.displacements = at
        self.lengths = lengths

    @cached_property
    def positions(self) -> Int64:
        """Packed position of each run within the atom, and the atom's size; int64[n + 1]."""
        return np.concatenate(([0], np.cumsum(self.lengths)))

    def units(self, unit: int = RUN_UNIT_BYTES) -> Int64:
        """The run in which each work unit begins, and the last run; int64[units + 1]."""
        begins = np.arange(-(-self.atom // unit)) * unit
        first = np.searchsorted(self.positions, begins, side="right") - 1
        return np.append(first, len(self.lengths) - 1)

    def _common(self) -> int:
        lists = np.gcd.reduce(self.displacements), np.gcd.reduce(self.lengths)
        return gcd(super()._common(), int(lists[0]), int(lists[1]))

    @cached_property
    def key(self) -> tuple[object, ...]:
        lists = self.displacements.tobytes(), self.lengths.tobytes()
        return self.begin, self.offset, tuple(d.key for d in self.dims), lists

    @property
    def device_bytes(self) -> int:
        return super().device_bytes + 12 * len(self.lengths) + 4 * len(self.units())

    def segments(self) -> tuple[Int64, Int64]:
        at = self._repeat(self.displacements)
        return at, np.tile(self.lengths, len(at) // len(self.lengths))


def parts_of(node: Node) -> tuple[Part, ...]:
    """The parts of a plan for a node."""
    if node.size == 0:
        return ()
    pieces = _pieces(node)
    if len(pieces) > _MAX_PARTS:
        pieces = [runs(*node.runs())]
    parts: list[Part] = []
    begin = 0
    for piece in pieces:
        parts.append(_part(collapse(piece, MAX_DIMS), begin))
        begin += piece.size
    return tuple(parts)


def _part(node: Node, begin: int) -> Part:
    if isinstance(node.core, Dense):
        return StridedBlock(begin, node.offset, node.dims, node.core.length)
    assert isinstance(node.core, Runs)
    core = node.core
    return RunList(begin, node.offset, node.dims, core.displacements, core.lengths)


def _pieces(node: Node) -> list[Node]:
    """The node as a list of nodes without a group."""
    if not isinstance(node.core, Group):
        return [node]
    if not node.dims:
        return _gather([p for child in node.core.nodes for p in _pieces(shift(child, node.offset))])
    inner = Node(0, (), node.core)
    repeats = prod(dim.count for dim in node.dims)
    pieces = _pieces(inner)
    if len(pieces) == 1:
        flat = pieces[0]
        return [Node(node.offset + flat.offset, flat.dims + node.dims, flat.core)]
    few = inner.run_count() <= 64 * len(pieces)
    if not few and repeats * len(pieces) <= _MAX_PARTS:
        at = Node(node.offset, node.dims, Dense(1)).runs()[0]
        return [shift(piece, int(by)) for by in at for piece in pieces]
    flat = runs(*inner.runs())
    return [Node(node.offset + flat.offset, flat.dims + node.dims, flat.core)]


def _gather(pieces: list[Node]) -> list[Node]:
    """Neighbours of few runs each share one list."""
    found: list[Node] = []
    small: list[Node] = []

    def flush() -> None:
        if len(small) == 1:
            found.append(small[0])
        elif small:
            found.append(join(small))
        small.clear()

    for piece in pieces:
        if piece.run_count() <= _MANY_RUNS or not piece.dims:
            small.append(piece)
        else:
            flush()
            found.append(piece)
    flush()
    return found
