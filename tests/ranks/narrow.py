"""More long requests than large slots: legal programs, which must complete."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, end, every_shape, pattern, run
from mpi4py import MPI
from script import Script

import gmpi
from gmpi.contract.constants import ERR_TRUNCATE
from host_proxy.platform.state import S_HANDLE

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
BYTE, LONG_LONG = gmpi.BYTE, gmpi.LONG_LONG
EAGER, CHUNK = 256, 512
SMALL: dict[str, Any] = {
    "eager_bytes": EAGER, "chunk_bytes": CHUNK, "ring_slots": 64, "request_slots": 64,
    "large_slots": 2,
}  # fmt: skip
BLOCKS = 8
THREADS = 32 if every_shape() else 8  # of a block: with fewer it takes the simulator half as long
ORDERS = ["Irecv, Isend", "Isend, Irecv", "both"]


def of_rank(n: int, tag: int, rank: int) -> np.ndarray:
    return pattern(n, 7 * tag + rank)


def narrow_requests(g: gmpi.Context) -> int:
    """How many narrow slots have had a request."""
    return int((g._state.slots[g.layout.first_narrow :, S_HANDLE] != 0).sum())


def exchange(
    g: gmpi.Context,
    blocks: int,
    n: int,
    order: str,
    datatype: int = BYTE,
    threads: int = THREADS,
    skew: int = 0,
) -> None:
    """Each block one message to the next rank and one from the one before, then Waitall.

    With ``order`` both, every other block receives first. ``datatype`` may be one of ``n`` bytes,
    whose extent is twice that.
    """
    s = Script(callers=blocks, threads=threads)
    count, nbytes = (n, n) if datatype == BYTE else (1, 2 * n)
    rooms = []
    for tag, caller in enumerate(s.callers):
        room, data = s.room(nbytes), s.data(of_rank(nbytes, tag, RANK), skew)
        first = order == ORDERS[0] or (order == ORDERS[2] and (tag + RANK) % 2 == 0)
        requests = [caller.irecv(room, count, datatype, PREVIOUS, tag)] if first else []
        requests.append(caller.isend(data, count, datatype, NEXT, tag))
        if not first:
            requests.append(caller.irecv(room, count, datatype, PREVIOUS, tag))
        caller.waitall(requests)
        rooms.append(room)
    s.run(g)
    assert all(call.error == gmpi.SUCCESS for caller in s.callers for call in caller.calls)
    for tag, room in enumerate(rooms):
        sent = of_rank(nbytes, tag, PREVIOUS)
        if datatype == BYTE:
            s.expect(room, sent)
        else:
            elements = s.read(room).reshape(-1, 2, 8)
            assert (elements[:, 0] == sent.reshape(-1, 2, 8)[:, 0]).all()
            assert (elements[:, 1] == 0xA5).all()


def sends_are_waited_for_first(g: gmpi.Context) -> None:
    """Who waits for its sends moves what it receives meanwhile, of other requests."""
    n = 2 * EAGER + 3
    s = Script(threads=THREADS)
    rooms = [s.room(n) for _ in range(4)]
    receives = [s.irecv(b, n, BYTE, PREVIOUS, tag) for tag, b in enumerate(rooms)]
    for tag in range(4):
        s.wait(s.isend(s.data(of_rank(n, tag, RANK)), n, BYTE, NEXT, tag))
    s.waitall(receives)
    s.run(g)
    for tag, b in enumerate(rooms):
        s.expect(b, of_rank(n, tag, PREVIOUS))


def small() -> None:
    """Few slots: both orders, one chunk and more than there are buffers."""
    with gmpi.Context(WORLD, **SMALL) as g:
        for order in ORDERS:
            for n in (EAGER + 1, 5 * CHUNK + 3):
                exchange(g, BLOCKS, n, order)
        exchange(g, BLOCKS, 5 * CHUNK + 3, "both", threads=5)
        exchange(g, BLOCKS, 5 * CHUNK + 3, "both", threads=40)
        sends_are_waited_for_first(g)
        assert narrow_requests(g) > BLOCKS
        assert g.pending == []


def scattered() -> None:
    """The same with derived datatypes, which pieces cut anywhere."""
    with gmpi.Context(WORLD, **SMALL) as g:
        for n in (EAGER + 8, 5 * CHUNK + 24):
            vector = MPI.DOUBLE.Create_vector(n // 8, 1, 2)
            resized = vector.Create_resized(0, 2 * n)
            handle = g.commit(resized)
            exchange(g, BLOCKS, n, "both", handle)
            vector.Free()
            resized.Free()
        assert narrow_requests(g) > BLOCKS


def many_blocks() -> None:
    """132 blocks, a GPU full of them, with messages of 64 KiB."""
    with gmpi.Context(WORLD) as g:
        exchange(g, 132, 65536, "both", skew=1)  # the simulator takes long to land packets
        assert narrow_requests(g) > 132


def truncated() -> None:
    """Messages longer than their receives: the bytes that fit, and whoever comes next."""
    n, room = 5 * CHUNK + 3, 2 * CHUNK + 100
    with gmpi.Context(WORLD, **SMALL) as g:
        s = Script(callers=BLOCKS, threads=THREADS)
        received = []
        for tag, caller in enumerate(s.callers):
            b = s.room(room)
            r = caller.irecv(b, room, BYTE, PREVIOUS, tag)
            q = caller.isend(s.data(of_rank(n, tag, RANK)), n, BYTE, NEXT, tag)
            received.append((b, tag, caller.wait(r)))
            caller.wait(q)
        s.launch(g)
        try:
            s.collect(g)
            raise AssertionError("nothing was truncated")
        except gmpi.TruncationError as exc:
            assert exc.more == BLOCKS - 1, exc.more
        s.read_back()
        for b, tag, done in received:
            assert (done.error, done.status.nbytes) == (ERR_TRUNCATE, room)
            s.expect(b, of_rank(n, tag, PREVIOUS)[:room])
        exchange(g, BLOCKS, n, "both")


def order_is_kept() -> None:
    """A short message with the same tag does not overtake a long one that waits for its block."""
    n = 5 * CHUNK + 3
    with gmpi.Context(WORLD, **SMALL) as g:
        s = Script(threads=THREADS)
        rooms = []
        for i in range(6):
            for length in (n + i, 8 + i):
                s.isend(s.data(of_rank(length, i, RANK)), length, BYTE, NEXT, 1)
        for i in range(6):
            for length in (n + i, 8 + i):
                b = s.room(length)
                rooms.append((b, length, i))
                s.irecv(b, length, BYTE, PREVIOUS, 1)
        s.waitall([call for call in s.calls if call.handle >= 0])
        s.run(g)
        for b, length, i in rooms:
            s.expect(b, of_rank(length, i, PREVIOUS))


def collectives() -> None:
    """A collective whose ranks have slots of different kinds: all cut it alike."""
    n = 6 * CHUNK + 40
    total = sum(np.arange(n // 8, dtype=np.int64) * (rank + 1) for rank in range(SIZE))
    with gmpi.Context(WORLD, **SMALL) as g:
        s = Script(threads=THREADS)
        held = []
        for tag in range(4 if RANK == 0 else 0):
            b = s.room(n)
            held.append((b, tag, s.irecv(b, n, BYTE, SIZE - 1, tag)))
        mine = np.arange(n // 8, dtype=np.int64) * (RANK + 1)
        out, result, again = s.data(mine), s.room(n), s.data(mine)
        s.allreduce(out, result, n // 8, LONG_LONG, gmpi.SUM)
        s.in_place(again, n // 8, LONG_LONG, gmpi.SUM)
        told = [s.data(mine) if root == RANK else s.room(n) for root in range(SIZE)]
        for root, b in enumerate(told):
            s.bcast(b, n // 8, LONG_LONG, root)
        if RANK == SIZE - 1:
            for tag in range(4):
                s.send(s.data(of_rank(n, tag, RANK)), n, BYTE, 0, tag)
        for _, _, request in held:
            s.wait(request)
        s.run(g)
        s.expect(result, total)
        s.expect(again, total)
        for root, b in enumerate(told):
            s.expect(b, np.arange(n // 8, dtype=np.int64) * (root + 1))
        for b, tag, _ in held:
            s.expect(b, of_rank(n, tag, SIZE - 1))


def from_the_host() -> None:
    """Messages of the host, whose chunks are MPI's, and short ones, come to narrow receives."""
    lengths = [5 * CHUNK + 3, EAGER, EAGER + 1, 0, CHUNK + 1, 8]
    most = max(lengths)
    with gmpi.Context(WORLD, **SMALL) as g:
        s = Script(threads=THREADS)
        rooms = []
        for tag in range(12):
            b = s.room(most)
            rooms.append((b, tag, s.irecv(b, most, BYTE, PREVIOUS, tag)))
        done = s.waitall([request for _, _, request in rooms])

        def send_all() -> None:
            for tag in range(12):
                g.host.Send(of_rank(lengths[tag % 6], tag, RANK), NEXT, tag)

        sender = threading.Thread(target=send_all)
        sender.start()
        s.run(g)
        sender.join()
        assert done.error == gmpi.SUCCESS
        for b, tag, _ in rooms:
            s.expect(b, of_rank(lengths[tag % 6], tag, PREVIOUS))


def to_the_host() -> None:
    """The host receives what narrow requests send."""
    n = 5 * CHUNK + 3
    with gmpi.Context(WORLD, **SMALL) as g:
        s = Script(callers=4, threads=THREADS)
        for block, caller in enumerate(s.callers):
            requests = []
            for tag in range(3 * block, 3 * block + 3):
                data = s.data(of_rank(n, tag, RANK))
                requests.append(caller.isend(data, n, BYTE, NEXT, tag))
            caller.waitall(requests)
        wrong = []

        def receive_all() -> None:
            for tag in reversed(range(12)):
                b = np.zeros(n, np.uint8)
                g.host.Recv(b, PREVIOUS, tag)
                wrong.extend([tag] if (b != of_rank(n, tag, PREVIOUS)).any() else [])

        receiver = threading.Thread(target=receive_all)
        receiver.start()
        s.run(g)
        receiver.join()
        assert wrong == []


SCENARIOS = [
    small, scattered, truncated, order_is_kept, collectives, from_the_host, to_the_host,
]  # fmt: skip

run([*SCENARIOS, *([many_blocks] if "--many" in sys.argv else [])])
end()
