"""What the requests of a random program are: the same on all ranks, and in plain mpi4py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, pattern
from mpi4py import MPI
from random_phases import Communicators

import gmpi
from gmpi.contract.constants import DATATYPES, OPERATIONS_REDUCE

KINDS = [gmpi.BYTE, gmpi.INT32_T, gmpi.DOUBLE]
UNITS = {kind: DATATYPES[kind & 0xFF][2].itemsize for kind in KINDS}
REDUCED = [(gmpi.INT64_T, np.int64), (gmpi.DOUBLE, np.float64)]
#: Elements of INT64 in a window: what ranks put, by epoch's parity and origin; what all add to;
#: one for each origin.
PIECE = 6
PUTS, SUMS, OWN = 0, 2 * PIECE * SIZE, 2 * PIECE * SIZE + PIECE
WINDOW = OWN + 2 * SIZE
#: Open MPI 5.0.11 (osc ucx) leaves the window as it is in Get_accumulate with BXOR; with NumPy:
#: ``onesided_epochs.py``.
BITS = gmpi.SUM if MPI.Get_library_version().startswith("Open MPI") else gmpi.BXOR
OF_PARTITIONS = 3000  # their tags in plain mpi4py, which has them as messages


@dataclass
class Message:
    """One message; ranks are those of its communicator.

    Attributes:
        group: world ranks of that.
        send: "isend", "issend", or "freed": an Isend whose request is freed.
        recv: "irecv", "freed", "mprobe" (and Mrecv) or "improbe" (and Imrecv).
        wild: a probe for anything.
    """

    number: int
    group: list[int]
    comm: int
    source: int
    dest: int
    tag: int
    kind: int
    count: int
    send: str = "isend"
    recv: str = "irecv"
    wild: bool = False

    @property
    def nbytes(self) -> int:
        return self.count * UNITS[self.kind]

    @property
    def probed(self) -> bool:
        return self.recv in ("mprobe", "improbe")

    def data(self, start: int = 0) -> np.ndarray:
        return pattern(self.nbytes, self.number + 1000 * start)


@dataclass
class Channel(Message):
    """A message that is sent again and again, by persistent requests or others: ``send`` is
    "send_init", that of another mode, or "isend", ``recv`` is "recv_init" or "irecv"."""


@dataclass
class Partitioned(Message):
    """Partitioned requests of both sides, whose partitions differ; ``count`` is of all of them.

    Attributes:
        out, back: partitions of the send, and of the receive.
        by_host: a bit for each side whose request the host makes: 1 the sender, 2 the receiver.
    """

    out: int = 1
    back: int = 1
    by_host: int = 0


@dataclass
class Collective:
    """A persistent collective: "allreduce", "bcast" or "barrier"."""

    number: int
    comm: int
    what: str
    kind: int  # index in REDUCED
    count: int
    op: int
    root: int

    @property
    def nbytes(self) -> int:
        return 0 if self.what == "barrier" else 8 * self.count

    def data(self, rank: int, start: int) -> np.ndarray:
        values = (np.arange(self.count) * 7 + 3 * rank + self.number + start) % 5 + 1
        return values.astype(REDUCED[self.kind][1])


@dataclass
class Update:
    """A one-sided call of a rank of the world; ``what`` is the kernel's name for it."""

    number: int
    what: str
    origin: int
    target: int
    disp: int
    count: int
    op: int = 0

    def data(self) -> np.ndarray:
        return np.arange(self.count, dtype=np.int64) * 3 + 1000 * self.number + self.origin


@dataclass
class Phase:
    messages: list[Message] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    partitioned: list[int] = field(default_factory=list)
    collectives: list[int] = field(default_factory=list)
    all_at_once: bool = False  # Startall
    updates: list[Update] | None = None  # None: no epoch


@dataclass
class Plan:
    """A program.

    Attributes:
        hosts: of each rank of the world, whether its host makes the calls.
    """

    hosts: list[bool]
    direct: set[int]
    channels: list[Channel] = field(default_factory=list)
    partitioned: list[Partitioned] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)


def _ends(rng: np.random.Generator, comms: Communicators) -> tuple[list[int], int, int, int]:
    """(group, communicator, source, dest) of a message."""
    comm = int(rng.integers(3))
    groups = [group for group in comms.members(comm) if group]
    group = groups[int(rng.integers(len(groups)))]
    source, dest = (int(v) for v in rng.integers(0, len(group), 2))
    return group, comm, source, dest


