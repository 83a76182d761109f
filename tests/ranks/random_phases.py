"""What the phases of a random program are: the same on all ranks, and in plain mpi4py."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, barrier, pattern
from mpi4py import MPI

import gmpi
from gmpi.contract import constants

TYPES = [
    (handle, datatype, dtype.itemsize)
    for handle, (_, datatype, dtype) in zip(constants.DATATYPE_NAMES, constants.DATATYPES)
    if handle & 0xFF < constants.FIRST_PAIR  # pairs: point_to_point and collectives
]
REDUCTIONS = [
    (gmpi.INT64_T, MPI.INT64_T, np.dtype(np.int64), (gmpi.SUM, gmpi.BXOR, gmpi.MAX)),
    (gmpi.DOUBLE, MPI.DOUBLE, np.dtype(np.float64), (gmpi.SUM, gmpi.MIN, gmpi.PROD)),
    (gmpi.UINT8_T, MPI.UINT8_T, np.dtype(np.uint8), (gmpi.BOR, gmpi.LAND, gmpi.MAX)),
]


@dataclass
class Message:
    """One message; ranks are those of its communicator."""

    number: int
    group: list[int]  # world ranks of the communicator's members
    comm: int
    source: int
    dest: int
    tag: int
    kind: int  # index in TYPES
    count: int
    room: int  # elements that the receive has room for: fewer than come, and it is truncated
    recv_source: int
    recv_tag: int
    mode: int = 0  # of the send, see script_kernel.py
    probed: bool = False  # before it is received

    @property
    def nbytes(self) -> int:
        return self.count * TYPES[self.kind][2]

    @property
    def kept(self) -> int:
        """Bytes of it that the receive gets."""
        return min(self.count, self.room) * TYPES[self.kind][2]

    @property
    def error(self) -> int:
        return gmpi.ERR_TRUNCATE if self.room < self.count else gmpi.SUCCESS

    @property
    def data(self) -> np.ndarray:
        return pattern(self.nbytes, self.number)


@dataclass
class Reduction:
    """One Allreduce."""

    number: int
    comm: int
    kind: int  # index in REDUCTIONS
    op: int
    count: int
    blocking: bool

    def data(self, rank: int) -> np.ndarray:
        values = (np.arange(self.count) * 7 + 3 * rank + self.number) % 5 + 1
        return values.astype(REDUCTIONS[self.kind][2])


@dataclass
class Broadcast:
    number: int
    comm: int
    root: int
    nbytes: int


@dataclass
class Shift:
    """Each rank of a communicator sends to the next one and receives from the one before."""

    number: int
    comm: int
    nbytes: int
    how: int  # Sendrecv_replace, Isendrecv_replace, Isendrecv


@dataclass
class Phase:
    blocking: bool
    messages: list[Message] = field(default_factory=list)
    reductions: list[Reduction] = field(default_factory=list)
    broadcasts: list[Broadcast] = field(default_factory=list)
    shifts: list[Shift] = field(default_factory=list)
    cancelled: list[tuple[int, int]] = field(default_factory=list)  # receives: communicator, bytes


class Communicators:
    """World, world in reverse, and the halves; the last differs from rank to rank."""

    def __init__(self) -> None:
        self.mpi = [WORLD, WORLD.Split(0, -RANK), WORLD.Split(RANK % 2, RANK)]

    def members(self, comm: int) -> list[list[int]]:
        """World ranks of the groups, in order of their ranks in the communicator."""
        everyone = list(range(SIZE))
        return [[everyone], [everyone[::-1]], [everyone[0::2], everyone[1::2]]][comm]


def random_phase(
    rng: np.random.Generator, comms: Communicators, sizes: list[int], first: int
) -> Phase:
    phase = Phase(blocking=bool(rng.random() < 0.25))
    wild = rng.choice(["exact", "any tag", "any source"], p=[0.5, 0.3, 0.2])
    number = first
    received: set[tuple[int, int, int]] = set()  # receivers that have a message in this phase
    truncated = rng.choice([0, 0.2, 0.9], p=[0.5, 0.3, 0.2])  # how many receives are too short
    for _ in range(int(rng.integers(0, 25 if truncated > 0.5 else 9))):
        comm = int(rng.integers(0, 3))
        groups = comms.members(comm)
        which = int(rng.integers(0, len(groups)))
        group = groups[which]
        if not group:
            continue
        source, dest = (int(v) for v in rng.integers(0, len(group), 2))
        if phase.blocking and source == dest:
            continue  # a blocking send to oneself waits for ever
        kind = int(rng.integers(0, len(TYPES)))
        count = int(rng.choice(sizes)) // TYPES[kind][2]
        room = count + int(rng.integers(0, 40)) * int(rng.random() < 0.3)
        if rng.random() < truncated:
            room = int(rng.integers(0, count + 1))
        tag = number % 1000
        message = Message(number, group, comm, source, dest, tag, kind, count, room, source, tag)
        place = comm, which, dest
        if wild == "any tag":
            message.recv_tag = gmpi.ANY_TAG  # matched in order of the sends
        elif wild == "any source":
            if place in received:
                continue
            message.recv_source, message.recv_tag = gmpi.ANY_SOURCE, gmpi.ANY_TAG
        received.add(place)
        phase.messages.append(message)
        number += 1
    for _ in range(int(rng.integers(0, 3))):
        kind = int(rng.integers(0, len(REDUCTIONS)))
        item = REDUCTIONS[kind][2].itemsize
        op = int(rng.choice(REDUCTIONS[kind][3]))
        count = int(rng.choice(sizes)) // item
        blocking = bool(rng.random() < 0.5)
        phase.reductions.append(
            Reduction(number, int(rng.integers(0, 3)), kind, op, count, blocking)
        )
        number += 1
    if rng.random() < 0.3:
        root = int(rng.integers(0, SIZE))
        phase.broadcasts.append(
            Broadcast(number, int(rng.integers(0, 2)), root, int(rng.choice(sizes)))
        )
    return phase


def interleave(rng: np.random.Generator, *lists: list[Any]) -> list[Any]:
    """A random merge that keeps the order within each list."""
    rest = [list(items) for items in lists if items]
    merged = []
    while rest:
        chosen = rest[int(rng.integers(0, len(rest)))]
        merged.append(chosen.pop(0))
        rest = [items for items in rest if items]
    return merged


Result = dict[str, Any]  # what a rank got: by number of message, reduction or broadcast


def expected(phases: list[Phase], comms: Communicators) -> Result:
    """The same program in plain mpi4py."""
    found: Result = {}
    keep: list[np.ndarray] = []
    for phase in phases:
        requests: list[MPI.Request] = []
        received: list[tuple[Message, np.ndarray, MPI.Status, MPI.Request]] = []
        for m in phase.messages:
            comm = comms.mpi[m.comm]
            datatype, size = TYPES[m.kind][1:]
            if m.group[m.dest] == RANK:
                most = max(m.room, m.count)  # MPI need not say what a truncated receive gets
                room = np.full(most * size, 0xA5, np.uint8)
                request = comm.Irecv([room, most, datatype], m.recv_source, m.recv_tag)
                received.append((m, room, MPI.Status(), request))
            if m.group[m.source] == RANK:
                data = m.data
                keep.append(data)
                requests.append(comm.Isend([data, m.count, datatype], m.dest, m.tag))
        for m, room, status, request in received:
            request.Wait(status)
            assert status.Get_count(MPI.BYTE) == m.nbytes
            found[f"message {m.number}"] = room[: m.room * TYPES[m.kind][2]]
            found[f"status {m.number}"] = (
                m.error, status.Get_source(), status.Get_tag(), min(m.count, m.room), m.kept,
            )  # fmt: skip
        MPI.Request.Waitall(requests)
        for r in phase.reductions:
            mine = r.data(comms.mpi[r.comm].rank)
            total = np.empty_like(mine)
            datatype = REDUCTIONS[r.kind][1]
            op = constants.OPERATIONS_REDUCE[r.op][1]
            comms.mpi[r.comm].Allreduce([mine, r.count, datatype], [total, r.count, datatype], op)
            found[f"reduction {r.number}"] = total
        for b in phase.broadcasts:
            content = pattern(b.nbytes, b.number)
            found[f"broadcast {b.number}"] = content
        if phase.shifts:  # one that comes early would match a receive of anything
            barrier()
        for s in phase.shifts:
            comm = comms.mpi[s.comm]
            content = pattern(s.nbytes, s.number + 7 * comm.rank)
            after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            comm.Sendrecv_replace(content, after, s.number, before, s.number)
            found[f"shift {s.number}"] = content
        barrier()
    return found


def with_all_calls(
    phase: Phase, place: int, rng: np.random.Generator, sizes: list[int], direct: set[int]
) -> Phase:
    """The same with sends of all modes, and shifts, as far as the road has them.

    Args:
        place: which phase it is.
    """
    messages = [
        replace(
            m,
            mode=int(rng.choice([0, 2] if m.comm in direct else [0, 0, 1, 2, 3])),
            probed=phase.blocking and m.comm not in direct and bool(rng.random() < 0.5),
        )
        for m in phase.messages
    ]
    cancelled = [
        (comm, int(rng.choice(sizes)))
        for comm in range(3)
        if comm not in direct and rng.random() < 0.3
    ]
    shifts = []
    for k in range(int(rng.integers(0, 3))):
        comm, nbytes, how = (int(v) for v in rng.integers(0, [3, 1 << 30, 3]))
        nbytes = sizes[nbytes % len(sizes)]
        if comm in direct:  # nothing longer has eager_bytes in any program
            how, nbytes = 0, min(nbytes, 128)
        shifts.append(Shift(2000 + 10 * place + k, comm, nbytes, how))
    return replace(phase, messages=messages, shifts=shifts, cancelled=cancelled)


def without_truncation(phase: Phase) -> Phase:
    messages = [replace(m, room=max(m.room, m.count)) for m in phase.messages]
    return replace(phase, messages=messages)


def without_wildcards(phase: Phase, comms: set[int]) -> Phase:
    """The same, where receives on some communicators say what they receive."""
    messages = [
        replace(m, recv_source=m.source, recv_tag=m.tag) if m.comm in comms else m
        for m in phase.messages
    ]
    return replace(phase, messages=messages)
