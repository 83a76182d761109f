"""What each rank of a job has pending, as far as it matters for why nothing moves.

Ranks are those of the context's communicator throughout; a communicator is named by an identity
that is the same on all ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kernels = Literal["running", "none running", "none launched", "being prepared", "host only"]
Tables = dict[int, "Table | None"]  # None: the rank did not answer

LISTED = 4  # ranks or requests that a sentence names one by one


@dataclass(frozen=True)
class Pending:
    """A request that is open.

    Attributes:
        kind: ``send``, ``receive``, ``collective`` or ``other``.
        peer: rank of the context, None for ANY_SOURCE and where there is no peer; of a broadcast
            the root.
        tag: None for ANY_TAG and where there is no tag.
        communicator: identity.
        block: linear number of the calling block, -1 for a call of the host.
        matched: the message of a receive has begun to come.
        commands: how often threads have been asked to move bytes of it and have not yet done so.
        age_s: seconds; at least that old.
        lacks: of a partitioned request, a call of grid scope or a long direct collective, what is
            missing, in words.
        end: number of its end, 0 for any other request.
        number: of a message of the direct road: its number among those with its communicator, tag
            and ranks, from 1; 0 for any other request.
        done: how many of those have come; of a send, how many the other rank has received.
        waits: threads wait for it, as far as is known; False: on the direct road none does.
        gives, takes: of a collective with counts, (rank, bytes) that go to each, and come from it;
            of a reduction, what each rank gets.
    """

    operation: str
    kind: str
    peer: int | None
    tag: int | None
    communicator: str
    datatype: str
    count: int
    nbytes: int
    block: int
    serial: int
    reduction: str = ""
    matched: bool = False
    commands: int = 0
    age_s: float = 0.0
    lacks: str = ""
    end: int = 0
    gives: tuple[tuple[int, int], ...] = ()
    takes: tuple[tuple[int, int], ...] = ()
    number: int = 0
    done: int = 0
    waits: bool = True

    @property
    def function(self) -> str:
        """What ranks of one collective must call, in kernels or on the host, blocking or not."""
        name = self.operation.removeprefix("GMPI_").removeprefix("Context.host.")
        return name.lower().removeprefix("i")

    def count_text(self, who: str = "it") -> str:
        """How many messages of its channel there were, to follow a sentence; empty where that is
        not known, or says nothing: it is the first one, or has come.

        Args:
            who: waits for this one, or sends it.
        """
        if self.number <= max(self.done, 1):
            return ""
        receives = self.kind == "receive"
        messages = f"{self.done} message{'' if self.done == 1 else 's'} with tag {self.tag}"
        text = f"; rank {self.peer} has {'sent' if receives else 'received'} {messages}"
        return f"{text}, {who} {'waits for' if receives else 'sends'} message {self.number}"

    def __str__(self) -> str:
        text = self.operation
        if self.kind == "send":
            text += f" to {_rank(self.peer)} tag {self.tag}"
        elif self.kind == "receive":
            text += f" from {_rank(self.peer)} tag {_tag(self.tag)}"
        elif self.peer is not None:
            text += f" root {self.peer}"
        if self.datatype:
            text += f", {self.count} {self.datatype}"
        if self.reduction:
            text += f" {self.reduction}"
        if self.kind != "other":
            text += f" on {self.communicator}"
        return f"{text}: {self.lacks}" if self.lacks else text


@dataclass(frozen=True)
class Ended:
    """An end of a partitioned request, whether anybody waits for it or not.

    Attributes:
        number: among those of its rank, from 1.
        other: what the other end's number is; -1: it is not known.
        rounds: how often it has been started.
        left: partitions that are not ready, or not in the buffer, in this round; 0 between rounds.
        missing: which, in words.
    """

    number: int
    other: int
    sends: bool
    peer: int
    tag: int
    communicator: str
    partitions: int
    rounds: int
    left: int
    missing: str


@dataclass(frozen=True)
class Unexpected:
    """The first message of a source that has come and that no receive has asked for.

    Attributes:
        nbytes: None when only a header has come: the message is long, or empty.
        more: how many have come behind it with the same tag, as far as that is known.
    """

    source: int
    tag: int
    communicator: str
    nbytes: int | None
    more: int = 0

    def __str__(self) -> str:
        size = "a long or empty message" if self.nbytes is None else f"{self.nbytes} bytes"
        text = f"{size} from {self.source} tag {self.tag} on {self.communicator}"
        return f"{text}, and {self.more} more" if self.more else text


@dataclass(frozen=True)
class Table:
    """What one rank has under way."""

    rank: int
    kernels: Kernels
    pending: list[Pending] = field(default_factory=list)
    unexpected: list[Unexpected] = field(default_factory=list)
    members: dict[str, list[int]] = field(default_factory=dict)  # ranks of each communicator
    errors: list[str] = field(default_factory=list)  # calls that failed
    aborted: bool = False
    dead_proxy: str = ""  # what ended its proxy thread
    host: str = ""  # the line of the program that its main thread is at
    gone: str = ""  # what it said when it closed its context, or failed
    loses_any_source: bool = False  # see ``loses_any_source``
    ends: list[Ended] = field(default_factory=list)  # of partitioned requests

    @property
    def messages(self) -> list[Pending]:
        """What is pending, but for partitioned requests: they match no message."""
        return [request for request in self.pending if not request.end]


def loses_any_source(library: str, netmod: str | None, far: bool) -> bool:
    """Whether MPI is known to leave receives from any source open: MPICH over UCX, where the
    message has come from another node before the receive is posted.

    Args:
        library: what MPI says of itself.
        netmod: MPIR_CVAR_CH4_NETMOD.
        far: there are ranks on other nodes.
    """
    device = re.search(r"\bch4:(\w+)", library)
    return far and device is not None and (netmod or device[1]) == "ucx"


class Cause(NamedTuple):
    """One likely cause.

    Attributes:
        kind: ``tag``, ``peer``, ``communicator``, ``missing send``, ``missing receive``,
            ``missing wait``, ``partitions``, ``collective``, ``order``, ``left``, ``not launched``,
            ``cycle``, ``error``, ``grid``, ``proxy``, ``mpi4py``, ``silent`` or ``follows``.
        text: a sentence.
        ranks: whom it is about.
    """

    kind: str
    text: str
    ranks: tuple[int, ...]


def _rank(rank: int | None) -> str:
    return "ANY_SOURCE" if rank is None else str(rank)


def _tag(tag: int | None) -> str:
    return "ANY_TAG" if tag is None else str(tag)


def ranks_text(ranks: list[int]) -> str:
    """``rank 3``, ``ranks 0, 2`` or ``ranks 0-6``; a long list is cut."""
    ranks = sorted(set(ranks))
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks[-1] - ranks[0] == len(ranks) - 1 and len(ranks) > 2:
        return f"ranks {ranks[0]}-{ranks[-1]}"
    text = ", ".join(map(str, ranks[: 2 * LISTED]))
    return f"ranks {text}" + (f" and {len(ranks) - 2 * LISTED} more" if len(ranks) > 8 else "")


class Absence(NamedTuple):
    """Why a rank is not going to send or receive; kind and text are empty if it may."""

    kind: str = ""
    text: str = ""


def absence_of(table: Table) -> Absence:
    """The same of a rank."""
    if table.gone:
        return Absence("left", table.gone)
    if any(request.block < 0 for request in table.pending):  # its host is in a call
        return Absence()
    if table.kernels == "none running":
        return Absence("left", "has left its kernels")
    if table.kernels == "none launched":
        return Absence("not launched", "has not launched a kernel yet")
    if table.kernels == "being prepared":
        return Absence("not launched", "is compiling, linking or launching a kernel")
    return Absence()


def silence_of(rank: int) -> str:
    """What it is to get no answer from a rank."""
    return (
        f"rank {rank} does not answer: its context is closed, its process has died, or it is stuck "
        "in a call that holds Python or MPI"
    )
