"""Partitioned requests: both ends are made by the host and find each other (MPI 4.1 chapter 4).

The sender's end tells the receiver of itself. The receiver matches the ends in the order in which
they were made, for each communicator, source and tag, and decides how bytes travel; it gives the
memory for it, fills its own row, and tells the sender, which fills its row. No call waits for that:
whoever makes, frees or uses requests takes what has been said, and the proxy's thread looks for it
as long as an end of ours is not known to the other.

What a kernel reads is in ``gmpi/contract/partitions.py``.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.contract import partitions as p
from gmpi.contract.channels import Places
from gmpi.contract.constants import ANY_TAG, PROC_NULL
from gmpi.contract.wire import (
    DEVICE_PARTITIONED,
    DEVICE_PARTITIONED_COUNT,
    HANDLE_CONTEXT_SHIFT,
    HANDLE_PARTITIONED_SHIFT,
    LOW_32,
    PARTITIONED_ROW_BYTES,
    PARTITIONED_ROWS,
)
from gmpi.errors import ContextError
from gmpi.host.partitioned_messages import (
    FREED,
    GIVE_UP,
    OFFER,
    OPEN,
    REFUSE,
    Message,
    identity_word,
)
from gmpi.host.partitioned_problems import differing, no_room
from gmpi.memory.arena import Arena
from gmpi.memory.exported import Exported, Region, place_of
from host_proxy.platform.communicator import Duplicate
from host_proxy.platform.state import G_CONTEXT, G_OPENING, P_DIRECT

if TYPE_CHECKING:
    from gmpi.context import Context
    from gmpi.errors import ArgumentError

Key = tuple[int, int, int]  # communicator's identity, the other rank in the context, tag


class Shape(NamedTuple):
    """What the user has said of one end.

    Attributes:
        comm: communicator handle.
        peer: rank there.
        count: elements of all partitions.
        nbytes: of one partition.
        address: of the buffer.
        datatype: handle of a derived datatype that is not contiguous, else 0.
        type_row: address of its row.
        array: kept.
    """

    sends: bool
    comm: int
    peer: int
    tag: int
    partitions: int
    count: int
    nbytes: int
    address: int
    datatype: int
    type_row: int
    array: Any

    @property
    def total(self) -> int:
        return self.partitions * self.nbytes


class End:
    """One end of a partitioned request, on this rank.

    Attributes:
        number: among ours; what the other end calls it.
        world: the other rank, in the context.
        pieces: of the arena, which the other end may write to.
        staging: memory for a receive that is not registered and too large for the arena.
        other: what the other end calls itself; -1: not known.
        freed, other_freed: on this rank, on the other.
    """

    def __init__(self, shape: Shape, number: int, index: int, handle: int, world: int) -> None:
        self.shape = shape
        self.number = number
        self.index = index
        self.handle = handle
        self.world = world
        self.pieces: list[int] = []
        self.credit = 0  # offset in the arena
        self.region: Region | None = None
        self.staging: Any = None
        self.offer: Message | None = None
        self.other = -1
        self.is_open = False
        self.freed = False
        self.other_freed = False


class Partitioned:
    """All partitioned requests of one context; made collectively over ``comm``."""

    def __init__(self, context: Context, comm: MPI.Comm) -> None:
        self._control = Duplicate(comm.Dup(MPI.INFO_NULL))
        self._control.Set_errhandler(MPI.ERRORS_RETURN)
        self._lock = threading.RLock()
        self._context = context
        self._state = context._state
        self._memory = context._memory
        self._places = Places(len(context._state.peers))
        self._arena = Arena(p.ARENA_BYTES)
        self.exported = Exported(context._gpu)
        self._ends: dict[int, End] = {}  # by number, until both ends are freed
        self._handles: dict[int, End] = {}  # by handle, until freed
        self._rows: list[int] = list(range(PARTITIONED_ROWS - 1, -1, -1))  # free ones
        self._most_rows = 0
        self._numbers = 0
        self._receives: dict[Key, deque[End]] = {}  # not matched so far
        self._offers: dict[Key, deque[Message]] = {}
        self._sends: list[MPI.Request] = []
        self._problems: list[ArgumentError] = []
        self._spare: list[Any] = []  # staging of requests that have been freed
        context._state.opening = self._listen_now
        context._datatypes.users = self.users_of_type

    # --- what the user calls ----------------------------------------------------------------------

    def make(self, shape: Shape) -> int:
        """Makes one end: its handle."""
        with self._lock:
            self._memory.use_here()
            self._listen()
            end = self._new_end(shape)
            try:
                self._prepare(end)
            except BaseException:
                self._drop(end)
                raise
            self._handles[end.handle] = end
            if shape.peer == PROC_NULL:
                end.is_open = True
                return end.handle
            self._ends[end.number] = end
            self._state.globals[G_OPENING] += 1
            if shape.sends:
                self._say(end.world, self._offer_of(end))
            else:
                self._receives.setdefault(self._key(end), deque()).append(end)
                self._match(self._key(end))
            self._listen()
            return end.handle

    def free(self, handle: int) -> None:
        """Forgets one end; the other one is told."""
        with self._lock:
            self._memory.use_here()
            self._listen()
            end = self._handles.get(handle)
            if end is None:
                raise ContextError(
                    f"request is {handle:#x}, allowed is a partitioned request of this context; "
                    "it has been freed before, or is no such request"
                )
            row = self._row(end.index)
            state = int(self._memory.fetch(row + p.STATE, 8).view(np.int64)[0])
            if state & p.ACTIVE:
                raise ContextError(
                    f"request {handle:#x} is active and cannot be freed: wait for it first, in a "
                    "kernel (GMPI_Wait)"
                )
            self._memory.write(row + p.OWNER, np.zeros(1, np.int64))
            del self._handles[handle]
            self._rows.append(end.index)
            end.freed = True
            if not end.is_open:
                self._state.globals[G_OPENING] -= 1
            if end.shape.peer == PROC_NULL or (end.other < 0 and not end.shape.sends):
                self._drop_pieces(end)  # nobody knows of them
            elif end.other >= 0:
                self._say(end.world, Message(FREED, to=end.other))
            self._forget_if_freed(end)

    def raise_problem(self) -> None:
        """Raises what has been found wrong with matched ends since the last time."""
        with self._lock:
            if self._problems:
                raise self._problems.pop(0)

    def users_of(self, address: int, nbytes: int) -> int:
        """How many requests have their buffer in a piece of memory."""
        inside = range(address, address + max(nbytes, 1))
        return sum(end.shape.address in inside for end in self._handles.values())

    def users_of_type(self, datatype: int) -> int:
        """How many requests use a derived datatype."""
        return sum(end.shape.datatype == datatype for end in self._handles.values())

    @property
    def kept(self) -> int:
        """How many requests have not been freed."""
        return len(self._handles)

    def unfinished(self) -> list[tuple[MPI.Request, str]]:
        return self._control.unfinished()

    def close(self, clean: bool) -> None:
        """No kernel and no other thread uses anything of it. ``clean``: on all ranks."""
        self.exported.close()
        if clean:
            while (found := self._control.Improbe(MPI.ANY_SOURCE, 0)) is not None:
                found.Recv(Message.buffer())  # of requests that the others have freed
            self.free_control()

    def free_control(self) -> None:
        """Collective."""
        self._control.Free()

    # --- one end ----------------------------------------------------------------------------------

    def _new_end(self, shape: Shape) -> End:
        if not self._rows:
            raise ContextError(
                f"there are {PARTITIONED_ROWS} partitioned requests; free some "
                "(Context.Request_free)"
            )
        index = self._rows.pop()
        self._numbers += 1
        number = self._numbers
        context = int(self._state.globals[G_CONTEXT])
        handle = index | number % p.GENERATIONS << p.GENERATION_SHIFT
        handle |= context << HANDLE_CONTEXT_SHIFT | 1 << HANDLE_PARTITIONED_SHIFT
        world = -1
        if shape.peer != PROC_NULL:
            world = self._context._communicators.groups[shape.comm].members[shape.peer]
        return End(shape, number, index, handle, world)

    def _prepare(self, end: End) -> None:
        """The row as far as this rank knows, and memory for what is always needed."""
        shape = end.shape
        if not shape.sends and shape.peer != PROC_NULL:
            if not shape.datatype:
                end.region = self.exported.find(shape.address, shape.total)
            straight = end.region is not None and end.region.token is not None
            if not straight and shape.total > p.ARENA_BYTES // 8:
                self._allocate_staging(end)
        words = np.zeros(PARTITIONED_ROW_BYTES // 8, np.int64)
        mode = p.NOBODY if shape.peer == PROC_NULL else p.OPENING
        words[p.OWNER // 8] = end.handle
        words[p.SHAPE // 8] = self._shape_word(end, mode)
        words[p.NBYTES // 8] = shape.nbytes
        words[p.USER // 8] = shape.address
        words[p.TYPE // 8] = shape.type_row
        words[p.MARKS // 8] = self._piece(end, shape.partitions * p.MARK_BYTES)
        tag = ANY_TAG if shape.peer == PROC_NULL else shape.tag
        words[p.ORIGIN // 8] = _signed(shape.peer & LOW_32 | (tag & LOW_32) << 32)
        words[p.COUNT // 8] = shape.count
        if shape.sends:
            words[p.CREDIT // 8] = self._piece(end, p.CREDIT_BYTES)
            end.credit = end.pieces[-1]
        self._memory.write(self._row(end.index), words)
        if end.index >= self._most_rows:
            self._most_rows = end.index + 1
            self._memory.write_device(DEVICE_PARTITIONED_COUNT, np.array([self._most_rows]))

    def _allocate_staging(self, end: End) -> None:
        if self._context.kernels_running:
            raise ContextError(
                f"a partitioned receive of {end.shape.total} bytes into memory that is not "
                "registered needs staging, and to allocate it would wait for the kernel that is "
                "running; make the request before the launch, or register the array"
            )
        spare = [array for array in self._spare if array.nbytes >= end.shape.total]
        if spare:
            end.staging = min(spare, key=lambda array: int(array.nbytes))
            self._spare = [array for array in self._spare if array is not end.staging]
        else:
            end.staging = self.exported.allocate((end.shape.total,), np.uint8, False)

    def _shape_word(self, end: End, mode: int, flags: int = 0) -> int:
        word = end.shape.partitions | mode << p.MODE_SHIFT | flags
        return word | end.shape.comm << p.COMM_SHIFT | (p.SENDS if end.shape.sends else 0)

    def _row(self, index: int) -> int:
        return self._memory.device + DEVICE_PARTITIONED + index * PARTITIONED_ROW_BYTES

    def _piece(self, end: End, nbytes: int) -> int:
        """Address of zeroed memory of the arena, which the end has from now on.

        Raises:
            ContextError: there is no room.
        """
        offset = self._arena.take(nbytes)
        if offset is None:
            raise ContextError(no_room(nbytes))
        end.pieces.append(offset)
        address = self._arena_address + offset
        self._memory.clear(address, nbytes)
        return address

    @property
    def _arena_address(self) -> int:
        return self._memory.staging_address + self._memory.direct + self._places.arena

    def _arena_of(self, end: End) -> int:
        """Where the other rank's arena is mapped here."""
        communicator = self._state.communicators[end.shape.comm]
        peer = int(communicator.peers[end.shape.peer])
        return int(self._state.peers[peer, P_DIRECT]) + self._places.arena

    def _drop_pieces(self, end: End) -> None:
        for offset in end.pieces:
            self._arena.give_back(offset)
        end.pieces = []

    def _drop(self, end: End) -> None:
        """It has never been known to anybody."""
        self._memory.write(self._row(end.index) + p.OWNER, np.zeros(1, np.int64))
        self._drop_pieces(end)
        self._rows.append(end.index)

    def _forget_if_freed(self, end: End) -> None:
        """Gives back what the other end may have written to, when neither is used any more."""
        if end.freed and end.other_freed:
            self._drop_pieces(end)
            self._ends.pop(end.number, None)
            if end.staging is not None:
                self._spare.append(end.staging)

    # --- finding the other end --------------------------------------------------------------------

    def _key(self, end: End) -> Key:
        identity = self._context._communicators.groups[end.shape.comm].identity
        return identity_word(identity), end.world, end.shape.tag

    def _offer_of(self, end: End) -> Message:
        identity, _, tag = self._key(end)
        shape = end.shape
        return Message(
            OFFER,
            sender=end.number,
            identity=identity,
            tag=tag,
            partitions=shape.partitions,
            nbytes=shape.nbytes,
            derived=int(shape.datatype != 0),
            place=end.credit,
        )

    def _match(self, key: Key) -> None:
        """Opens receives whose sender is known."""
        receives, offers = self._receives.get(key), self._offers.get(key)
        while receives and offers:
            end, offer = receives.popleft(), offers.popleft()
            end.other = offer.sender
            end.offer = offer
            if end.freed:  # before it was matched: the sender will wait for a receive that is gone
                self._say(end.world, Message(FREED, to=end.other))
                continue
            self._open_receive(end, offer, True)

    def _open_receive(self, end: End, offer: Message, direct: bool) -> None:
        """Decides how bytes travel, and tells the sender.

        Args:
            direct: whether they may go straight to a registered buffer.
        """
        shape = end.shape
        theirs = offer.partitions * offer.nbytes
        if theirs != shape.total:
            self._fail(end, MPI.ERR_COUNT)
            self._problems.append(differing(shape, offer.partitions, offer.nbytes))
            self._say(end.world, Message(GIVE_UP, to=end.other, sender=end.number,
                                         partitions=shape.partitions, nbytes=shape.nbytes,
                                         mode=MPI.ERR_COUNT))  # fmt: skip
            return
        try:
            answer = self._place(end, offer, direct)
        except ContextError:
            self._fail(end, MPI.ERR_OTHER)
            self._problems.append(differing(shape, offer.partitions, offer.nbytes, no_room(theirs)))
            self._say(end.world, Message(GIVE_UP, to=end.other, sender=end.number,
                                         partitions=shape.partitions, nbytes=shape.nbytes,
                                         mode=MPI.ERR_OTHER))  # fmt: skip
            return
        credit = self._arena_of(end) + offer.place
        self._publish(end, answer.mode, credit, offer, answer)
        self._say(end.world, answer)

    def _place(self, end: End, offer: Message, direct: bool) -> Message:
        """Takes memory for the sender's bytes: what the sender is told of it."""
        shape = end.shape
        stride = p.inbox_stride(offer.nbytes) if offer.nbytes <= p.MOST_IN_PACKETS else 0
        inboxes = 2 * offer.partitions * stride
        answer = Message(OPEN, to=end.other, sender=end.number, partitions=shape.partitions,
                         nbytes=shape.nbytes)  # fmt: skip
        plain = not shape.datatype and not offer.derived
        if plain and stride and inboxes <= p.MOST_IN_INBOXES:
            offset = self._arena.take(inboxes)
            if offset is not None:
                end.pieces.append(offset)
                self._memory.clear(self._arena_address + offset, inboxes)
                return answer._replace(mode=p.PACKETS, place=offset, stride=stride)
        self._piece(end, offer.partitions * p.FLAG_BYTES)
        answer = answer._replace(mode=p.STORES, flags=end.pieces[-1])
        region = end.region if direct else None
        offset = 0
        if end.staging is not None:
            region = self.exported.find(*place_of(end.staging))
        elif region is not None:
            offset = shape.address - region.address
        if region is not None and region.token is not None:
            self.exported.tell(region)
            token = region.token
            return answer._replace(
                pid=token.pid, fd=token.fd, handle=token.handle, place=region.offset + offset
            )
        self._piece(end, max(shape.total, 1))
        return answer._replace(place=end.pieces[-1])

    def _publish(self, end: End, mode: int, credit: int, offer: Message, answer: Message) -> None:
        """Fills the row of a receive."""
        shape = end.shape
        flags = p.EQUAL if offer.partitions == shape.partitions else 0
        place = self._arena_address + answer.place
        if answer.pid:  # where the sender stores to; we read from there only where it is staging
            place = place_of(end.staging)[0] if end.staging is not None else 0
        if mode == p.STORES and (not answer.pid or end.staging is not None):
            flags |= p.COPIES
        self._write_fields(
            end, place, answer.stride, credit, self._arena_address + answer.flags,
            (offer.nbytes, offer.partitions), self._shape_word(end, mode, flags),
        )  # fmt: skip
        if mode == p.STORES:  # a Start before now could not tell the sender
            row = self._row(end.index)
            state = int(self._memory.fetch(row + p.STATE, 8).view(np.int64)[0])
            if state & p.ACTIVE:
                self._memory.write(credit, np.array([state >> p.ROUND_SHIFT]))
        self._opened(end)

    # wide: the fields of a row
    def _write_fields(
        self,
        end: End,
        place: int,
        stride: int,
        credit: int,
        flags: int,
        theirs: tuple[int, int],
        shape: int,
    ) -> None:
        """Writes what is known with the other end to a row; what says so comes last."""
        row = self._row(end.index)
        self._memory.write(row + p.PLACE, np.array([place, stride, credit], np.int64))
        self._memory.write(row + p.FLAGS, np.array([flags, *theirs], np.int64))
        self._memory.write(row + p.SHAPE, np.array([shape], np.int64))

    def _open_send(self, end: End, answer: Message) -> None:
        """The receiver has answered."""
        arena = self._arena_of(end)
        place = arena + answer.place
        if answer.pid:
            base = self.exported.map(answer.token)
            if base == 0:
                self._say(end.world, Message(REFUSE, to=answer.sender, sender=end.number))
                return
            place = base + answer.place
        self._write_fields(
            end, place, answer.stride, self._arena_address + end.credit, arena + answer.flags,
            (answer.nbytes, answer.partitions), self._shape_word(end, answer.mode),
        )  # fmt: skip
        self._opened(end)

    def _opened(self, end: End) -> None:
        if not end.is_open and not end.freed:
            self._state.globals[G_OPENING] -= 1
        end.is_open = True

    def _fail(self, end: End, error: int) -> None:
        """Its calls return the error class."""
        shape = self._shape_word(end, p.FAILED, error << p.FAILURE_SHIFT)
        self._memory.write(self._row(end.index) + p.SHAPE, np.array([shape], np.int64))
        self._opened(end)

    # --- messages ---------------------------------------------------------------------------------

    def _say(self, world: int, message: Message) -> None:
        self._sends = [request for request in self._sends if not request.Test()]
        self._sends.append(self._control.Isend(message.pack(), world))

    def _listen_now(self) -> None:
        """By the proxy's thread: not while another thread is at it."""
        if self._lock.acquire(blocking=False):
            try:
                self._memory.use_here()
                self._listen()
            finally:
                self._lock.release()

    def _listen(self) -> None:
        status = MPI.Status()
        while (found := self._control.Improbe(MPI.ANY_SOURCE, 0, status)) is not None:
            data = Message.buffer()
            found.Recv(data)
            self._hear(status.Get_source(), Message.unpack(data))

    def _hear(self, world: int, message: Message) -> None:
        if message.kind == OFFER:
            key = message.identity, world, message.tag
            self._offers.setdefault(key, deque()).append(message)
            self._match(key)
            return
        end = self._ends.get(message.to)
        if end is None or end.world != world:
            return
        if message.kind == FREED:
            end.other_freed = True
            self._forget_if_freed(end)
            return
        end.other = message.sender
        if end.freed:  # while the answer was under way
            self._say(world, Message(FREED, to=end.other))
        elif message.kind == OPEN:
            self._open_send(end, message)
        elif message.kind == REFUSE and end.offer is not None:
            self._open_receive(end, end.offer, False)
        elif message.kind == GIVE_UP:
            self._fail(end, message.mode)
            why = no_room(end.shape.total) if message.mode == MPI.ERR_OTHER else ""
            self._problems.append(differing(end.shape, message.partitions, message.nbytes, why))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
