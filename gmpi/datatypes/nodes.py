"""The intermediate form of a datatype, and the constructors that keep it canonical.

A *node* is an ordered list of byte runs in memory, written compactly. The order is the packed order
and never changes. From the inside out:

    core      Dense   one run of bytes
              Runs    runs of different lengths at arbitrary displacements
              Group   other nodes, one after the other
    dims      repetitions of the core, innermost first: ``count`` times at a constant ``stride``, or
              at the displacements of a table
    offset    of everything

Each constructor takes canonical nodes and returns a canonical one, so a tree that is built from
the leaves up is at its fixpoint at every moment; there is no separate pass. The rules are TEMPI's
(paper 003 section 3.2) and their continuation to irregular types:

* dense folding: a dense block repeated at its own length is one longer block;
* stream elision: a repetition of count 1 goes, *its offset stays* (in ``Node.offset``);
* stream flattening: a repetition whose stride is the length of the one inside it joins it;
* adjacent runs join; runs of one length become a table; regular tables become repetitions;
* nodes that continue each other, or repeat each other, join.

There is no sorting of dimensions here: it would change the packed order. Kernels choose in which
order they *visit*, see ``gmpi/packing/kernels_transpose.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

Int64 = np.ndarray  # one-dimensional, int64


class Dim(NamedTuple):
    """One repetition: ``count`` times, at ``stride`` bytes or where ``table`` says.

    Attributes:
        count: at least 2.
        stride: bytes from one to the next, any sign; 0 when there is a table.
        table: displacement of each, relative to the node's offset; int64[count].
    """

    count: int  # type: ignore[assignment]
    stride: int
    table: Int64 | None = None

    @property
    def key(self) -> tuple[int, int, bytes]:
        return self.count, self.stride, b"" if self.table is None else self.table.tobytes()

    def displacements(self) -> Int64:
        if self.table is not None:
            return self.table
        return np.arange(self.count, dtype=np.int64) * self.stride


class Dense(NamedTuple):
    """``length`` bytes without a gap."""

    length: int

    @property
    def size(self) -> int:
        return self.length

    @property
    def key(self) -> tuple[object, ...]:
        return ("dense", self.length)


class Runs(NamedTuple):
    """Runs of bytes; the first displacement is 0, no run is empty, no two adjacent ones join."""

    displacements: Int64
    lengths: Int64

    @property
    def size(self) -> int:
        return int(self.lengths.sum())

    @property
    def key(self) -> tuple[object, ...]:
        return ("runs", self.displacements.tobytes(), self.lengths.tobytes())


class Group(NamedTuple):
    """Nodes in packed order; not all of them dense."""

    nodes: tuple[Node, ...]

    @property
    def size(self) -> int:
        return sum(node.size for node in self.nodes)

    @property
    def key(self) -> tuple[object, ...]:
        return ("group", tuple(node.key for node in self.nodes))


class Node:
    """A canonical list of byte runs. Two nodes with the same runs in the same order are equal,
    as far as the rules above reach; every equality is exact."""

    def __init__(self, offset: int, dims: tuple[Dim, ...], core: Dense | Runs | Group) -> None:
        self.offset = offset
        self.dims = dims
        self.core = core

    @cached_property
    def size(self) -> int:
        """Packed bytes."""
        return self.core.size * prod(d.count for d in self.dims)

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """Everything but the offset, comparable."""
        return tuple(d.key for d in self.dims), self.core.key

    @property
    def key(self) -> tuple[object, ...]:
        return self.offset, self.shape

    @property
    def is_dense(self) -> bool:
        return not self.dims and isinstance(self.core, Dense)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def run_count(self) -> int:
        """How many runs there are, counting those that touch across repetitions."""
        inner = 1
        if isinstance(self.core, Runs):
            inner = len(self.core.lengths)
        elif isinstance(self.core, Group):
            inner = sum(node.run_count() for node in self.core.nodes)
        return inner * prod(d.count for d in self.dims)

    def runs(self) -> tuple[Int64, Int64]:
        """(displacements, lengths) of all runs in packed order, adjacent ones not joined."""
        core = self.core
        if isinstance(core, Dense):
            at, lengths = np.zeros(1, np.int64), np.array([core.length], np.int64)
        elif isinstance(core, Runs):
            at, lengths = core.displacements, core.lengths
        else:
            pairs = [node.runs() for node in core.nodes]
            at = np.concatenate([pair[0] for pair in pairs])
            lengths = np.concatenate([pair[1] for pair in pairs])
        for dim in self.dims:
            at = (dim.displacements()[:, None] + at[None, :]).reshape(-1)
            lengths = np.tile(lengths, dim.count)
        return at + self.offset, lengths


EMPTY = Node(0, (), Dense(0))


def dense(offset: int, length: int) -> Node:
    return Node(offset, (), Dense(length)) if length else EMPTY


def shift(node: Node, by: int) -> Node:
    return Node(node.offset + by, node.dims, node.core) if node.size else EMPTY


def stream(node: Node, count: int, stride: int) -> Node:
    """``count`` repetitions of a node, ``stride`` bytes apart."""
    if count == 0 or node.size == 0:
        return EMPTY
    if count == 1:
        return node
    if not node.dims and isinstance(node.core, Dense) and stride == node.core.length:
        return dense(node.offset, stride * count)
    if node.dims:
        last = node.dims[-1]
        if last.table is None and stride == last.count * last.stride:
            joined = Dim(last.count * count, last.stride)
            return Node(node.offset, node.dims[:-1] + (joined,), node.core)
    return Node(node.offset, node.dims + (Dim(count, stride),), node.core)


def table(node: Node, displacements: Int64) -> Node:
    """Repetitions of a node at arbitrary displacements."""
    count = len(displacements)
    if count == 0 or node.size == 0:
        return EMPTY
    if count == 1:
        return shift(node, int(displacements[0]))
    if node.is_dense:
        lengths = np.full(count, node.size, np.int64)
        return runs(displacements + node.offset, lengths)
    run, stride = _progressions(displacements)
    if run > 1:
        return table(stream(node, run, stride), displacements[::run])
    first = int(displacements[0])
    dims = node.dims + (Dim(count, 0, displacements - first),)
    return Node(node.offset + first, _one_table(dims), node.core)


def runs(displacements: Int64, lengths: Int64) -> Node:
    """Runs of bytes, each of its own length."""
    kept = lengths > 0
    at, lengths = displacements[kept], lengths[kept]
    if len(at) == 0:
        return EMPTY
    begins = np.concatenate(([True], at[1:] != at[:-1] + lengths[:-1]))
    if not begins.all():
        places = np.flatnonzero(begins)
        at, lengths = at[places], np.add.reduceat(lengths, places)
    if len(at) == 1:
        return dense(int(at[0]), int(lengths[0]))
    first = int(at[0])
    if (lengths == lengths[0]).all():
        node = dense(0, int(lengths[0]))
        run, stride = _progressions(at)
        if run == 1:
            return Node(first, (Dim(len(at), 0, at - first),), node.core)
        return table(stream(node, run, stride), at[::run])
    return Node(first, (), Runs(at - first, lengths))


def group(nodes: Sequence[Node]) -> Node:
    """Nodes one after the other."""
    flat: list[Node] = []
    for node in nodes:
        if isinstance(node.core, Group) and not node.dims:
            flat += [shift(child, node.offset) for child in node.core.nodes]
        elif node.size:
            flat.append(node)
    joined: list[Node] = []
    for plain, some in _alternate(flat):
        for node in [join(some)] if plain else some:
            longer = _continue(joined[-1], node) if joined else None
            if longer is None:
                joined.append(node)
            else:
                joined[-1] = longer
    if not joined:
        return EMPTY
    if len(joined) == 1:
        return joined[0]
    if all(node.shape == joined[0].shape for node in joined):
        return table(shift(joined[0], -joined[0].offset), np.array([n.offset for n in joined]))
    first = joined[0].offset
    return Node(first, (), Group(tuple(shift(node, -first) for node in joined)))


def join(nodes: Sequence[Node]) -> Node:
    """All runs of some nodes as one list."""
    pairs = [node.runs() for node in nodes]
    at = np.concatenate([pair[0] for pair in pairs])
    return runs(at, np.concatenate([pair[1] for pair in pairs]))


def _alternate(nodes: list[Node]) -> list[tuple[bool, list[Node]]]:
    """Consecutive nodes that are plain runs (True), and the others, in order."""
    found: list[tuple[bool, list[Node]]] = []
    for node in nodes:
        plain = not node.dims
        if found and found[-1][0] == plain:
            found[-1][1].append(node)
        else:
            found.append((plain, [node]))
    return found


def _continue(a: Node, b: Node) -> Node | None:
    """One node for both when ``b`` goes on where the last repetition of ``a`` ends."""
    if a.core.key != b.core.key:
        return None
    keys_a, keys_b = [d.key for d in a.dims], [d.key for d in b.dims]
    step = b.offset - a.offset
    inner: tuple[Dim, ...]
    if keys_a[:-1] == keys_b and a.dims:
        inner, count_a, count_b, stride = b.dims, a.dims[-1].count, 1, a.dims[-1].stride
        tables = a.dims[-1].table
    elif keys_a == keys_b[:-1] and b.dims:
        inner, count_a, count_b, stride = a.dims, 1, b.dims[-1].count, b.dims[-1].stride
        tables = b.dims[-1].table
    elif a.dims and b.dims and keys_a[:-1] == keys_b[:-1] and keys_a[-1][1:] == keys_b[-1][1:]:
        inner, count_a, count_b, stride = (
            a.dims[:-1], a.dims[-1].count, b.dims[-1].count, a.dims[-1].stride,
        )  # fmt: skip
        tables = a.dims[-1].table
    else:
        return None
    if tables is not None or step != count_a * stride:
        return None
    return stream(Node(a.offset, inner, a.core), count_a + count_b, stride)


def _progressions(at: Int64) -> tuple[int, int]:
    """(r, s): the numbers are rows of r, each an arithmetic progression of step s; r as large as
    can be, 1 when they are irregular."""
    steps = np.diff(at)
    breaks = np.flatnonzero(steps != steps[0]) + 1
    run = int(np.gcd.reduce(breaks, initial=len(at)))
    return run, int(steps[0])


def _one_table(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The same repetitions with at most one table: kernels look up one displacement a block."""
    places = [i for i, dim in enumerate(dims) if dim.table is not None]
    if len(places) < 2:
        return dims
    first, last = places[0], places[-1]
    at = np.zeros(1, np.int64)
    for dim in dims[first : last + 1]:
        at = (dim.displacements()[:, None] + at[None, :]).reshape(-1)
    return dims[:first] + (Dim(len(at), 0, at),) + dims[last + 1 :]


def collapse(node: Node, most: int) -> Node:
    """The same node with at most ``most`` dims: the outermost ones become one table."""
    if len(node.dims) <= most:
        return node
    inner, outer = node.dims[: most - 1], node.dims[most - 1 :]
    at = np.zeros(1, np.int64)
    for dim in outer:
        at = (dim.displacements()[:, None] + at[None, :]).reshape(-1)
    return Node(node.offset, _one_table(inner + (Dim(len(at), 0, at),)), node.core)
