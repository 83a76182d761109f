"""What one rank does of a random program of requests (``requests_plan.py``), as rows of a kernel
(``requests_kernel.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import RANK
from random_phases import Communicators, interleave
from requests_kernel import COLUMNS, NUMBER
from requests_plan import REDUCED, Channel, Message, Partitioned, Phase, Plan, Update

import gmpi

GUARD = 64


class Rows:
    """The rows of a kernel, and what its heap holds before."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self.memory = bytearray(b"\xa5" * GUARD)
        self.places: dict[str, tuple[int, int]] = {}
        self.outside: list[tuple[int, int]] = [(0, GUARD)]
        self.requests = 0
        self.statuses: dict[int, list[str]] = {}  # by row; of a Waitany, of each request
        self.planted: dict[int, Partitioned] = {}

    def add(self, op: str, **fields: int) -> int:
        row = [0] * len(COLUMNS)
        row[0] = NUMBER[op]
        for name, value in fields.items():
            row[COLUMNS.index(name)] = value
        self.rows.append(row)
        return len(self.rows) - 1

    def request(self) -> int:
        self.requests += 1
        return self.requests - 1

    def room(self, nbytes: int, content: Any = None) -> int:
        """Where memory begins, which is as long, or holds the content."""
        at = len(self.memory)
        raw = np.full(nbytes, 0xA5, np.uint8)
        if content is not None:
            raw = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        self.memory += raw.tobytes() + b"\xa5" * (-len(raw) % 8 + GUARD)
        self.outside.append((at + len(raw), len(self.memory)))
        return at

    def place(self, name: str, nbytes: int) -> int:
        self.places[name] = self.room(nbytes), nbytes
        return self.places[name][0]


