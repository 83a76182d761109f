"""Messages that land in the receiver's GPU memory: above ``eager_bytes``, up to 64 KiB."""

from __future__ import annotations

import numpy as np
from common import (
    RANK,
    SIZE,
    WORLD,
    barrier,
    end,
    every_shape,
    in_thread,
    pattern,
    raises,
    run,
    same,
)
from script import Script

import gmpi
from gmpi.contract.constants import ERR_TRUNCATE
from gmpi.contract.wire import MAILBOX_BYTES

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def mailed_bytes(g: gmpi.Context) -> np.ndarray:
    """What is in our mailboxes, all of them."""
    layout = g.layout
    assert g._memory.mailbox, "there are no mailboxes"
    return g._memory.fetch(g._memory.mailbox, layout.mailbox(SIZE) - layout.mailbox(0))


def they_are_mailed(g: gmpi.Context) -> None:
    """What is aligned and short enough, and nothing else; else what follows would test nothing."""
    n = g.layout.eager_bytes + 4
    for skew, length, fits_mailbox in ((0, n, True), (2, n, False), (0, MAILBOX_BYTES + 4, False)):
        before = mailed_bytes(g)
        barrier()  # nobody's message comes before we have looked
        s = Script()
        room = s.room(length)
        r = s.irecv(room, length, gmpi.BYTE, PREVIOUS, 1)
        q = s.isend(s.data(pattern(length, RANK), skew), length, gmpi.BYTE, NEXT, 1)
        done = s.waitall([r, q])
        s.run(g)
        assert done.error == gmpi.SUCCESS
        s.expect(room, pattern(length, PREVIOUS))
        assert (mailed_bytes(g) != before).any() == fits_mailbox, (skew, length)


def exchange(
    g: gmpi.Context, s: Script, lengths: list[int], skews: list[tuple[int, int]], whole: bool
) -> None:
    """Every caller: one message of each length, all under way at once or one after the other."""
    rooms = []
    for number, caller in enumerate(s.callers):
        requests = []
        for k, n in enumerate(lengths):
            to, source = skews[(k + number) % len(skews)]
            room, tag = s.room(n, to), 100 * number + k
            data = s.data(pattern(n, 7 * tag + RANK), source)
            r = caller.irecv(room, n, gmpi.BYTE, PREVIOUS, tag)
            q = caller.isend(data, n, gmpi.BYTE, NEXT, tag)
            requests += [r, q]
            if not whole:
                caller.wait(q if k % 2 else r)
                caller.wait(r if k % 2 else q)
            rooms.append((room, n, tag))
        if whole:
            caller.waitall(requests)
    s.run(g)
    assert all(call.error == gmpi.SUCCESS for caller in s.callers for call in caller.calls)
    for room, n, tag in rooms:
        s.expect(room, pattern(n, 7 * tag + PREVIOUS))


def lengths_and_places(g: gmpi.Context) -> None:
    """Tails of every length, buffers at any address, blocks with warps that are not full."""
    least = g.layout.eager_bytes + 1
    lengths = [least, least + 3, 12 * 700, 48 * 180, 48 * 180 + 1, 48 * 180 + 47, least + 48 * 9]
    skews = [(0, 0), (1, 0), (4, 4), (8, 16), (15, 12), (2, 3)]
    shapes = [("block", 32), ("block", 96), ("block", 80), ("block", 20), ("warp", 64)]
    for scope, threads in shapes if every_shape() else shapes[1:3]:
        for whole in (True, False):
            exchange(g, Script(scope, threads), lengths, skews, whole)
    if not gmpi.SIMULATOR:
        lengths = [MAILBOX_BYTES, MAILBOX_BYTES - 4, 32768, 40004]
        exchange(g, Script("block", 256), lengths, skews, True)


def again_and_again(g: gmpi.Context) -> None:
    """Slots are used again by messages of other lengths, and by several blocks at once."""
    rng = np.random.default_rng(3)
    high = g.layout.eager_bytes + (400 if gmpi.SIMULATOR else 30000)
    for _ in range(1 if gmpi.SIMULATOR else 20):
        lengths = rng.integers(g.layout.eager_bytes + 1, high, 12 if gmpi.SIMULATOR else 60)
        exchange(g, Script("block", 64, callers=3), lengths.tolist(), [(0, 0)], False)


def truncation(g: gmpi.Context) -> None:
    """A receive for less gets what fits: with chunk buffers, without, and with no room at all."""
    n = g.layout.eager_bytes + 500
    fits = [n - 1, n - 13, g.layout.eager_bytes + 1, g.layout.eager_bytes, 100, 0]
    for _ in range(2):  # the same places again: nothing of the bytes that were left comes late
        s = Script("block", 64)
        rooms = [s.room(m) for m in fits]
        receives = [s.irecv(b, b.nbytes, gmpi.BYTE, PREVIOUS, k) for k, b in enumerate(rooms)]
        sends = [
            s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, k) for k in range(len(fits))
        ]
        waits = [s.wait(r) for r in receives]
        done = [s.wait(q) for q in sends]
        s.launch(g)
        raises(gmpi.TruncationError, "message length", lambda: s.collect(g))  # noqa: B023
        s.collect(g)
        for k, (m, room, wait) in enumerate(zip(fits, rooms, waits)):
            assert wait.status[:3] == (ERR_TRUNCATE, PREVIOUS, k), wait.status
            assert wait.status.nbytes == m, wait.status
            s.expect(room, pattern(n, PREVIOUS + k)[:m])
        assert all(call.error == gmpi.SUCCESS for call in done)


def strided(g: gmpi.Context) -> None:
    """From one piece, by a mailbox, to every other byte; the other way round: by none."""
    n = g.layout.eager_bytes + 240
    for sends, receives in ((1, 2), (2, 1), (2, 2)):
        s = Script("block", 64)
        out, room = s.data(pattern(sends * n, RANK)), s.room(receives * n)
        receive = s.irecv_strided if receives == 2 else s.irecv
        send = s.isend_strided if sends == 2 else s.isend
        done = s.waitall(
            [receive(room, n, gmpi.BYTE, PREVIOUS, 5), send(out, n, gmpi.BYTE, NEXT, 5)]
        )
        s.run(g)
        assert done.error == gmpi.SUCCESS
        expected = np.full(receives * n, 0xA5, np.uint8)
        expected[::receives] = pattern(sends * n, PREVIOUS)[::sends]
        s.expect(room, expected)


def received_by_the_host(g: gmpi.Context) -> None:
    n = g.layout.eager_bytes + 77
    s = Script()
    s.waitall([s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, 9 + k) for k in (0, 1)])
    rooms = np.zeros(n, np.uint8), np.zeros(n - 50, np.uint8)

    def receive() -> None:
        assert g.host.Recv(rooms[0], PREVIOUS, 9).nbytes == n
        raises(gmpi.TruncationError, "", lambda: g.host.Recv(rooms[1], PREVIOUS, 10))

    in_thread(receive, lambda: s.run(g))
    same(rooms[0], pattern(n, PREVIOUS), "received by the host")
    same(rooms[1], pattern(n, PREVIOUS + 1)[: n - 50], "what fits")


def main() -> None:
    with gmpi.Context(WORLD) as g:
        run(
            [
                they_are_mailed, lengths_and_places, again_and_again, truncation, strided,
                received_by_the_host,
            ],
            g,
        )  # fmt: skip
        assert g.pending == []
    end()


main()
