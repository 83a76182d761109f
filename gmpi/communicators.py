"""The communicators that the kernels of a context know: duplicates, handles, names in reports.

Each communicator is duplicated twice, for messages and for what follows them, so that no traffic of
the user's is ever matched by ours. Where no receive uses ANY_TAG there are several duplicates for
messages, and their tag says on which they travel (``rules.duplicate_of``): MPI looks through
shorter lists, and what one receive could match stays in order on one duplicate. A handle is an
index: of the proxy's table, of the entry in mapped memory where ``GMPI_Comm_rank`` and
``GMPI_Comm_size`` look, and of ``groups``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from device_lib.platform.divide import magic_of
from gmpi.contract import wire
from gmpi.contract.rules import TAG_DUPLICATES
from gmpi.contract.topology import CART_DIMS, DEGREES, MISSING, PERIODS_SHIFT
from gmpi.errors import ContextError
from gmpi.memory.collectives import Areas
from gmpi.memory.peers import Peers
from gmpi.memory.regions import Memory
from gmpi.observe.report import Group
from host_proxy.platform import mpi_library
from host_proxy.platform import state as st
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.control import Control, quieten
from host_proxy.platform.duplicate import Duplicate
from host_proxy.platform.neighbours import Neighbours, topology_of

if TYPE_CHECKING:
    from gmpi.lifetime.watchdog import Watchdog

_FEWEST = 2  # duplicates of a communicator: for messages, and for what follows them


def _duplicates(comm: MPI.Comm, count: int, neighbours: Neighbours | None) -> list[Duplicate]:
    """So many duplicates, or none; collective.

    Without hints: before MPI 4.0 duplicates inherited them. Ours use wildcards (report.py), and
    need the order of messages, whatever the user has asserted. The first one is a graph where there
    are neighbours.
    """
    made: list[Duplicate] = []
    try:
        if neighbours is not None:
            made.append(Duplicate(neighbours.graph(comm)))
        while len(made) < count:
            made.append(Duplicate(comm.Dup(MPI.INFO_NULL)))
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


def controls_of(communicators: Iterable[Communicator]) -> list[Control]:
    return [entry.control for entry in communicators if entry.control is not None]


def _free_duplicates(communicator: Communicator, used: bool = True) -> None:
    for duplicate in communicator.duplicates:
        if not used or duplicate is not communicator.control or communicator.control.is_quiet:
            duplicate.Free()


class Communicators:
    """The registered communicators of one context; the first is the context's own.

    Args:
        memory: where kernels look.
        peers: which ranks are on this node.
        debug: whether calls of collectives are compared, on a duplicate of their own.
    """

    def __init__(self, state: st.State, memory: Memory, peers: Peers, debug: bool) -> None:
        self.groups: list[Group] = []
        self.areas = Areas(memory)
        self._named = 0
        self._state = state
        self._peers = peers
        self._memory = memory
        self._debug = debug
        self._entries = memory.host + wire.MAPPED_COMMUNICATORS
        nobody = np.array([-1, 0] * wire.COMMUNICATORS, np.int32)  # rank, size
        self._write(0, nobody)

    def register(
        self, comm: MPI.Comm, no_any_tag: bool, direct: bool = False, long: bool = True
    ) -> int:
        """The communicator's handle; collective over it.

        Args:
            no_any_tag: whether no receive on it uses ANY_TAG; the same on all its ranks.
            direct: whether none uses ANY_SOURCE either, likewise.
            long: whether long collectives are wanted on it, likewise.

        Raises:
            ContextError: it is one too many, for us or for MPI.
        """
        state = self._state
        index = self._free_index()
        if index >= wire.COMMUNICATORS:
            raise ContextError(
                f"at most {wire.COMMUNICATORS} communicators can be registered; Context.free() "
                "gives back those that are not used any more"
            )
        count = TAG_DUPLICATES + 1 if no_any_tag else _FEWEST
        neighbours = Neighbours.of(comm)
        made = _duplicates(comm, count + self._debug + direct, neighbours)
        control = Control(made.pop()) if direct else None
        compared = made.pop() if self._debug else None
        messages, *more, chunks = made
        rank, size = comm.Get_rank(), comm.Get_size()
        peers = self._peers.of(comm)
        reached, p2p = self._peers.reach(peers)
        group = self._group(comm, messages, index)
        mapped = np.where(peers >= 0, self._peers.table[peers, st.P_DIRECT], 0)
        ways = 0
        if control is not None and not self._debug:  # which compares calls by the proxies
            ways = self.areas.open(index, control, mapped, long, neighbours)
        communicator = Communicator(
            messages, chunks, rank, size, group.identity, peers, p2p, tuple(more), compared,
            control, neighbours, collects=ways != 0,
        )  # fmt: skip
        self.groups[index:] = [group, *self.groups[index + 1 :]]
        state.communicators[index:] = [communicator, *state.communicators[index + 1 :]]
        self._write(index, np.array([rank, size], np.int32))
        if self._memory.staging is not None:
            reach = _p2p_row(reached, p2p, self._peers.table[peers, st.P_MAILBOXES])
            reach[wire.P2P_DIRECT] = direct and self._memory.direct != 0
            reach[wire.P2P_DIRECT] |= ways
            self._memory.write_device(wire.DEVICE_P2P + index * wire.P2P_BYTES, reach)
        if self._memory.has_tables:
            self._memory.write_device(
                wire.DEVICE_TOPOLOGY + index * wire.TOPOLOGY_BYTES, _topology_row(comm, neighbours)
            )
        self._enter(index, communicator, direct)
        return index

    def register_private(self, messages: Duplicate) -> None:
        """Where partitioned requests travel: the ranks of the context's own communicator."""
        whole = self._state.communicators[0]
        self._state.private = Communicator(
            messages, whole.chunks, whole.rank, whole.size, "partitioned", whole.peers, whole.p2p
        )
        self._enter(wire.PRIVATE_COMMUNICATOR, self._state.private, False)

    def _enter(self, index: int, communicator: Communicator, direct: bool) -> None:
        """Tells the proxy of a communicator."""
        row = self._state.communicator_table[index]
        row[st.C_RANK] = communicator.rank
        row[st.C_PEERS] = communicator.peers.ctypes.data
        row[st.C_P2P] = communicator.p2p.ctypes.data
        row[st.C_CHUNKS] = mpi_library.handle(communicator.chunks)
        row[st.C_DIRECT] = direct
        row[st.C_LAST] = len(communicator.more)
        row[st.C_BROKEN] = 0
        for i, duplicate in enumerate(communicator.all_messages):
            row[st.C_HANDLE + i] = mpi_library.handle(duplicate)
        row[st.C_SIZE] = communicator.size  # last: the proxy looks at it first

    def _free_index(self) -> int:
        """The lowest handle that nobody has."""
        known = self._state.communicators
        # Channels of a communicator live as long as the context: its handle is nobody else's.
        free = (i for i, entry in enumerate(known) if entry.is_free and entry.control is None)
        return next(free, len(known))

    def refuse(self, index: int) -> None:
        """From the next turn of the proxy on, no call on it is admitted."""
        self._state.communicator_table[index, st.C_SIZE] = 0

    def free(self, index: int, in_use: str, watchdog: Watchdog, settle: Callable[[], None]) -> None:
        """Gives back a handle whose calls are refused; collective over its communicator.

        Args:
            in_use: what of this rank uses it, in words; empty: nothing.
            settle: returns when the proxy knows what it has been told.

        Raises:
            ContextError: something uses it, on whichever rank; it is as it was before.
        """
        communicator = self._state.communicators[index]
        # Not where collectives are: a rank may have one open.
        for rank, reason in enumerate(communicator.chunks.allgather(in_use)):
            if reason:
                self._state.communicator_table[index, st.C_SIZE] = communicator.size
                raise ContextError(
                    f"communicator {index} cannot be freed: {reason} on its rank {rank}"
                )
        self._write(index, np.array([-1, 0], np.int32))
        if self._memory.staging is not None:
            nobody = np.zeros(wire.P2P_BYTES, np.uint8)
            self._memory.write_device(wire.DEVICE_P2P + index * wire.P2P_BYTES, nobody)
        self.areas.close(index)
        with watchdog.lock:  # it looks for messages there
            communicator.is_free = True
        settle()  # its thread may be listening there just now
        quieten(controls_of([communicator]))
        _free_duplicates(communicator)

    @property
    def controls(self) -> list[Control]:
        """Where proxies tell each other of channels."""
        return controls_of(entry for entry in self._state.communicators if not entry.is_free)

    def free_all(self, used: bool = True) -> None:
        """Frees the duplicates; collective over each communicator.

        Args:
            used: kernels may have run, so ``controls`` are freed only where they are quiet.
        """
        for communicator in self._state.communicators:
            if not communicator.is_free:
                _free_duplicates(communicator, used)

    def _group(self, comm: MPI.Comm, messages: MPI.Comm, index: int) -> Group:
        """The communicator's name in reports, the same on all its ranks; collective."""
        size = comm.Get_size()
        if index == 0:
            return Group("COMM_WORLD", list(range(size)))
        context = self._state.communicators[0]
        name = comm.Get_name() or "communicator"
        self._named += 1  # no number twice: what is said of one that was freed may come late
        identity = messages.bcast(f"{name} #{context.rank}.{self._named}", root=0)
        mine = comm.Get_group()
        world = context.messages.Get_group()
        members = MPI.Group.Translate_ranks(mine, list(range(size)), world)
        mine.Free()
        world.Free()
        return Group(identity, [int(rank) for rank in members])

    def _write(self, index: int, entries: np.ndarray) -> None:
        """Tells kernels the rank and size of communicators from ``index`` on."""
        data = entries.tobytes()
        ctypes.memmove(self._entries + index * wire.COMMUNICATOR_BYTES, data, len(data))


