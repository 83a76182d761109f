"""The bytes of direct collectives: what the ranks of a communicator write to each other's memory.

A communicator is *direct as a whole* where the GPUs of all its ranks map each other's memory, and
no receive on it uses wildcards. Each rank has an *area* in the arena (``channels.py``) then, and a
*row* in device memory, where kernels find the areas.

**Rounds.** A collective takes one round, or several where it has more bytes than an inbox holds.
Each rank counts them; MPI has all ranks call collectives in the same order, so they count alike.

**Inboxes.** In each area there are two for each rank, for even and odd rounds. A packet is 8 bytes
of payload and a word by which the receiver knows that it has come: 30 bits of the round's number,
and 32 bits more. Those of packet 0 say which call it is (the *signature*), so that calls that
differ are seen; those of all others have the upper bits of the number, so that they never repeat.

In every round every rank stores packet 0 to every other rank, if only to say: I have *entered* it.
Who has entered round k has read all that came in round k - 1. So what is stored in round k, to the
inboxes of round k - 2, falls on nothing that somebody may still want, once all have entered round
k - 1. Who has waited for packets of all ranks knows that. Who has not, as in a Bcast, begins the
next round with a look (``ENTERED``). See ``tests/model/collective.pml``.

**Calls that do not block** have inboxes of their own, PENDING in turn, and are counted apart. Who
starts one stores its packets at once, packet 0 to all ranks. They are *taken* in their order, by
whoever waits for one, or goes on with others' requests: a wait for a call takes those before it
first. A rank tells the others how many it has taken, its *credit*: so a start knows that its
inboxes are free, or waits. Who has gone wrong in a call is seen by its packet 0 there, also from a
later call. See ``tests/model/pending.pml``.

**Long collectives** go in *chunks*, cut into a *segment* for each rank, through two boxes behind
the inboxes: an inbox with room for a segment of each source, and an outbox for all segments. They
are stored as they are. All ranks *meet* twice in each chunk: they enter a round that brings no
bytes, with a fence before it, and wait for each other. In an Allreduce each rank stores its part of
each segment to its owner, they meet, the owner reduces it and stores the result to all outboxes,
they meet, and all take it. In a Bcast they meet, the root stores to all outboxes, they meet. See
``tests/model/long_collective.pml``.
"""

from __future__ import annotations

from gmpi.contract import moves
from gmpi.contract.constants import BYTE, DATATYPE_MARK, DATATYPES, FLOAT, INT8_T, SUM, UINT8_T
from gmpi.contract.wire import (
    COLLECTIVE_ROW_BYTES,
    FIRST_MOVING,
    LOW_32,
    OP_REDUCE_SCATTER,
    PACKET_BYTES,
)

RANKS = 32  # of a communicator; larger ones take the proxied road
PAYLOAD = 8  # bytes of a packet
PACKETS = 4096
ROOM = PACKETS * PAYLOAD  # bytes of a round

# --- calls that do not block ----------------------------------------------------------------------
PENDING = 64  # of a communicator, that a rank has started and not all others have taken
PENDING_PACKETS = 32
PENDING_ROOM = PENDING_PACKETS * PAYLOAD  # bytes; longer ones take the proxied road
_PENDING_BYTES = PENDING_PACKETS * PACKET_BYTES
CREDIT_STEP = 16  # calls, after which a rank tells the others how many it has taken

# In an inbox: the packets of a round | for each second call that does not block, its packets.
INBOX_BYTES = PACKETS * PACKET_BYTES + PENDING // 2 * _PENDING_BYTES


