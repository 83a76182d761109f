"""Random messages of the hosts, all under way at once: to hosts and to kernels, many of them longer
than their receives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from common import RANK, SIZE, in_thread, pattern, same
from script import Script

import gmpi

LONG = 512 * 1024


@dataclass
class Message:
    source: int
    dest: int
    nbytes: int
    room: int  # bytes
    to_kernel: bool


def random_messages(rng: np.random.Generator, eager: int, chunk: int) -> list[Message]:
    """The same on all ranks."""
    long = LONG if chunk >= LONG else 24 * chunk
    sizes = [0, 8, 145, eager - 1, eager, eager + 1, 4 * eager + 3, long - 1, long, long + 1]
    found = []
    for _ in range(int(rng.integers(0, 13))):
        source, dest = (int(v) for v in rng.integers(0, SIZE, 2))
        n, to_kernel = int(rng.choice(sizes)), bool(rng.random() < 0.5)
        room = n + int(rng.integers(0, 20))
        if rng.random() < 0.7 or (to_kernel and n > 4 * eager):
            room = int(rng.integers(0, min(n, (2 if to_kernel else 6) * eager) + 1))
        found.append(Message(source, dest, n, room, to_kernel))
    return found


def exchange(g: gmpi.Context, messages: list[Message], comm: int, what: str) -> None:
    """Sends and receives them, and compares."""
    rooms = {k: np.full(m.room + 3, 0xA5, np.uint8) for k, m in enumerate(messages)}
    mine = [k for k, m in enumerate(messages) if m.dest == RANK]
    s = Script(threads=64)
    kernel = {k: s.room(messages[k].room) for k in mine if messages[k].to_kernel}
    opened = {
        k: s.irecv(b, b.nbytes, gmpi.BYTE, messages[k].source, k, comm) for k, b in kernel.items()
    }
    waits = {k: s.wait(opened[k]) for k in reversed(opened)}
    outcomes: dict[int, tuple[int, int]] = {}  # error, bytes of those that the host receives

    def host() -> None:
        receives = {
            k: g.host.Irecv(rooms[k][:-3], messages[k].source, k, comm)
            for k in mine
            if k not in kernel
        }
        sends = [
            g.host.Isend(pattern(m.nbytes, k), m.dest, k, comm)
            for k, m in enumerate(messages)
            if m.source == RANK
        ]
        for k, request in reversed(receives.items()):
            try:
                outcomes[k] = 0, request.Wait().nbytes
            except gmpi.TruncationError:
                outcomes[k] = gmpi.ERR_TRUNCATE, messages[k].room
        for request in sends:
            request.Wait()

    in_thread(host, lambda: s.launch(g))
    collect(g, s, any(messages[k].room < messages[k].nbytes for k in kernel))
    for k in mine:
        m = messages[k]
        kept = min(m.nbytes, m.room)
        text = f"{what}: message {k}, {m.nbytes} bytes into {m.room}"
        expected = np.full(m.room, 0xA5, np.uint8)
        expected[:kept] = pattern(m.nbytes, k)[:kept]
        error = gmpi.ERR_TRUNCATE if kept < m.nbytes else gmpi.SUCCESS
        if k in kernel:
            status = waits[k].status
            assert status == (error, m.source, k, kept, kept), f"{text}: {status}"
            same(s.read(kernel[k]), expected, f"{text}, in a kernel")
        else:
            assert outcomes[k] == (error, kept), f"{text}: {outcomes[k]}"
            same(rooms[k][:-3], expected, f"{text}, in the host")
            assert (rooms[k][-3:] == 0xA5).all(), text


def collect(g: gmpi.Context, s: Script, truncated: bool) -> None:
    """Waits for a kernel, and for the error that it must end with where something is truncated."""
    try:
        s.collect(g)
    except gmpi.TruncationError:
        assert truncated
        s.collect(g)
    else:
        assert not truncated, "synchronize() did not raise"