def _messages(
    rng: np.random.Generator, plan: Plan, comms: Communicators, sizes: list[int], first: int
) -> list[Message]:
    found: list[Message] = []
    looked: set[tuple[int, int]] = set()  # who probes for anything, and where
    for number in range(first, first + int(rng.integers(0, 9))):
        group, comm, source, dest = _ends(rng, comms)
        kind = KINDS[int(rng.integers(len(KINDS)))]
        count = int(rng.choice(sizes)) // UNITS[kind]
        sends, receives = ["isend", "freed"], ["irecv", "freed"]
        if comm not in plan.direct:
            sends, receives = [*sends, "issend"], [*receives, "mprobe", "improbe"]
        send, recv = str(rng.choice(sends)), str(rng.choice(receives))
        # Few tags, so that what is sent in order must be received in order.
        tag = 100 + number if recv in ("mprobe", "improbe") else int(rng.integers(2))
        m = Message(number, group, comm, source, dest, tag, kind, count, send, recv)
        if m.probed and (comm, group[dest]) not in looked and rng.random() < 0.5:
            looked.add((comm, group[dest]))
            m.wild = True
        found.append(m)
    # Who looks for anything would find what another looks for by its name.
    found = [m for m in found if not m.probed or m.wild or (m.comm, m.group[m.dest]) not in looked]
    for m in found:  # a message of any kind: of a communicator where nobody promises that none is
        m.wild = m.wild and m.comm not in plan.direct
    return found


def _updates(rng: np.random.Generator, epoch: int, first: int, hosts: list[bool]) -> list[Update]:
    """Of an epoch: no two of them touch the same elements, but for sums."""
    found = []
    number = first
    for origin in range(SIZE):
        owned: set[int] = set()  # targets whose element of ours is taken
        stored: set[int] = set()
        for _ in range(int(rng.integers(0, 6))):
            what = str(rng.choice([
                "PUT", "GET", "RPUT", "RGET", "ACCUMULATE", "GET_ACCUMULATE", "FETCH_AND_OP",
                "COMPARE_AND_SWAP",
            ]))  # fmt: skip
            target, count = int(rng.integers(SIZE)), int(rng.integers(1, PIECE + 1))
            if hosts[origin] or hosts[target]:
                continue
            low = int(rng.integers(0, PIECE - count + 1))
            if what in ("PUT", "RPUT"):
                if target in stored:
                    continue
                stored.add(target)
                disp = PUTS + (epoch % 2 * SIZE + origin) * PIECE + low
                found.append(Update(number, what, origin, target, disp, count))
            elif what in ("GET", "RGET"):  # what the last epoch has put
                whose = int(rng.integers(SIZE))
                disp = PUTS + ((epoch + 1) % 2 * SIZE + whose) * PIECE + low
                found.append(Update(number, what, origin, target, disp, count))
            elif what == "ACCUMULATE":
                found.append(Update(number, what, origin, target, SUMS + low, count, gmpi.SUM))
            elif target not in owned:
                owned.add(target)
                op = int(rng.choice([gmpi.SUM, BITS, gmpi.REPLACE]))
                count = 2 if what == "GET_ACCUMULATE" else 1
                found.append(Update(number, what, origin, target, OWN + 2 * origin, count, op))
            number += 1
    return found


