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
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from mpi4py import MPI

from gmpi.contract import partitions as p
from gmpi.contract.constants import PROC_NULL
from gmpi.errors import ContextError
from gmpi.host.partitioned_making import Making
from gmpi.host.partitioned_messages import (
    FREED,
    GIVE_UP,
    OFFER,
    OPEN,
    REFUSE,
    Message,
    identity_word,
)
from gmpi.host.partitioned_problems import differing, no_room, no_staging
from gmpi.host.partitioned_reports import Known
from gmpi.host.partitioned_rows import End, Rows, Shape
from gmpi.memory.exported import Exported, place_of
from host_proxy.platform.control import Control
from host_proxy.platform.state import G_OPENING

if TYPE_CHECKING:
    from gmpi.context import Context
    from gmpi.errors import ArgumentError

_Found = TypeVar("_Found")
Key = tuple[int, int, int]  # communicator's identity, the other rank in the context, tag


class Partitioned(Known):
    """All partitioned requests of one context; made collectively over ``comm``."""

    def __init__(self, context: Context, comm: MPI.Comm) -> None:
        self.control = Control(comm.Dup(MPI.INFO_NULL))
        self.control.Set_errhandler(MPI.ERRORS_RETURN)
        self._lock = threading.RLock()
        self._context: Context = weakref.proxy(context)  # whose part we are
        self._state = context._state
        self._memory = context._memory
        self._rows = Rows(context)
        self.exported = Exported(context._gpu)
        self._ends: dict[int, End] = {}  # by number, until both ends are freed
        self._handles: dict[int, End] = {}  # by handle, until freed
        self._receives: dict[Key, deque[End]] = {}  # not matched so far
        self._offers: dict[Key, deque[Message]] = {}
        self._own: deque[Message] = deque()  # to ourselves
        self._problems: list[ArgumentError] = []
        self._spare: list[Any] = []  # staging of requests that have been freed
        context._communicators.register_private(self.control)
        context._state.opening = lambda: self.unless_busy(self._listen)
        context._state.making = Making(context, self)
        context._datatypes.users = self.users_of_type

    # --- what the user calls ----------------------------------------------------------------------

    def make(self, shape: Shape) -> int:
        """Makes one end: its handle."""
        with self._lock:
            self._memory.use_here()
            self._listen()
            world = -1
            if shape.peer != PROC_NULL:
                world = self._context._communicators.groups[shape.comm].members[shape.peer]
            end = self._rows.new_end(shape, world)
            try:
                self._find_memory(end)
                self._rows.begin(end)
            except BaseException:
                self._rows.drop(end)
                raise
            self._handles[end.handle] = end
            if self._context._recorder is not None:
                self._context._recorder.partitioned_made(end)
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
            row = self._rows.row(end.index)
            state = int(self._memory.fetch(row + p.STATE, 8).view(np.int64)[0])
            if state & p.ACTIVE:
                raise ContextError(
                    f"request {handle:#x} is active and cannot be freed: wait for it first, in a "
                    "kernel (GMPI_Wait)"
                )
            del self._handles[handle]
            self._rows.give_back(end)
            end.freed = True
            if not end.is_open:
                self._state.globals[G_OPENING] -= 1
            if end.shape.peer == PROC_NULL or (end.other < 0 and not end.shape.sends):
                self._rows.drop_pieces(end)  # nobody knows of them
            elif end.other >= 0:
                self._say(end.world, Message(FREED, to=end.other))
            self._forget_if_freed(end)

    def raise_problem(self) -> None:
        """Raises what has been found wrong with matched ends since the last time."""
        with self._lock:
            if self._problems:
                raise self._problems.pop(0)

    def unfinished(self) -> list[tuple[MPI.Request, str]]:
        return self.control.unfinished()

    def close(self, clean: bool) -> None:
        """No kernel and no other thread uses anything of it.

        Args:
            clean: on all ranks, unless something has failed, and ``control`` has been quietened.
        """
        self.exported.close()
        self._state.opening = lambda: None  # which kept us, as we keep it
        self._state.making = None
        if clean and self.control.is_quiet:
            self.free_control()

    def free_control(self) -> None:
        """Collective."""
        self.control.Free()

    # --- one end ----------------------------------------------------------------------------------

    def _find_memory(self, end: End) -> None:
        """Where the bytes of a receive may go: a registered array, or staging."""
        shape = end.shape
        if shape.sends or shape.peer == PROC_NULL or not self._rows.has_road(shape):
            return
        if not shape.datatype:
            end.region = self.exported.find(shape.address, shape.total)
        straight = end.region is not None and end.region.token is not None
        if not straight and shape.total > p.ARENA_BYTES // 8:
            self._allocate_staging(end)

    def _allocate_staging(self, end: End) -> None:
        spare = [array for array in self._spare if array.nbytes >= end.shape.total]
        if spare:
            end.staging = min(spare, key=lambda array: int(array.nbytes))
            self._spare = [array for array in self._spare if array is not end.staging]
            return
        if end.shape.block >= 0 or self._context.kernels_running:
            raise ContextError(no_staging(end.shape.total))
        end.staging = self.exported.allocate((end.shape.total,), np.uint8, False)

    def _forget_if_freed(self, end: End) -> None:
        """Gives back what the other end may have written to, when neither is used any more."""
        if end.freed and end.other_freed:
            self._rows.drop_pieces(end)
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
            self._give_up(end, offer, MPI.ERR_COUNT)
            return
        if end.groups:
            end.tag = self._rows.tag_of(end)
            self._rows.write_groups(end, offer.nbytes)
            self._opened(end)
            answer = Message(OPEN, end.other, end.number, tag=end.tag, mode=p.PROXIED)
            self._say(end.world, answer._replace(partitions=shape.partitions, nbytes=shape.nbytes))
            return
        try:
            answer = self._place(end, offer, direct)
        except ContextError:
            self._give_up(end, offer, MPI.ERR_OTHER)
            return
        credit = self._rows.arena_of(end) + offer.place
        self._publish(end, answer.mode, credit, offer, answer)
        self._say(end.world, answer)

    def _give_up(self, end: End, offer: Message, error: int) -> None:
        """The two ends do not fit, or there is no memory: both ranks say so."""
        shape = end.shape
        self._fail(end, error)
        why = no_room(shape.total, p.ARENA_BYTES) if error == MPI.ERR_OTHER else ""
        self._problems.append(differing(shape, offer.partitions, offer.nbytes, why))
        answer = Message(GIVE_UP, to=end.other, sender=end.number, mode=error)
        self._say(end.world, answer._replace(partitions=shape.partitions, nbytes=shape.nbytes))

    def _place(self, end: End, offer: Message, direct: bool) -> Message:
        """Takes memory for the sender's bytes: what the sender is told of it."""
        shape = end.shape
        stride = p.inbox_stride(offer.nbytes) if offer.nbytes <= p.MOST_IN_PACKETS else 0
        inboxes = 2 * offer.partitions * stride
        answer = Message(OPEN, to=end.other, sender=end.number, partitions=shape.partitions,
                         nbytes=shape.nbytes)  # fmt: skip
        plain = not shape.datatype and not offer.derived
        if plain and stride and inboxes <= p.MOST_IN_INBOXES:
            with suppress(ContextError):  # no room: stores take less
                self._rows.piece(end, inboxes)
                return answer._replace(mode=p.PACKETS, place=end.pieces[-1], stride=stride)
        self._rows.piece(end, offer.partitions * p.FLAG_BYTES)
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
        self._rows.piece(end, max(shape.total, 1))
        return answer._replace(place=end.pieces[-1])

    def _publish(self, end: End, mode: int, credit: int, offer: Message, answer: Message) -> None:
        """Fills the row of a receive."""
        shape = end.shape
        flags = p.EQUAL if offer.partitions == shape.partitions else 0
        arena = self._memory.arena
        place = arena + answer.place
        if answer.pid:  # where the sender stores to; we read from there only where it is staging
            place = place_of(end.staging)[0] if end.staging is not None else 0
        if mode == p.STORES and (not answer.pid or end.staging is not None):
            flags |= p.COPIES
        self._rows.write_fields(
            end, place, answer.stride, credit, arena + answer.flags,
            (offer.nbytes, offer.partitions), self._rows.shape_word(end, mode, flags),
        )  # fmt: skip
        if mode == p.STORES:  # a Start before now could not tell the sender
            row = self._rows.row(end.index)
            state = int(self._memory.fetch(row + p.STATE, 8).view(np.int64)[0])
            if state & p.ACTIVE:
                self._memory.write(credit, np.array([state >> p.ROUND_SHIFT]))
        self._opened(end)

    def _open_send(self, end: End, answer: Message) -> None:
        """The receiver has answered."""
        if answer.mode == p.PROXIED:
            end.tag = answer.tag
            self._rows.write_groups(end, answer.nbytes)
            self._opened(end)
            return
        arena = self._rows.arena_of(end)
        place = arena + answer.place
        if answer.pid:
            base = self.exported.map(answer.token)
            if base == 0:
                self._say(end.world, Message(REFUSE, to=answer.sender, sender=end.number))
                return
            place = base + answer.place
        self._rows.write_fields(
            end, place, answer.stride, self._memory.arena + end.credit, arena + answer.flags,
            (answer.nbytes, answer.partitions), self._rows.shape_word(end, answer.mode),
        )  # fmt: skip
        self._opened(end)

    def _opened(self, end: End) -> None:
        if not end.is_open and not end.freed:
            self._state.globals[G_OPENING] -= 1
        end.is_open = True

    def _fail(self, end: End, error: int) -> None:
        """Its calls return the error class."""
        shape = self._rows.shape_word(end, p.FAILED, error << p.FAILURE_SHIFT)
        self._rows.write_quick(end, 0)
        self._memory.write(self._rows.row(end.index) + p.SHAPE, np.array([shape], np.int64))
        self._opened(end)

    # --- messages ---------------------------------------------------------------------------------

    def _say(self, world: int, message: Message) -> None:
        if world == self.control.rank:
            self._own.append(message)
            return
        self.control.say(message.pack(), world)

    def unless_busy(self, work: Callable[[], _Found]) -> _Found | None:
        """What ``work`` returns; None while another thread is at it.

        For the proxy's thread, which must not wait for one that may wait for a kernel.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._memory.use_here()
            return work()
        finally:
            self._lock.release()

    def _listen(self) -> None:
        data = Message.buffer()
        while (source := self.control.hear(data)) is not None:
            self._hear(source, Message.unpack(data))
        while self._own:
            self._hear(self.control.rank, self._own.popleft())

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
            lacks = message.mode == MPI.ERR_OTHER
            why = no_room(end.shape.total, p.ARENA_BYTES) if lacks else ""
            self._problems.append(differing(end.shape, message.partitions, message.nbytes, why))
