"""What one rank does of a random program of requests (``requests_plan.py``), by its host."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import RANK
from random_phases import Communicators, interleave
from requests_plan import Collective, Message, Phase, Plan, Result

import gmpi
from gmpi.contract.constants import DATATYPES


class HostProgram:
    """Partitioned requests and one-sided calls are kernels' only: it has none of them."""

    def __init__(
        self, g: gmpi.Context, plan: Plan, comms: Communicators, handles: list[int], win: int,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.g, self.plan, self.comms, self.handles = g, plan, comms, handles
        self.win, self.rng = win, rng
        self.found: Result = {}
        self.starts: dict[int, int] = {}
        self.again: dict[tuple[int, str], tuple[Any, np.ndarray]] = {}
        self.keep: list[np.ndarray] = []

    def run(self) -> Result:
        h = self.g.host
        self._make()
        if self.win >= 0:
            h.Win_fence(self.win)
        for at, phase in enumerate(self.plan.phases):
            self._phase(at, phase)
        for request, _ in self.again.values():
            if request is not None:
                request.Free()
        return self.found

    def _spec(self, m: Message, buf: np.ndarray) -> list[Any]:
        return [buf, m.count, DATATYPES[m.kind & 0xFF][1]]

    def _make(self) -> None:
        h = self.g.host
        for m in self.plan.channels:
            comm = self.handles[m.comm]
            if m.group[m.source] == RANK:
                buf = np.zeros(m.nbytes, np.uint8)
                make = None if m.send == "isend" else getattr(h, m.send.capitalize())
                request = make(self._spec(m, buf), m.dest, m.tag, comm) if make else None
                self.again[m.number, "out"] = request, buf
            if m.group[m.dest] == RANK:
                buf, request = np.zeros(m.nbytes, np.uint8), None
                if m.recv == "recv_init":
                    request = h.Recv_init(self._spec(m, buf), m.source, m.tag, comm)
                self.again[m.number, "back"] = request, buf
        for c in self.plan.collectives:
            comm, mine = self.handles[c.comm], c.data(0, 0)
            result = mine
            if c.what == "allreduce":
                result = np.zeros_like(mine)
                request = h.Allreduce_init(mine, result, c.op, comm)
            elif c.what == "bcast":
                request = h.Bcast_init(mine, c.root, comm)
            else:
                request = h.Barrier_init(comm)
            self.again[c.number, "all"] = request, mine
            self.again[c.number, "result"] = None, result

    def _count(self, number: int) -> int:
        self.starts[number] = self.starts.get(number, -1) + 1
        return self.starts[number]

    def _phase(self, at: int, phase: Phase) -> None:
        h = self.g.host
        waits: list[tuple[Any, str]] = []
        channels = [self.plan.channels[k] for k in phase.channels]
        for m in channels:
            if m.group[m.source] == RANK:
                self.again[m.number, "out"][1][:] = m.data(self._count(m.number))
        sends = [("send", m) for m in phase.messages if m.group[m.source] == RANK]
        receives = [
            ("receive", m) for m in phase.messages if m.group[m.dest] == RANK and not m.probed
        ]
        again = [(side, m) for m in channels for side in ("out", "back") if self._is(m, side)]
        for what, m in interleave(self.rng, sends, receives, again):
            if what in ("out", "back"):
                waits.append(self._start(at, m, what))
            else:
                waits.append(self._post(m, what))
        for k in phase.collectives:
            waits.append(self._collective(self.plan.collectives[k]))
        for m in phase.messages:
            if m.group[m.dest] == RANK and m.probed:
                self._probe(m, waits)
        self._wait(waits)
        for m in channels:
            if m.group[m.dest] == RANK:
                self.found[f"data {m.number} in {at}"] = self.again[m.number, "back"][1].copy()
        for k in phase.collectives:
            c = self.plan.collectives[k]
            if c.what != "barrier":
                result = self.again[c.number, "result"][1]
                self.found[f"data {c.number} in {at}"] = result.view(np.uint8).copy()
        if phase.updates is not None:
            h.Win_fence(self.win)
        h.Barrier(self.handles[0])

    def _is(self, m: Message, side: str) -> bool:
        return m.group[m.source if side == "out" else m.dest] == RANK

    def _start(self, at: int, m: Message, side: str) -> tuple[Any, str]:
        h = self.g.host
        request, buf = self.again[m.number, side]
        if request is not None:
            request.Start()
        elif side == "out":
            request = h.Isend(self._spec(m, buf), m.dest, m.tag, self.handles[m.comm])
        else:
            request = h.Irecv(self._spec(m, buf), m.source, m.tag, self.handles[m.comm])
        return request, f"status {m.number} in {at}" if side == "back" else ""

    def _post(self, m: Message, what: str) -> tuple[Any, str]:
        h, comm = self.g.host, self.handles[m.comm]
        if what == "send":
            self.keep.append(m.data())
            send = h.Issend if m.send == "issend" else h.Isend
            return send(self._spec(m, self.keep[-1]), m.dest, m.tag, comm), ""
        room = self.found[f"data {m.number}"] = np.zeros(m.nbytes, np.uint8)
        request = h.Irecv(self._spec(m, room), m.source, m.tag, comm)
        return request, f"status {m.number}" if m.recv != "freed" else ""

    def _collective(self, c: Collective) -> tuple[Any, str]:
        request, mine = self.again[c.number, "all"]
        rank, start = self.comms.mpi[c.comm].rank, self._count(c.number)
        if c.what == "allreduce" or (c.what == "bcast" and rank == c.root):
            mine[:] = c.data(rank, start)
        request.Start()
        return request, ""

    def _probe(self, m: Message, waits: list[tuple[Any, str]]) -> None:
        h, comm = self.g.host, self.handles[m.comm]
        source, tag = (gmpi.ANY_SOURCE, gmpi.ANY_TAG) if m.wild else (m.source, m.tag)
        message = None
        while message is None:
            look = h.Mprobe if m.recv == "mprobe" else h.Improbe
            message = look(source, tag, comm)
        room = self.found[f"data {m.number}"] = np.zeros(m.nbytes, np.uint8)
        if self.rng.random() < 0.5:
            status = message.Recv(self._spec(m, room))
            self._has(f"status {m.number}", status)
        else:
            waits.append((message.Irecv(self._spec(m, room)), f"status {m.number}"))

    def _has(self, name: str, status: Any) -> None:
        if name:
            self.found[name] = (
                status.error, status.source, status.tag, status.count, status.nbytes
            )  # fmt: skip

    def _wait(self, waits: list[tuple[Any, str]]) -> None:
        h, way = self.g.host, int(self.rng.integers(0, 4))
        self.rng.shuffle(waits)
        requests = [request for request, _ in waits]
        if way == 0:
            for request, name in waits:
                self._has(name, request.Wait())
        elif way == 1:
            for status, (_, name) in zip(h.Waitall(requests), waits, strict=True):
                self._has(name, status)
        elif way == 2:
            while not h.Testall(requests):
                pass
        else:
            while h.Waitsome(requests) is not None:
                pass
