"""The blocks of a collective with counts: what a table says, and what is wrong with it.

The checks of kernels' tables, and of what calls of the host are given: the same words for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gmpi.contract import constants
from gmpi.contract import counts as c
from gmpi.contract.moves import BACK, OUT, Row
from gmpi.contract.wire import POSITION_MASK
from gmpi.fault_words import unfit_reduction_of

if TYPE_CHECKING:
    from gmpi.datatypes.plans import Plan

_MOST_RUNS = 1 << 20  # of blocks whose bytes are compared one by one
_ARRAYS = ("counts", "displacements", "datatypes")


class Block(NamedTuple):
    """One block: elements of a datatype at a displacement, in bytes from the buffer."""

    count: int  # type: ignore[assignment]  # MPI's word; hides tuple.count
    at: int
    nbytes: int
    datatype: int  # a handle; 0: not known
    plan: Plan | None  # None: bytes in one run


class Wrong(NamedTuple):
    """What is wrong with an argument.

    Attributes:
        field: which, for example ``recvcounts[2]``.
        flags: of a buffer, FLAG_* of wire.py, with its length; else 0.
    """

    field: str
    value: Any
    allowed: str
    advice: str
    error_class: int
    flags: int = 0
    nbytes: int = 0


class Blocks(NamedTuple):
    """What goes out of a rank, and what comes back.

    Attributes:
        runs: of each way, whether the blocks lie packed one right behind the other.
        in_place: one of the buffers is IN_PLACE.
    """

    out: list[Block]
    back: list[Block]
    runs: tuple[bool, bool] = (False, False)
    in_place: bool = False

    @property
    def table_bytes(self) -> int:
        return c.table_bytes(len(self.out) + len(self.back))

    def places(self, way: int) -> tuple[list[int], list[int], int]:
        """(lengths, where each block begins, length of all) of a way, packed."""
        lengths = [block.nbytes for block in (self.back if way else self.out)]
        taken = lengths if self.runs[way] else [c.packed_bytes(n) for n in lengths]
        begins = [0, *np.cumsum(taken).tolist()]
        return lengths, begins[:-1], begins[-1]


class Names(NamedTuple):
    """What the arguments of one way are called (MPI 4.1 chapters 6 and 8)."""

    buffer: str
    counts: str
    displs: str
    types: str

    @staticmethod
    def of(row: Row, way: int) -> Names:
        if row.reduces:
            return Names("recvbuf" if way else "sendbuf", "recvcounts", "", "datatype")
        side = "recv" if way else "send"
        both = row.counts == 1 << OUT | 1 << BACK
        own = row.counts >> way & 1
        displs = (f"{side[0]}displs" if both else "displs") if row.counts else ""
        return Names(
            f"{side}buf", f"{side}counts" if own else f"{side}count", displs,
            f"{side}type{'s' * row.typed}",
        )  # fmt: skip

    def count_of(self, i: int) -> str:
        return f"{self.counts}[{i}]" if self.counts.endswith("s") else self.counts

    def type_of(self, i: int) -> str:
        return f"{self.types}[{i}]" if self.types.endswith("s") else self.types


class Refused(Exception):
    """A table that is wrong."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__(wrong)
        self.wrong = wrong


def no_neighbours(comm: int) -> Wrong:
    return Wrong(
        "communicator", f"{comm}, which has no neighbours",
        "a Cartesian, a distributed-graph or a symmetric graph communicator",
        "give Context.comm() what Create_cart and the like return", int(constants.ERR_TOPOLOGY),
    )  # fmt: skip


def corrupt(value: int) -> Wrong:
    """What only a corrupt record says."""
    return Wrong(
        "table", value, "what a kernel writes", "memory is corrupt", int(constants.ERR_REQUEST)
    )


# --- what can be wrong ----------------------------------------------------------------------------


def wrong_count(name: str, count: int, size: int) -> Wrong:
    most = (POSITION_MASK >> 1) // max(size, 1)
    return Wrong(name, count, f"0..{most}", "split the message", int(constants.ERR_COUNT))


def wrong_datatype(name: str, datatype: int, reduces: bool) -> Wrong:
    value = constants.DATATYPE_NAMES.get(datatype, hex(datatype))
    allowed = "a predefined datatype such as gmpi.FLOAT"
    if reduces:
        return Wrong(name, value, allowed, "reductions take no others", int(constants.ERR_TYPE))
    allowed += ", or a handle of Context.commit()"
    return Wrong(
        name, value, allowed, "of the size of the array's elements", int(constants.ERR_TYPE)
    )


