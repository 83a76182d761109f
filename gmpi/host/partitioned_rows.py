"""The rows of partitioned requests, and the memory that peers write to, as the host gives them out.

What is in a row is in ``gmpi/contract/partitions.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gmpi.contract import partitions as p
from gmpi.contract import wire
from gmpi.contract.constants import ANY_TAG, BYTE, PROC_NULL
from gmpi.errors import ContextError
from gmpi.host.partitioned_problems import no_room
from gmpi.memory.exported import Region
from gmpi.value_words import rank_text
from host_proxy.platform.state import G_CONTEXT, G_TAG_UB, P_DIRECT

if TYPE_CHECKING:
    from gmpi.context import Context
    from gmpi.host.partitioned_messages import Message


class Shape(NamedTuple):
    """What the user has said of one end.

    Attributes:
        comm: communicator handle.
        peer: rank there.
        count: elements of all partitions.
        nbytes: of one partition.
        address: of the buffer.
        datatype: handle of a derived datatype that is not contiguous, else 0.
        type_row: address of its row.
        extent: bytes from one element of it to the next.
        array: kept; None: a kernel has made it, and has only said where it lies.
        block: of that kernel; -1: the host.
    """

    sends: bool
    comm: int
    peer: int
    tag: int
    partitions: int
    count: int  # type: ignore[assignment]  # MPI's word; hides tuple.count
    nbytes: int
    address: int
    datatype: int
    type_row: int
    extent: int
    array: Any
    block: int = -1

    @property
    def total(self) -> int:
        return self.partitions * self.nbytes

    def __str__(self) -> str:
        call, to = ("send", "to") if self.sends else ("receive", "from")
        peer = rank_text(self.peer)
        return (
            f"partitioned {call} {to} {peer} tag {self.tag} on communicator {self.comm}, "
            f"{self.partitions} partitions of {self.nbytes} bytes"
            + (f", made in block {self.block}" if self.block >= 0 else "")
        )


class End:
    """One end of a partitioned request, on this rank.

    Attributes:
        number: among ours; what the other end calls it.
        world: the other rank, in the context.
        pieces: of the arena, which the other end may write to.
        staging: memory for a receive that is not registered and too large for the arena.
        other: what the other end calls itself; -1: not known.
        freed, other_freed: on this rank, on the other.
    """

    def __init__(self, shape: Shape, number: int, index: int, handle: int, world: int) -> None:
        self.shape = shape
        self.number = number
        self.index = index
        self.handle = handle
        self.world = world
        self.pieces: list[int] = []
        self.credit = 0  # offset in the arena
        self.groups = 0  # where the records of groups are; 0: they travel by the direct road
        self.tag = 0  # of the first group, when the other end is known
        self.region: Region | None = None
        self.staging: Any = None
        self.offer: Message | None = None
        self.other = -1
        self.is_open = False
        self.freed = False
        self.other_freed = False


class Rows:
    """The rows and the arena of one context."""

    def __init__(self, context: Context) -> None:
        self._memory = context._memory
        self._state = context._state
        self._debug = context.config.debug
        self._arena = context._memory.pieces
        self._free = list(range(wire.PARTITIONED_ROWS - 1, -1, -1))
        self._most = 0
        self._numbers = 0

    def new_end(self, shape: Shape, world: int) -> End:
        """An end with a row that nobody else has."""
        if not self._free:
            raise ContextError(
                f"there are {wire.PARTITIONED_ROWS} partitioned requests; free some "
                "(Context.Request_free, or GMPI_Request_free in kernels)"
            )
        index = self._free.pop()
        self._numbers += 1
        handle = index | self._numbers % p.GENERATIONS << p.GENERATION_SHIFT
        context = int(self._state.globals[G_CONTEXT])
        handle |= context << wire.HANDLE_CONTEXT_SHIFT | 1 << wire.HANDLE_PARTITIONED_SHIFT
        return End(shape, self._numbers, index, handle, world)

    def begin(self, end: End) -> None:
        """Fills the row as far as this rank knows, and takes memory for what is always needed."""
        shape = end.shape
        words = np.zeros(wire.PARTITIONED_ROW_BYTES // 8, np.int64)
        mode = p.NOBODY if shape.peer == PROC_NULL else p.OPENING
        words[p.OWNER // 8] = end.handle
        if shape.peer != PROC_NULL and not self.has_road(shape):
            end.groups = self.piece(end, p.GROUPS * p.GROUP_BYTES)
        words[p.SHAPE // 8] = self.shape_word(end, mode)
        words[p.NBYTES // 8] = shape.nbytes
        words[p.USER // 8] = shape.address
        words[p.TYPE // 8] = shape.type_row
        words[p.MARKS // 8] = self.piece(end, shape.partitions * p.MARK_BYTES)
        tag = ANY_TAG if shape.peer == PROC_NULL else shape.tag
        words[p.ORIGIN // 8] = _signed(shape.peer & wire.LOW_32 | (tag & wire.LOW_32) << 32)
        words[p.COUNT // 8] = shape.count
        if shape.sends and not end.groups:
            words[p.CREDIT // 8] = self.piece(end, p.CREDIT_BYTES)
            end.credit = end.pieces[-1]
        self._memory.write(self.row(end.index), words)
        if end.index >= self._most:
            self._most = end.index + 1
            self._memory.write_device(wire.DEVICE_PARTITIONED_COUNT, np.array([self._most]))

    def shape_word(self, end: End, mode: int, flags: int = 0) -> int:
        word = end.shape.partitions | mode << p.MODE_SHIFT | flags
        word |= p.NO_ROAD if end.groups else 0
        return word | end.shape.comm << p.COMM_SHIFT | (p.SENDS if end.shape.sends else 0)

    def row(self, index: int) -> int:
        return self._memory.device + wire.DEVICE_PARTITIONED + index * wire.PARTITIONED_ROW_BYTES

    def piece(self, end: End, nbytes: int) -> int:
        """Address of zeroed memory of the arena, which the end has from now on.

        Raises:
            ContextError: there is no room.
        """
        offset = self._arena.take(nbytes)
        if offset is None:
            raise ContextError(no_room(nbytes, self._memory.arena_bytes))
        end.pieces.append(offset)
        address = self._memory.arena + offset
        self._memory.clear(address, nbytes)
        return address

    def has_road(self, shape: Shape) -> bool:
        """Whether the two ranks have a direct road. Debug mode looks at the proxied one."""
        if self._debug:
            return False
        peer = int(self._state.communicators[shape.comm].peers[shape.peer])
        return bool(self._memory.direct) and peer >= 0 and self._state.peers[peer, P_DIRECT] != 0

    def arena_of(self, end: End) -> int:
        """Where the other rank's arena is mapped here."""
        communicator = self._state.communicators[end.shape.comm]
        peer = int(communicator.peers[end.shape.peer])
        return self._memory.arena_at(int(self._state.peers[peer, P_DIRECT]))

    def drop_pieces(self, end: End) -> None:
        for offset in end.pieces:
            self._arena.give_back(offset)
        end.pieces = []

    def give_back(self, end: End) -> None:
        """The row may be another end's."""
        self.write_quick(end, 0)
        self._memory.write(self.row(end.index) + p.OWNER, np.zeros(1, np.int64))
        self._free.append(end.index)

    def drop(self, end: End) -> None:
        """It has never been known to anybody."""
        self.drop_pieces(end)
        self.give_back(end)

    def tag_of(self, end: End) -> int:
        """Of a receive's first group; no other request has it. Tag 0 is for what hosts say."""
        turns = int(self._state.globals[G_TAG_UB]) // (p.GROUPS * wire.PARTITIONED_ROWS)
        return 1 + p.GROUPS * (end.index + wire.PARTITIONED_ROWS * (end.number % max(turns - 1, 1)))

    def write_groups(self, end: End, theirs: int) -> None:
        """Opens an end whose partitions travel by the proxies.

        Args:
            theirs: bytes of one partition of the other end.
        """
        shape = end.shape
        elements, size = shape.count // shape.partitions, shape.extent
        kind = shape.datatype
        if not kind:  # the bytes lie in one piece
            elements, size, kind = shape.nbytes, 1, BYTE
        groups = p.groups_of(shape.partitions, shape.nbytes, theirs)
        words = np.zeros((groups.number, p.GROUP_BYTES // 8), np.int64)
        first = np.arange(groups.number) * groups.partitions
        there = np.minimum(groups.partitions, shape.partitions - first)
        words[:, p.GROUP_ELEMENTS // 8] = there * elements
        words[:, p.GROUP_BUFFER // 8] = shape.address + first * elements * size
        words[:, p.GROUP_BUFFER // 8 + 1] = p.UNLIMITED
        self._memory.write(end.groups, words)
        way = (
            wire.OP_ISEND | wire.FLAG_OUT << 8
            if shape.sends
            else wire.OP_IRECV | wire.FLAG_BACK << 8
        )
        word = (
            way | wire.PARTITIONED | wire.PRIVATE_COMMUNICATOR << 16 | kind << wire.DATATYPE_SHIFT
        )
        self.write_fields(
            end, end.groups, groups.partitions, 0, end.world | end.tag << 32, (word, groups.number),
            self.shape_word(end, p.PROXIED),
        )  # fmt: skip

    def write_fields(
        self,
        end: End,
        place: int,
        stride: int,
        credit: int,
        flags: int,
        theirs: tuple[int, int],
        shape: int,
    ) -> None:
        """Writes what is known with the other end to a row; what says so comes last."""
        row = self.row(end.index)
        self._memory.write(row + p.PLACE, np.array([place, stride, credit], np.int64))
        self._memory.write(row + p.FLAGS, np.array([flags, *theirs], np.int64))
        self._memory.write(row + p.SHAPE, np.array([shape], np.int64))
        if _is_quick(end.shape, shape):
            self._write_quick_fields(end, place, stride, credit)
            self.write_quick(end, end.handle)

    def _write_quick_fields(self, end: End, place: int, stride: int, credit: int) -> None:
        shape, row = end.shape, self.row(end.index)
        marks = self._memory.fetch(row + p.MARKS, 8).view(np.int64)[0]
        sizes = shape.nbytes | stride << p.QUICK_SHIFT
        first = shape.address, place, sizes
        more = marks, credit, shape.partitions | shape.sends << p.QUICK_SHIFT
        self._memory.write(row + p.QUICK + 8, np.array(first, np.int64))
        self._memory.write(row + p.QUICK_MORE + 8, np.array(more, np.int64))

    def write_quick(self, end: End, handle: int) -> None:
        """Says whose the sectors for quick calls are; 0: nobody's. Whoever has read a handle there
        finds what belongs to it."""
        row = self.row(end.index)
        self._memory.write(row + p.QUICK, np.array([handle], np.int64))
        self._memory.write(row + p.QUICK_MORE, np.array([handle], np.int64))


def _is_quick(shape: Shape, word: int) -> bool:
    """Whether its partitions are packets of whole words, each of which is one of the other end's.

    Args:
        word: of its row.
    """
    packets = word >> p.MODE_SHIFT & p.MODE_MASK == p.PACKETS
    fits = shape.sends or word & p.EQUAL != 0
    return packets and fits and (shape.address | shape.nbytes) & 3 == 0


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
