"""What a rank says to the others when it sends and receives no more, so that nobody waits for it.

The same where a collective has failed in MPI on a rank, which takes part in no other one on that
communicator: there is no message of ours in a collective that could tell those that wait in it.

Said once, over a communicator that is kept for the next context of the same ranks: whoever has
closed already never hears it, and a message that nobody takes must not be met by a communicator
that MPI makes later. The number of the context tells old messages apart.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from mpi4py import MPI

from gmpi.diagnose.tables import LISTED, Cause, Pending, Table, Tables

_TAG = 1
#: With more ranks a close is not told, only a failure: as many messages as ranks, from each.
_MANY = 256


#: By (communicator, source, tag): messages of the direct road that have come, the last ones of
#: which the receiver has reported as never received.
Reported = dict[tuple[str, int, int], int]


class Farewell(NamedTuple):
    """Why a rank has gone, as part of a sentence, whether because something failed, and when."""

    text: str
    failed: bool
    heard: float  # time.monotonic()
    reported: Reported


class _Kept:
    """A communicator for the farewells of contexts of the same ranks, one after the other.

    Attributes:
        sends: what MPI may not have sent: the memory of a message goes with its request.
        lock: of ``sends``; one thread speaks while another one listens.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.contexts = 0
        self.sends: list[MPI.Request] = []
        self.lock = threading.Lock()


_kept: list[_Kept] = []


def _kept_for(comm: MPI.Comm) -> _Kept:
    """All ranks have made the same ones together, so all find the same, or none; collective."""
    for kept in _kept:
        if MPI.Comm.Compare(kept.comm, comm) == MPI.CONGRUENT:
            return kept
    duplicate = comm.Dup()
    duplicate.Set_errhandler(MPI.ERRORS_RETURN)
    _kept.append(_Kept(duplicate))
    return _kept[-1]


class Farewells:
    """Of the ranks of one context. Opening is collective over its communicator.

    Attributes:
        heard: from ranks that have gone.
        broken: from ranks that take part in no collective any more, by communicator.
        reported: what is said with the rest of what this rank has reported at its close.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.heard: dict[int, Farewell] = {}
        self.broken: dict[int, dict[str, Farewell]] = {}
        self.reported: Reported = {}
        self._kept = _kept_for(comm)
        self._kept.contexts += 1
        self._number = self._kept.contexts
        self._lock = threading.Lock()
        self._said = False

    def say(self, text: str, failed: bool) -> None:
        """Tells all others, unless they have been told; any thread."""
        with self._lock:
            if self._said:
                return
            self._said = True
        if failed or self._kept.comm.size <= _MANY:
            self._tell(text, failed, "")

    def say_broken(self, communicator: str, text: str) -> None:
        """Tells all others that a collective has failed here; the watchdog's thread."""
        self._tell(text, True, communicator)

    def _tell(self, text: str, failed: bool, communicator: str) -> None:
        if MPI.Is_finalized():
            return
        comm = self._kept.comm
        message = self._number, text, failed, communicator, self.reported
        with self._kept.lock, contextlib.suppress(MPI.Exception):
            for rank in range(comm.size):
                if rank != comm.rank:
                    self._kept.sends.append(comm.isend(message, rank, _TAG))

    def listen(self) -> None:
        """Takes what has been said; the watchdog's lock is held."""
        kept = self._kept
        with kept.lock:
            kept.sends = [request for request in kept.sends if not request.Test()]
        status = MPI.Status()
        while (message := kept.comm.improbe(MPI.ANY_SOURCE, _TAG, status)) is not None:
            number, text, failed, communicator, reported = message.recv()
            if number != self._number:
                continue
            source = status.Get_source()
            said = Farewell(text, failed, time.monotonic(), reported)
            if communicator:
                self.broken.setdefault(source, {})[communicator] = said
            else:
                self.heard[source] = said


def words_of(failure: BaseException) -> str:
    """What a rank says that ends with an exception: its first line."""
    text = f"{type(failure).__name__}: {failure}".strip().partition("\n")[0].rstrip(": ")
    return f"has ended with {text}"


def hopeless(
    tables: Tables, rank: int, gone: set[int], broken: Mapping[int, Mapping[str, str]]
) -> Cause | None:
    """Which open call of a rank cannot complete because others have gone; None: none, so far.

    Args:
        broken: of each rank, the communicators on which it takes part in no collective, and why.
    """
    table = tables[rank]
    assert table is not None
    for request in table.pending:
        members = table.members.get(request.communicator, sorted(tables))
        others = [r for r in members if r != rank]
        needs: list[int] = []
        if request.kind in ("send", "receive"):
            needs = others if request.peer is None else [request.peer]
        elif request.kind == "collective":
            # A broadcast may still be on its way, from a root that has gone, through a rank that
            # is late; all others are over on no rank before all have come.
            failed = [r for r in others if request.communicator in broken.get(r, {})]
            if failed:
                said = "; ".join(
                    f"rank {r} {broken[r][request.communicator]}" for r in failed[:LISTED]
                )
                return Cause("error", f"rank {rank} waits in {request}, but {said}", tuple(failed))
            late = request.operation.endswith("Bcast") and any(
                r not in gone and not _is_in(tables.get(r), request) for r in others
            )
            needs = [] if late else [r for r in others if r in gone][:1]
        if needs and gone.issuperset(needs):
            said = "; ".join(f"rank {r} {_gone(tables, r)}" for r in needs[:LISTED])
            return Cause("left", f"rank {rank} waits in {request}, but {said}", tuple(needs))
    return None


def _gone(tables: Tables, rank: int) -> str:
    table = tables.get(rank)
    return table.gone if table is not None else ""


def _is_in(table: Table | None, call: Pending) -> bool:
    """Whether a rank is in the same collective."""
    wanted = call.function, call.communicator
    return table is not None and wanted in [(r.function, r.communicator) for r in table.pending]
