"""Random programs: two engines and plain mpi4py must agree on every byte and status.

    mpiexec -n 3 python tests/ranks/random_programs.py --seeds=0:20

A program is a list of phases that all ranks make from the same seed, so that none can deadlock:
within a phase each rank posts its receives, sends and reductions in an order of its own, then waits
for them in an order of its own; or messages are sent and received by blocking calls in one global
order. Wildcards are used where only one message can match; on some communicators none is, and
messages may go by the direct road. Receives may be too short, in some
phases most of them. Each phase ends with a barrier. Then the hosts send (``random_hosts.py``).

Before every other program, one like it is cut off: it ends in calls that cannot complete, and each
rank is released at a moment of its own, by an abort, a time limit or Ctrl-C. What MPI still has of
it must not touch what comes after, in the same process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from typing import Any

import numpy as np
from common import RANK, SIZE, TIME_FACTOR, WORLD, barrier, end, pattern, same, take_large_slots
from random_hosts import collect, exchange, random_messages
from random_phases import (
    REDUCTIONS,
    TYPES,
    Communicators,
    Message,
    Phase,
    Reduction,
    Result,
    Shift,
    expected,
    interleave,
    random_phase,
    with_all_calls,
    without_truncation,
    without_wildcards,
)
from script import Buffer, Call, Script

import gmpi
from gmpi.contract.constants import NO_MESSAGE

NOBODY_SENDS = 4000  # a message with this tag


def actual(
    g: gmpi.Context,
    handles: list[int],
    phases: list[Phase],
    comms: Communicators,
    seed: int,
    stuck: bool = False,
) -> Result:
    """The program in one kernel; ``stuck``: with an end that never comes."""
    rng = np.random.default_rng([seed, RANK])
    more = 40 if gmpi.SIMULATOR else 64  # than a warp
    scope, threads = [("block", 32), ("block", more), ("block", 20), ("warp", 32)][seed % 4]
    s = Script(scope, threads)
    places: dict[str, Buffer] = {}
    lengths: dict[str, tuple[int, Any]] = {}
    statuses: list[tuple[int, Call, int]] = []  # message, its wait, index in a Waitall or -1
    anys: list[tuple[list[int], list[Call]]] = []
    errors: list[Call] = []
    probes: list[tuple[Call, Message]] = []
    withdrawn: list[Call] = []
    partly: list[tuple[Call, int]] = []  # waits for several requests, and how they must end

    def place(name: str, nbytes: int, dtype: Any = np.uint8) -> Buffer:
        places[name] = s.room(nbytes, int(rng.integers(0, 3)))
        lengths[name] = nbytes, dtype
        return places[name]

    for phase in phases:
        receives, sends = [], []
        for m in phase.messages:
            if m.group[m.dest] == RANK:
                receives.append(("receive", m))
            if m.group[m.source] == RANK:
                sends.append(("send", m))
        both = sorted(receives + sends, key=lambda p: (p[1].number, p[0]))
        nonblocking = [("reduce", r) for r in phase.reductions if not r.blocking]
        posts = both if phase.blocking else interleave(rng, receives, sends, nonblocking)
        opened: list[tuple[Call, Message | None]] = []
        for what, item in posts:
            if what == "reduce":
                opened.append((reduce_(s, item, handles, comms, place, rng), None))
                continue
            m = item
            handle, _, size = TYPES[m.kind]
            comm = handles[m.comm]
            if what == "receive":
                b = place(f"message {m.number}", m.room * size)
                arguments = (b, m.room, handle, m.recv_source, m.recv_tag, comm)
                if m.probed:
                    found = s.probe(m.recv_source, m.recv_tag, comm)
                    probes.append((found, m))
                if phase.blocking:
                    statuses.append((m.number, s.recv(*arguments), -1))
                else:
                    opened.append((s.irecv(*arguments), m))
            else:
                arguments = (s.data(m.data), m.count, handle, m.dest, m.tag, comm)
                if phase.blocking:
                    errors.append(s.send(*arguments, mode=m.mode))
                else:
                    opened.append((s.isend(*arguments, mode=m.mode), None))
        if phase.blocking:
            for r in phase.reductions:
                if not r.blocking:
                    errors.append(s.wait(reduce_(s, r, handles, comms, place, rng)))
        if opened:
            finish(s, opened, statuses, anys, errors, partly, rng)
        for r in phase.reductions:
            if r.blocking:
                errors.append(reduce_(s, r, handles, comms, place, rng))
        for b in phase.broadcasts:
            content = pattern(b.nbytes, b.number)
            room = place(f"broadcast {b.number}", b.nbytes)
            if comms.mpi[b.comm].rank == b.root:
                s.fill(room, content)
            errors.append(s.bcast(room, b.nbytes, gmpi.BYTE, b.root, handles[b.comm]))
        for comm, nbytes in phase.cancelled:
            request = s.irecv(s.room(nbytes), nbytes, gmpi.BYTE, 0, NOBODY_SENDS, handles[comm])
            errors.append(s.cancel(request))
            withdrawn.append(s.wait(request))
        if phase.shifts:  # one that comes early would match a receive of anything
            errors.append(s.barrier())
        for shift in phase.shifts:
            errors.append(shift_(s, shift, comms, handles, place))
        errors.append(s.barrier())
    if stuck:
        never_complete(s, g.layout.eager_bytes, rng)
    s.launch(g)
    mine = [m for phase in phases for m in phase.messages if m.group[m.dest] == RANK]
    collect(g, s, any(m.error for m in mine))
    assert all(call.error == gmpi.SUCCESS for call in errors)
    for call, m in probes:
        there = (gmpi.SUCCESS, m.source, m.tag, m.nbytes, m.nbytes)
        assert tuple(call.status) == there, f"probe of {m}: {call.status}"
    for call in withdrawn:
        assert tuple(call.status[::2]) == (gmpi.SUCCESS, NO_MESSAGE, 0), call.status
    for call, error in partly:
        assert call.error == error, f"Waitall returned {call.error} instead of {error}"
    found: Result = {name: s.read(b, lengths[name][1]) for name, b in places.items()}
    for number, call, index in statuses:
        found[f"status {number}"] = tuple(call.status if index < 0 else call.statuses[index])
    for numbers, calls in anys:
        assert sorted(c.flag for c in calls) == list(range(len(numbers)))
        for call in calls:
            if numbers[call.flag] >= 0:
                found[f"status {numbers[call.flag]}"] = tuple(call.status)
            else:
                assert call.error == gmpi.SUCCESS
    return found


def never_complete(s: Script, eager: int, rng: np.random.Generator) -> None:
    """Calls whose other side is missing; what can be of them, MPI has."""
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for nbytes in (eager, 5 * eager + 3):
        s.isend(s.data(pattern(nbytes, RANK)), nbytes, gmpi.BYTE, after, 5000 + nbytes % 7)
        s.irecv(s.room(nbytes), nbytes, gmpi.BYTE, before, 6000)
    if RANK % 2:
        n = int(rng.choice([1, eager // 2]))
        s.iallreduce(s.data(np.ones(n)), s.room(8 * n), n, gmpi.DOUBLE, gmpi.SUM)
    s.recv(s.room(8), 8, gmpi.BYTE, before, 6001)


def cut_off(
    seed: int, phases: list[Phase], comms: Communicators, direct: set[int], settings: Any
) -> None:
    """A program that is ended from outside, on each rank at another time and in another way."""
    rng = np.random.default_rng([seed, RANK, 1])
    way = ("abort", "limit", "Ctrl-C")[int(rng.integers(0, 3))]
    limit = 0.3 * TIME_FACTOR if way == "limit" else 0
    engine = ("compiled", "mpi4py")[seed // 2 % 2]
    ended = gmpi.AbortedError, gmpi.RequestTimeoutError, gmpi.PeerError, KeyboardInterrupt
    timer: threading.Timer | None = None
    over = threading.Event()

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        if not over.wait(60):  # it came in a finalizer, where Python drops exceptions
            os.kill(os.getpid(), signal.SIGINT)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what MPI has not finished
        try:
            settings = {**settings, "engine": engine, "watchdog_s": 0, "timeout_s": limit}
            with gmpi.Context(WORLD, wildcards=0 not in direct, **settings) as g:
                others = (g.comm(comms.mpi[i], wildcards=i not in direct) for i in (1, 2))
                handles = [gmpi.COMM_WORLD, *others]
                strike = g.abort if way == "abort" else interrupt
                if way != "limit":
                    timer = threading.Timer(float(rng.uniform(0.05, 0.6)), strike)
                    timer.start()
                narrow_or_not(g, seed)
                actual(g, handles, phases, comms, seed, stuck=True)
            raise AssertionError("a program that is stuck has ended")
        except ended:
            over.set()
    if timer is not None:
        timer.join()


def reduce_(
    s: Script, r: Reduction, handles: list[int], comms: Communicators, place: Any,
    rng: np.random.Generator,
) -> Call:  # fmt: skip
    handle, _, dtype, _ = REDUCTIONS[r.kind]
    mine = r.data(comms.mpi[r.comm].rank)
    room = place(f"reduction {r.number}", mine.nbytes, dtype)
    comm = handles[r.comm]
    if not r.blocking:
        return s.iallreduce(s.data(mine), room, r.count, handle, r.op, comm)
    if rng.random() < 0.5:
        s.fill(room, mine)
        return s.in_place(room, r.count, handle, r.op, comm)
    return s.allreduce(s.data(mine), room, r.count, handle, r.op, comm)


def shift_(s: Script, shift: Shift, comms: Communicators, handles: list[int], place: Any) -> Call:
    comm = comms.mpi[shift.comm]
    content = pattern(shift.nbytes, shift.number + 7 * comm.rank)
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    room = place(f"shift {shift.number}", shift.nbytes)
    tag, handle = shift.number, handles[shift.comm]
    if shift.how == 2:
        out, n = s.data(content), shift.nbytes
        return s.wait(s.isendrecv(out, room, n, gmpi.BYTE, after, tag, before, handle))
    s.fill(room, content)
    return s.replace(room, shift.nbytes, gmpi.BYTE, after, tag, before, handle, shift.how)


def finish(
    s: Script, opened: list[tuple[Call, Message | None]], statuses: list[Any], anys: list[Any],
    errors: list[Call], partly: list[tuple[Call, int]], rng: np.random.Generator,
) -> None:  # fmt: skip
    """Waits for all requests of a phase, in one of the ways there are."""
    way = rng.integers(0, 4)
    numbers = [m.number if m else -1 for _, m in opened]
    if way == 0:
        call = s.waitall([request for request, _ in opened])
        statuses += [(n, call, i) for i, n in enumerate(numbers) if n >= 0]
        failed = any(m.error for _, m in opened if m)
        partly.append((call, gmpi.ERR_TRUNCATE if failed else gmpi.SUCCESS))
    elif way == 1:
        calls = [s.waitany(opened[0][0], len(opened)) for _ in opened]
        anys.append((numbers, calls))
    else:
        for at in rng.permutation(len(opened)):
            request = opened[at][0]
            call = s.wait(request) if way == 2 else s.test_until(request)
            if numbers[at] >= 0:
                statuses.append((numbers[at], call, -1))
            else:
                errors.append(call)


def narrow_or_not(g: gmpi.Context, seed: int) -> None:
    """On some ranks, no long request finds a large slot."""
    if np.random.default_rng([seed, RANK, 2]).random() < 0.3:
        take_large_slots(g)


def check(seed: int, comms: Communicators) -> None:
    rng = np.random.default_rng(seed)
    small = bool(rng.random() < 0.6)
    settings = {"eager_bytes": 256, "chunk_bytes": 512, "ring_slots": 64} if small else {}
    if small and rng.random() < 0.2:
        settings["eager_bytes"] = 768  # chunks are shorter than what is sent as a whole
    if rng.random() < 0.5:
        settings["gpu_staging"] = False
    eager = settings.get("eager_bytes", 8192)
    sizes = [0, 1, 8, 16, 48, 96, 143, 144, 145, 160, 240, eager - 1, eager, eager + 1]
    sizes += [5 * eager + 3, 700, 2000] if small else [30000]
    phases: list[Phase] = []
    first = 0
    for _ in range(int(rng.integers(3, 9))):
        phases.append(random_phase(rng, comms, sizes, first))
        first += 100
    draw = np.random.default_rng([seed, 3])
    direct = {comm for comm in range(3) if draw.random() < 0.4}
    phases = [without_wildcards(phase, direct) for phase in phases]
    draw = np.random.default_rng([seed, 4])
    phases = [with_all_calls(p, i, draw, sizes, direct) for i, p in enumerate(phases)]
    if seed % 2 == 0:
        cut_off(seed, [without_truncation(phase) for phase in phases], comms, direct, settings)
    wanted = expected(phases, comms)
    wild = {m.comm for phase in phases for m in phase.messages if m.recv_tag == gmpi.ANY_TAG}
    no_any_tag = [seed % 3 == 0 and comm not in wild for comm in range(3)]
    for engine in ("compiled", "mpi4py"):
        with gmpi.Context(
            WORLD, wildcards=0 not in direct, engine=engine, no_any_tag=no_any_tag[0], **settings
        ) as g:
            others = (
                g.comm(comms.mpi[i], wildcards=i not in direct, no_any_tag=no_any_tag[i])
                for i in (1, 2)
            )
            handles = [gmpi.COMM_WORLD, *others]
            narrow_or_not(g, seed)
            found = actual(g, handles, phases, comms, seed)
            messages = random_messages(
                np.random.default_rng([seed, 1000]), eager, g.layout.chunk_bytes
            )
            comm = g.comm(WORLD) if 0 in direct else gmpi.COMM_WORLD  # also the hosts'
            exchange(g, messages, comm, f"seed {seed}, {engine}")
        assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
        for name, value in wanted.items():
            what = f"seed {seed}, {engine}: {name}"
            if name.startswith("status"):
                assert found[name] == value, f"{what}: {found[name]} instead of {value}"
            else:
                same(found[name], value, what)


def main() -> None:
    begin, _, stop = sys.argv[1].removeprefix("--seeds=").partition(":")
    comms = Communicators()
    if not gmpi.SIMULATOR:  # Ctrl-C in the middle of Numba's compiler leaves it half made
        with gmpi.Context(WORLD) as g:
            for scope in ("block", "warp"):
                s = Script(scope, 32)
                s.data(pattern(8, 0))
                s.barrier()
                s.run(g)
    with warnings.catch_warnings():
        warnings.simplefilter("error", gmpi.LeakWarning)
        for seed in range(int(begin), int(stop)):
            check(seed, comms)
            barrier()
            if RANK == 0:
                print(f"ok seed {seed}", flush=True)
    end()


main()
