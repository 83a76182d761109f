"""The bytes of long collectives at once: Allreduce, Allgather, Alltoall.

**Opening.** All ranks enter a round (``collectives.py``) in which each tells each other one what it
has: packet 0 brings an *offer*, packets 1 and 2 where its buffers are for the other rank, relative
to its own area. All ranks have all offers then, and come to the same answer:

* *Straight*, where all of them can: each stores to, and loads from, the users' buffers, which are
  registered arrays that the others have mapped (``registered.py``), and lie in one piece. They meet
  once more at the end.
* Through *pipelines* else, if all blocks of all ranks reach their buffers. As many as the rank with
  the fewest blocks has blocks. Block b of each rank works with block b of the others, and with
  nobody else.
* Not at all: in rounds, or in chunks.

What is not in one piece is packed where it is stored, and unpacked where it is taken; what an
Allreduce has must be in one piece.

**A pipeline** has two *slots* for each other rank, in the memory of the boxes of chunks, and two
*flags* for it. A message is cut into pieces, which go to the pipelines in turn. Who has stored a
piece into a slot stores a flag: the number of the opening, and how many pieces there have been. No
slot is ever given back:

* In an Allreduce one slot takes a piece of our segment, the other one a piece of a result. A rank
  stores its next piece when it has taken all results of the last one; so all have reduced that.
  It stores a result when it has all pieces for it; so all have taken the result before.
* In an Allgather or Alltoall the two slots take pieces in turn. A rank stores piece k when it has
  piece k - 1 of all others; so all have taken piece k - 2.
* Where a rank has taken piece k, and has not told of piece k + 1, nobody stores to the slots that
  piece k was in. There it packs a piece of its own block, which it unpacks at once.

The next opening begins when all blocks of a rank are done, so no flag of a former call is waited
for, and no slot in use. See ``tests/model/pipelines.pml``.
"""

from __future__ import annotations

from typing import NamedTuple

from gmpi.contract.collectives import RANKS
from gmpi.contract.wire import PACKET_BYTES

PIPELINES = 256  # at most
LEAST_SLOT = 8192  # bytes; with more pipelines slots would be shorter
STEP = 128  # slots and pieces are multiples of it
# Of a source in a pipeline: two flags; and, for the owner itself, where it reduces from and to.
FLAG_BYTES = 4 * PACKET_BYTES
PLACES = 2 * PACKET_BYTES
TARGET = PACKET_BYTES  # where to, behind where from

# --- an offer -------------------------------------------------------------------------------------
#   blocks | AT_ONCE | STRAIGHT | bytes of the call << OFFERED_SHIFT: a signature has only the
#   lower bits of the amount
BLOCKS_MASK = 0xFFFF
AT_ONCE = 1 << 16  # all blocks can move what is in the buffers
STRAIGHT = 1 << 17  # every other rank has mapped what it needs
OFFERED_SHIFT = 18
SEND_PACKET = 1
RECV_PACKET = 2
assert (RECV_PACKET - SEND_PACKET) * PACKET_BYTES == TARGET

# --- what all blocks of a rank are told -----------------------------------------------------------
NUMBER_SHIFT = 10  # number of the opening | pipelines; 0: straight
PIPELINES_MASK = (1 << NUMBER_SHIFT) - 1
assert PIPELINES <= PIPELINES_MASK


# --- what a wait for a piece says in a report -----------------------------------------------------
#   in place of the peer: rank (5) | which flag (1) | which piece (13) | of how many (13)
_FLAG_SHIFT = 5
_PIECE_SHIFT = 6
_PIECES_SHIFT = 19
_MOST_PIECES = (1 << 13) - 1
assert RANKS <= 1 << _FLAG_SHIFT


def missing_word(rank: int, which: int, piece: int, pieces: int) -> int:
    """What is missing from a rank; compiled, too.

    Args:
        piece: from 1.
    """
    some = min(piece, _MOST_PIECES) << _PIECE_SHIFT | min(pieces, _MOST_PIECES) << _PIECES_SHIFT
    return rank | which << _FLAG_SHIFT | some


class MissingPiece(NamedTuple):
    """What a rank waits for in a pipeline.

    Attributes:
        rank: of the communicator, whose it is.
        which: of its two flags.
        piece, pieces: from 1, of so many.
    """

    rank: int
    which: int
    piece: int
    pieces: int


def missing_of(word: int) -> MissingPiece:
    """What a ``missing_word`` says."""
    return MissingPiece(
        word & (1 << _FLAG_SHIFT) - 1,
        word >> _FLAG_SHIFT & 1,
        word >> _PIECE_SHIFT & _MOST_PIECES,
        word >> _PIECES_SHIFT & _MOST_PIECES,
    )


def flags_bytes(ranks: int) -> int:
    """Flags of all pipelines, which lie between the packed bytes and the boxes. Compiled, too."""
    return PIPELINES * ranks * FLAG_BYTES


def flag_at(ranks: int, pipeline: int, source: int) -> int:
    """Where those of a source are among the flags; compiled, too."""
    return (pipeline * ranks + source) * FLAG_BYTES


def pipelines_of(blocks: int, chunk: int, ranks: int) -> int:
    """How many there are, by the fewest blocks of a rank; compiled, too."""
    return max(1, min(blocks, PIPELINES, chunk // (max(ranks - 1, 1) * LEAST_SLOT)))


def slot_bytes(chunk: int, pipelines: int, ranks: int) -> int:
    """Compiled, too."""
    return chunk // (pipelines * max(ranks - 1, 1)) & ~(STEP - 1)


def slot_at(ranks: int, slot: int, pipeline: int, which: int, source: int, owner: int) -> int:
    """Where a slot of a source begins, behind where the boxes of its owner do; compiled, too.

    Args:
        slot: bytes of each.
        which: of the two.
    """
    index = source - 1 if source > owner else source
    return ((pipeline * 2 + which) * (ranks - 1) + index) * slot


def pieces_of(nbytes: int, pipelines: int, slot: int) -> int:
    """Of the pipeline with the most; compiled, too."""
    return max(1, (nbytes + pipelines * slot - 1) // (pipelines * slot))


def piece_bytes(nbytes: int, pipelines: int, slot: int) -> int:
    """Of each but the last one, so that all pipelines have as many; compiled, too."""
    turns = max(1, (nbytes + pipelines * slot - 1) // (pipelines * slot))
    return ((nbytes + pipelines * turns - 1) // (pipelines * turns) + STEP - 1) & ~(STEP - 1)
