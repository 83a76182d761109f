"""What ``Context.pending`` lists: requests that are open, in words."""

from __future__ import annotations

import numpy as np

from gmpi.contract.moves import BY_OP
from gmpi.contract.wire import OP_ALLREDUCE, OP_IRECV
from gmpi.value_words import rank_text, tag_text
from host_proxy.platform import state as st
from host_proxy.platform.operations import name_of


class PendingRequest:
    """A request that is open: what ``Context.pending`` lists.

    Attributes:
        operation: the call, for example ``"GMPI_Irecv"``.
        peer: the other rank, or the root.
        tag: message tag.
        comm: communicator handle.
        nbytes: room of a receive, length of anything else, in bytes.
        block: linear number of the calling block.
        takes_data: its wait moves data into a buffer.
    """

    def __init__(self, row: np.ndarray) -> None:
        self.operation = name_of(int(row[st.S_OP]), int(row[st.S_CALL]))
        takes = int(row[st.S_OP]) in (OP_IRECV, OP_ALLREDUCE, *BY_OP)
        self.takes_data = takes and row[st.S_FAILED] == 0
        self.peer = int(row[st.S_PEER])
        self.tag = int(row[st.S_TAG])
        self.comm = int(row[st.S_COMM])
        self.nbytes = int(row[st.S_BYTES])
        self.block = int(row[st.S_BLOCK])

    def __str__(self) -> str:
        return (
            f"{self.operation} peer {rank_text(self.peer)} tag {tag_text(self.tag)} "
            f"communicator {self.comm} of {self.nbytes} bytes from block {self.block}"
        )

    def __repr__(self) -> str:
        return f"<{self}>"