def outside(names: Names, i: int, count: int, displ: int, room: int) -> Wrong:
    field, value = (f"{names.displs}[{i}]", displ) if names.displs else (names.count_of(i), count)
    return Wrong(
        field, value, f"blocks within the {room} bytes of {names.buffer}",
        "a larger array, or other counts and displacements", int(constants.ERR_BUFFER),
    )  # fmt: skip


def unequal(sent: str, nbytes: int, received: str, room: int) -> Wrong:
    return Wrong(
        f"what {sent} says", f"{nbytes} bytes", f"{room} bytes, as {received} does",
        "what a rank sends to itself it also receives", int(constants.ERR_COUNT),
    )  # fmt: skip


def overlapping(blocks: Sequence[Block]) -> tuple[int, int] | None:
    """Two blocks that have a byte in common; None: there are none, or too many runs to compare."""
    spans = []
    for i, block in enumerate(blocks):
        if block.nbytes:
            low, high = (0, block.nbytes) if block.plan is None else block.plan.reach(block.count)
            spans.append((block.at + low, block.at + high, i))
    pair = _first_meeting(sorted(spans))
    if pair is None or all(block.plan is None for block in blocks):
        return pair
    runs = 0
    for block in blocks:
        runs += 1 if block.plan is None else block.plan.node.run_count() * max(block.count, 0)
    if runs > _MOST_RUNS:
        return None
    spans = []
    for i, block in enumerate(blocks):
        if block.nbytes and block.plan is not None:
            segments = block.plan.segments(block.count)
            spans += [(block.at + at, block.at + at + n, i) for at, n in segments]
        elif block.nbytes:
            spans.append((block.at, block.at + block.nbytes, i))
    return _first_meeting(sorted(spans))


def _first_meeting(spans: list[tuple[int, int, int]]) -> tuple[int, int] | None:
    """Of (begin, end, whose), sorted: the first two that overlap."""
    end, owner = -1 << 62, -1
    for low, high, i in spans:
        if low < end:
            return min(owner, i), max(owner, i)
        if high > end:
            end, owner = high, i
    return None


def wrong_overlap(names: Names, first: int, second: int) -> Wrong:
    return Wrong(
        names.displs or names.counts, f"blocks {first} and {second} overlap in {names.buffer}",
        "blocks that have no byte in common", "MPI forbids to receive into memory twice",
        int(constants.ERR_BUFFER),
    )  # fmt: skip


def own_block(row: Row, blocks: Blocks, me: int) -> Wrong | None:
    """What this rank sends to itself is as long as what it receives from itself."""
    if row.reduces or blocks.in_place or row.among_neighbours:
        return None
    if not blocks.out or not blocks.back:
        return None
    i, j = (min(me, len(side) - 1) for side in (blocks.out, blocks.back))
    sent, room = blocks.out[i].nbytes, blocks.back[j].nbytes
    if sent == room:
        return None
    names = Names.of(row, OUT), Names.of(row, BACK)
    return unequal(names[0].count_of(i), sent, names[1].count_of(j), room)


# --- a kernel's table -----------------------------------------------------------------------------


