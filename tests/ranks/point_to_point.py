"""Sends and receives between kernels around a ring of any number of ranks, one included."""

from __future__ import annotations

import sys

from common import RANK, SIZE, WORLD, barrier, end, every_shape, pattern, run
from script import Script
from truncation import truncated_together, truncation

import gmpi
from gmpi.contract import constants

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
WORLD_COMM = gmpi.COMM_WORLD


def edge_sizes(g: gmpi.Context) -> list[int]:
    """Sizes at which something changes, and their neighbours."""
    eager, chunk = g.layout.eager_bytes, g.layout.chunk_bytes
    inline = 144
    sizes = {0, 1, 3, 4, 8, 11, 12, 13, 24, 100, inline, inline + 1, 160, eager - 1, eager}
    sizes |= {eager + 1, 4 * 65536, 4 * 65536 + 1, 4 * 65536 + 129}
    for chunks in (1, 2, 3, 4, 5, 9):
        sizes |= {chunks * chunk - 1, chunks * chunk, chunks * chunk + 1}
    limit = 1 << 62
    if gmpi.SIMULATOR:
        limit = 9 * 512 + 1 if chunk == 512 else (4 if every_shape() else 1) * chunk + 1
    return sorted(n for n in sizes if n <= limit)


def all_sizes(g: gmpi.Context) -> None:
    """Every size by Irecv, Isend and two Waits, with aligned and with odd addresses."""
    s = Script()
    checks = []
    for k, n in enumerate(edge_sizes(g)):
        skew = (0, 8, 4, 1, 2, 3)[k % 6]
        sent = s.data(pattern(n, 100 * RANK + k), skew)
        room = s.room(n, (k // 4) % 4)
        r = s.irecv(room, n, gmpi.BYTE, PREVIOUS, k)
        q = s.isend(sent, n, gmpi.BYTE, NEXT, k)
        checks.append((k, n, room, s.wait(q), s.wait(r)))
    s.run(g)
    for k, n, room, sending, receiving in checks:
        assert sending.error == gmpi.SUCCESS, (n, sending.status)
        expected = gmpi.Status(gmpi.SUCCESS, PREVIOUS, k, n, n)
        assert receiving.status == expected, f"{n} bytes: {receiving.status}"
        s.expect(room, pattern(n, 100 * PREVIOUS + k), f"{n} bytes")


def all_scopes(g: gmpi.Context) -> None:
    """Blocks and warps of every kind of size; each warp of a block has messages of its own."""
    sizes = [0, 8, 144, 145, g.layout.eager_bytes, g.layout.eager_bytes + 1000]
    for threads in (1, 8, 32, 33, 64, 100) if every_shape() else (8, 33):
        for scope in ("block", "warp"):
            s = Script(scope, threads, callers=2)
            checks = []
            for number, caller in enumerate(s.callers):
                for k, n in enumerate(sizes):
                    tag = 100 * number + k
                    sent, room = s.data(pattern(n, tag + RANK)), s.room(n)
                    r = caller.irecv(room, n, gmpi.BYTE, PREVIOUS, tag)
                    q = caller.isend(sent, n, gmpi.BYTE, NEXT, tag)
                    checks.append((tag, n, room, caller.wait(q), caller.wait(r)))
            s.run(g)
            for tag, n, room, sending, receiving in checks:
                what = f"{scope} of {threads}, {n} bytes, tag {tag}"
                assert sending.error == gmpi.SUCCESS, what
                assert receiving.status == (gmpi.SUCCESS, PREVIOUS, tag, n, n), what
                s.expect(room, pattern(n, tag + PREVIOUS), what)


def all_datatypes(g: gmpi.Context) -> None:
    """The count of a status is in elements of the datatype of the receive."""
    s = Script(threads=32 if every_shape() else 8)
    checks = []
    for k, handle in enumerate(constants.DATATYPE_NAMES):
        if k >= constants.FIRST_WITH_GAPS:  # refused: bad_input
            break
        size = handle >> 8 & 0xFF
        for n in (1, 7, 30):
            sent, room = s.data(pattern(n * size, k + RANK)), s.room(n * size)
            tag = 10 * k + n
            r = s.irecv(room, n, handle, PREVIOUS, tag)
            q = s.isend(sent, n, handle, NEXT, tag)
            s.wait(q)
            checks.append((k, n, size, tag, room, s.wait(r)))
    s.run(g)
    for k, n, size, tag, room, done in checks:
        assert done.status == (gmpi.SUCCESS, PREVIOUS, tag, n, n * size), (k, n, done.status)
        s.expect(room, pattern(n * size, k + PREVIOUS))


def counts_of_other_types(g: gmpi.Context) -> None:
    """Bytes that are no whole number of elements have the count UNDEFINED, not an error."""
    s = Script()
    room = s.room(32)
    r = s.irecv(room, 4, gmpi.DOUBLE, PREVIOUS, 1)
    q = s.isend(s.data(pattern(12, 5)), 12, gmpi.BYTE, NEXT, 1)
    s.wait(q)
    done = s.wait(r)
    r = s.irecv(s.room(32), 8, gmpi.FLOAT, PREVIOUS, 2)
    q = s.isend(s.data(pattern(12, 6)), 12, gmpi.BYTE, NEXT, 2)
    s.wait(q)
    whole = s.wait(r)
    s.run(g)
    assert done.status == (gmpi.SUCCESS, PREVIOUS, 1, gmpi.UNDEFINED, 12), done.status
    assert whole.status.count == 3
    s.expect(room, pattern(12, 5))


def blocking_calls(g: gmpi.Context) -> None:
    """Send, Recv and Sendrecv; even ranks send first, as MPI programs must."""
    sizes = [0, 20, 145, 3000, g.layout.eager_bytes + 1]
    s = Script()
    checks = []
    for k, n in enumerate(sizes):
        sent, room = s.data(pattern(n, RANK + k)), s.room(n)
        if SIZE > 1 and SIZE % 2 == 0:
            calls = [
                lambda sent=sent, n=n, k=k: s.send(sent, n, gmpi.BYTE, NEXT, k),
                lambda room=room, n=n, k=k: s.recv(room, n, gmpi.BYTE, PREVIOUS, k),
            ]
            done = [call() for call in (calls if RANK % 2 == 0 else calls[::-1])]
            checks.append((k, n, room, done[1 if RANK % 2 == 0 else 0]))
        sent, room = s.data(pattern(n, RANK + k + 50)), s.room(n + 9)
        done = s.sendrecv(sent, n, gmpi.BYTE, NEXT, k, room, n + 9, PREVIOUS, k)
        checks.append((k + 50, n, room, done))
    s.run(g)
    for k, n, room, done in checks:
        assert done.status == (gmpi.SUCCESS, PREVIOUS, k % 50, n, n), (k, n, done.status)
        s.expect(room, pattern(n, PREVIOUS + k))


def proc_null(g: gmpi.Context) -> None:
    """Completes at once, moves nothing; the status is MPI's (MPI 4.1 section 3.10)."""
    s = Script()
    room = s.room(64)
    big = g.layout.eager_bytes + 100
    done = [
        s.wait(s.irecv(room, 64, gmpi.BYTE, gmpi.PROC_NULL, 3)),
        s.recv(room, 64, gmpi.BYTE, gmpi.PROC_NULL, gmpi.ANY_TAG),
        s.recv(s.room(big), big, gmpi.BYTE, gmpi.PROC_NULL, 4),
    ]
    sent = [
        s.send(room, 64, gmpi.BYTE, gmpi.PROC_NULL, 3),
        s.send(s.room(big), big, gmpi.BYTE, gmpi.PROC_NULL, 3),
    ]
    both = s.sendrecv(
        s.data(pattern(8, 1)), 8, gmpi.BYTE, gmpi.PROC_NULL, 1, room, 64, gmpi.PROC_NULL, 1
    )
    s.run(g)
    for call in (*done, both):
        assert call.status == (gmpi.SUCCESS, gmpi.PROC_NULL, gmpi.ANY_TAG, 0, 0), call.status
    assert all(call.error == gmpi.SUCCESS for call in sent)
    s.expect(room, pattern(0, 0))


def wildcards(g: gmpi.Context) -> None:
    """ANY_SOURCE and ANY_TAG: the status says who and what."""
    for n in (16, 145, g.layout.eager_bytes + 77):
        s = Script()
        rooms = [s.room(n) for _ in range(SIZE)]
        receives = [s.irecv(b, n, gmpi.BYTE, gmpi.ANY_SOURCE, gmpi.ANY_TAG) for b in rooms]
        sends = [
            s.isend(s.data(pattern(n, 10 * RANK + dest)), n, gmpi.BYTE, dest, 30 + RANK)
            for dest in range(SIZE)
        ]
        s.waitall(sends)
        all_of_them = s.waitall(receives)
        s.run(g)
        assert all_of_them.error == gmpi.SUCCESS
        assert sorted(st.source for st in all_of_them.statuses) == list(range(SIZE))
        for room, status in zip(rooms, all_of_them.statuses):
            assert status == (gmpi.SUCCESS, status.source, 30 + status.source, n, n)
            s.expect(room, pattern(n, 10 * status.source + RANK))
        barrier()  # a rank that is ahead would feed these wildcards with its next messages


def order(g: gmpi.Context) -> None:
    """Messages of one sender with one tag do not overtake each other, whatever their size."""
    eager = g.layout.eager_bytes
    sizes = [8, eager + 50, 200, 0, 8, eager, eager + 1, 1, 145, 3 * eager]
    s = Script()
    rooms = [s.room(max(sizes)) for _ in sizes]
    sends = [
        s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, 5) for k, n in enumerate(sizes)
    ]
    receives = [s.irecv(b, b.nbytes, gmpi.BYTE, PREVIOUS, 5) for b in rooms]
    done = s.waitall(receives)
    s.waitall(sends)
    s.run(g)
    for k, (n, room, status) in enumerate(zip(sizes, rooms, done.statuses)):
        assert status == (gmpi.SUCCESS, PREVIOUS, 5, n, n), (k, status)
        s.expect(room, pattern(n, PREVIOUS + k), f"message {k}")


def unexpected(g: gmpi.Context) -> None:
    """Messages that come before their receives, which are then posted in reverse order."""
    eager = g.layout.eager_bytes
    sizes = [8, 145, eager, eager + 1, 2 * eager + 3]
    s = Script()
    sends = [
        s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, k) for k, n in enumerate(sizes)
    ]
    s.barrier()
    s.pause(2_000_000)
    rooms = {}
    for k, n in reversed(list(enumerate(sizes))):
        rooms[k] = s.room(n)
        s.recv(rooms[k], n, gmpi.BYTE, PREVIOUS, k)
    s.waitall(sends)
    s.run(g)
    for k, n in enumerate(sizes):
        s.expect(rooms[k], pattern(n, PREVIOUS + k), f"{n} bytes")


