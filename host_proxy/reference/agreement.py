"""Debug mode: ranks compare their calls of a collective before it begins.

MPI need not notice that counts, roots, operations or functions differ, and the result is wrong on
some ranks then. Each rank says what it has called, on a duplicate that nothing else uses, in the
order of the collectives themselves; so all ranks find the same difference, and none of them begins.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gmpi.contract import moves
from gmpi.contract.constants import DATATYPE_NAMES, operation_name
from gmpi.diagnose.differences import differences
from gmpi.diagnose.tables import Pending
from host_proxy.platform import operations as ops
from host_proxy.platform.communicator import Communicator
from host_proxy.reference.failure import Disagreement
from host_proxy.reference.flows import NO_FLOWS, Flows
from host_proxy.reference.protocol import Step


class Said(NamedTuple):
    """What one rank says of its call.

    Attributes:
        rank: in the context.
        op, call: of the record, see ``operations.name_of``; of the host the op that it would have.
        root: rank in the communicator, 0 where there is none.
        datatype: handle, 0 where there is none that ranks could compare.
        block: -1 for a call of the host.
    """

    rank: int
    op: int
    call: int
    root: int
    reduction: int
    datatype: int
    count: int  # type: ignore[assignment]  # MPI's word; hides tuple.count
    nbytes: int
    block: int

    def pending(self, everyone: list[Said], communicator: str) -> Pending:
        """The call as reports have it."""
        name = ops.name_of(self.op, self.call)
        fields = ops.OPERATIONS[self.op].fields
        if self.block < 0:
            name = f"Context.host.{name.removeprefix('GMPI_').removeprefix('I').capitalize()}"
        return Pending(
            name,
            "collective",
            everyone[self.root].rank if fields & ops.ROOT else None,
            None,
            communicator,
            DATATYPE_NAMES.get(self.datatype, ""),
            self.count,
            self.nbytes,
            self.block,
            0,
            operation_name(self.reduction) if fields & ops.REDUCTION else "",
        )


def agreed(communicator: Communicator, mine: Said, steps: Step, flows: Flows = NO_FLOWS) -> Step:
    """The steps of a collective, once all ranks have said that they call the same.

    Args:
        flows: of a collective with counts; compared when the rest is the same.

    Raises:
        Disagreement: they do not; on all ranks.
    """
    words = np.array(mine, np.int64)
    table = np.empty((communicator.size, len(mine)), np.int64)
    assert communicator.compared is not None
    yield communicator.compared.Iallgather(words, table)
    everyone = [Said(*map(int, row)) for row in table]
    calls = {said.rank: said.pending(everyone, communicator.name) for said in everyone}
    different = differences(calls)
    if not different and moves.is_counted(mine.op):
        words = np.zeros(2 * communicator.size, np.int64)
        words[: len(flows.gives)] = flows.gives
        words[communicator.size :][: len(flows.takes)] = flows.takes
        flowing = np.empty((communicator.size, 2, communicator.size), np.int64)
        yield communicator.compared.Iallgather(words, flowing)
        ranks = [said.rank for said in everyone]
        for rank, (gives, takes) in zip(ranks, flowing.tolist()):
            pairs = tuple(zip(ranks, gives)), tuple(zip(ranks, takes))
            calls[rank] = replace(calls[rank], gives=pairs[0], takes=pairs[1])
        different = differences(calls)
    if different:
        raise Disagreement(f"calls of one collective differ: {different}")
    return (yield from steps)
