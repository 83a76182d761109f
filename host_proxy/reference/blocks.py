"""Collectives that move blocks in plain mpi4py: for the mpi4py engine and the host's own calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from gmpi.contract.moves import AFTER_FIRST, ALL, ALL_AT_ROOT, BACK, ONE, OUT, Row
from gmpi.contract.wire import OP_SCATTER
from host_proxy.platform.communicator import Communicator
from host_proxy.reference.counts import Blocks


def begin(
    row: Row,
    communicator: Communicator,
    send: np.ndarray,
    result: np.ndarray,
    datatype: MPI.Datatype,
    reduction: MPI.Op | None,
    root: int,
) -> MPI.Request:
    """Starts MPI's own collective.

    Args:
        send, result: uint8, packed: what goes out of this rank, and room for what comes back.
        datatype: BYTE where nothing is reduced.
    """
    is_root = communicator.rank == root
    outgoing: Any = [send, datatype]  # a count would be that of one block
    incoming: Any = [result, datatype]
    if row.op == OP_SCATTER:
        if not is_root:
            outgoing = None
        elif len(result) == 0:
            incoming = MPI.IN_PLACE
    elif row.rooted and not is_root:
        incoming = None
    elif row.back == AFTER_FIRST and communicator.rank == 0:
        # Nothing comes back; but libraries use the room.
        outgoing, incoming = MPI.IN_PLACE, outgoing
    arguments = [outgoing, incoming]
    arguments += [reduction] if row.reduces else []
    arguments += [root] if row.rooted else []
    request: MPI.Request = getattr(communicator.messages, row.nonblocking)(*arguments)
    return communicator.messages.started(request, "collective")


#: What goes out of a rank, and comes back, where it is nothing. At addresses that differ: Open
#: MPI 4 takes equal ones for MPI_IN_PLACE; its Ialltoallv then does nothing on a rank without
#: bytes, and the next collective of the communicator waits there for ever.
_NO_BYTES = np.zeros(16, np.uint8), np.zeros(16, np.uint8)


def begin_counted(
    row: Row,
    communicator: Communicator,
    send: np.ndarray,
    result: np.ndarray,
    blocks: Blocks,
    datatype: MPI.Datatype,
    reduction: MPI.Op | None,
    root: int,
) -> MPI.Request:
    """The same where blocks have counts of their own: of bytes, in what is packed.

    Alltoallw is MPI's Alltoallv then: all calls of ours are, on all ranks.
    """
    messages = communicator.messages
    if row.reduces:
        counts = [block.count for block in blocks.out]
        assert reduction is not None
        request = messages.Ireduce_scatter([send, datatype], [result, datatype], counts, reduction)
        return messages.started(request, "collective")
    send, result = (mine if mine.size else none for mine, none in zip((send, result), _NO_BYTES))
    if row.among_neighbours:
        return _begin_among_neighbours(row, communicator, send, result, blocks)
    is_root = communicator.rank == root
    specs: list[Any] = []
    for way, memory in ((OUT, send), (BACK, result)):
        lengths, begins, _ = blocks.places(way)
        if (row.back if way else row.out) in (ALL, ALL_AT_ROOT):
            specs.append([memory, (lengths, begins), MPI.BYTE])
        else:
            specs.append([memory[: sum(lengths)], MPI.BYTE])
    if row.rooted and not is_root:
        specs[row.in_place_way != BACK] = None
    elif row.rooted and row.in_place_way == BACK and blocks.in_place:
        specs[BACK] = MPI.IN_PLACE
    name = row.nonblocking.replace("toallw", "toallv")
    request = getattr(messages, name)(*specs, *([root] if row.rooted else []))
    return messages.started(request, "collective")


def _begin_among_neighbours(
    row: Row, communicator: Communicator, send: np.ndarray, result: np.ndarray, blocks: Blocks
) -> MPI.Request:
    """On our graph, whose neighbours have another order; v for all that MPI has."""
    neighbours = communicator.neighbours
    assert neighbours is not None
    graph = MPI.Distgraphcomm(communicator.messages)
    lengths, begins, _ = blocks.places(BACK)
    order = neighbours.incoming
    incoming = [result, ([lengths[i] for i in order], [begins[i] for i in order]), MPI.BYTE]
    lengths, begins, _ = blocks.places(OUT)
    if row.out == ONE:
        outgoing = [send[: sum(lengths)], MPI.BYTE]
        request = graph.Ineighbor_allgatherv(outgoing, incoming)
    else:
        order = neighbours.outgoing
        outgoing = [send, ([lengths[i] for i in order], [begins[i] for i in order]), MPI.BYTE]
        request = graph.Ineighbor_alltoallv(outgoing, incoming)
    return communicator.messages.started(request, "collective")
