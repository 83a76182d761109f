"""The other ranks of this node, and the memory of theirs that is mapped here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from gmpi.contract.sizes import Layout
from gmpi.contract.wire import MAILED, P2P, P2P_RANKS
from gmpi.memory.gpu_staging import GpuStaging, Token
from gmpi.memory.node import of_this_node
from gmpi.memory.regions import Memory
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.state import P_COUNT, P_DIRECT, P_MAILBOXES, P_MAPS, P_STAGING

#: How messages above ``eager_bytes`` travel, and any on the direct road, the fastest way first
#: (docs/design.md).
PATHS = ("direct road", "GPU staging", "MPI")


class Peers:
    """The ranks of this node and their GPU staging, mapped here; collective over ``comm``.

    Attributes:
        table: int64[ranks of this node, P_COUNT], for the proxy.
        sharers: ranks whose kernels run on this rank's GPU, itself among them.
    """

    def __init__(self, comm: MPI.Comm, layout: Layout, memory: Memory, staged: bool = True) -> None:
        """``staged``: whether long messages of the proxied road travel by GPU staging, where there
        is some; the same on all ranks."""
        local = of_this_node(comm)
        self._group = local.Get_group()
        me = self.me = local.Get_rank()
        staging = memory.staging
        self.table = np.zeros((local.Get_size(), P_COUNT), np.int64)
        offered = None if staging is None else staging.token
        tokens, gpus = zip(*local.allgather((offered, memory.gpu_name)))
        self.sharers = 1 if gpus[me] is None else gpus.count(gpus[me])
        # All ranks have come here from their last context. None goes on to use this one before all
        # have cleared their staging: there is another collective below, whatever fails here.
        problem: BaseException | None = None
        try:
            if staging is not None:
                self._map(staging, tokens, layout.mailbox(me) if memory.mailbox else 0)
        except BaseException as exc:
            problem = exc
            self.table[:] = 0
        # Who reads mine is what matters to me as a sender: the transpose.
        everyone = np.empty((local.Get_size(), local.Get_size()), bool)
        local.Allgather(self.table[:, P_STAGING] != 0, everyone)
        self.table[:, P_MAPS] = everyone[:, me]
        if memory.direct:
            both = (self.table[:, P_STAGING] != 0) & everyone[:, me]
            self.table[:, P_DIRECT] = both * (self.table[:, P_STAGING] + memory.direct)
        #: Whether another rank reads our GPU staging. Messages to ourselves are not worth it.
        self.p2p = staged and bool(np.delete(self.table[:, P_MAPS], me).any())
        self.table[:, P_MAPS] *= self.p2p
        local.Free()
        if problem is not None:
            self.give_back()
            raise problem

    def _map(self, staging: GpuStaging, tokens: Sequence[Token | None], mailbox: int) -> None:
        """Maps what the ranks of the node offer by their tokens.

        ``mailbox``: where in each our mailboxes are; 0: there are none.
        """
        staging.clear()
        for row, token in zip(self.table, tokens):
            row[P_STAGING] = staging.map(token)
            if row[P_STAGING] and mailbox:
                row[P_MAILBOXES] = row[P_STAGING] + mailbox

    def give_back(self) -> None:
        """Nobody asks any more."""
        if not MPI.Is_finalized():
            self._group.Free()

    def of(self, comm: MPI.Comm) -> np.ndarray:
        """For each rank of a communicator, its row in ``table``, -1 when it has none (local)."""
        group = comm.Get_group()
        ranks = MPI.Group.Translate_ranks(group, list(range(group.Get_size())), self._group)
        group.Free()
        return np.array([-1 if r == MPI.UNDEFINED else r for r in ranks], np.int64)

    def paths(self, communicator: Communicator) -> dict[str, list[int]]:
        """For each of PATHS, the ranks of a communicator to which our kernels' messages take it."""
        found: dict[str, list[int]] = {path: [] for path in PATHS}
        direct = communicator.control is not None
        for rank, (peer, p2p) in enumerate(zip(communicator.peers, communicator.p2p)):
            mapped = direct and peer >= 0 and self.table[peer, P_DIRECT] != 0
            found[PATHS[0 if mapped else 1 if p2p else 2]].append(rank)
        return {path: ranks for path, ranks in found.items() if ranks}

    def reach(self, peers: np.ndarray) -> tuple[slice, np.ndarray]:
        """Who of a communicator gets its messages through our GPU staging.

        Args:
            peers: what ``of`` returned.

        Returns:
            (which ranks: at most REACH_RANKS, from the first such one on in equal steps, since
            ranks may be placed on nodes in turn; int64[ranks of the communicator]: P2P for each
            that does, | MAILED where it has mailboxes of ours).
        """
        ways = self.table[:, P_MAPS] * (P2P | MAILED * (self.table[:, P_MAILBOXES] != 0))
        found = np.where(peers >= 0, ways[peers], 0)
        ranks = np.flatnonzero(found)
        first = int(ranks[0]) if len(ranks) else 0
        step = int(np.gcd.reduce(ranks - first)) or 1
        reached = slice(first, first + step * P2P_RANKS, step)
        p2p = np.zeros_like(found)
        p2p[reached] = found[reached]
        return reached, p2p