def random_plan(
    rng: np.random.Generator, comms: Communicators, hosts: list[bool], direct: set[int],
    sizes: list[int], windows: bool,
) -> Plan:  # fmt: skip
    """The same on all ranks.

    Args:
        windows: whether there are one-sided calls.
    """
    plan = Plan(hosts, direct)
    for number in range(int(rng.integers(0, 6))):
        group, comm, source, dest = _ends(rng, comms)
        kind = KINDS[int(rng.integers(len(KINDS)))]
        count = int(rng.choice(sizes)) // UNITS[kind]
        sends = ["send_init", "send_init", "rsend_init", "isend"] + ["ssend_init", "bsend_init"] * (
            comm not in direct
        )
        plan.channels.append(Channel(
            500 + number, group, comm, source, dest, 10 + number, kind, count,
            str(rng.choice(sends)), str(rng.choice(["recv_init", "recv_init", "irecv"])),
        ))  # fmt: skip
    for number in range(int(rng.integers(0, 4))):
        group, comm, source, dest = _ends(rng, comms)
        kind = KINDS[int(rng.integers(len(KINDS)))]
        out, back = (int(v) for v in rng.choice([1, 2, 3, 4, 6], 2))
        count = 12 * int(rng.choice(sizes) // UNITS[kind] // 12)
        by_host = int(rng.integers(4))
        if hosts[group[source]] or hosts[group[dest]]:
            continue
        # They are matched in the order in which a rank makes them: its host before its kernel.
        tag = 2 * by_host + int(rng.integers(2))
        plan.partitioned.append(Partitioned(
            600 + number, group, comm, source, dest, tag, kind, count, out=out, back=back,
            by_host=by_host,
        ))  # fmt: skip
    for number in range(int(rng.integers(0, 4))):
        plan.collectives.append(Collective(
            700 + number, int(rng.integers(2)), str(rng.choice(["allreduce", "bcast", "barrier"])),
            int(rng.integers(2)), int(rng.choice(sizes)) // 8,
            int(rng.choice([gmpi.SUM, gmpi.MAX])), int(rng.integers(SIZE)),
        ))  # fmt: skip

    def some(count: int) -> list[int]:
        return [k for k in range(count) if rng.random() < 0.6]

    for at in range(int(rng.integers(2, 6))):
        phase = Phase(_messages(rng, plan, comms, sizes, 20 * at))
        phase.channels, phase.partitioned = some(len(plan.channels)), some(len(plan.partitioned))
        phase.collectives = some(len(plan.collectives))
        rng.shuffle(phase.collectives)
        phase.all_at_once = bool(rng.random() < 0.3)
        if windows and rng.random() < 0.7:
            phase.updates = _updates(
                rng, sum(p.updates is not None for p in plan.phases), 90 * at, hosts
            )
        plan.phases.append(phase)
    return plan


Result = dict[str, Any]


class _Expected:
    """Carries out a plan in plain mpi4py."""

    def __init__(self, plan: Plan, comms: Communicators) -> None:
        self.plan, self.comms, self.found = plan, comms, {}
        self.starts: dict[int, int] = {}
        self.memory = np.zeros(WINDOW, np.int64)
        self.keep: list[np.ndarray] = []

    def run(self) -> Result:
        epochs = any(phase.updates is not None for phase in self.plan.phases)
        win = MPI.Win.Create(self.memory, 8, comm=WORLD) if epochs else None
        if win is not None:
            win.Fence()
        for at, phase in enumerate(self.plan.phases):
            self._messages(at, phase)
            for k in phase.collectives:
                self._collective(at, self.plan.collectives[k])
            if phase.updates is not None and win is not None:
                for u in phase.updates:
                    if u.origin == RANK:
                        self._update(win, u)
                win.Fence()
            WORLD.Barrier()
        if win is not None:
            self.found["window"] = self.memory.copy()
            win.Free()
        return self.found

    def _start(self, number: int) -> int:
        self.starts[number] = self.starts.get(number, -1) + 1
        return self.starts[number]

    def _messages(self, at: int, phase: Phase) -> None:
        sends, receives = [], []
        again = [self.plan.channels[k] for k in phase.channels]
        again += [self.plan.partitioned[k] for k in phase.partitioned]
        for m in [*phase.messages, *again]:
            comm, datatype = self.comms.mpi[m.comm], DATATYPES[m.kind & 0xFF][1]
            name = f"{m.number}" if m in phase.messages else f"{m.number} in {at}"
            start = 0 if m in phase.messages else self._start(m.number)
            tag = m.tag + OF_PARTITIONS * isinstance(m, Partitioned)
            if m.group[m.dest] == RANK:
                room = np.zeros(m.nbytes, np.uint8)
                receives.append(
                    (name, m, room, comm.Irecv([room, m.count, datatype], m.source, tag))
                )
            if m.group[m.source] == RANK:
                self.keep.append(m.data(start))
                sends.append(comm.Isend([self.keep[-1], m.count, datatype], m.dest, tag))
        for name, m, room, request in receives:
            status = MPI.Status()
            request.Wait(status)
            self.found[f"data {name}"] = room
            if not isinstance(m, Partitioned) and m.recv != "freed":
                got = status.Get_count(DATATYPES[m.kind & 0xFF][1])
                self.found[f"status {name}"] = (
                    0, status.Get_source(), status.Get_tag(), got, m.nbytes
                )  # fmt: skip
        MPI.Request.Waitall(sends)

    def _collective(self, at: int, c: Collective) -> None:
        comm, start = self.comms.mpi[c.comm], self._start(c.number)
        if c.what == "barrier":
            comm.Barrier()
            return
        mine = c.data(comm.rank, start)
        if c.what == "bcast":
            comm.Bcast(mine, c.root)
            total = mine
        else:
            total = np.zeros_like(mine)
            comm.Allreduce(mine, total, OPERATIONS_REDUCE[c.op][1])
        self.found[f"data {c.number} in {at}"] = total.view(np.uint8)

    def _update(self, win: Any, u: Update) -> None:
        numbers, found = u.data(), np.zeros(u.count, np.int64)
        self.keep += [numbers, found]
        data, back = [numbers, MPI.INT64_T], [found, MPI.INT64_T]
        where = [u.disp, u.count, MPI.INT64_T]
        op = MPI.REPLACE if u.op == gmpi.REPLACE else OPERATIONS_REDUCE[u.op][1]
        if u.what in ("PUT", "RPUT"):
            win.Put(data, u.target, where)
        elif u.what in ("GET", "RGET"):
            win.Get(back, u.target, where)
        elif u.what == "ACCUMULATE":
            win.Accumulate(data, u.target, where, op)
        elif u.what == "GET_ACCUMULATE":
            win.Get_accumulate(data, back, u.target, where, op)
        elif u.what == "FETCH_AND_OP":
            win.Fetch_and_op(data, back, u.target, u.disp, op)
        else:  # with what is there if nobody has changed it
            compare = np.zeros(1, np.int64)
            self.keep.append(compare)
            win.Compare_and_swap(data, [compare, MPI.INT64_T], back, u.target, u.disp)
        if u.what not in ("PUT", "RPUT", "ACCUMULATE"):
            self.found[f"back {u.number}"] = found


def expected(plan: Plan, comms: Communicators) -> Result:
    """What a rank gets: by number of message, collective or one-sided call."""
    return _Expected(plan, comms).run()