def both_directions(g: gmpi.Context) -> None:
    """All ranks wait for their long sends before they wait for, or post, any receive.

    A wait must make progress on every request of the process, not only on its own.
    """
    n = 9 * g.layout.chunk_bytes // 2 if g.layout.chunk_bytes < 10000 else 200_000
    s = Script(threads=64)
    rooms = [s.room(n), s.room(n)]
    early = [s.irecv(rooms[0], n, gmpi.BYTE, PREVIOUS, 0), s.irecv(rooms[1], n, gmpi.BYTE, NEXT, 1)]
    sends = [
        s.isend(s.data(pattern(n, RANK)), n, gmpi.BYTE, NEXT, 0),
        s.isend(s.data(pattern(n, RANK + 10)), n, gmpi.BYTE, PREVIOUS, 1),
    ]
    for request in (*sends, *early):
        s.wait(request)
    s.run(g)
    s.expect(rooms[0], pattern(n, PREVIOUS))
    s.expect(rooms[1], pattern(n, NEXT + 10))


def waiting_by_testing(g: gmpi.Context) -> None:
    """A loop of GMPI_Test on a long send must also move the bytes of the receive it waits for."""
    n = 5 * g.layout.chunk_bytes if g.layout.chunk_bytes < 10000 else 150_000
    s = Script()
    room = s.room(n)
    r = s.irecv(room, n, gmpi.BYTE, PREVIOUS, 0)
    q = s.isend(s.data(pattern(n, RANK)), n, gmpi.BYTE, NEXT, 0)
    tests = [s.test_until(q), s.test_until(r)]
    s.run(g)
    assert [call.error for call in tests] == [gmpi.SUCCESS] * 2
    s.expect(room, pattern(n, PREVIOUS))


