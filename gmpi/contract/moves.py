"""The collectives that move blocks: one row each, from which everything else about them follows.

A *block* is ``count`` elements of the datatype. A rank gives some blocks to the operation and gets
some from it; how many depends on the rank, the root and the size of the communicator. Kernels and
proxies compute it alike (``blocks``): what is packed, staged, checked and handed to MPI.

Those of ``ROWS`` have blocks of one length, which the record says. Those of ``COUNTED`` have blocks
with lengths of their own, which a table says (``counts.py``). So it does for ``AMONG_NEIGHBOURS``,
whose number of blocks depends on the topology of the communicator.

In the staging of a request that is short enough, what comes back begins at 0 and what goes out
behind it (``out_offset``). A longer one is moved by copy commands, all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from gmpi.contract import wire

# How many blocks
ONE = 0
ALL = 1  # one for each rank
AT_ROOT = 2  # one at the root, none elsewhere
ALL_AT_ROOT = 3
AFTER_FIRST = 4  # one, but none on rank 0
SOURCES = 5  # one for each neighbour that blocks come from
DESTINATIONS = 6  # or go to

OUT = 0  # which way: of the two halves of a row
BACK = 1
NEITHER = -1


class Row(NamedTuple):
    """One operation.

    Attributes:
        name: MPI's, of the call that blocks.
        op: its opcode.
        out, back: how many blocks a rank gives, and gets.
        reduces: its argument is an operation, its blocks are of one predefined datatype.
        shifted: with IN_PLACE, a rank's block is where it stands in the result.
        counts: a bit for each way (1 << OUT, 1 << BACK) whose blocks have counts and, unless it
            reduces, displacements of their own: arrays of integers.
        typed: datatypes of their own, too; displacements are in bytes.
    """

    name: str
    op: int
    out: int
    back: int
    reduces: bool = False
    shifted: bool = False
    counts: int = 0
    typed: bool = False

    @property
    def rooted(self) -> bool:
        return not {self.out, self.back}.isdisjoint((AT_ROOT, ALL_AT_ROOT))

    @property
    def among_neighbours(self) -> bool:
        return self.back == SOURCES

    @property
    def in_place_way(self) -> int:
        """The buffer of which way may be IN_PLACE; NEITHER."""
        if self.among_neighbours:
            return NEITHER
        return BACK if self.out == ALL_AT_ROOT else OUT

    @property
    def swaps(self) -> bool:
        """Whether, with IN_PLACE, what comes back takes the place of what goes out."""
        return self.out == self.back == ALL

    @property
    def counted(self) -> bool:
        """Whether a table says what its blocks are."""
        return self.op >= wire.FIRST_COUNTED

    @property
    def nonblocking(self) -> str:
        """MPI's name of the call that does not block."""
        return f"I{self.name.lower()}"


