"""Many ranks, on one node and on several: more than tables have room for.

    mpiexec -n 66 python3 tests/ranks/many.py [SCENARIO ...]

Mailboxes are for the ranks of a node with at most ``MAILBOX_RANKS``, and kernels know of
``P2P_RANKS`` ranks how their long messages travel. Nearly all the time goes into starting the
ranks: what they do here is short.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, pattern, run, same
from script import Script

import gmpi
from gmpi.contract.wire import MAILBOX_RANKS, P2P_RANKS
from gmpi.memory.node import TEST_NODES, of_this_node

EAGER, CHUNK = 256, 1024
LONG = 3 * CHUNK + 8
SIZES = {"ring_slots": 64, "request_slots": 32, "large_slots": 4, "eager_bytes": EAGER}
THREADS = 4  # of a block: the simulator takes as long for one as for another
Check = Callable[[], None]


class Nodes:
    """A context whose ranks are on nodes by a map; ``with`` closes it, and prints how long it took.

    The map is read when a context opens (``gmpi/memory/node.py``): one job has several.
    """

    def __init__(self, nodes: str, gpu: bool = True) -> None:
        os.environ[TEST_NODES] = nodes
        barrier()
        self._began = time.monotonic()
        self.g = gmpi.Context(WORLD, chunk_bytes=CHUNK, gpu=gpu, **SIZES)
        self._nodes = nodes
        local = of_this_node(WORLD)
        self.beside = local.Get_size()
        local.Free()

    def __enter__(self) -> Nodes:
        self._opened = time.monotonic()
        return self

    def __exit__(self, *failure: object) -> None:
        if failure == (None, None, None):
            barrier()
            closing = time.monotonic()
            self.g.close()
            if RANK == 0:
                opening, took = self._opened - self._began, time.monotonic() - closing
                nodes = f"{self._nodes[:8]} ({SIZE} ranks)"
                print(f"{nodes}: opened in {opening:.2f} s, closed in {took:.2f} s", flush=True)

    def check_ways(self) -> None:
        """Ranks of this node that kernels know read memory of ours, the others get messages."""
        paths = {way: len(ranks) for way, ranks in self.g.paths.items()}
        near = min(self.beside, P2P_RANKS)
        expected = {"GPU staging": near, "MPI": SIZE - near}
        assert paths == {way: n for way, n in expected.items() if n}, (paths, expected)
        assert bool(self.g._memory.mailbox) == (self.beside <= MAILBOX_RANKS), self.beside


def pairs(s: Script, count: int) -> Check:
    """Every rank sends to and receives from random ones, all at once, more than there are slots."""
    rng = np.random.default_rng(count)  # the same on all ranks
    requests, rooms = [], []
    for tag in range(count):
        to = rng.permutation(SIZE)
        n = int(rng.choice([0, 8, EAGER, CHUNK, LONG]))
        source = int(np.flatnonzero(to == RANK)[0])
        room = s.room(n)
        rooms.append((room, pattern(n, source + tag), source, tag))
        data = s.data(pattern(n, RANK + tag))
        requests.append(s.irecv(room, n, gmpi.BYTE, source, tag))
        requests.append(s.isend(data, n, gmpi.BYTE, int(to[RANK]), tag))
    done = s.waitall(requests)

    def check() -> None:
        assert done.error == gmpi.SUCCESS, done.error
        for (room, content, source, tag), status in zip(rooms, done.statuses[::2]):
            s.expect(room, content, f"{tag} from {source}")
            assert (status.source, status.nbytes) == (source, len(content)), status

    return check


def around(s: Script) -> Check:
    """Each sends to the next one, and to one far away: short, landing, in chunks."""
    checks = []
    for tag, (step, n) in enumerate((d, n) for d in (1, SIZE // 2) for n in (8, CHUNK, LONG)):
        room = s.room(n)
        source, dest = (RANK - step) % SIZE, (RANK + step) % SIZE
        data = s.data(pattern(n, RANK + tag))
        s.sendrecv(data, n, gmpi.BYTE, dest, tag, room, n, source, tag)
        checks.append((room, pattern(n, source + tag)))
    return lambda: [s.expect(*entry) for entry in checks] and None


def to_one(s: Script, root: int) -> Check:
    """All send to one rank, which takes whatever comes."""
    if root != RANK:
        s.send(s.data(pattern(16, RANK)), 16, gmpi.BYTE, root, 9)
        return lambda: None
    received = []
    for _ in range(SIZE - 1):
        room = s.room(16)
        received.append((room, s.recv(room, 16, gmpi.BYTE, gmpi.ANY_SOURCE, 9)))

    def check() -> None:
        sources = {call.status.source for _, call in received}
        assert sources == set(range(SIZE)) - {root}, sources
        for room, call in received:
            s.expect(room, pattern(16, call.status.source))

    return check


def together(s: Script, comm: int, members: list[int]) -> Check:
    """Collectives, short and in chunks, from the first and from the last rank."""
    checks: list[tuple] = []
    for n in (1, LONG // 8):
        total = s.room(8 * n)
        data = s.data(np.arange(n) + RANK)
        s.allreduce(data, total, n, gmpi.INT64_T, gmpi.SUM, comm)
        checks.append((total, np.arange(n) * len(members) + sum(members)))
    for root in (0, len(members) - 1):
        room = s.room(LONG)
        content = pattern(LONG, members[root])
        if members[root] == RANK:
            s.fill(room, content)
        s.bcast(room, LONG, gmpi.BYTE, root, comm)
        checks.append((room, content))
    s.barrier(comm)
    return lambda: [s.expect(*entry) for entry in checks] and None


def traffic(nodes: str) -> None:
    with Nodes(nodes) as job:
        job.check_ways()
        g = job.g
        third = WORLD.Split(RANK % 3)
        members = list(range(RANK % 3, SIZE, 3))
        handle = g.comm(third)
        third.Free()
        s = Script(threads=THREADS)
        checks = [pairs(s, 12), around(s), to_one(s, SIZE - 1)]
        checks += [together(s, gmpi.COMM_WORLD, list(range(SIZE))), together(s, handle, members)]
        s.run(g)
        for check in checks:
            check()


# --- the scenarios --------------------------------------------------------------------------------


def one_node() -> None:
    """More than have mailboxes; with 66 ranks, more than kernels know of."""
    assert SIZE > MAILBOX_RANKS
    traffic("a")


def in_turn() -> None:
    """With 66 ranks: two nodes of 17, without mailboxes, and two of 16, with them."""
    traffic("abcd")


def blocked() -> None:
    """A large node and a small one, in blocks."""
    traffic("a" * (SIZE - 2) + "bb")


def hosts() -> None:
    """Every other rank without a kernel."""
    with Nodes("abcd", gpu=RANK % 2 == 0) as job:
        host = job.g.host
        data, room = pattern(LONG, RANK), np.zeros(LONG, np.uint8)
        source, dest = (RANK - 1) % SIZE, (RANK + 1) % SIZE
        if RANK % 2:
            host.Sendrecv(data, dest, 3, room, source, 3)
        else:
            s = Script(threads=THREADS)
            place = s.room(LONG)
            s.sendrecv(s.data(data), LONG, gmpi.BYTE, dest, 3, place, LONG, source, 3)
            s.run(job.g)
            room = s.read(place)
        same(room, pattern(LONG, source), f"from {source}")
        total = np.zeros(1, np.int64)
        host.Allreduce(np.full(1, RANK), total, gmpi.SUM)
        assert total[0] == SIZE * (SIZE - 1) // 2
        host.Barrier()


def main() -> None:
    run([one_node, in_turn, blocked, hosts])
    end()


main()