class KernelProgram:
    """What one rank does of a plan, as rows."""

    def __init__(self, plan: Plan, comms: Communicators, handles: list[int], win: int, rng: Any):
        self.plan, self.comms, self.handles, self.rng = plan, comms, handles, rng
        self.win = win
        self.r = Rows()
        self.starts: dict[int, int] = {}
        self.again: dict[tuple[int, str], tuple[int, int]] = {}  # request, its buffer
        self.loose = self.r.request()  # of what is freed at once
        self._make()
        for at, phase in enumerate(plan.phases):
            self._phase(at, phase)
        if plan.phases:
            self.r.add("SYNCHRONIZE")  # what was freed
        for request, _ in self.again.values():
            if request >= 0:
                self.r.add("FREE", request=request)

    def _message(self, m: Message, at: int, **more: int) -> dict[str, int]:
        """Fields of a row."""
        return {
            "at": at, "nbytes": m.nbytes, "count": m.count, "datatype": m.kind, "tag": m.tag,
            "comm": self.handles[m.comm], **more,
        }  # fmt: skip

    def _sides(self, m: Message) -> list[str]:
        sides = ["out"] * (m.group[m.source] == RANK) + ["back"] * (m.group[m.dest] == RANK)
        return sides if self.rng.random() < 0.5 else sides[::-1]

    def _make(self) -> None:
        """What is used in several phases, requests of which come one after the other."""
        for m in self.plan.channels:
            for side in self._sides(m):
                how, peer = (m.send, m.dest) if side == "out" else (m.recv, m.source)
                buf, request = self.r.room(m.nbytes), -1
                if how.endswith("_init"):
                    request = self.r.request()
                    fields = self._message(m, buf, peer=peer, request=request)
                    self.r.add(how.upper(), **fields)
                self.again[m.number, side] = request, buf
        for c in self.plan.collectives:
            buf, result, request = self.r.room(c.nbytes), self.r.room(c.nbytes), self.r.request()
            self.r.add(
                f"{c.what.upper()}_INIT", at=buf, nbytes=c.nbytes, more=result, peer=c.root,
                count=c.count, datatype=REDUCED[c.kind][0], tag=c.op, comm=self.handles[c.comm],
                request=request,
            )  # fmt: skip
            self.again[c.number, "all"] = request, buf
            self.again[c.number, "result"] = -1, result if c.what == "allreduce" else buf
        for p in self.plan.partitioned:
            for side in self._sides(p):
                parts, peer = (p.out, p.dest) if side == "out" else (p.back, p.source)
                buf, request = self.r.room(p.nbytes), self.r.request()
                self.again[p.number, side] = request, buf
                if p.by_host >> (side == "back") & 1:
                    self.r.planted[request] = p
                    continue
                fields = self._message(p, buf, peer=peer, request=request, more=parts)
                fields["count"] //= parts
                self.r.add("PSEND_INIT" if side == "out" else "PRECV_INIT", **fields)

    # --- a phase ----------------------------------------------------------------------------------

    def _phase(self, at: int, phase: Phase) -> None:
        waits: list[tuple[int, str | None]] = []  # requests, with the names of their statuses
        sends = [m for m in phase.messages if m.group[m.source] == RANK]
        receives = [m for m in phase.messages if m.group[m.dest] == RANK and not m.probed]
        starts, loose = self._starts(at, phase)
        posts = [("send", m) for m in sends], [("receive", m) for m in receives]
        merged = interleave(self.rng, *posts, [("loose", entry) for entry in loose])
        if phase.all_at_once or not starts:
            self._start_all(starts)
        else:
            merged = interleave(self.rng, merged, [("start", entry) for entry in starts])
        for what, item in merged:
            if what == "start":
                self.r.add("START", request=item)
            elif what == "loose":
                waits.append(self._loose(at, *item))
            else:
                self._post(item, what, waits)
        parts = self._parts(phase)
        early = int(self.rng.integers(0, len(parts) + 1))
        for fields in parts[:early]:
            self.r.add(**fields)
        for m in phase.messages:
            if m.group[m.dest] == RANK and m.probed:
                self._probe(m, waits)
        for fields in parts[early:]:
            self.r.add(**fields)
        self._wait(waits)
        self._end(at, phase)
        if phase.updates is not None:
            for u in phase.updates:
                if u.origin == RANK:
                    self._update(u)
            self.r.add("FENCE", comm=self.win)
        self.r.add("BARRIER", comm=self.handles[0])

    def _start(self, number: int, side: str) -> int:
        key = number * 2 + (side == "back")
        self.starts[key] = self.starts.get(key, -1) + 1
        return self.starts[key]

    def _fill(self, to: int, content: np.ndarray) -> None:
        """In the kernel, before a start."""
        raw = np.ascontiguousarray(content).view(np.uint8)
        self.r.add("COPY", at=self.r.room(0, raw), nbytes=raw.size, more=to)

    def _starts(self, at: int, phase: Phase) -> tuple[list[int], list[Any]]:
        """(requests to be started, calls that take the place of others); buffers are filled."""
        starts, loose = [], []
        for k in phase.channels:
            m = self.plan.channels[k]
            for side in self._sides(m):
                request, buf = self.again[m.number, side]
                if side == "out":
                    self._fill(buf, m.data(self._start(m.number, side)))
                if request < 0:
                    loose.append((m, side, buf))
                else:
                    starts.append(request)
        for k in phase.partitioned:
            p = self.plan.partitioned[k]
            for side in self._sides(p):
                request, buf = self.again[p.number, side]
                if side == "out":
                    self._fill(buf, p.data(self._start(p.number, side)))
                starts.append(request)
        self.rng.shuffle(starts)
        for k in phase.collectives:  # in one order on all ranks
            c = self.plan.collectives[k]
            request, buf = self.again[c.number, "all"]
            rank, start = self.comms.mpi[c.comm].rank, self._start(c.number, "")
            if c.what == "allreduce" or (c.what == "bcast" and rank == c.root):
                self._fill(buf, c.data(rank, start))
            starts.append(request)
        return starts, loose

    def _start_all(self, starts: list[int]) -> None:
        """By Startall, as far as requests stand side by side."""
        while starts:
            n = 1
            while n < len(starts) and starts[n] == starts[0] + n:
                n += 1
            self.r.add("STARTALL", request=starts[0], count=n)
            starts = starts[n:]

    def _loose(self, at: int, m: Channel, side: str, buf: int) -> tuple[int, str | None]:
        request = self.r.request()
        op, peer = ("ISEND", m.dest) if side == "out" else ("IRECV", m.source)
        self.r.add(op, **self._message(m, buf, peer=peer, request=request))
        return request, f"{m.number} in {at}" if side == "back" else None

    def _post(self, m: Message, what: str, waits: list[tuple[int, str | None]]) -> None:
        if what == "send":
            buf, freed, peer = self.r.room(0, m.data()), m.send == "freed", m.dest
            op = "ISSEND" if m.send == "issend" else "ISEND"
        else:
            buf, freed, peer = self.r.place(f"data {m.number}", m.nbytes), m.recv == "freed", 0
            op, peer = "IRECV", m.source
        request = self.loose if freed else self.r.request()
        self.r.add(op, **self._message(m, buf, peer=peer, request=request))
        if freed:
            self.r.add("FREE", request=request)
        else:
            waits.append((request, f"{m.number}" if what == "receive" else None))

    def _parts(self, phase: Phase) -> list[dict[str, Any]]:
        """Rows that say that partitions are ready, or wait for some, each side's in its order."""
        ready: list[dict[str, Any]] = []
        for k in phase.partitioned:
            p = self.plan.partitioned[k]
            if p.group[p.source] == RANK:
                request, _ = self.again[p.number, "out"]
                cut = int(self.rng.integers(0, p.out + 1))
                rows: list[dict[str, Any]] = [
                    {"op": "PREADY", "request": request, "count": part} for part in range(cut)
                ]
                if cut > 1 and self.rng.random() < 0.5:
                    listed = self.r.room(0, self.rng.permutation(cut).astype(np.int64))
                    rows = [{"op": "PREADY_LIST", "request": request, "at": listed, "count": cut}]
                if cut < p.out:
                    low, high = cut, p.out - 1
                    rows.append(
                        {"op": "PREADY_RANGE", "request": request, "count": low, "more": high}
                    )
                self.rng.shuffle(rows)
                ready = interleave(self.rng, ready, rows)
        return ready

    def _probe(self, m: Message, waits: list[tuple[int, str | None]]) -> None:
        source, tag = (gmpi.ANY_SOURCE, gmpi.ANY_TAG) if m.wild else (m.source, m.tag)
        message = self.r.request()
        op = "MPROBE" if m.recv == "mprobe" else "IMPROBE"
        row = self.r.add(op, request=message, peer=source, tag=tag, comm=self.handles[m.comm])
        self.r.statuses[row] = [f"probe {m.number}"]
        buf = self.r.place(f"data {m.number}", m.nbytes)
        if self.rng.random() < 0.5:
            row = self.r.add("MRECV", **self._message(m, buf, more=message))
            self.r.statuses[row] = [f"status {m.number}"]
        else:
            request = self.r.request()
            self.r.add("IMRECV", **self._message(m, buf, request=request, more=message))
            waits.append((request, f"{m.number}"))

    def _wait(self, waits: list[tuple[int, str | None]]) -> None:
        """By one of the calls that wait for several, as far as requests stand side by side."""
        waits.sort()
        while waits:
            n = 1
            while n < len(waits) and waits[n][0] == waits[0][0] + n:
                n += 1
            part, waits = waits[:n], waits[n:]
            first = part[0][0]
            names = [f"status {name}" if name else "" for _, name in part]
            way = int(self.rng.integers(0, 5))
            if way == 0:
                for k in self.rng.permutation(n):
                    row = self.r.add("WAIT", request=first + int(k))
                    self.r.statuses[row] = [names[k]]
            elif way == 1:
                row = self.r.add("WAITALL", request=first, count=n)
                self.r.statuses[row] = names
            elif way == 2:
                for _ in part:
                    row = self.r.add("WAITANY", request=first, count=n)
                    self.r.statuses[row] = names
            else:
                self.r.add("TESTALL" if way == 3 else "WAITSOME", request=first, count=n)

    def _end(self, at: int, phase: Phase) -> None:
        """Waits for what was started, and keeps what has come."""
        started: list[tuple[int, str | None]] = []
        for k in phase.channels:
            m = self.plan.channels[k]
            for side in self._sides(m):
                request, _ = self.again[m.number, side]
                if request >= 0:
                    started.append((request, f"{m.number} in {at}" if side == "back" else None))
        for k in phase.partitioned:
            p = self.plan.partitioned[k]
            for side in self._sides(p):
                request, _ = self.again[p.number, side]
                if side == "back" and self.rng.random() < 0.5:
                    for part in self.rng.permutation(p.back)[: int(self.rng.integers(1, 4))]:
                        self.r.add("PARRIVED", request=request, count=int(part))
                started.append((request, None))
        started += [
            (self.again[self.plan.collectives[k].number, "all"][0], None) for k in phase.collectives
        ]
        self._wait(started)
        for m in [self.plan.channels[k] for k in phase.channels] + [
            self.plan.partitioned[k] for k in phase.partitioned
        ]:
            if m.group[m.dest] == RANK:
                self._keep(f"data {m.number} in {at}", self.again[m.number, "back"][1], m.nbytes)
        for k in phase.collectives:
            c = self.plan.collectives[k]
            if c.what != "barrier":
                self._keep(f"data {c.number} in {at}", self.again[c.number, "result"][1], c.nbytes)

    def _keep(self, name: str, at: int, nbytes: int) -> None:
        self.r.add("COPY", at=at, nbytes=nbytes, more=self.r.place(name, nbytes))

    def _update(self, u: Update) -> None:
        nbytes = 8 * u.count
        content = np.zeros(3 * u.count, np.int64)
        content[: u.count] = u.data()  # then the result, and what is compared with
        buf = self.r.room(0, content)
        fields = {
            "at": buf, "nbytes": nbytes, "count": u.count, "datatype": gmpi.INT64_T,
            "peer": u.target, "tag": u.disp, "comm": self.win, "more": u.op,
        }  # fmt: skip
        if u.what in ("RPUT", "RGET"):
            fields["request"] = self.r.request()
        self.r.add(u.what, **fields)
        if u.what in ("RPUT", "RGET"):
            self.r.add("WAIT", request=fields["request"])
        if u.what not in ("PUT", "RPUT", "ACCUMULATE"):
            at = buf if u.what in ("GET", "RGET") else buf + nbytes
            self.r.places[f"back {u.number}"] = at, nbytes