ROWS = (
    Row("Reduce", wire.OP_REDUCE, ONE, AT_ROOT, reduces=True),
    Row("Gather", wire.OP_GATHER, ONE, ALL_AT_ROOT, shifted=True),
    Row("Scatter", wire.OP_SCATTER, ALL_AT_ROOT, ONE),
    Row("Allgather", wire.OP_ALLGATHER, ONE, ALL, shifted=True),
    Row("Alltoall", wire.OP_ALLTOALL, ALL, ALL),
    Row("Reduce_scatter_block", wire.OP_REDUCE_SCATTER_BLOCK, ALL, ONE, reduces=True),
    Row("Scan", wire.OP_SCAN, ONE, ONE, reduces=True),
    Row("Exscan", wire.OP_EXSCAN, ONE, AFTER_FIRST, reduces=True),
)
_OUT_COUNTS = 1 << OUT
_BACK_COUNTS = 1 << BACK
COUNTED = (
    Row("Gatherv", wire.OP_GATHERV, ONE, ALL_AT_ROOT, shifted=True, counts=_BACK_COUNTS),
    Row("Scatterv", wire.OP_SCATTERV, ALL_AT_ROOT, ONE, counts=_OUT_COUNTS),
    Row("Allgatherv", wire.OP_ALLGATHERV, ONE, ALL, shifted=True, counts=_BACK_COUNTS),
    Row("Alltoallv", wire.OP_ALLTOALLV, ALL, ALL, counts=_OUT_COUNTS | _BACK_COUNTS),
    Row("Alltoallw", wire.OP_ALLTOALLW, ALL, ALL, counts=_OUT_COUNTS | _BACK_COUNTS, typed=True),
    Row("Reduce_scatter", wire.OP_REDUCE_SCATTER, ALL, ONE, reduces=True, counts=_OUT_COUNTS),
)
AMONG_NEIGHBOURS = (
    Row("Neighbor_allgather", wire.OP_NEIGHBOR_ALLGATHER, ONE, SOURCES),
    Row("Neighbor_allgatherv", wire.OP_NEIGHBOR_ALLGATHERV, ONE, SOURCES, counts=_BACK_COUNTS),
    Row("Neighbor_alltoall", wire.OP_NEIGHBOR_ALLTOALL, DESTINATIONS, SOURCES),
    Row(
        "Neighbor_alltoallv", wire.OP_NEIGHBOR_ALLTOALLV, DESTINATIONS, SOURCES,
        counts=_OUT_COUNTS | _BACK_COUNTS,
    ),
    Row(
        "Neighbor_alltoallw", wire.OP_NEIGHBOR_ALLTOALLW, DESTINATIONS, SOURCES,
        counts=_OUT_COUNTS | _BACK_COUNTS, typed=True,
    ),
)  # fmt: skip
WITH_TABLES = COUNTED + AMONG_NEIGHBOURS
ALL_ROWS = ROWS + WITH_TABLES
BY_OP = {row.op: row for row in ALL_ROWS}

# The same for compiled code: three bits an operation and way, one bit an operation.
_KINDS = sum((row.out | row.back << 3) << 6 * (row.op - wire.FIRST_MOVING) for row in ROWS)
_REDUCES = sum(row.reduces << row.op - wire.FIRST_MOVING for row in ROWS)
_SHIFTED = sum(row.shifted << row.op - wire.FIRST_MOVING for row in ROWS)
_FIRST = wire.FIRST_MOVING
_LAST = wire.LAST_MOVING
_LAST_ROOTED = wire.LAST_ROOTED
_SCATTER = wire.OP_SCATTER
_FIRST_COUNTED = wire.FIRST_COUNTED
_LAST_COUNTED = wire.LAST_COUNTED


def moves_blocks(op: int) -> bool:
    """Whether an opcode is in ``ROWS``. This and all below: compiled for kernels and proxies."""
    return op >= _FIRST and op <= _LAST


def is_counted(op: int) -> bool:
    """Whether it is in ``WITH_TABLES``."""
    return op >= _FIRST_COUNTED and op <= _LAST_COUNTED


def reduces(op: int) -> bool:
    return _REDUCES >> (op - _FIRST) & 1 != 0


def is_shifted(op: int) -> bool:
    return _SHIFTED >> (op - _FIRST) & 1 != 0


def is_rooted(op: int) -> bool:
    """Of an opcode in ``ROWS``."""
    return op <= _LAST_ROOTED


def blocks(op: int, way: int, rank: int, ranks: int, root: int, in_place: int) -> int:
    """How many blocks go OUT of, or come BACK to, the user's buffers on a rank.

    Args:
        in_place: 1: the call had IN_PLACE for one of them. Of Scatter, nothing comes back then;
            else nothing changes, the bytes come from the other buffer.
    """
    kind = _KINDS >> (6 * (op - _FIRST) + 3 * way) & 7
    if op == _SCATTER and way == BACK and in_place != 0:
        return 0
    if kind == ALL or (kind == ALL_AT_ROOT and rank == root):
        return ranks
    if (kind >= AT_ROOT and kind <= ALL_AT_ROOT and rank != root) or (
        kind == AFTER_FIRST and rank == 0
    ):
        return 0
    return 1


def may_be_in_place(op: int, way: int, rank: int, root: int) -> bool:
    """Whether the buffer of that way may be IN_PLACE on a rank (MPI 4.1 chapter 6)."""
    if op <= _LAST_ROOTED and rank != root:
        return False
    return (op == _SCATTER) == (way == BACK)


def out_offset(back: int) -> int:
    """Where in short staging what goes out begins, if so many bytes come back."""
    return (back + 15) // 16 * 16
