"""The bytes of partitioned requests: rows that kernels read, and what two GPUs write to each other.

A partitioned request is a channel of its own (MPI 4.1 chapter 4): its two ends are matched once,
when they are made, and from then on each partition travels by itself. Each end has a *row* in its
own device memory. What the other end writes to lies in the *arena*, a part of direct memory
(``channels.py``); the host gives it out.

**Rounds.** Each end counts its Starts. The receiver's Start stores its count, the *credit*, in the
sender's memory.

**Packets** (``PACKETS``): partitions of at most ``MOST_IN_PACKETS`` bytes, contiguous on both
sides. The receiver has two inboxes, for odd and even rounds, with room for all partitions of the
sender: packets of 12 bytes and the number of the round. Round k may be stored when the receiver has
started round k - 1: then it has taken round k - 2, which lay in the same inbox. A partition always
has the same packets, so an inbox holds none that is older than that, and numbers may wrap.

**Stores** (``STORES``): anything else. The sender stores the bytes to where they belong, or, if
that is not memory that it can map, to staging in the arena; then a fence, then the number of the
round in the partition's *flag*. Round k may be stored when the receiver has started it.

**By the proxies** (``PROXIED``): between ranks without a direct road. Partitions that lie side by
side are a *group*, and a group is a message: of at least ``GROUP_LEAST`` bytes, if there are as
many. Whoever makes the last partition of a group ready sends it; the receiver's Start opens a
receive for each. Both ends have the same groups: as many bytes as are whole partitions of both. A
group has a record in its end's own arena, and in it the request of the round.

**Marks** say what an end has done with each of its own partitions: round << MARK_SHIFT | one of
``SENT``, ``LATE``, ``MOVING``, ``TAKEN``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gmpi.contract.sizes import align
from gmpi.contract.wire import INLINE_BYTES, PACKET_BYTES, PACKET_PAYLOAD, PARTITIONED_ROW_BYTES

ARENA_BYTES = 16 << 20
MOST_IN_PACKETS = 65536  # bytes of a partition
MOST_IN_INBOXES = 6 << 20  # bytes of both inboxes of a request
LOCAL_ARENA_BYTES = 2 << 20  # of a rank without direct memory: nobody else writes there
GROUP_LEAST = 65536  # bytes of a group, where the message has as many
GROUPS = 8  # of a message, at most: each has a request open

# --- a row; all fields but STATE, LATE_COUNT and those about ASKED are the host's -----------------
OWNER = 0  # the handle; 0: nobody's
STATE = 8  # round << 1 | ACTIVE
SHAPE = 16  # partitions | mode << MODE_SHIFT | flags | what has a shift below
NBYTES = 24  # of one partition
USER = 32  # the user's buffer; with TYPE, as in a layout of layouts.py
TYPE = 40  # row of a derived datatype; 0: the buffer is contiguous
PLACE = 48  # PACKETS: the inboxes. STORES: where bytes are stored to
STRIDE = 56  # PACKETS: bytes of an inbox for one partition of the sender
CREDIT = 64  # in the sender's memory
MARKS = 72
FLAGS = 80  # STORES: one for each partition of the sender, in the receiver's memory
THEIR_BYTES = 88  # of one partition of the other end
THEIR_PARTITIONS = 96
ORIGIN = 104  # peer | tag << 32
COUNT = 112  # elements of all partitions
LATE_COUNT = 120  # partitions that are ready and not stored; 1: receives that have not been opened
ASKED = 128  # calls of Parrived, and tests, that have found nothing; for reports
ASKED_BLOCK = 136  # of the last one; | BY_TEST
BY_TEST = 1 << 32
# What ``device_lib/direct/partitioned_quick`` reads through the nearest cache: two sectors, each of
# which is that of a request, or of none. Nothing in them changes while the request lives.
QUICK = 160  # the handle, USER, PLACE, NBYTES | STRIDE << QUICK_SHIFT
QUICK_MORE = 192  # the handle, MARKS, CREDIT, partitions | whether it sends << QUICK_SHIFT
QUICK_SHIFT = 32
SECTOR_BYTES = 32  # that a cache has as a whole, or not at all
assert ASKED_BLOCK < QUICK and QUICK % SECTOR_BYTES == 0 and QUICK_MORE % SECTOR_BYTES == 0
assert QUICK_MORE + SECTOR_BYTES <= PARTITIONED_ROW_BYTES
# The same places, where partitions travel by the proxies:
GROUPS_AT = PLACE  # the groups' records
GROUP_PARTITIONS = STRIDE  # partitions of ours in a group; the last one may have fewer
FIRST_RECORD = FLAGS  # peer | tag of the first group << 32, of its record
FIRST_WORD = THEIR_BYTES  # the record's first word
GROUP_COUNT = THEIR_PARTITIONS

ACTIVE = 1
ROUND_SHIFT = 1

PARTITIONS_MASK = (1 << 32) - 1
MODE_SHIFT = 32
MODE_MASK = 0xF
OPENING = 0  # the other end is not known so far
NOBODY = 1  # PROC_NULL
PACKETS = 2
STORES = 3
FAILED = 4
PROXIED = 5
SENDS = 1 << 40
EQUAL = 1 << 41  # both ends have the same partitions
COPIES = 1 << 42  # of a receive in STORES: bytes come to staging
NO_ROAD = 1 << 43  # there is no direct road to the other end: when that is known, PROXIED
FAILURE_SHIFT = 44
COMM_SHIFT = 52

MARK_BYTES = 8
MARK_SHIFT = 2
LATE = 0  # ready, but its bytes have not been stored: the receiver has not come so far
SENT = 1
MOVING = 2  # LATE, and somebody is storing it
TAKEN = 3
FLAG_BYTES = 8
CREDIT_BYTES = 128

# --- the record of a group ------------------------------------------------------------------------
GROUP_STATE = 0  # round << GROUP_SHIFT | one of the three below
GROUP_HANDLE = 8
GROUP_READY = 16  # partitions of this round that are ready
GROUP_ERROR = 24  # error class with which the request of the round has ended
GROUP_ELEMENTS = 32
GROUP_BUFFER = 40  # address, bytes behind it, 0: as ``device_lib/move/layouts.py`` describes one
GROUP_BYTES = 64
GROUP_SHIFT = 2
BUSY = 1  # somebody opens the request, or looks at it
OPEN = 2
DONE = 3
UNLIMITED = 1 << 61  # bytes behind the address: the host has seen to it that there is room

# --- handle ---------------------------------------------------------------------------------------
#   row (10) | generation (22) << 10 | context (6) << HANDLE_CONTEXT_SHIFT | 1 << 62
GENERATION_SHIFT = 10
GENERATIONS = 1 << 22


class Wanted(NamedTuple):
    """What a kernel says of an end that it wants: int64 words, as the user has given them.

    Attributes:
        address, room: of the buffer, and its bytes.
        count: elements of one partition.
        about: bytes of the array's elements, 0: not known | its flaws (FLAG_*) << FLAWS_SHIFT |
            dimensions of a strided view << DIMENSIONS_SHIFT.
        view: elements and bytes from one to the next, of each dimension, the outermost first; as
            many words as for MOST_DIMENSIONS.
    """

    address: int
    room: int
    partitions: int
    count: int  # type: ignore[assignment]  # MPI's word; hides tuple.count
    datatype: int
    peer: int
    tag: int
    comm: int
    about: int
    view: tuple[int, ...]

    @property
    def itemsize(self) -> int:
        return self.about & (1 << FLAWS_SHIFT) - 1

    @property
    def flaws(self) -> int:
        return self.about >> FLAWS_SHIFT & (1 << DIMENSIONS_SHIFT - FLAWS_SHIFT) - 1

    @property
    def dimensions(self) -> int:
        return self.about >> DIMENSIONS_SHIFT

    @classmethod
    def of_words(cls, words: Sequence[int]) -> Wanted:
        own, view = words[:_OWN_WORDS], tuple(words[_OWN_WORDS:])
        return cls(*own, view)  # type: ignore[arg-type,call-arg]


FLAWS_SHIFT = 16
DIMENSIONS_SHIFT = 32
MOST_DIMENSIONS = 4  # that the record has room for
_OWN_WORDS = len(Wanted._fields) - 1
WANTED_BYTES = 8 * (_OWN_WORDS + 2 * MOST_DIMENSIONS)
assert WANTED_BYTES <= INLINE_BYTES


def packets_of_partition(nbytes: int) -> int:
    """How many a partition of at most MOST_IN_PACKETS bytes takes, at least one. Compiled, too."""
    if nbytes == 0:
        return 1
    # Without a division; right up to 131071.
    return (nbytes + PACKET_PAYLOAD - 1) * 43691 >> 19


def inbox_stride(nbytes: int) -> int:
    """Bytes of an inbox for a partition."""
    return align(packets_of_partition(nbytes) * PACKET_BYTES, 128)


class Groups(NamedTuple):
    """How one end's partitions go by the proxies.

    Attributes:
        partitions: of a group; the last one may have fewer.
        number: of groups.
    """

    partitions: int
    number: int


def groups_of(partitions: int, nbytes: int, theirs: int) -> Groups:
    """The groups of an end.

    Args:
        nbytes: of one partition.
        theirs: of one partition of the other end, which has as many bytes in all.
    """
    total = partitions * nbytes
    if total == 0:
        return Groups(partitions, 1)
    step = math.lcm(nbytes, theirs)
    wanted = max(GROUP_LEAST, -(-total // GROUPS))
    each = min(-(-wanted // step) * step, total) // nbytes
    return Groups(each, -(-partitions // each))


def round_mark(number: int) -> int:
    """What packets of a round carry; odd, so that fresh memory is no round's. Compiled, too."""
    return (number << 1 | 1) & 0xFFFFFFFF