def many_requests(g: gmpi.Context) -> None:
    """Waitall over more requests than a warp has lanes, of both classes of size."""
    long = g.layout.eager_bytes + 5
    limit = min(400, g.layout.eager_bytes)
    sizes = [long if k % 9 == 4 else (k * 37) % limit for k in range(70)]
    s = Script(threads=64)
    rooms = [s.room(n) for n in sizes]
    receives = [s.irecv(b, b.nbytes, gmpi.BYTE, PREVIOUS, k) for k, b in enumerate(rooms)]
    sends = [
        s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, k) for k, n in enumerate(sizes)
    ]
    done = s.waitall([*receives, *sends])
    s.run(g)
    assert done.error == gmpi.SUCCESS
    for k, (n, room) in enumerate(zip(sizes, rooms)):
        assert done.statuses[k] == (gmpi.SUCCESS, PREVIOUS, k, n, n), done.statuses[k]
        s.expect(room, pattern(n, PREVIOUS + k))


def null_requests(g: gmpi.Context) -> None:
    """Waitall leaves REQUEST_NULL; waiting for that returns the empty status (section 3.7.3)."""
    s = Script()
    r = s.irecv(s.room(8), 8, gmpi.BYTE, PREVIOUS, 1)
    q = s.isend(s.data(pattern(8, 1)), 8, gmpi.BYTE, NEXT, 1)
    s.waitall([r, q])
    again = s.waitall([r, q])
    alone = s.wait(r)
    tested = s.test(q)
    s.run(g)
    empty = gmpi.Status(gmpi.SUCCESS, gmpi.ANY_SOURCE, gmpi.ANY_TAG, 0, 0)
    assert again.error == gmpi.SUCCESS and again.statuses == [empty, empty]
    assert alone.status == empty and tested.status == empty and tested.flag == 1


