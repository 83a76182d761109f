"""Random nested datatypes, for hypothesis."""

from __future__ import annotations

from datatype_family import BASES, PAIRS
from hypothesis import strategies as st
from mpi4py import MPI

from gmpi.datatypes import plan

LARGEST = 1 << 20  # bytes that a random type may span


def _small() -> st.SearchStrategy[int]:
    return st.integers(0, 4)


def _wrap(child: st.SearchStrategy[MPI.Datatype]) -> st.SearchStrategy[MPI.Datatype]:
    lists = st.lists(st.tuples(st.integers(0, 3), st.integers(-12, 12)), min_size=1, max_size=5)

    @st.composite
    def struct(draw: st.DrawFn) -> MPI.Datatype:
        members = draw(st.lists(child, min_size=1, max_size=3))
        counts = [draw(st.integers(0, 3)) for _ in members]
        places = [draw(st.integers(-200, 200)) for _ in members]
        return MPI.Datatype.Create_struct(counts, places, members)

    @st.composite
    def subarray(draw: st.DrawFn) -> MPI.Datatype:
        rank = draw(st.integers(1, 4))
        sizes = [draw(st.integers(1, 5)) for _ in range(rank)]
        parts = [draw(st.integers(1, n)) for n in sizes]
        starts = [draw(st.integers(0, n - m)) for n, m in zip(sizes, parts)]
        order = draw(st.sampled_from([MPI.ORDER_C, MPI.ORDER_F]))
        return draw(child).Create_subarray(sizes, parts, starts, order)

    def indexed(pair: tuple[MPI.Datatype, list[tuple[int, int]]]) -> MPI.Datatype:
        lengths, places = zip(*pair[1])
        return pair[0].Create_indexed(lengths, places)

    def hindexed(pair: tuple[MPI.Datatype, list[tuple[int, int]]]) -> MPI.Datatype:
        lengths, places = zip(*pair[1])
        return pair[0].Create_hindexed(lengths, [p * 5 for p in places])

    def blocks(pair: tuple[MPI.Datatype, int, list[tuple[int, int]]]) -> MPI.Datatype:
        return pair[0].Create_indexed_block(pair[1], [place for _, place in pair[2]])

    stride = st.integers(-7, 7)
    return st.one_of(
        st.builds(lambda c, n: c.Create_contiguous(n), child, _small()),
        st.builds(lambda c, n, m, s: c.Create_vector(n, m, s), child, _small(), _small(), stride),
        st.builds(
            lambda c, n, m, s: c.Create_hvector(n, m, s * 3), child, _small(), _small(), stride
        ),
        st.tuples(child, lists).map(indexed),
        st.tuples(child, lists).map(hindexed),
        st.tuples(child, st.integers(0, 3), lists).map(blocks),
        st.builds(
            lambda c, low, n: c.Create_resized(low, n),
            child, st.integers(-20, 20), st.integers(-64, 128),
        ),
        struct(),
        subarray(),
    )  # fmt: skip


def spans(datatype: MPI.Datatype, count: int) -> int:
    low, high = plan(datatype).reach(count)
    return high - low


def random_types() -> st.SearchStrategy[MPI.Datatype]:
    """Nested types of any constructor that span at most ``LARGEST`` bytes."""
    leaves = st.sampled_from([*BASES.values(), *PAIRS.values()])
    return st.recursive(leaves, _wrap, max_leaves=6).filter(lambda t: spans(t, 3) <= LARGEST)
