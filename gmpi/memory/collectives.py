"""The memory of direct collectives: an area for each communicator that is direct as a whole."""

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
    area_bytes,
    box_bytes,
)
from gmpi.contract.partitions import ARENA_BYTES
from gmpi.contract.pipelines import flags_bytes
from gmpi.contract.wire import COLLECTIVE_ROW_BYTES, DEVICE_COLLECTIVES
from gmpi.memory.regions import Memory

_NOT_DIRECT = -1  # in place of an offset


class Areas:
    """The areas of one rank.

    Args:
        memory: of the context.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._offsets: dict[int, int] = {}  # by handle of the communicator

    def open(self, index: int, comm: MPI.Comm, mapped: np.ndarray, long: bool) -> bool:
        """Whether collectives of kernels on a communicator are direct; collective.

        Args:
            index: its handle here.
            comm: a duplicate of it.
            mapped: int64[ranks], where the direct memory of each is mapped here; 0: nowhere.
            long: whether to look for room for the chunks of long ones; the same on all ranks.
        """
        memory = self._memory
        ranks, me = comm.Get_size(), comm.Get_rank()
        offset, chunk = None, 0
        if memory.direct and ranks <= RANKS and mapped.all():
            offset, chunk = self._take(ranks, long)
        if offset is not None:
            nbytes = area_bytes(ranks) + (flags_bytes(ranks) if chunk else 0)
            memory.clear(memory.arena_at(int(mapped[me])) + offset, nbytes)
        told = comm.allgather((_NOT_DIRECT if offset is None else offset, chunk))
        offsets = [place for place, _ in told]
        if _NOT_DIRECT in offsets:  # all ranks say the same
            if offset is not None:
                self._give_back(offset)
            return False
        assert offset is not None
        self._offsets[index] = offset
        words = np.zeros(COLLECTIVE_ROW_BYTES // 8, np.int64)
        areas = [memory.arena_at(int(at)) + begin for at, begin in zip(mapped, offsets)]
        words[AREA // 8] = areas[me]
        words[CHUNK // 8] = min(room for _, room in told)
        words[PLACE // 8] = me | ranks << RANKS_SHIFT
        words[PEERS // 8 : PEERS // 8 + ranks] = [area + me * INBOX_BYTES for area in areas]
        memory.write_device(DEVICE_COLLECTIVES + index * COLLECTIVE_ROW_BYTES, words)
        return True

    def close(self, index: int) -> None:
        """No rank's kernel uses the communicator any more."""
        offset = self._offsets.pop(index, None)
        if offset is not None:
            self._give_back(offset)

    def _take(self, ranks: int, long: bool) -> tuple[int | None, int]:
        """(offset of an area in the arena, or behind it in the long arena; bytes of a chunk)."""
        for chunk in CHUNKS if long else ():
            nbytes = area_bytes(ranks) + flags_bytes(ranks) + 2 * box_bytes(chunk)
            offset = self._memory.long_pieces.take(nbytes)
            if offset is not None:
                return ARENA_BYTES + offset, chunk
        return self._memory.pieces.take(area_bytes(ranks)), 0

    def _give_back(self, offset: int) -> None:
        if offset >= ARENA_BYTES:
            self._memory.long_pieces.give_back(offset - ARENA_BYTES)
        else:
            self._memory.pieces.give_back(offset)

    def __contains__(self, index: int) -> bool:
        """Whether collectives of kernels on a communicator are direct."""
        return index in self._offsets
