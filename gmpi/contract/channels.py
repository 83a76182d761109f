"""The bytes of the direct road: what the GPUs of a node write into each other's memory.

A *channel* is (communicator, source, tag) in one direction between two ranks whose GPUs map each
other's memory. Its receiver has an *inbox*, its sender *cells*; the k-th send meets the k-th
receive (``tests/model/channel.pml``). Both lie in *direct memory*, which a rank exports:

    staging | inboxes of our channels | cells of the channels to each rank of the node | arena |
    long arena

The arena is for partitioned requests (``partitions.py``), the long arena for collectives
(``collectives.py``).

**Packets** are packets of ``wire``: 12 bytes and the number of the message, stored at once.

**Inbox slot** ``k % DEPTH``: packet 0 is the first 8 bytes and the length, or, of a longer message,
its length and WIDE or LONG. Then the rest of the payload; of a long message one packet, which says
how many of its parts have been pushed.

**Wide slot**, behind the others: the payload of one message that is too large for them, and not
long, in groups of packets as in a mailbox (``device_lib/move/mailbox.py``). A message goes there
when all before it have been taken. There they have numbers of their own, which packet 0 brings. One
may be drawn in vain, by a send that then goes another way; the first ones after half a turn write
all packets, and say so by ALL_OF_IT: more than there are sends at a time, so one of them is used.

**Cells** for slot ``k % DEPTH``: a packet for the credit (message k has been taken), and two for
the announcement of where a round of a long message goes: offset and the round's first part, then
the bytes that are wanted of the message, | log2 of a round's parts << ROUND_SHIFT. Where the sender
has mapped the receiver's buffer, one round goes straight there: | STRAIGHT << ROUND_SHIFT. Else the
receiver has two halves of staging, for even and odd rounds: one *staging buffer*, or several side
by side. It announces the first two rounds at once, and the next but one when a round has been
taken. Who is told of a round may push all before it, too (``tests/model/rounds.pml``).

Before the first message the cells say that those of a former turn have been taken.

Numbers have 31 bits and wrap; see the model for what keeps old packets from passing for new.
"""

from __future__ import annotations

from typing import NamedTuple

from gmpi.contract.collectives import LONG_ARENA_BYTES
from gmpi.contract.partitions import ARENA_BYTES
from gmpi.contract.registered import table_bytes as registered_bytes
from gmpi.contract.sizes import align
from gmpi.contract.wire import MAX_REQUEST_SLOTS, PACKET_BYTES, PACKET_PAYLOAD

DEPTH = 8  # messages under way in a channel; a power of two
ROOM = 4096  # bytes of a message that travels through a slot
WIDE_PACKETS = 16384
WIDE_ROOM = WIDE_PACKETS * PACKET_PAYLOAD  # and through the wide slot; longer ones are pushed
HEADER_PAYLOAD = 8
SLOT_PACKETS = 1 + (ROOM - HEADER_PAYLOAD + PACKET_PAYLOAD - 1) // PACKET_PAYLOAD
INBOX_SLOT_BYTES = align(SLOT_PACKETS * PACKET_BYTES, 128)
WIDE_SLOT = DEPTH * INBOX_SLOT_BYTES  # relative to the inbox
INBOX_BYTES = WIDE_SLOT + WIDE_PACKETS * PACKET_BYTES
LONG = 0xFFFFFFFF  # in packet 0, in place of the length
WIDE = 0xFFFFFFFE
ALL_OF_IT = 0xFFFFFFFD  # as WIDE
WIDE_LENGTH_BITS = 32  # then the length has so many, and the mark of its number in the wide slot
FILLED = PACKET_BYTES  # in an inbox slot: the packet that says how many parts have been pushed

CREDIT = 0
ANNOUNCED = 16
WANTED = 32
CELL_BYTES = 64
CELLS_BYTES = DEPTH * CELL_BYTES

STAGED_BYTES = 1 << 20  # of a staging buffer: two rounds of a long message
PART_BYTES = 1 << 17  # of a part: what one block pushes, and takes, in one piece
LEAST_ROUND = 2  # log2 of the parts of a round in one staging buffer
MOST_BUFFERS = 4  # log2 of how many staging buffers a grid takes for a message
ROUND_SHIFT = 48
STRAIGHT = 1 << 8  # beside log2 of a round's parts: the whole message goes to the user's buffer
STAGED = 32  # staging buffers; a bit each
assert 2 * PART_BYTES << LEAST_ROUND == STAGED_BYTES

