"""Datatypes for tests: what MPI packs of them, and what a receive must leave behind."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import gmpi
from gmpi.datatypes import plan

sys.path.insert(0, str(Path(__file__).parent.parent))
from datatype_family import mpi_pack

POISON = 0xA5


class Typed:
    """A datatype whose displacements all lie inside an array, and its handle."""

    def __init__(self, g: gmpi.Context, datatype: MPI.Datatype, count: int) -> None:
        first = plan(datatype)
        low = min(first.reach(count)[0], 0)
        if low:
            moved = datatype.Create_hindexed_block(1, [-low])
            datatype = moved.Create_resized(0, first.extent)
        self.datatype, self.count = datatype, count
        self.plan = plan(datatype)
        self.nbytes = self.plan.size * count
        self.span = max(self.plan.reach(count)[1], 1)
        self.handle = g.commit(datatype)

    def packed(self, memory: np.ndarray) -> np.ndarray:
        """What MPI packs of the memory."""
        return mpi_pack(self.datatype, memory, 0, self.count)

    def unpacked(self, packed: np.ndarray, length: int | None = None) -> np.ndarray:
        """Poisoned memory into which the first ``length`` bytes were received."""
        left = len(packed) if length is None else length
        memory = np.full(self.span, POISON, np.uint8)
        position = 0
        for at, run_length in self.plan.segments(self.count):
            n = min(run_length, left - position)
            if n <= 0:
                break
            memory[at : at + n] = packed[position : position + n]
            position += n
        return memory


def vector(g: gmpi.Context, nbytes: int, block: int = 4) -> Typed:
    """Blocks with as much space between them; ``nbytes`` a multiple of ``block``."""
    return Typed(g, MPI.BYTE.Create_vector(nbytes // block, block, 2 * block), 1)