def pending_place(number: int) -> int:
    """Where a call's packets are in an inbox, which is one of odd rounds for an odd call. Compiled,
    too."""
    return PACKETS * PACKET_BYTES + (number >> 1 & PENDING // 2 - 1) * _PENDING_BYTES


# --- an area --------------------------------------------------------------------------------------
#   inboxes of even rounds, by source | of odd rounds | ROOM bytes, packed here by their owner
#   | of each call that does not block, its record | credits, by rank | its bytes, packed
#   and, where there is room, flags (``pipelines.py``) | the long inbox | the long outbox
# A record is a packet: where the result goes, or SCATTERED with the slot that has its layout; the
# word of the call. A credit is one, too: how many calls the rank has taken.


_CREDITS = ROOM + PENDING * PACKET_BYTES
_PENDING_BYTES_AT = _CREDITS + RANKS * PACKET_BYTES
_AREA_END = _PENDING_BYTES_AT + PENDING * PENDING_ROOM


def records_at(ranks: int) -> int:
    """Compiled, too."""
    return 2 * ranks * INBOX_BYTES + ROOM


def credits_at(ranks: int) -> int:
    """Compiled, too."""
    return 2 * ranks * INBOX_BYTES + _CREDITS


def pending_bytes_at(ranks: int) -> int:
    """Compiled, too."""
    return 2 * ranks * INBOX_BYTES + _PENDING_BYTES_AT


def area_bytes(ranks: int) -> int:
    """Without the boxes of long collectives. Compiled, too."""
    return 2 * ranks * INBOX_BYTES + _AREA_END


LONG = 2 * ROOM  # longer ones go in chunks
CHUNKS = 4 << 20, 1 << 20, 1 << 18  # bytes of a chunk; the first for which there is room
SEGMENT_STEP = 16  # segments begin at a multiple of so many bytes
LONG_ARENA_BYTES = 32 << 20  # of direct memory, for areas with boxes


def box_bytes(chunk: int) -> int:
    """A long inbox, or outbox. Compiled, too."""
    return chunk + RANKS * SEGMENT_STEP


# --- a row; from AREA on all fields are constant --------------------------------------------------
NUMBER = 0  # of the next round
ENTERED = 8  # all ranks are known to have entered all rounds before this one; < 0: one has failed
SIGNATURE = 16  # of the last round, where not all are known to have entered it
# Of calls that do not block:
STARTED = 32  # how many, by this rank
TAKEN = 40  # how many of them are complete, the first ones
TURN = 48  # TAKEN modulo 2**24, << 1; | 1: somebody takes
KNOWN = 64  # what all ranks are known to have taken, at least
BROKEN = 72  # not 0: one has failed
SEEN = 80  # STARTED, as a helper first saw it, and when, ns
ASKED = 96  # tests of them that have found nothing; for reports
ASKED_ABOUT = 112  # the block of the last one, and which call it was about
AREA = 128
PLACE = 136  # our rank | ranks << RANKS_SHIFT
CHUNK = 144  # bytes of a chunk of a long collective; 0: there are none
PEERS = 256  # for each rank, where our inbox of even rounds is there
RANKS_SHIFT = 32
assert PEERS + 8 * RANKS == COLLECTIVE_ROW_BYTES

# --- what a call is: one word ---------------------------------------------------------------------
#   op (4) | log2 of the element's bytes (2) | class of the element (2) | kind (4); of what does not
#   reduce, the root in place of the first three | NONBLOCKING_CALL | communicator << COMM_SHIFT
#   | signature << SIGNATURE_SHIFT
# A signature has the lower twelve bits, and the amount modulo 2**AMOUNT_BITS: elements of what
# reduces, bytes of a block of anything else. A Reduce has its root in the upper bits of the amount.
OP_MASK = 0xF
SIZE_SHIFT = 4
CLASS_SHIFT = 6
SIGNED = 0
UNSIGNED = 1
REAL = 2
ROOT_MASK = 0xFF
KIND_SHIFT = 8
KIND_MASK = 0xF
ALLREDUCE = 1
BCAST = 2
BARRIER = 3
REDUCE = 4  # from here on ``moves.ROWS``, in the order of their opcodes
GATHER = 5
SCATTER = 6
ALLGATHER = 7
ALLTOALL = 8
REDUCE_SCATTER_BLOCK = 9
SCAN = 10
EXSCAN = 11
REDUCE_SCATTER = 12  # whose blocks have lengths of their own
NONBLOCKING_CALL = 1 << 12  # in no signature
COMM_SHIFT = 16
SIGNATURE_SHIFT = 32
AMOUNT_SHIFT = 12
AMOUNT_BITS = 19  # so that no signature is negative in 32 bits
AMOUNT_MASK = (1 << AMOUNT_BITS) - 1
REDUCE_ROOT_SHIFT = 14  # in an amount
REDUCE_ROOT_MASK = RANKS - 1


def _kinds(rows: list[moves.Row]) -> int:
    """A bit for the kind of each."""
    return sum(1 << row.op - FIRST_MOVING + REDUCE for row in rows)


# A bit for each kind: of what reduces; of what gives, or gets, a block for each rank.
REDUCING = 1 << ALLREDUCE | _kinds([row for row in moves.ROWS if row.reduces]) | 1 << REDUCE_SCATTER
GIVES_BLOCKS = _kinds([r for r in moves.ROWS if r.out in (moves.ALL, moves.ALL_AT_ROOT)])
GETS_BLOCKS = _kinds([r for r in moves.ROWS if r.back in (moves.ALL, moves.ALL_AT_ROOT)])


_NUMBER_BITS = 30  # so that no word is negative
_NUMBERS = (1 << _NUMBER_BITS) - 1


def call_word(what: int, amount: int, comm: int) -> int:
    """The word of a call; compiled, too.

    Args:
        what: its lower twelve bits.
        amount: elements or bytes.
    """
    signature = what | (amount & AMOUNT_MASK) << AMOUNT_SHIFT
    return what | comm << COMM_SHIFT | signature << SIGNATURE_SHIFT


def kind_of(what: int) -> int:
    """ALLREDUCE, BCAST, ...: of a word or a signature. Compiled, too."""
    return what >> KIND_SHIFT & KIND_MASK


def op_of(kind: int) -> int:
    """The opcode of a kind from REDUCE on; compiled, too."""
    return OP_REDUCE_SCATTER if kind == REDUCE_SCATTER else kind - REDUCE + FIRST_MOVING


def amount_of(signature: int) -> int:
    """Elements or bytes of a call; compiled, too."""
    amount = signature >> AMOUNT_SHIFT & AMOUNT_MASK
    if signature >> KIND_SHIFT & KIND_MASK == REDUCE:
        amount &= (1 << REDUCE_ROOT_SHIFT) - 1
    return amount


def root_of(signature: int) -> int:
    """The root of a call that has one; compiled, too."""
    if signature >> KIND_SHIFT & KIND_MASK == REDUCE:
        return signature >> AMOUNT_SHIFT + REDUCE_ROOT_SHIFT & REDUCE_ROOT_MASK
    return signature & ROOT_MASK


def gives_to(kind: int, root: int, me: int, ranks: int) -> int:
    """A bit for each rank that bytes of ours go to, in a collective that moves blocks; compiled,
    too."""
    everybody = (1 << ranks) - 1
    if kind <= GATHER:  # or REDUCE
        return 1 << root
    if kind == SCATTER:
        return everybody if me == root else 0
    if kind == SCAN:
        return everybody & ~((1 << me) - 1)
    if kind == EXSCAN:
        return everybody & ~((2 << me) - 1)
    return everybody


def takes_from(kind: int, root: int, me: int, ranks: int) -> int:
    """A bit for each rank that bytes come from, likewise: of what reduces, ranks 0 to some."""
    everybody = (1 << ranks) - 1
    if kind <= GATHER:  # or REDUCE
        return everybody if me == root else 0
    if kind == SCATTER:
        return 1 << root
    if kind == SCAN:
        return (2 << me) - 1
    if kind == EXSCAN:
        return (1 << me) - 1
    return everybody


def packets_of_round(nbytes: int) -> int:
    """Packets of a round, at least one. Compiled, too."""
    return max(1, (nbytes + PAYLOAD - 1) >> 3)


def first_word(number: int, signature: int) -> int:
    """The word of packet 0 of a round: odd above, so that fresh memory is no round's. Compiled,
    too."""
    return ((number & _NUMBERS) << 1 | 1) << 32 | signature


def later_word(number: int) -> int:
    """The word of all other packets. Compiled, too."""
    return ((number & _NUMBERS) << 1 | 1) << 32 | (number >> _NUMBER_BITS & LOW_32)


# --- what the GPU can reduce ----------------------------------------------------------------------
def _numbers(*kinds: str, only: int = 0) -> int:
    """A bit for each datatype whose elements are of one of NumPy's kinds, and of ``only`` bytes."""
    found = 0
    for number, (name, _, dtype) in enumerate(DATATYPES):
        known = name not in ("BYTE", "CHAR", "WCHAR") and dtype.kind in kinds
        if known and dtype.itemsize in ((only,) if only else (1, 2, 4, 8, 16)):
            found |= 1 << number
    return found


SIGNED_INTEGERS = _numbers("i")
UNSIGNED_INTEGERS = _numbers("u")
BOOLEANS = _numbers("b")
REALS = _numbers("f", only=4) | _numbers("f", only=8)
COMPLEX_FLOATS = _numbers("c", only=8)
COMPLEX_DOUBLES = _numbers("c", only=16)
BYTES = 1 << next(i for i, (name, _, _) in enumerate(DATATYPES) if name == "BYTE")
NOT_OURS = -1


def reduction_word(op: int, datatype: int) -> int:
    """The lower bits of the word of an Allreduce; NOT_OURS: the GPU cannot. Compiled, too.

    Args:
        datatype: handle of a predefined one.
    """
    number = datatype & 0x3F
    size = datatype >> 8 & 0xFF
    integer = (SIGNED_INTEGERS | UNSIGNED_INTEGERS) >> number & 1
    real = REALS >> number & 1
    single = COMPLEX_FLOATS >> number & 1
    double = COMPLEX_DOUBLES >> number & 1
    allowed = integer
    if op < 0 or op > 9:
        allowed = 0
    elif op == SUM:
        allowed |= real | single | double
    elif op <= 3:  # PROD, MIN, MAX
        allowed |= real
    elif op <= 6:  # logical ones
        allowed |= BOOLEANS >> number & 1
    else:
        allowed |= BYTES >> number & 1
    if allowed == 0:
        return NOT_OURS
    shift = (size > 1) + (size > 2) + (size > 4)
    kind = UNSIGNED
    if real | single | double != 0:
        kind = REAL
        shift -= single
    elif SIGNED_INTEGERS >> number & 1 != 0:
        kind = SIGNED
    return op | shift << SIZE_SHIFT | kind << CLASS_SHIFT | ALLREDUCE << KIND_SHIFT


def datatype_of(what: int) -> int:
    """A datatype for reports, by the word of a call. Compiled, too."""
    if REDUCING >> (what >> KIND_SHIFT & KIND_MASK) & 1 == 0:
        return BYTE
    shift = what >> SIZE_SHIFT & 3
    kind = what >> CLASS_SHIFT & 3
    first = (INT8_T if kind == SIGNED else UINT8_T) & 0xFF
    if kind == REAL:
        first = (FLOAT & 0xFF) - 2
    return DATATYPE_MARK | 1 << shift + 8 | first + shift