def any_and_test(g: gmpi.Context) -> None:
    """Waitany takes each request once; Test says when."""
    sizes = [8, 145, g.layout.eager_bytes + 1, 0]
    s = Script()
    rooms = [s.room(n) for n in sizes]
    receives = [s.irecv(b, b.nbytes, gmpi.BYTE, PREVIOUS, k) for k, b in enumerate(rooms)]
    early = s.test(receives[0])  # nobody has sent: the barrier comes after it
    s.barrier()
    sends = [
        s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, k) for k, n in enumerate(sizes)
    ]
    found = [s.waitany(receives[0], len(receives)) for _ in receives]
    none = s.waitany(receives[0], len(receives))
    tests = [s.test_until(q) for q in sends]
    s.run(g)
    assert early.flag == 0, "a receive was complete before its message was sent"
    assert sorted(call.flag for call in found) == list(range(len(sizes)))
    for call in found:
        k = call.flag
        assert call.status == (gmpi.SUCCESS, PREVIOUS, k, sizes[k], sizes[k]), call.status
    assert none.flag == -1 and none.error == gmpi.SUCCESS
    assert all(call.flag >= 1 and call.error == gmpi.SUCCESS for call in tests)
    for k, (n, room) in enumerate(zip(sizes, rooms)):
        s.expect(room, pattern(n, PREVIOUS + k))


def everyone_to_everyone(g: gmpi.Context) -> None:
    """Several blocks, each with messages to every rank, the caller's own included."""
    n = 500
    s = Script(callers=4)
    rooms = {}
    for number, caller in enumerate(s.callers):
        requests = []
        for peer in range(SIZE):
            rooms[number, peer] = s.room(n)
            requests.append(caller.irecv(rooms[number, peer], n, gmpi.BYTE, peer, number))
        for peer in range(SIZE):
            sent = s.data(pattern(n, 100 * RANK + 10 * number + peer))
            requests.append(caller.isend(sent, n, gmpi.BYTE, peer, number))
        caller.waitall(requests)
    s.run(g)
    for (number, peer), room in rooms.items():
        s.expect(room, pattern(n, 100 * peer + 10 * number + RANK))


def fills_and_wraps_the_ring(g: gmpi.Context) -> None:
    """More records than the ring has slots, several laps, from all warps of a block."""
    s = Script("warp", 96)
    each = 32 if g.layout.ring_slots == 64 else 10 if gmpi.SIMULATOR else 1500
    rooms = []
    for number, caller in enumerate(s.callers):
        room, sent = s.room(8), s.data(pattern(8, number + RANK))
        for k in range(each):
            r = caller.irecv(room, 8, gmpi.BYTE, PREVIOUS, number)
            q = caller.isend(sent, 8, gmpi.BYTE, NEXT, number)
            if k % 3:
                caller.wait(q)
                caller.wait(r)
            else:
                caller.waitall([r, q])
        rooms.append(room)
    s.run(g)
    for number, room in enumerate(rooms):
        s.expect(room, pattern(8, number + PREVIOUS))
    assert all(call.error == gmpi.SUCCESS for caller in s.callers for call in caller.calls)


SCENARIOS = [
    all_sizes, all_scopes, all_datatypes, counts_of_other_types, blocking_calls, proc_null,
    wildcards, order, unexpected, both_directions, waiting_by_testing, truncation,
    truncated_together, many_requests, null_requests, any_and_test, everyone_to_everyone,
    fills_and_wraps_the_ring,
]  # fmt: skip


def main() -> None:
    if "--small" in sys.argv:  # everything is long, every ring is short
        settings = {"eager_bytes": 256, "chunk_bytes": 512, "ring_slots": 64, "large_slots": 64}
    else:
        settings = {}
    scenarios = list(SCENARIOS)
    direct = "--direct" in sys.argv  # what does not go by the proxies
    if direct:
        scenarios = [s for s in scenarios if s not in (wildcards, proc_null)]  # use ANY_TAG
    with gmpi.Context(WORLD, wildcards=not direct, **settings) as g:
        run(scenarios, g)
        assert g.pending == []
    end()


main()
