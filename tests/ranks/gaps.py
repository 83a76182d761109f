"""Data with gaps on the direct road, again and again through the same channel: packed by the call
that sends, taken by the wait, and by the general way where that cannot be."""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, WORLD, end, every_shape, pattern, raises, run
from script import Script
from typed import vector

import gmpi
from gmpi.contract.channels import DEPTH, ROOM, WIDE_ROOM
from gmpi.contract.constants import ERR_TRUNCATE

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
SHAPES = [("block", 96), ("warp", 64), ("block", 32), ("block", 20), ("block", 80)]
SIZES = [8, 376, 384, ROOM - 8, ROOM, ROOM + 8, 40_000]
LONGEST = [WIDE_ROOM - 8, WIDE_ROOM, WIDE_ROOM + 8]
ROUNDS = 3


def lengths_and_widths(g: gmpi.Context) -> None:
    """Columns of 4, 8 and 1 bytes and what lies in one piece, each to each of them."""
    shapes = SHAPES if every_shape() else SHAPES[:2]
    sizes = SIZES if gmpi.SIMULATOR and not every_shape() else SIZES + LONGEST
    for scope, threads in shapes:
        for k, n in enumerate(sizes):
            ways = [(8, 0), (0, 8), (4, 8), (1, 4)]
            for sends, receives in ways if n < 1000 or not gmpi.SIMULATOR else [ways[k % 4]]:
                one_way(g, scope, threads, n, sends, receives)


def one_way(g: gmpi.Context, scope: str, threads: int, n: int, sends: int, receives: int) -> None:
    """The same message ROUNDS times; each time the bytes are others.

    Args:
        sends, receives: bytes between gaps; 0: in one piece.
    """
    out = vector(g, n, sends) if sends else None
    back = vector(g, n, receives) if receives else None
    s = Script(scope, threads)
    checks = []
    for caller in s.callers:
        for k in range(ROUNDS):
            tag = s.callers.index(caller)
            content = [pattern(out.span if out else n, 7 * k + who) for who in (RANK, PREVIOUS)]
            room = s.room(back.span if back else n)
            into = (1, back.handle) if back else (n, gmpi.BYTE)
            r = caller.irecv(room, *into, PREVIOUS, tag)
            of = (1, out.handle) if out else (n, gmpi.BYTE)
            q = caller.isend(s.data(content[0]), *of, NEXT, tag)
            done = [caller.wait(q), caller.wait(r)]
            sent = out.packed(content[1]) if out else content[1]
            checks.append((room, back.unpacked(sent) if back else sent, done))
    s.run(g)
    for room, expected, (sending, receiving) in checks:
        what = f"{scope} of {threads}, {n} bytes, {sends} to {receives}"
        assert sending.error == gmpi.SUCCESS, what
        status = receiving.status
        count = 1 if back else n
        assert (status.error, status.count, status.nbytes) == (0, count, n), (what, status)
        s.expect(room, expected, what)
    for typed in (out, back):
        if typed:
            g.free(typed.handle)


def more_than_an_inbox_holds(g: gmpi.Context) -> None:
    """All ranks send before they receive: what finds no slot is packed when its turn has come."""
    for n in (64, ROOM + 8):
        column = vector(g, n, 8)
        s = Script(threads=64)
        rooms = []
        sends = []
        for k in range(DEPTH + 3):
            content = [pattern(column.span, 9 * k + who) for who in (RANK, PREVIOUS)]
            sends.append(s.isend(s.data(content[0]), 1, column.handle, NEXT, 5))
            rooms.append((s.room(column.span), column.unpacked(column.packed(content[1]))))
        for room, _ in rooms:
            s.wait(s.irecv(room, 1, column.handle, PREVIOUS, 5))
        for q in sends:
            s.wait(q)
        s.run(g)
        assert all(call.error == gmpi.SUCCESS for call in s.calls)
        for room, expected in rooms:
            s.expect(room, expected, f"{n} bytes")
        g.free(column.handle)


def views(g: gmpi.Context) -> None:
    """Strided views of arrays of bytes, of every length around the ways."""
    for n in (8, 100, ROOM, ROOM + 4):
        s = Script(threads=64)
        checks = []
        for k in range(ROUNDS):
            content = [pattern(2 * n, 5 * k + who) for who in (RANK, PREVIOUS)]
            room = s.room(2 * n)
            r = s.irecv_strided(room, n, gmpi.BYTE, PREVIOUS, 6)
            q = s.isend_strided(s.data(content[0]), n, gmpi.BYTE, NEXT, 6)
            checks.append((room, content[1][::2], s.wait(q), s.wait(r)))
        s.run(g)
        for room, sent, sending, receiving in checks:
            assert sending.error == gmpi.SUCCESS
            assert receiving.status.count == receiving.status.nbytes == n, receiving.status
            expected = np.full(2 * n, 0xA5, np.uint8)
            expected[::2] = sent
            s.expect(room, expected, f"{n} bytes of a view")


def truncation(g: gmpi.Context) -> None:
    """A receive with gaps for less than comes: an error and what fits, and then the next one."""
    for n in (64, ROOM + 64):
        column, less = vector(g, n, 8), vector(g, n - 16, 8)
        s = Script(threads=64)
        rooms = []
        waits = []
        for k in range(ROUNDS):
            content = [pattern(column.span, 3 * k + who) for who in (RANK, PREVIOUS)]
            q = s.isend(s.data(content[0]), 1, column.handle, NEXT, 8)
            for into in (less, column) if k == 1 else (column,):
                if into is less:
                    s.wait(q)
                    q = s.isend(s.data(content[0]), 1, column.handle, NEXT, 8)
                room = s.room(column.span)
                rooms.append((room, into, column.packed(content[1])))
                waits.append(s.wait(s.irecv(room, 1, into.handle, PREVIOUS, 8)))
            s.wait(q)
        s.launch(g)
        raises(gmpi.TruncationError, "message length", lambda s=s: s.collect(g))  # type: ignore[misc]
        s.collect(g)
        for (room, into, sent), wait in zip(rooms, waits):
            assert wait.status.error == (ERR_TRUNCATE if into is less else gmpi.SUCCESS), wait
            assert wait.status.nbytes == into.nbytes, wait.status
            expected = into.unpacked(sent[: into.nbytes])
            s.expect(room, expected, f"{n} bytes to {into.nbytes}")
        for typed in (column, less):
            g.free(typed.handle)


def main() -> None:
    with gmpi.Context(WORLD, wildcards=False) as g:
        run([lengths_and_widths, more_than_an_inbox_holds, views, truncation], g)
    end()


main()
