"""Derived datatypes and strided views in kernels, around a ring of any number of ranks."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
from common import RANK, SIZE, WORLD, end, pattern, run, same
from datatype_errors import bad_input, committing, shorter_message, truncation
from mpi4py import MPI
from numba import cuda
from script import Script
from typed import Typed, vector
from views import views

import gmpi
from gmpi.datatypes.overlap import distinct_elements

sys.path.insert(0, str(Path(__file__).parent.parent))
from datatype_family import family

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
SAMPLE = 48 if gmpi.SIMULATOR else 600


def the_family(g: gmpi.Context) -> None:
    """Every constructor: sent as MPI packs it, and received with every other byte untouched."""
    types = dict(family())
    names = random.Random(SIZE).sample(sorted(types), SAMPLE)
    threads = 32
    for begin in range(0, len(names), 24):
        s = Script(threads=threads)
        checks = []
        typed = []
        for k, name in enumerate(names[begin : begin + 24]):
            t = Typed(g, types[name], 2)
            typed.append(t)
            content = [pattern(t.span, 50 * who + k) for who in (RANK, PREVIOUS)]
            room = s.room(t.nbytes, k % 3)
            r = s.irecv(room, t.nbytes, gmpi.BYTE, PREVIOUS, 2 * k)
            q = s.isend(s.data(content[0], k % 4 * 4), 2, t.handle, NEXT, 2 * k)
            checks.append((name, "sent", room, s.wait(q), s.wait(r), t.packed(content[1]), t))
            if distinct_elements(t.plan) >= 2:
                flat = pattern(t.nbytes, 70 * RANK + k)
                back = s.room(t.span, k % 4 * 2)
                r = s.irecv(back, 2, t.handle, PREVIOUS, 2 * k + 1)
                q = s.isend(s.data(flat), t.nbytes, gmpi.BYTE, NEXT, 2 * k + 1)
                expected = t.unpacked(pattern(t.nbytes, 70 * PREVIOUS + k))
                checks.append((name, "received", back, s.wait(q), s.wait(r), expected, t))
        s.run(g)
        for name, way, room, sending, receiving, expected, t in checks:
            what = f"{way}: {name}"
            assert sending.error == gmpi.SUCCESS, what
            count = t.nbytes if way == "sent" else 2 if t.nbytes else 0
            status = receiving.status
            assert (status.error, status.count, status.nbytes) == (0, count, t.nbytes), (
                what, status,
            )  # fmt: skip
            s.expect(room, expected, what)
        for t in typed:
            g.free(t.handle)


def _sizes(g: gmpi.Context) -> list[int]:
    eager, chunk = g.layout.eager_bytes, g.layout.chunk_bytes
    sizes = [4, 8, 12, 140, 144, 148, 152, eager - 4, eager, eager + 4, 4 * 32768 + 132]
    sizes += [c * chunk + d for c in (1, 2, 3, 4, 5, 9) for d in (-4, 0, 4)]
    limit = 9 * 512 + 4 if chunk == 512 else 150_000 if gmpi.SIMULATOR else 1 << 62
    return [n for n in sizes if n <= limit]


def every_size(g: gmpi.Context) -> None:
    """Inline, staged and chunked messages, differing datatypes on the two sides."""
    s = Script(threads=64)
    checks = []
    for k, n in enumerate(_sizes(g)):
        out, back = vector(g, n, 4), vector(g, n, (2, 4, 1)[k % 3])
        content = [pattern(out.span, 10 * who + k) for who in (RANK, PREVIOUS)]
        room = s.room(back.span, k % 5)
        r = s.irecv(room, 1, back.handle, PREVIOUS, k)
        q = s.isend(s.data(content[0], k % 2 * 8), 1, out.handle, NEXT, k)
        checks.append((n, room, s.wait(q), s.wait(r), back.unpacked(out.packed(content[1]))))
    s.run(g)
    for n, room, sending, receiving, expected in checks:
        assert sending.error == gmpi.SUCCESS and receiving.status[:1] == (0,), n
        assert receiving.status[3:] == (1, n), (n, receiving.status)
        s.expect(room, expected, f"{n} bytes")


def chunk_boundaries(g: gmpi.Context) -> None:
    """A type of 13 bytes, cut at each of its offsets: chunk sizes have no factor 13."""
    types = [MPI.DOUBLE, MPI.INT, MPI.CHAR]
    odd = MPI.Datatype.Create_struct([1, 1, 1], [8, 0, 20], types).Create_resized(0, 24)
    chunk = g.layout.chunk_bytes
    n = 4 * chunk + 5 if chunk > 512 else 13 * chunk
    if gmpi.SIMULATOR and chunk > 512:
        return  # a million bytes, one by one; done by --small
    t = Typed(g, odd, n // 13)
    assert t.nbytes % 13 == 0 and t.nbytes > g.layout.eager_bytes
    s = Script(threads=64)
    content = [pattern(t.span, who) for who in (RANK, PREVIOUS)]
    flat, room = s.room(t.nbytes), s.room(t.span)
    requests = [
        s.irecv(flat, t.nbytes, gmpi.BYTE, PREVIOUS, 1),
        s.irecv(room, t.count, t.handle, PREVIOUS, 2),
        s.isend(s.data(content[0]), t.count, t.handle, NEXT, 1),
        s.isend(s.data(t.packed(content[0])), t.nbytes, gmpi.BYTE, NEXT, 2),
    ]
    for request in requests:
        s.wait(request)
    s.run(g)
    s.expect(flat, t.packed(content[1]))
    s.expect(room, t.unpacked(t.packed(content[1])))


def many_parts(g: gmpi.Context) -> None:
    """A struct of long columns: several parts, more than one element, cut by chunks."""
    column = MPI.INT.Create_vector(60, 1, 3)
    pair = MPI.Datatype.Create_struct([1, 1], [0, 4096], [column, MPI.BYTE.Create_vector(50, 3, 8)])
    both = pair.Create_resized(0, 5000)
    t = Typed(g, both, 8)
    assert len(t.plan.parts) > 1
    s = Script(threads=64)
    content = [pattern(t.span, who) for who in (RANK, PREVIOUS)]
    flat, room = s.room(t.nbytes), s.room(t.span)
    r = [
        s.irecv(flat, t.nbytes, gmpi.BYTE, PREVIOUS, 1),
        s.irecv(room, 8, t.handle, PREVIOUS, 2),
        s.isend(s.data(content[0]), 8, t.handle, NEXT, 1),
        s.isend(s.data(content[0]), 8, t.handle, NEXT, 2),
    ]
    done = s.waitall(r)
    s.run(g)
    assert done.error == gmpi.SUCCESS and done.statuses[1].count == 8
    s.expect(flat, t.packed(content[1]))
    s.expect(room, t.unpacked(t.packed(content[1])))


def other_signatures(g: gmpi.Context) -> None:
    """A matrix sent by columns arrives transposed; structs of arrays become arrays of structs."""
    n, m = 6, 5
    column = MPI.INT.Create_vector(n, 1, m).Create_resized(0, 4)
    by_columns = Typed(g, column, m)
    matrix = [np.arange(n * m, dtype=np.int32) + 1000 * who for who in (RANK, PREVIOUS)]
    ints = MPI.INT.Create_contiguous(n).Create_resized(0, 40)
    s = Script("warp", 33)
    room = s.room(40 * m)
    r = s.irecv(room, m, g.commit(ints), PREVIOUS, 1)
    s.send(s.data(matrix[0]), m, by_columns.handle, NEXT, 1)
    s.wait(r)
    # {double, int} in two arrays of 7, received as 7 structs of 16 bytes
    one = [MPI.DOUBLE.Create_resized(0, 8), MPI.INT.Create_resized(0, 4)]
    rows = [MPI.Datatype.Create_struct([1, 1], [8 * k, 56 + 4 * k], one) for k in range(7)]
    soa = Typed(g, MPI.Datatype.Create_struct([1] * 7, [0] * 7, rows), 1)
    aos = Typed(g, MPI.DOUBLE_INT, 7)
    content = [pattern(soa.span, who) for who in (RANK, PREVIOUS)]
    structs = s.room(aos.span)
    r = s.irecv(structs, 7, aos.handle, PREVIOUS, 2)
    s.send(s.data(content[0]), 1, soa.handle, NEXT, 2)
    done = s.wait(r)
    s.run(g)
    expected = np.full((m, 10), 0xA5A5A5A5, np.uint32).view(np.int32)
    expected[:, :n] = matrix[1].reshape(n, m).T
    s.expect(room, expected)
    assert done.status.count == 7
    s.expect(structs, aos.unpacked(soa.packed(content[1])))


@cuda.jit
def _collectives(ctx, a, b, column, root, errors):
    errors[0] = gmpi.GMPI_Allreduce(
        ctx, a[:, 1], b[:, 0], a.shape[0], gmpi.LONG, gmpi.SUM, gmpi.COMM_WORLD
    )
    errors[1] = gmpi.GMPI_Allreduce(
        ctx, gmpi.IN_PLACE, b[:, 1], a.shape[0], gmpi.LONG, gmpi.MAX, gmpi.COMM_WORLD
    )
    errors[2] = gmpi.GMPI_Bcast(ctx, b[:, 2], b.shape[0], gmpi.LONG, root, gmpi.COMM_WORLD)
    errors[3] = gmpi.GMPI_Bcast(ctx, b, 1, column, root, gmpi.COMM_WORLD)


def collectives(g: gmpi.Context) -> None:
    """Views in Allreduce and Bcast, derived datatypes in Bcast; short and long."""
    for n in (3, 40, g.layout.eager_bytes // 8 + 30):
        a = (np.arange(4 * n) * (RANK + 1)).reshape(n, 4)
        b = a + 7
        root = SIZE - 1
        column = g.commit(MPI.LONG.Create_vector(n, 1, 4).Create_hindexed_block(1, [24]))
        errors = cuda.to_device(np.full(4, -1))
        there = cuda.to_device(b)
        _collectives[1, 64](g.device, cuda.to_device(a), there, column, root, errors)
        g.synchronize()
        same(errors, np.zeros(4, np.int64), f"{n} rows")
        ramp = np.arange(4 * n).reshape(n, 4)
        b[:, 0] = ramp[:, 1] * (SIZE * (SIZE + 1) // 2)
        b[:, 1] = ramp[:, 1] * SIZE + 7
        b[:, 2:] = ramp[:, 2:] * SIZE + 7
        same(there, b, f"{n} rows")
        g.free(column)


@cuda.jit
def _absolute(ctx, datatype, flat, dest, source):
    r = gmpi.GMPI_Irecv(ctx, flat, flat.size, gmpi.BYTE, source, 1, gmpi.COMM_WORLD)
    q = gmpi.GMPI_Isend(ctx, gmpi.BOTTOM, 1, datatype, dest, 1, gmpi.COMM_WORLD)
    gmpi.GMPI_Waitall(ctx, 2, (r, q))


def absolute_addresses(g: gmpi.Context) -> None:
    """A struct of pointers, with BOTTOM."""
    content = [[pattern(40, 10 * who + k) for k in range(2)] for who in (RANK, PREVIOUS)]
    arrays = [cuda.to_device(c) for c in content[0]]
    addresses = [a.__cuda_array_interface__["data"][0] for a in arrays]
    pieces = [MPI.BYTE.Create_vector(5, 4, 8), MPI.INT]
    t = g.commit(MPI.Datatype.Create_struct([1, 10], addresses, pieces))
    flat = cuda.to_device(np.zeros(60, np.uint8))
    _absolute[1, 32](g.device, t, flat, NEXT, PREVIOUS)
    g.synchronize()
    first = content[1][0].reshape(5, 8)[:, :4].reshape(-1)
    same(flat, np.concatenate([first, content[1][1]]), "struct of pointers")


SCENARIOS = [
    the_family, every_size, chunk_boundaries, many_parts, other_signatures, views, collectives,
    absolute_addresses, truncation, shorter_message, bad_input, committing,
]  # fmt: skip


def main() -> None:
    settings = {}
    if "--small" in sys.argv:  # everything is long
        settings = {"eager_bytes": 256, "chunk_bytes": 512, "ring_slots": 64, "large_slots": 64}
    scenarios = list(SCENARIOS)
    direct = "--direct" in sys.argv
    if direct:  # the host does not know of requests there while kernels run
        scenarios.remove(committing)
    with gmpi.Context(WORLD, wildcards=not direct, **settings) as g:
        run(scenarios, g)
        assert g.pending == []
    end()


main()