class Reader(NamedTuple):
    """Reads the table of one request.

    Attributes:
        words: int64[], the small staging of the request.
        number: (way) -> how many blocks the operation has on this rank.
        tag: whether a buffer is IN_PLACE, or the operation of a reduction.
        derived: (handle) -> (packed bytes, plan) of a derived datatype, or None.
    """

    row: Row
    words: np.ndarray
    me: int
    number: Callable[[int], int]
    tag: int
    derived: Callable[[int], tuple[int, Plan | None] | None]

    @property
    def in_place(self) -> bool:
        return not self.row.reduces and self.tag != 0

    def read(self) -> Blocks:
        """The blocks.

        Raises:
            Refused: something is wrong.
        """
        numbers = int(self.words[c.TABLE_NUMBERS // 8])
        flaw = int(self.words[c.TABLE_FLAW // 8])
        form = int(self.words[c.TABLE_FORM // 8])
        outs, backs = numbers & 0xFFFFFFFF, numbers >> 32
        scattered = self.row.in_place_way == BACK and self.in_place
        most = c.most_blocks(self.words.nbytes)
        expected = self.number(OUT), 0 if scattered else self.number(BACK)
        if outs + backs > most:
            raise Refused(corrupt(numbers))
        if (outs, backs) != expected and not flaw:
            raise Refused(corrupt(numbers))
        self._refuse_arrays(flaw)
        out = self._side(OUT, 0, outs, flaw)
        back = self._side(BACK, outs, backs, flaw)
        self._refuse_buffer(flaw, out, back)
        joined = self.row.reduces
        runs = joined or bool(form & c.RUN_OUT), joined or bool(form & c.RUN_BACK)
        blocks = Blocks(out, back, runs, self.in_place)
        if (wrong := own_block(self.row, blocks, self.me)) is not None:
            raise Refused(wrong)
        if (pair := overlapping(back)) is not None:
            raise Refused(wrong_overlap(Names.of(self.row, BACK), *pair))
        return blocks

    def names(self, way: int) -> Names:
        """Of the arguments that say a way's blocks."""
        from_recvbuf = way == OUT and self.in_place and self.row.in_place_way == OUT
        return Names.of(self.row, BACK if from_recvbuf else way)

    def _refuse_arrays(self, flaw: int) -> None:
        kind, index = flaw & c.FLAW_MASK, flaw >> c.FLAW_INDEX_SHIFT
        names = self.names(flaw >> c.FLAW_WAY_SHIFT & 1)
        if kind == c.FLAW_ARRAY:
            field = (names.counts, names.displs, names.types)[min(index, 2)]
            allowed = "an array of int32 or int64 in one piece"
            raise Refused(Wrong(field, "no such array", allowed, "", int(constants.ERR_ARG)))
        if kind == c.FLAW_LENGTH:
            allowed = f"one for each of {self._needed(flaw)} blocks"
            field = f"length of {names.counts} and the arrays beside it"
            raise Refused(Wrong(field, index, allowed, "", int(constants.ERR_ARG)))

    def _needed(self, flaw: int) -> int:
        way = flaw >> c.FLAW_WAY_SHIFT & 1
        return self.number(BACK if self.row.counts >> BACK & 1 and self.in_place else way)

    def _side(self, way: int, first: int, number: int, flaw: int) -> list[Block]:
        at = c.TABLE_HEAD // 8 + first * (c.TABLE_ENTRY // 8)
        rows = self.words[at : at + 3 * number].reshape(number, 3).tolist()
        here = flaw and flaw >> c.FLAW_WAY_SHIFT & 1 == way
        kind, index = flaw & c.FLAW_MASK, flaw >> c.FLAW_INDEX_SHIFT
        names, found, total = self.names(way), [], 0
        for i, (count, displ, datatype) in enumerate(rows):
            known = self._datatype(datatype)
            if known is None:
                raise Refused(wrong_datatype(names.type_of(i), datatype, self.row.reduces))
            size, plan = known
            total += c.packed_bytes(max(count, 0) * size)
            if count < 0 or total > POSITION_MASK >> 1:
                raise Refused(wrong_count(names.count_of(i), count, size))
            if here and kind == c.FLAW_OUTSIDE and index == i:
                room = int(self.words[c.TABLE_ROOM // 8])
                raise Refused(outside(names, i, count, displ, room))
            step = 1 if self.row.typed else size if plan is None else plan.extent
            found.append(Block(count, displ * step, count * size, datatype, plan))
        return found

    def _datatype(self, datatype: int) -> tuple[int, Plan | None] | None:
        """(packed bytes of an element, its plan if it is derived), None for nobody's."""
        number = datatype & 0xFF
        if datatype & ~0xFFFF == constants.DATATYPE_MARK and number < len(constants.DATATYPES):
            size = constants.DATATYPES[number][2].itemsize
            if self.row.reduces:
                self._require_defined(number, datatype)
            elif number >= constants.FIRST_WITH_GAPS:
                return None
            return (size, None) if datatype >> 8 & 0xFF == size else None
        return None if self.row.reduces else self.derived(datatype)

    def _require_defined(self, number: int, datatype: int) -> None:
        """MPI's operations are for some datatypes each."""
        if 0 <= self.tag < len(constants.UNFIT) and constants.UNFIT[self.tag] >> number & 1:
            found, allowed = unfit_reduction_of(self.tag, datatype)
            raise Refused(Wrong("op", found, allowed, "", int(constants.ERR_OP)))

    def _refuse_buffer(self, flaw: int, out: list[Block], back: list[Block]) -> None:
        if not flaw:
            return
        way, flags = flaw >> c.FLAW_WAY_SHIFT & 1, flaw >> c.FLAW_FLAGS_SHIFT & 0xFF
        if flaw & c.FLAW_MASK != c.FLAW_BUFFER or not flags:
            raise Refused(corrupt(flaw))
        nbytes = sum(block.nbytes for block in (back if way else out))
        name = Names.of(self.row, way).buffer
        raise Refused(Wrong(name, "", "", "", int(constants.ERR_BUFFER), flags, nbytes))
