"""The memory of direct collectives: an area for each communicator that is direct as a whole, and
what lies in front of it (``gmpi/contract/exchanges.py``)."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from gmpi.contract.collectives import (
    AREA,
    CHUNK,
    CHUNKS,
    INBOX_BYTES,
    PEERS,
    PLACE,
    RANKS,
    RANKS_SHIFT,
    STARTED,
    area_bytes,
    box_bytes,
)
from gmpi.contract.exchanges import (
    EDGE_BLOCK_SHIFT,
    EDGES_BACK,
    EDGES_BYTES,
    EDGES_NUMBERS,
    EDGES_OUT,
    MOST_EDGES,
    exchange_bytes,
)
from gmpi.contract.partitions import ARENA_BYTES
from gmpi.contract.pipelines import flags_bytes
from gmpi.contract.wire import (
    COLLECTIVE_ROW_BYTES,
    COLLECTIVES_DIRECT,
    DEVICE_COLLECTIVES,
    NEIGHBOURS_DIRECT,
)
from gmpi.memory.regions import Memory
from host_proxy.platform.neighbours import Neighbours

_NOT_DIRECT = -1  # in place of an offset


def _edges(neighbours: Neighbours, me: int, ranks: int) -> np.ndarray | None:
    """The neighbours of a rank as kernels read them: int64 words; None: there are too many."""
    both = neighbours.edges(me, ranks)
    if max(map(len, both)) > MOST_EDGES:
        return None
    words = np.zeros(EDGES_BYTES // 8, np.int64)
    words[EDGES_NUMBERS // 8] = len(both[0]) | len(both[1]) << 32
    for begin, edges in zip((EDGES_OUT // 8, EDGES_BACK // 8), both):
        words[begin : begin + len(edges)] = [rank | i << EDGE_BLOCK_SHIFT for rank, i in edges]
    return words


class Areas:
    """The areas of one rank.

    Args:
        memory: of the context.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._offsets: dict[int, int] = {}  # by handle of the communicator

    def open(
        self,
        index: int,
        comm: MPI.Comm,
        mapped: np.ndarray,
        long: bool,
        neighbours: Neighbours | None,
    ) -> int:
        """Which collectives of kernels on a communicator are direct, COLLECTIVES_DIRECT and
        NEIGHBOURS_DIRECT of wire.py; collective.

        Args:
            index: its handle here.
            comm: a duplicate of it.
            mapped: int64[ranks], where the direct memory of each is mapped here; 0: nowhere.
            long: whether to look for room for the chunks of long ones; the same on all ranks.
            neighbours: on a communicator with a topology.
        """
        memory = self._memory
        ranks, me = comm.Get_size(), comm.Get_rank()
        edges = None if neighbours is None else _edges(neighbours, me, ranks)
        offset, chunk = None, 0
        if memory.direct and ranks <= RANKS and mapped.all():
            offset, chunk = self._take(ranks, long)
        if offset is not None:
            nbytes = area_bytes(ranks) + (flags_bytes(ranks) if chunk else 0)
            begin = memory.arena_at(int(mapped[me])) + offset
            memory.clear(begin, exchange_bytes(ranks) + nbytes)
            if edges is not None:
                memory.write(begin + exchange_bytes(ranks) - EDGES_BYTES, edges)
        told = comm.allgather((_NOT_DIRECT if offset is None else offset, chunk, edges is not None))
        offsets = [place for place, _, _ in told]
        if _NOT_DIRECT in offsets:  # all ranks say the same
            if offset is not None:
                self._give_back(offset)
            return 0
        assert offset is not None
        self._offsets[index] = offset
        words = np.zeros(COLLECTIVE_ROW_BYTES // 8, np.int64)
        areas = [
            memory.arena_at(int(at)) + begin + exchange_bytes(ranks)
            for at, begin in zip(mapped, offsets)
        ]
        words[AREA // 8] = areas[me]
        words[CHUNK // 8] = min(room for _, room, _ in told)
        words[PLACE // 8] = me | ranks << RANKS_SHIFT
        words[PEERS // 8 : PEERS // 8 + ranks] = [area + me * INBOX_BYTES for area in areas]
        memory.write_device(DEVICE_COLLECTIVES + index * COLLECTIVE_ROW_BYTES, words)
        among_neighbours = all(there for _, _, there in told)
        return COLLECTIVES_DIRECT | (NEIGHBOURS_DIRECT if among_neighbours else 0)

    def close(self, index: int) -> None:
        """No rank's kernel uses the communicator any more."""
        offset = self._offsets.pop(index, None)
        if offset is not None:
            # STARTED, TAKEN, TURN: nothing is taken any more, also of calls never waited for.
            row = DEVICE_COLLECTIVES + index * COLLECTIVE_ROW_BYTES
            self._memory.write_device(row + STARTED, np.zeros(3, np.int64))
            self._give_back(offset)

    def _take(self, ranks: int, long: bool) -> tuple[int | None, int]:
        """(offset of an area and what is in front of it in the arena, or behind it in the long
        arena; bytes of a chunk)."""
        least = exchange_bytes(ranks) + area_bytes(ranks)
        for chunk in CHUNKS if long else ():
            offset = self._memory.long_pieces.take(
                least + flags_bytes(ranks) + 2 * box_bytes(chunk)
            )
            if offset is not None:
                return ARENA_BYTES + offset, chunk
        return self._memory.pieces.take(least), 0

    def _give_back(self, offset: int) -> None:
        if offset >= ARENA_BYTES:
            self._memory.long_pieces.give_back(offset - ARENA_BYTES)
        else:
            self._memory.pieces.give_back(offset)

    def __contains__(self, index: int) -> bool:
        """Whether collectives of kernels on a communicator are direct."""
        return index in self._offsets