NUMBERS = (1 << 31) - 1  # all bits of a number
HALF_TURN = 1 << 30  # of the numbers: then each slot is written as a whole once
WIDE_REFRESHES = 1 << 16  # numbers of the wide slot after it, whose messages write all of it
FIRST_WIDE = WIDE_REFRESHES  # in fresh memory there is nothing that passes for new
assert WIDE_REFRESHES > MAX_REQUEST_SLOTS

CHANNELS = 256  # for each rank of the node, as far as there is room
MOST_BYTES = 176 << 20  # for them; with all else a rank's direct memory has at most 256 MiB

# A row of the table of channels in device memory: two words of 16 bytes. Nobody is ever removed,
# and nobody writes to a row after it has been entered: it is read through L1.
ROW_KEY = 0  # 0: nobody's
ROW_REMOTE = 8  # OPENING, PROXIED, or where the other end is: cells of the sender, or inbox
ROW_LOCAL = 16  # where our end is
ROW_COUNTERS = 24  # address of those of this row, behind all rows
ROW_BYTES = 32
OPENING = 0
PROXIED = 1
# Counters, which change, lie in lines of their own:
COUNTER_FREE = 0  # sender, 32 bits: the slots of all messages before this one are known to be free
COUNTER_NUMBER = 4  # 32 bits: of the next message; above the other, which its carry leaves alone
COUNTER_WIDE = 8  # sender: of the next message in the wide slot
COUNTER_BYTES = 32

# A key:  watched << 63 | 1 << 62 | receives << 61 | communicator << 53 | peer << 31 | tag
KEY_MARK = 1 << 62
# Of a channel of the direct road in debug mode: calls look for keys without it, so their quick ways
# find nothing, and leave everything to ``device_lib/direct/watching.py``.
KEY_WATCHED = -1 << 63
KEY_RECEIVES_SHIFT = 61
KEY_COMM_SHIFT = 53
KEY_PEER_SHIFT = 31
KEY_PEERS = 1 << 22
KEY_TAG_MASK = (1 << 31) - 1


class Places(NamedTuple):
    """What lies where in direct memory.

    Attributes:
        ranks: of the node.
    """

    ranks: int

    @property
    def channels(self) -> int:
        """Whose receiver we can be. Those that are one too many take the proxied road."""
        each = INBOX_BYTES + self.ranks * CELLS_BYTES
        return min(CHANNELS * self.ranks, MOST_BYTES // each)

    @property
    def rows(self) -> int:
        """Of the table of channels: a power of two. Ours, those to each rank, and as many that take
        the proxied road leave half of them free."""
        return 1 << (4 * (1 + self.ranks) * self.channels - 1).bit_length()

    def inbox(self, channel: int) -> int:
        return STAGED * STAGED_BYTES + channel * INBOX_BYTES

    def cells(self, receiver: int, channel: int) -> int:
        """Ours, of a channel to rank ``receiver`` of the node."""
        return self.inbox(self.channels) + (receiver * self.channels + channel) * CELLS_BYTES

    @property
    def arena(self) -> int:
        return align(self.cells(self.ranks, 0), 4096)

    @property
    def nbytes(self) -> int:
        return self.arena + ARENA_BYTES + LONG_ARENA_BYTES

    @property
    def registered(self) -> int:
        """Behind the table of channels, in device memory of our own: that of registered arrays."""
        return self.rows * (ROW_BYTES + COUNTER_BYTES)

    @property
    def table_bytes(self) -> int:
        """Of both tables."""
        return self.registered + registered_bytes(self.ranks)


def number_mark(number: int) -> int:
    """What packets of a message carry; odd, so that fresh memory is nobody's. Compiled, too."""
    return (number << 1 | 1) & 0xFFFFFFFF


def is_refreshed(number: int) -> bool:
    """Whether a message writes every packet of its slot, and its receiver an announcement: the
    first ones after half a turn. Compiled, too."""
    return number & (HALF_TURN - 1) < DEPTH


def wide_word(number: int) -> int:
    """In packet 0, what says that message ``number`` of the wide slot is there. Compiled, too."""
    return ALL_OF_IT if number & (HALF_TURN - 1) < WIDE_REFRESHES else WIDE


def packets_of(nbytes: int) -> int:
    """Packets of a message of at most ROOM bytes; compiled, too."""
    if nbytes <= HEADER_PAYLOAD:
        return 1
    # Of 12 bytes each; without a division.
    return 1 + ((nbytes + (PACKET_PAYLOAD - 1 - HEADER_PAYLOAD)) * 43691 >> 19)
