"""The bytes of direct collectives whose blocks have counts of their own, and of those among
neighbours.

Such a call is an *exchange*: a message (``channels.py``) for each block, which goes by a channel
that no other call can name. There is one for each pair of ranks and direction, on communicators
that are direct as a whole. So the k-th block that a rank sends to another one meets the k-th that
this one receives from it, in this call and in all that follow. An empty block is an empty message.

The ends of these channels lie in front of the communicator's area (``collectives.py``), so that
every rank knows where those of the others are, and no proxy is asked:

    inboxes by source | cells by destination | edges | area

*Edges* are the neighbours of a communicator with a topology, for each way in the order in which
blocks go: by their distance, and those of one distance in the order of the graph (``Neighbours`` of
host_proxy). A block that goes from a rank to another one has the same distance at both. So all
ranks come to theirs in one order, and it does not matter how few they have under way at once. Where
blocks are swapped (Alltoallv with IN_PLACE), both ranks of a pair come to theirs in the same step.
"""

from __future__ import annotations

from gmpi.contract.channels import (
    CELLS_BYTES,
    INBOX_BYTES,
    KEY_COMM_SHIFT,
    KEY_PEER_SHIFT,
    KEY_RECEIVES_SHIFT,
)
from gmpi.contract.sizes import align

_MARK = 2  # in place of mark and tag of a key; 1 is that of all channels with a rank
MOST_EDGES = 128  # each way; with more, on whichever rank, these calls take the proxied road
EDGES_NUMBERS = 0  # how many go out | come in << 32
EDGES_OUT = 8
EDGES_BACK = EDGES_OUT + 8 * MOST_EDGES
EDGE_BLOCK_SHIFT = 32  # an edge: the other rank | which block << EDGE_BLOCK_SHIFT
EDGES_BYTES = align(EDGES_BACK + 8 * MOST_EDGES, 128)


def exchange_key(comm: int, peer: int, receives: int) -> int:
    """What names a channel. This and all below: compiled, too."""
    key = receives << KEY_RECEIVES_SHIFT | comm << KEY_COMM_SHIFT | peer << KEY_PEER_SHIFT
    return key | _MARK


def exchange_bytes(ranks: int) -> int:
    """What lies in front of an area."""
    return ranks * (INBOX_BYTES + CELLS_BYTES) + EDGES_BYTES


def inbox_at(ranks: int, source: int) -> int:
    """Where an inbox is, relative to the area of the rank that it is for."""
    return (source - ranks) * INBOX_BYTES - ranks * CELLS_BYTES - EDGES_BYTES


def cells_at(ranks: int, destination: int) -> int:
    """Where cells are, relative to the area of the rank that sends."""
    return (destination - ranks) * CELLS_BYTES - EDGES_BYTES
