"""Collectives with tables: how many blocks a rank has, and how many bytes go between which ranks.

Reports and debug mode compare what one rank gives with what the other takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gmpi.contract import moves
from gmpi.contract.moves import BACK, OUT, Row
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.state import S_COMM, S_OP, S_PEER, State
from host_proxy.reference.counts import Block, Blocks


def number_of(row: Row, communicator: Communicator, root: int) -> Callable[[int], int]:
    """How many blocks go each way. Of one among neighbours the communicator must have some."""
    kinds = {OUT: row.out, BACK: row.back}
    rank, ranks = communicator.rank, communicator.size
    found = {moves.ALL: ranks, moves.ALL_AT_ROOT: ranks if rank == root else 0}
    if communicator.neighbours is not None:
        found[moves.SOURCES] = len(communicator.neighbours.sources)
        found[moves.DESTINATIONS] = len(communicator.neighbours.destinations)
    return lambda way: found.get(kinds[way], 1)


class Flows(NamedTuple):
    """How many bytes a rank says that it sends to each rank of the communicator, and gets from it;
    of a reduction, how many each rank gets."""

    gives: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


NO_FLOWS = Flows()


def _summed(partners: Sequence[int], lengths: list[int], ranks: int) -> tuple[int, ...]:
    found = [0] * ranks
    for rank, nbytes in zip(partners, lengths):
        if rank >= 0:
            found[rank] += nbytes
    return tuple(found)


def _among_neighbours(blocks: Blocks, communicator: Communicator) -> Flows:
    assert communicator.neighbours is not None
    sources, destinations, _ = communicator.neighbours
    gives = [block.nbytes for block in blocks.out]
    if len(gives) == 1:  # to all of them
        gives *= len(destinations)
    takes = [block.nbytes for block in blocks.back]
    ranks = communicator.size
    return Flows(_summed(destinations, gives, ranks), _summed(sources, takes, ranks))


def flows(row: Row, blocks: Blocks, root: int, communicator: Communicator) -> Flows:
    """The same of a call."""
    ranks = communicator.size
    if row.among_neighbours:
        return _among_neighbours(blocks, communicator)

    def of(kind: int, side: list[Block]) -> tuple[int, ...]:
        lengths = [block.nbytes for block in side]
        if row.reduces or kind in (moves.ALL, moves.ALL_AT_ROOT):
            return tuple(lengths) if len(lengths) == ranks else (0,) * ranks
        each = lengths[0] if lengths else 0
        if row.rooted:
            return tuple(each if rank == root else 0 for rank in range(ranks))
        return (each,) * ranks

    back = blocks.back
    if row.in_place_way == BACK and blocks.in_place:
        back = blocks.out[root : root + 1]  # it stays where it is
    return Flows(of(row.out, blocks.out), () if row.reduces else of(row.back, back))


def flows_of(state: State, slot: int) -> Flows:
    """The same of a slot's request; nothing where it is no collective with a table."""
    blocks = state.blocks.get(slot)
    if blocks is None:
        return NO_FLOWS
    row = moves.BY_OP[int(state.slots[slot, S_OP])]
    communicator = state.communicator(int(state.slots[slot, S_COMM]))
    return flows(row, blocks, int(state.slots[slot, S_PEER]), communicator)
