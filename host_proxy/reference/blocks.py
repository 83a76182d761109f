"""Collectives that move blocks in plain mpi4py: for the mpi4py engine and the host's own calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from gmpi.contract.moves import AFTER_FIRST, Row
from gmpi.contract.wire import OP_SCATTER
from host_proxy.platform.communicator import Communicator


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
