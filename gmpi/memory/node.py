"""Which ranks share memory with this one."""

from __future__ import annotations

import os

from mpi4py import MPI

#: For tests only: ranks of one machine are taken to be on several nodes. A letter for the node of
#: each rank of MPI.COMM_WORLD, again from the first one where there are more ranks: ``aab`` is
#: 2 + 1 ranks, ``ab`` any number of ranks placed cyclically on two nodes.
TEST_NODES = "GMPI_TEST_NODES"


def of_this_node(comm: MPI.Comm) -> MPI.Comm:
    """The ranks of a communicator that share memory with this one, in order; collective."""
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    nodes = os.environ.get(TEST_NODES)
    if not nodes:
        return local
    node = nodes[MPI.COMM_WORLD.Get_rank() % len(nodes)]
    parted = local.Split(ord(node), local.Get_rank())
    local.Free()
    return parted
