"""The communicators that the kernels of a context know: duplicates, handles, names in reports.

Each communicator is duplicated twice, for messages and for what follows them, so that no traffic of
the user's is ever matched by ours. Where no receive uses ANY_TAG there are several duplicates for
messages, and their tag says on which they travel (``wire.duplicate_of``): MPI looks through shorter
lists, and what one receive could match stays in order on one duplicate. A handle is an index: of
the proxy's table, of the entry in mapped memory where ``GMPI_Comm_rank`` and ``GMPI_Comm_size``
look, and of ``groups``.
"""

from __future__ import annotations

import ctypes

import numpy as np
from mpi4py import MPI

from gmpi.errors import ContextError
from gmpi.memory import Memory
from gmpi.peers import Peers
from gmpi.report import Group
from gmpi.wire import (
    COMMUNICATOR_BYTES,
    COMMUNICATORS,
    DEVICE_REACH,
    LANDED,
    MAPPED_COMMUNICATORS,
    REACH_BYTES,
    REACH_LANDINGS,
    REACH_RANKS,
    TAG_DUPLICATES,
)
from host_proxy import mpi_library
from host_proxy.communicator import Communicator
from host_proxy.state import (
    C_CHUNKS,
    C_HANDLE,
    C_LAST,
    C_NEAR,
    C_PEERS,
    C_RANK,
    C_SIZE,
    P_LANDING,
    State,
)

_FEWEST = 2  # duplicates of a communicator: for messages, and for what follows them


def _duplicates(comm: MPI.Comm, count: int) -> list[MPI.Comm]:
    """So many duplicates, or none; collective.

    Without hints: before MPI 4.0 duplicates inherited them. Ours use wildcards (report.py), and
    need the order of messages, whatever the user has asserted.
    """
    made: list[MPI.Comm] = []
    try:
        for _ in range(count):
            made.append(comm.Dup(MPI.INFO_NULL))
    except MPI.Exception as exc:  # on all ranks: they agree on the number of a communicator
        enough = len(made)
        for duplicate in made:
            duplicate.Free()
        fewer = ", or register without no_any_tag" if count > _FEWEST else ""
        raise ContextError(
            f"registering a communicator takes {count} duplicates, MPI made {enough}: "
            f"{exc.Get_error_string()}; close contexts that are not used any more{fewer}"
        ) from exc
    for duplicate in made:
        duplicate.Set_errhandler(MPI.ERRORS_RETURN)
    return made


class Communicators:
    """The registered communicators of one context; the first is the context's own.

    Args:
        memory: where kernels look.
        peers: which ranks are on this node.
    """

    def __init__(self, state: State, memory: Memory, peers: Peers) -> None:
        self.groups: list[Group] = []
        self._state = state
        self._peers = peers
        self._memory = memory
        self._entries = memory.host + MAPPED_COMMUNICATORS
        nobody = np.array([-1, 0] * COMMUNICATORS, np.int32)  # rank, size
        self._write(0, nobody)

    def register(self, comm: MPI.Comm, no_any_tag: bool) -> int:
        """The communicator's handle; collective over it.

        Args:
            no_any_tag: whether no receive on it uses ANY_TAG; the same on all its ranks.

        Raises:
            ContextError: it is one too many, for us or for MPI.
        """
        state = self._state
        index = len(state.communicators)
        if index >= COMMUNICATORS:
            raise ContextError(f"at most {COMMUNICATORS} communicators can be registered")
        messages, *more, chunks = _duplicates(comm, TAG_DUPLICATES + 1 if no_any_tag else _FEWEST)
        rank, size = comm.Get_rank(), comm.Get_size()
        peers = self._peers.of(comm)
        first, near = self._peers.reach(peers)
        self.groups.append(self._group(comm, messages, index))
        state.communicators.append(
            Communicator(messages, chunks, rank, size, comm.Get_name(), peers, near, tuple(more))
        )
        self._write(index, np.array([rank, size], np.int32))
        if self._memory.staging is not None:
            ways = near[first : first + REACH_RANKS]
            ranks = np.packbits(ways != 0, bitorder="little")
            reach = np.zeros(REACH_BYTES, np.uint8)
            words = reach.view(np.int64)
            words[0] = first
            reach[8 : 8 + len(ranks)] = ranks
            places = self._peers.table[peers[first : first + REACH_RANKS], P_LANDING]
            begin = REACH_LANDINGS // 8
            words[begin : begin + len(ways)] = np.where(ways & LANDED, places, 0)
            self._memory.write_device(DEVICE_REACH + index * REACH_BYTES, reach)
        row = state.communicator_table[index]
        row[C_RANK] = rank
        row[C_SIZE] = size
        row[C_PEERS] = peers.ctypes.data
        row[C_NEAR] = near.ctypes.data
        row[C_CHUNKS] = mpi_library.handle(chunks)
        row[C_LAST] = len(more)
        for i, duplicate in enumerate(more, 1):
            row[C_HANDLE + i] = mpi_library.handle(duplicate)
        row[C_HANDLE] = mpi_library.handle(messages)  # last: the proxy looks at it first
        return index

    def free(self) -> None:
        """Frees the duplicates; collective over each communicator."""
        for communicator in self._state.communicators:
            for duplicate in (*communicator.all_messages, communicator.chunks):
                duplicate.Free()

    def _group(self, comm: MPI.Comm, messages: MPI.Comm, index: int) -> Group:
        """The communicator's name in reports, the same on all its ranks; collective."""
        size = comm.Get_size()
        if index == 0:
            return Group("COMM_WORLD", list(range(size)))
        context = self._state.communicators[0]
        name = comm.Get_name() or "communicator"
        identity = messages.bcast(f"{name} #{context.rank}.{index}", root=0)
        mine = comm.Get_group()
        world = context.messages.Get_group()
        members = MPI.Group.Translate_ranks(mine, list(range(size)), world)
        mine.Free()
        world.Free()
        return Group(identity, [int(rank) for rank in members])

    def _write(self, index: int, entries: np.ndarray) -> None:
        """Tells kernels the rank and size of communicators from ``index`` on."""
        data = entries.tobytes()
        ctypes.memmove(self._entries + index * COMMUNICATOR_BYTES, data, len(data))
