"""The messages of the direct road as both ends of a channel count them: how many have been sent and
received, and which have come that nobody has asked for.

The inboxes and cells of ``gmpi/contract/channels.py`` say it, each rank in its own memory: nobody
has to be asked. Any thread, also while kernels run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gmpi.contract import channels as ch
from gmpi.contract import wire
from gmpi.contract.constants import DATATYPE_NAMES
from gmpi.diagnose.tables import Pending, Unexpected
from gmpi.observe.direct import OpenRequest, open_requests
from host_proxy.platform import state as st

if TYPE_CHECKING:
    from gmpi.context import Context
    from gmpi.memory.regions import Memory

_SENDS, _RECEIVES = 0, 1


class Channel(NamedTuple):
    """One channel as this rank sees it.

    Attributes:
        peer: the other rank, in the communicator.
        place: its number among the inboxes of the receiver.
        number: of our next message: so many have been sent, or asked for by receives, modulo 2^31.
    """

    comm: int
    peer: int
    tag: int
    place: int
    number: int


def _counters(memory: Memory, rows: int) -> np.ndarray:
    """uint8[rows * COUNTER_BYTES]: the counters of all rows of the table, which follow them."""
    at = memory.device + memory.table + rows * ch.ROW_BYTES
    return memory.fetch(at, rows * ch.COUNTER_BYTES)


class Messages:
    """All channels of one rank, as they are when this is made."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._memory = context._memory
        self.receives: list[Channel] = []
        self.sends: list[Channel] = []
        opened = context._proxy.python.channels
        if not context._has_kernels or not self._memory.direct or opened.is_empty:
            return
        self._places = ch.Places(len(context._state.peers))
        self._base = self._memory.staging_address + self._memory.direct
        numbers = self._numbers()
        self.receives = [
            Channel(*key, place, numbers.get(_key(_RECEIVES, *key), 0))
            for key, place in opened.inboxes().items()
        ]
        self.sends = [
            Channel(*key, place, numbers.get(_key(_SENDS, *key), 0))
            for key, place in opened.told().items()
        ]

    def _numbers(self) -> dict[int, int]:
        """The number of the next message, by key."""
        rows = self._places.rows
        table = self._memory.device + self._memory.table
        words = self._memory.fetch(table, rows * ch.ROW_BYTES).view(np.int64)
        keys = words.reshape(rows, -1)[:, ch.ROW_KEY // 8]
        words = _counters(self._memory, rows).view(np.uint32)
        counters = words.reshape(rows, -1)[:, ch.COUNTER_NUMBER // 4]
        taken = np.flatnonzero(keys)
        names = keys[taken] & ~ch.KEY_WATCHED  # which debug mode adds
        return dict(zip(names.tolist(), (counters[taken] & ch.NUMBERS).tolist()))

    # --- a receiver -------------------------------------------------------------------------------

    def _packet(self, channel: Channel, number: int) -> tuple[int, int]:
        """The first packet of the slot of a message: two words."""
        at = self._base + self._places.inbox(channel.place)
        at += number % ch.DEPTH * ch.INBOX_SLOT_BYTES
        low, high = self._memory.fetch(at, wire.PACKET_BYTES).view(np.uint64)
        return int(low), int(high)

    def waiting(self, channel: Channel) -> list[int]:
        """Bytes of each message that has come and that no receive has asked for, in order."""
        found = []
        for number in range(channel.number, channel.number + ch.DEPTH):
            low, high = self._packet(channel, number)
            if high >> 32 != ch.number_mark(number):
                break
            length = high & wire.LOW_32
            if length in (ch.WIDE, ch.ALL_OF_IT):
                length = low & wire.LOW_32
            found.append(low if length == ch.LONG else length)
        return found

    def _is_long(self, key: tuple[int, ...], number: int) -> bool:
        """Whether a message that has begun to come goes on only while threads wait for it."""
        (channel,) = [one for one in self.receives if one[:3] == key]
        return self._packet(channel, number)[1] & wire.LOW_32 == ch.LONG

    def _have_come(self, channel: Channel, number: int) -> int:
        """How many messages have come before the first one, near ``number``, that has not."""
        marks = [self._packet(channel, slot)[1] >> 32 for slot in range(ch.DEPTH)]
        return _first_missing(marks, number)

    # --- a sender ---------------------------------------------------------------------------------

    def _credits(self, channel: Channel) -> list[int]:
        """What the credit of each slot is marked with: the message that has been taken last."""
        peer = int(self._context._state.communicators[channel.comm].peers[channel.peer])
        at = self._base + self._places.cells(peer, channel.place)
        cells = self._memory.fetch(at, ch.CELLS_BYTES).view(np.uint32).reshape(ch.DEPTH, -1)
        return [int(mark) for mark in cells[:, (ch.CREDIT + wire.PACKET_PAYLOAD) // 4]]

    def not_taken(self, channel: Channel) -> list[int]:
        """Numbers of what has been sent, or is being sent, and no receive has taken."""
        if channel.number == 0:  # nobody may have written to the cells
            return []
        found = []
        for slot, mark in enumerate(self._credits(channel)):
            last = channel.number - 1 - (channel.number - 1 - slot) % ch.DEPTH  # of this slot
            behind = distance(mark >> 1, last)
            found += [(last - n) & ch.NUMBERS for n in range(0, behind, ch.DEPTH)]
        return sorted(found, key=lambda number: distance(channel.number, number))

    # --- reports ----------------------------------------------------------------------------------

    def members(self, channel: Channel) -> tuple[str, int]:
        """(identity of the communicator, the other rank in the context)."""
        group = self._context._communicators.groups[channel.comm]
        return group.identity, group.members[channel.peer]

    def unexpected(self) -> Iterator[Unexpected]:
        """The first message of each channel that has come and that no receive has asked for."""
        for channel in self.receives:
            if sizes := self.waiting(channel):
                identity, rank = self.members(channel)
                yield Unexpected(rank, channel.tag, identity, sizes[0], len(sizes) - 1)

    def counted(self, sends: bool, key: tuple[int, ...], number: int) -> int:
        """How many messages of a channel have come, or have been received by the other rank.

        Args:
            key: as of ``Channel``: communicator, peer, tag.
            number: of a request of it.
        """
        for channel in self.sends if sends else self.receives:
            if channel[:3] == key:
                if not sends:
                    return self._have_come(channel, number)
                before = self.not_taken(channel)
                return before[0] if before else number
        return 0

    def complete(self, request: Pending, row: np.ndarray) -> Pending:
        """What reports say of a row of the slots table, with how many messages there were, where it
        is one of the direct road."""
        op, handle = int(row[st.S_OP]), int(row[st.S_HANDLE])
        if handle >> wire.HANDLE_DIRECT_SHIFT != 1 or op not in (wire.OP_ISEND, wire.OP_IRECV):
            return request
        key = tuple(int(row[field]) for field in (st.S_COMM, st.S_PEER, st.S_TAG))
        number = (handle & wire.LOW_32) >> 1
        done = self.counted(op == wire.OP_ISEND, key, number)
        matched = op == wire.OP_IRECV and number < done
        return dataclasses.replace(request, number=number + 1, done=done, matched=matched)

    def open(self, rows: np.ndarray) -> list[Pending]:
        """Requests of the direct road in which no thread is known to wait, but for those that lack
        nothing but the wait.

        Args:
            rows: open ones of the slots table, where long waits are.
        """
        waited = set(rows[:, st.S_SLOT].tolist())
        found = []
        for one in open_requests(self._context) if self.receives or self.sends else []:
            if one.slot in waited or one.finished:
                continue
            key = one.communicator, one.peer, one.tag
            done = self.counted(not one.receives, key, one.number)
            if not (one.receives and one.number < done) or self._is_long(key, one.number):
                found.append(self._words(one, done))
        return found

    def _words(self, one: OpenRequest, done: int) -> Pending:
        group = self._context._communicators.groups[one.communicator]
        size = one.datatype >> 8 & 0xFF
        return Pending(
            one.operation,
            "receive" if one.receives else "send",
            group.members[one.peer],
            one.tag,
            group.identity,
            DATATYPE_NAMES.get(one.datatype, ""),
            one.nbytes // size if size else 0,
            one.nbytes,
            block=0,
            serial=1 << 62,  # what threads wait for says more
            matched=one.receives and one.number < done,
            number=one.number + 1,
            done=done,
            waits=False,
        )


class Traffic:
    """Whether messages of the direct road go on. It looks seldom: at all counters at once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen: np.ndarray | None = None

    def moved(self, still: float, limit: float) -> bool:
        """Whether, when ``still`` seconds without progress reach a limit, messages have been sent
        or asked for since half of it. The watchdog calls it at each of its looks."""
        if still < limit / 2:
            self._seen = None
        elif self._seen is None:
            self._seen = self._counters()
        elif still >= limit:
            before, self._seen = self._seen, self._counters()
            return not np.array_equal(before, self._seen)
        return False

    def _counters(self) -> np.ndarray:
        """uint8[bytes]; none where there is no direct road, or a kernel has died."""
        context, memory = self._context, self._context._memory
        if not context._has_kernels or not memory.direct:
            return np.zeros(0, np.uint8)
        try:
            return _counters(memory, ch.Places(len(context._state.peers)).rows)
        except RuntimeError:
            return np.zeros(0, np.uint8)


def with_messages(
    context: Context, rows: np.ndarray, pending: dict[int, Pending]
) -> tuple[list[Pending], list[Unexpected]]:
    """What reports say of messages: (what is pending, with all of the direct road; what has come
    there, as ``Messages.unexpected``).

    Args:
        rows: open ones of the slots table.
        pending: of these, by index.
    """
    try:
        messages = Messages(context)
        told = [messages.complete(request, rows[i]) for i, request in pending.items()]
        return told + messages.open(rows), list(messages.unexpected())
    except RuntimeError:  # a kernel has died: others say so
        return list(pending.values()), []


def with_arrival(context: Context, opened: list[OpenRequest]) -> list[str]:
    """Open requests in words; of receives, whether their message has not come."""
    messages, found = Messages(context), []
    for one in opened:
        key, number = (one.communicator, one.peer, one.tag), one.number
        missing = (
            one.receives and not one.finished and number >= messages.counted(False, key, number)
        )
        found.append(f"{one}, whose message has not come" if missing else str(one))
    return found


def _key(direction: int, comm: int, peer: int, tag: int) -> int:
    """As ``device_lib/direct/table.py`` makes it."""
    key = ch.KEY_MARK | direction << ch.KEY_RECEIVES_SHIFT | comm << ch.KEY_COMM_SHIFT
    return key | peer << ch.KEY_PEER_SHIFT | tag


def distance(begin: int, end: int) -> int:
    """How far it is from one number to another one, which wrap; negative: back."""
    return ((end - begin + ch.HALF_TURN) & ch.NUMBERS) - ch.HALF_TURN


def _first_missing(marks: list[int], number: int) -> int:
    """The first message that has not come, near ``number``.

    Args:
        marks: of the last message in each slot; even where there was none so far.
    """
    following = [(mark >> 1) + ch.DEPTH if mark & 1 else slot for slot, mark in enumerate(marks)]
    nearest = min(distance(number, one) for one in following)
    return (number + nearest) & ch.NUMBERS
