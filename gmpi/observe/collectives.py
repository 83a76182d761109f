"""What reports say of collectives that do not block, on the direct road, and that a kernel tests.

A wait tells the proxy when it takes long. Tests do not: they are counted in device memory, which
the host can read while kernels run. Who tests again and again waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gmpi.contract import collectives as c
from gmpi.contract import constants, wire
from gmpi.diagnose.tables import Pending
from gmpi.fault_words import call_text
from gmpi.observe.asked import Asked
from gmpi.observe.direct import word_of_call

if TYPE_CHECKING:
    from gmpi.context import Context


class CollectivesLook:
    """Looks at the collectives of one context again and again."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.moved = 0  # changes when one that a kernel tests gets on
        self._asked = Asked()  # by communicator
        self._polled: dict[int, np.ndarray] = {}  # the rows of those that are tested

    def note(self, now: float) -> bool:
        """Whether a kernel tests in vain."""
        self._polled, self.moved = {}, 0
        context = self.context
        if not context._kernels.unfinished or not context._memory.direct:
            return False
        try:
            return self._look(now)
        except RuntimeError:  # a kernel has died: others say so
            return False

    def _look(self, now: float) -> bool:
        memory = self.context._memory
        if int(memory.fetch(memory.device + wire.DEVICE_PENDING, 8).view(np.int64)[0]) == 0:
            return False
        rows = memory.device + wire.DEVICE_COLLECTIVES
        found = [
            memory.fetch(rows + comm * wire.COLLECTIVE_ROW_BYTES, c.PEERS).view(np.int64)
            for comm in range(len(self.context._communicators.groups))
        ]
        counts = {comm: int(row[c.ASKED // 8]) for comm, row in enumerate(found)}
        for comm in self._asked.of(counts, now):
            row = found[comm]
            taken = int(row[c.TAKEN // 8])
            if taken < int(row[c.STARTED // 8]) and not row[c.BROKEN // 8]:
                self._polled[comm] = row
                self.moved += taken
        return bool(self._polled)

    def pending(self) -> list[Pending]:
        """The call of each communicator that has been tested last."""
        return [self._words(comm, row) for comm, row in self._polled.items()]

    def _words(self, comm: int, row: np.ndarray) -> Pending:
        block, number = (int(word) for word in row[c.ASKED_ABOUT // 8 :][:2])
        signature = word_of_call(self.context._memory, row, number) >> c.SIGNATURE_SHIFT
        kind, amount = c.kind_of(signature), c.amount_of(signature)
        datatype = c.datatype_of(signature)
        reduces = c.REDUCING >> kind & 1
        group = self.context._communicators.groups[comm]
        rooted = kind in (c.BCAST, c.REDUCE, c.GATHER, c.SCATTER)
        return Pending(
            call_text(signature, blocks=False).split()[0],
            "collective",
            group.members[c.root_of(signature)] if rooted else None,
            None,
            group.identity,
            "" if kind == c.BARRIER else constants.DATATYPE_NAMES[datatype],
            amount,
            amount * (datatype >> 8 & 0xFF),
            block,
            0,
            constants.operation_name(signature & c.OP_MASK) if reduces else "",
        )