def _topology_row(comm: MPI.Comm, neighbours: Neighbours | None) -> np.ndarray:
    """What kernels know of a topology; zeros where there is none."""
    row = np.zeros(wire.TOPOLOGY_BYTES // 8, np.int64)
    if topology_of(comm) == MPI.CART:
        cart = MPI.Cartcomm(comm)
        if 0 < cart.ndim <= CART_DIMS:
            periods = sum(bool(period) << i for i, period in enumerate(cart.periods))
            row[0] = cart.ndim | periods << PERIODS_SHIFT
            row[1 : 1 + cart.ndim] = cart.dims
    if neighbours is not None:
        degrees = len(neighbours.sources) | len(neighbours.destinations) << 32
        row[DEGREES // 8] = degrees
        row[MISSING // 8] = neighbours.missing
    return row


def _p2p_row(reached: slice, p2p: np.ndarray, places: np.ndarray) -> np.ndarray:
    """What kernels are told of a communicator: uint8[P2P_BYTES] (``gmpi/contract/wire.py``).

    Args:
        reached, p2p: what ``Peers.reach`` returned.
        places: int64[ranks], where our mailboxes are on each rank.
    """
    ways = p2p[reached]
    ranks = np.packbits(ways != 0, bitorder="little")
    reach = np.zeros(wire.P2P_BYTES, np.uint8)
    reach[wire.P2P_BITS : wire.P2P_BITS + len(ranks)] = ranks
    words = reach.view(np.int64)
    words[wire.P2P_FIRST // 8] = reached.start | reached.step << 32
    words[wire.P2P_MAGIC // 8] = magic_of(reached.step)
    begin = wire.P2P_MAILBOXES // 8
    words[begin : begin + len(ways)] = np.where(ways & wire.MAILED, places[reached], 0)
    return reach
