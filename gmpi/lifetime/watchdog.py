"""The watchdog: says what a job that stands still waits for, and ends waits that take too long.

A thread for each context looks four times a second whether anything has moved. When something is
pending and nothing has for ``watchdog_s``, it asks the other ranks what they have pending, over a
communicator of its own, and reports once. Nobody needs to take part but the thread of each rank:
one that does not answer in time is named as silent. Of the ranks that stand still the lowest prints
the report, so that a job of 64 ranks prints it once and not 64 times.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from gmpi.contract.constants import GMPI_ERR_TIMEOUT
from gmpi.diagnose.diagnosis import diagnose
from gmpi.diagnose.tables import Table, Tables
from gmpi.errors import PeerError, RequestTimeoutError, ResourceError
from gmpi.lifetime.ending import abort_job, held_for_nothing, set_patience
from gmpi.lifetime.farewell import Farewells, hopeless
from gmpi.observe.messages import Traffic
from gmpi.observe.report import Look, RankReport, Report
from host_proxy.platform import state as st

if TYPE_CHECKING:
    from gmpi.context import Context

POLL_S = 0.25
ANSWER_S = 1.0  # how long the others have to answer
# How long nothing may move where a rank has gone, until those that wait for it give up: after a
# failure, and after a close, where what it sent before may still be on its way.
FAILED_S = 0.5
CLOSED_S = 3.5
RETRY_S = 1.0  # between two looks at whether what waits can complete
_QUESTION = 1
_ANSWER = 2


class Watchdog:
    """Watches one context. Opening is collective over the context's communicator."""

    def __init__(self, context: Context, comm: MPI.Comm) -> None:
        self.context: Context = weakref.proxy(context)  # whose part we are
        self.last: Report | None = None
        self._look = Look(self.context)
        self.farewells = Farewells(comm)
        self._comm = comm.Dup()
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.lock = threading.Lock()  # one exchange, or look at what has come, at a time
        self._stop = threading.Event()
        self._asked = threading.Event()  # by a signal
        self._sends: list[MPI.Request] = []
        self._number = 0
        self._next_try = 0.0
        self._faults = 0
        self._told_broken: set[str] = set()  # communicators
        self._starved_at: int | None = None  # requests opened when calls last waited in vain
        self._before: Any = None
        self._traffic = Traffic(self.context)
        self._thread = threading.Thread(target=self._main, name="gmpi-watchdog", daemon=True)
        config = context.config
        self.on = config.watchdog_s > 0 or config.timeout_s > 0 or config.on_error == "abort"

    def start(self) -> None:
        if self.on:
            self._thread.start()
            self._catch_signal()

    def stop(self) -> bool:
        """Ends the thread; whether it did. No MPI call of it comes after."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(2 * ANSWER_S)
        self.release_signal()
        return not self._thread.is_alive()

    @property
    def sends(self) -> list[MPI.Request]:
        """What it has sent and MPI may not have finished. After its thread's end."""
        return self._sends

    def free(self) -> None:
        """Frees the communicator; collective."""
        self._comm.Free()

    def ages(self, now: float) -> list[float]:
        """For how long each open request has been there, at least, s; any thread."""
        return self._look.ages(now)

    def report(self, reason: str) -> Report:
        """Asks all ranks; any thread."""
        with self.lock:
            ranks = self._ask()
        gone = {rank: f" {told.text}" for rank, told in self.farewells.heard.items()}
        causes = diagnose(self._tables(ranks))
        self.last = Report(self.context.rank, reason, ranks, causes, gone)
        return self.last

    def _tables(self, ranks: dict[int, RankReport | None]) -> Tables:
        """What ranks have answered, and what those that have gone had said."""
        tables: Tables = {r: None if other is None else other.table for r, other in ranks.items()}
        members = self._look.members
        for rank, told in self.farewells.heard.items():
            tables[rank] = Table(rank, "none running", members=members, gone=told.text)
        return tables

    # --- the thread -------------------------------------------------------------------------------

    def _main(self) -> None:
        config = self.context.config
        signature: tuple[int, ...] = ()
        limits = [limit for limit in (config.watchdog_s, config.timeout_s) if limit] or [math.inf]
        since = time.monotonic()
        reported = False
        while not self._stop.wait(POLL_S):
            if self.lock.acquire(blocking=False):
                try:
                    self._answer()
                    self.farewells.listen()
                finally:
                    self.lock.release()
            now = time.monotonic()
            pending = self._look.note(now)
            seen = self._signature()
            if seen != signature or not pending:
                signature, since, reported = seen, now, False
            if pending and self._traffic.moved(now - since, min(limits)):
                since, reported = now, False
            still = now - since
            if config.on_error == "abort" and (failure := self.context._waits.failure()):
                abort_job(self.context, failure)
            if self._asked.is_set():
                self._asked.clear()
                self._print(self.report("SIGUSR1"), always=True)
            self._mind_collectives()
            self._mind_slots()
            if pending and not self.context._waits.aborted:
                self._give_up(still, signature)
            if config.watchdog_s and still > config.watchdog_s and not reported:
                reported = True
                self._print(self.report(f"no progress for {still:.1f} s"))
            if config.timeout_s and still > config.timeout_s and not self.context._waits.aborted:
                report = self.report(f"no progress for {still:.1f} s, the limit (timeout_s)")
                if self._signature() == signature:
                    self.context._waits.time_out(report, GMPI_ERR_TIMEOUT)
                    if config.on_error == "abort":
                        abort_job(self.context, RequestTimeoutError(report))

    def _mind_collectives(self) -> None:
        """Tells the others on which communicators this rank takes part in no collective."""
        table, groups = self.context._state.communicator_table, self.context._communicators.groups
        for index in np.flatnonzero(table[: len(groups), st.C_BROKEN]):
            identity = groups[index].identity
            if identity not in self._told_broken:
                self._told_broken.add(identity)
                text = f"has failed in a collective on {identity}"
                self.farewells.say_broken(identity, text)

    def _mind_slots(self) -> None:
        """Says why calls find no free slot where they would wait in vain; then they do not wait."""
        context, g = self.context, self.context._state.globals
        if self._starved_at is not None and int(g[st.G_SERIAL]) != self._starved_at:
            self._starved_at = None  # one has come free after all
            set_patience(context, context.config.resource_timeout_s)
        faults, self._faults = self._faults, int(g[st.G_FAULTS])
        if faults == self._faults or self._starved_at is not None:
            return
        refused = any(fault.kind is ResourceError for fault in context._faults(faults))
        if refused and (text := held_for_nothing(context)):
            self._starved_at = int(g[st.G_SERIAL])
            set_patience(context, 0)
            print(f"\nGMPI: rank {context.rank}: {text}\n", file=sys.stderr, flush=True)

    def _give_up(self, still: float, signature: tuple[int, ...]) -> None:
        """Releases kernels, and the host, that wait for ranks that have gone."""
        context, now = self.context, time.monotonic()
        waits = context._kernels.unfinished or bool(context._host_progress.open)
        gone, broken = self._have_gone(still), self._broken(still)
        if not waits or now < self._next_try or not (gone or broken):
            return
        self._next_try = now + RETRY_S
        why = "a rank has gone" if gone else "a collective has failed"
        report = self.report(f"no progress for {still:.1f} s, and {why}")
        tables = self._tables(report.ranks)
        cause = hopeless(tables, context.rank, gone, broken)
        if cause is None or self._signature() != signature:
            return
        error = PeerError(cause.text, report)
        context._waits.lose(error)
        if context.config.on_error == "abort":
            abort_job(context, error)

    def _have_gone(self, still: float) -> set[int]:
        """Ranks from which nothing has come for so long that nothing will come."""
        now, heard = time.monotonic(), self.farewells.heard
        return {
            rank
            for rank, told in heard.items()
            if min(still, now - told.heard) > (FAILED_S if told.failed else CLOSED_S)
        }

    def _broken(self, still: float) -> dict[int, dict[str, str]]:
        """Of each rank, on which communicators its collectives have failed, and what it said."""
        now, found = time.monotonic(), {}
        for rank, said in self.farewells.broken.items():
            old = {n: f.text for n, f in said.items() if min(still, now - f.heard) > FAILED_S}
            if old:
                found[rank] = old
        return found

    def _signature(self) -> tuple[int, ...]:
        """Changes whenever something moves."""
        state = self.context._state
        g = state.globals
        columns = state.slots[:, [st.S_FINISHED, st.S_ARRIVED, st.S_COMMANDS]].sum(axis=0)
        host = self.context._host_progress.moved
        moved = host, self._look.partitioned.moved, self._look.collectives.moved
        return (
            int(g[st.G_HEAD]),
            int(g[st.G_CLOSED]),
            int(g[st.G_SERIAL]),
            *moved,
            *map(int, columns),
        )

    def _print(self, report: Report, always: bool = False) -> None:
        stuck = [r for r, other in report.ranks.items() if other and other.table.pending]
        first = min([*stuck, self.context.rank])
        if always or first == self.context.rank:
            text = report.text
        else:
            text = f"GMPI: rank {report.rank}: {report.reason}; see the report of rank {first}"
        print(f"\n{text}\n", file=sys.stderr, flush=True)

    # --- asking and answering ---------------------------------------------------------------------

    def _own(self) -> RankReport | None:
        """This rank as it is; once its waits have timed out, as it was then, for others to know."""
        told = self.context._waits.told
        if told is not None:
            return told.ranks[self.context.rank]
        return self._look.report(time.monotonic())

    def _ask(self) -> dict[int, RankReport | None]:
        """What each rank says within the time that it has; the lock is held."""
        rank, size = self.context.rank, self.context.size
        ranks: dict[int, RankReport | None] = dict.fromkeys(range(size))
        ranks[rank] = self._own()
        if not self.on or size == 1:
            return ranks
        self._number += 1
        self._sends += [
            self._comm.isend(self._number, other, _QUESTION)
            for other in range(size)
            if other != rank and other not in self.farewells.heard
        ]
        missing = size - 1 - len(self.farewells.heard)
        deadline = time.monotonic() + ANSWER_S
        while missing and time.monotonic() < deadline and not self._stop.is_set():
            self._answer()
            status = MPI.Status()
            message = self._comm.improbe(MPI.ANY_SOURCE, _ANSWER, status)
            if message is None:
                time.sleep(0.002)
                continue
            number, answer = message.recv()
            if number == self._number:
                ranks[status.Get_source()] = answer
                missing -= 1
        return ranks

    def _answer(self) -> None:
        """Answers the questions that have come; the lock is held."""
        self._sends = [request for request in self._sends if not request.Test()]
        status = MPI.Status()
        while (message := self._comm.improbe(MPI.ANY_SOURCE, _QUESTION, status)) is not None:
            number = message.recv()
            mine = number, self._own()
            self._sends.append(self._comm.isend(mine, status.Get_source(), _ANSWER))

    # --- SIGUSR1 ----------------------------------------------------------------------------------

    def _catch_signal(self) -> None:
        """Only when nobody else has: the handler of a program is its own."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
            self._before = signal.SIG_DFL
            signal.signal(signal.SIGUSR1, lambda *_: self._asked.set())

    def release_signal(self) -> None:
        """SIGUSR1 does what it did before."""
        if self._before is None or threading.current_thread() is not threading.main_thread():
            return
        signal.signal(signal.SIGUSR1, self._before)
        self._before = None
