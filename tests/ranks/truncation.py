"""Messages longer than their receives: scenarios of ``point_to_point`` and ``host_side``."""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, in_thread, pattern, raises, same
from script import Script

import gmpi

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def truncation(g: gmpi.Context) -> None:
    """A message longer than its receive: an error, the bytes that fit, and nothing else harmed."""
    eager = g.layout.eager_bytes
    pairs = [  # (message, room)
        (8, 4), (8, 0), (100, 12), (144, 143), (145, 144), (300, 100), (eager, eager - 1),
        (eager + 1, 8), (eager + 1, 145), (eager + 1, eager), (4 * eager, 0),
        (4 * eager, eager + 1), (4 * eager, 2 * eager + 5),
    ]  # fmt: skip
    s = Script()
    checks = []
    for k, (n, m) in enumerate(pairs):
        room, after = s.room(m), s.room(16)
        r = s.irecv(room, m, gmpi.BYTE, PREVIOUS, k)
        other = s.irecv(after, 16, gmpi.BYTE, PREVIOUS, 100 + k)
        q = s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, k)
        p = s.isend(s.data(pattern(16, RANK + k + 99)), 16, gmpi.BYTE, NEXT, 100 + k)
        s.wait(q)
        s.wait(p)
        checks.append((k, n, m, room, after, s.wait(r), s.wait(other)))
    s.launch(g)
    try:
        s.collect(g)
        raise AssertionError("synchronize() did not raise")
    except gmpi.TruncationError as exc:
        assert exc.operation == "GMPI_Irecv" and exc.field == "message length"
        assert exc.error_class == gmpi.ERR_TRUNCATE and exc.block == 0
        assert exc.more == len(pairs) - 1
        n, m = pairs[0]
        assert str(exc).startswith(
            f"GMPI_Irecv in block 0: message length is {n}, allowed is at most {m} bytes; "
            f"receive with a larger count [peer {PREVIOUS}, tag 0, communicator 0, "
            f"count {m} of BYTE] (and {len(pairs) - 1} more"
        ), str(exc)
    s.collect(g)  # what was raised once is not raised again
    for k, n, m, room, after, done, other in checks:
        what = f"{n} bytes into {m}"
        assert done.status == (gmpi.ERR_TRUNCATE, PREVIOUS, k, m, m), (what, done.status)
        s.expect(room, pattern(n, PREVIOUS + k)[:m], what)
        assert other.status == (gmpi.SUCCESS, PREVIOUS, 100 + k, 16, 16), what
        s.expect(after, pattern(16, PREVIOUS + k + 99), what)


def truncated_together(g: gmpi.Context) -> None:
    """Many long messages at once into receives that have no chunk buffers, or too few."""
    eager = g.layout.eager_bytes
    pairs = [(4 * eager + 7 * k, eager - 11 * k) for k in range(6)]
    pairs += [(5 * eager, 2 * eager + 1), (eager + 1, 9)]
    s = Script(threads=64)
    rooms = [s.room(m) for _, m in pairs]
    receives = [s.irecv(b, b.nbytes, gmpi.BYTE, PREVIOUS, k) for k, b in enumerate(rooms)]
    sends = [
        s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, k)
        for k, (n, _) in enumerate(pairs)
    ]
    waits = [s.wait(r) for r in reversed(receives)][::-1]
    done = [s.wait(q) for q in sends]
    s.launch(g)
    raises(gmpi.TruncationError, "message length", lambda: s.collect(g))
    s.collect(g)
    for k, (n, m) in enumerate(pairs):
        what = f"{n} bytes into {m}"
        assert waits[k].status == (gmpi.ERR_TRUNCATE, PREVIOUS, k, m, m), (what, waits[k].status)
        s.expect(rooms[k], pattern(n, PREVIOUS + k)[:m], what)
    assert all(call.error == gmpi.SUCCESS for call in done)


def truncated_by_the_host(g: gmpi.Context) -> None:
    """Long messages of the host to many short receives at once, of kernels and of the host."""
    eager, chunk = g.layout.eager_bytes, g.layout.chunk_bytes
    long = 512 * 1024 if chunk > 512 else 24 * chunk
    lengths = [long - 1, long, long + 1, 3 * long + 7, eager + 1, 4 * eager]
    rooms = [eager - k if k < 8 else 17 * k for k in range(14)]
    numbers = range(len(rooms))
    sizes = [lengths[k % len(lengths)] for k in numbers]
    s = Script(threads=64)
    kernel = [s.room(m) for m in rooms]
    receives = [s.irecv(b, b.nbytes, gmpi.BYTE, PREVIOUS, k) for k, b in enumerate(kernel)]
    waits = [s.wait(r) for r in reversed(receives)][::-1]

    into = [np.full(m + 3, 0xA5, np.uint8) for m in rooms]

    def host() -> None:
        requests = [g.host.Irecv(b[:-3], PREVIOUS, 100 + k) for k, b in enumerate(into)]
        for first in (0, 100):  # to the kernel, to the host
            sends = [g.host.Isend(pattern(n, k), NEXT, first + k) for k, n in enumerate(sizes)]
            for request in reversed(sends):
                request.Wait()
        for request in requests:
            raises(gmpi.TruncationError, "", request.Wait)

    in_thread(host, lambda: s.launch(g))
    raises(gmpi.TruncationError, "message length", lambda: s.collect(g))
    s.collect(g)
    for k in numbers:
        what, kept = f"{sizes[k]} bytes into {rooms[k]}", pattern(sizes[k], k)[: rooms[k]]
        assert waits[k].status[:3] == (gmpi.ERR_TRUNCATE, PREVIOUS, k), (what, waits[k].status)
        assert waits[k].status.nbytes == rooms[k], what
        s.expect(kernel[k], kept, f"{what}, in a kernel")
        same(into[k][:-3], kept, f"{what}, in the host")
        assert (into[k][-3:] == 0xA5).all(), what
