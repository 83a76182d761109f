"""Derived datatypes and strided views in kernels, around a ring of any number of ranks."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from common import EVERY_SHAPE, RANK, SIZE, WORLD, end, pattern, run, same
from mpi4py import MPI
from numba import cuda
from script import Script

import gmpi
from gmpi.datatypes import plan
from gmpi.datatypes.overlap import distinct_elements

sys.path.insert(0, str(Path(__file__).parent.parent))
from datatype_family import family, mpi_pack

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
POISON = 0xA5
SAMPLE = 48 if gmpi.SIMULATOR else 600


class Typed:
    """A datatype whose displacements all lie inside an array, and its handle."""

    def __init__(self, g: gmpi.Context, datatype: MPI.Datatype, count: int) -> None:
        first = plan(datatype)
        low = min(first.reach(count)[0], 0)
        if low:
            moved = datatype.Create_hindexed_block(1, [-low])
            datatype = moved.Create_resized(0, first.extent)
        self.datatype, self.count = datatype, count
        self.plan = plan(datatype)
        self.nbytes = self.plan.size * count
        self.span = max(self.plan.reach(count)[1], 1)
        self.handle = g.commit(datatype)

    def packed(self, memory: np.ndarray) -> np.ndarray:
        """What MPI packs of the memory."""
        return mpi_pack(self.datatype, memory, 0, self.count)

    def unpacked(self, packed: np.ndarray, length: int | None = None) -> np.ndarray:
        """Poisoned memory into which the first ``length`` bytes were received."""
        left = len(packed) if length is None else length
        memory = np.full(self.span, POISON, np.uint8)
        position = 0
        for at, run_length in self.plan.segments(self.count):
            n = min(run_length, left - position)
            if n <= 0:
                break
            memory[at : at + n] = packed[position : position + n]
            position += n
        return memory


def _vector(g: gmpi.Context, nbytes: int, block: int = 4) -> Typed:
    """Blocks with as much space between them; ``nbytes`` a multiple of ``block``."""
    return Typed(g, MPI.BYTE.Create_vector(nbytes // block, block, 2 * block), 1)


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
        out, back = _vector(g, n, 4), _vector(g, n, (2, 4, 1)[k % 3])
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
def _views(ctx, which, out, back, flat, dest, source):
    """Sends a view of ``out`` twice and receives it as bytes and as the same view of ``back``."""
    n = flat.size
    r = gmpi.GMPI_Irecv(ctx, flat, n, gmpi.BYTE, source, 1, gmpi.COMM_WORLD)
    if which == 0:
        v, w = out[:, 1, 2], back[:, 1, 2]
    elif which == 1:
        v, w = out[1:-1, 1, 0], back[1:-1, 1, 0]
    elif which == 2:
        v, w = out[0, ::2, 3], back[0, ::2, 3]
    else:
        v, w = out[::-1, 0, 1], back[::-1, 0, 1]
    p = gmpi.GMPI_Irecv(ctx, w, w.size, gmpi.FLOAT, source, 2, gmpi.COMM_WORLD)
    q = gmpi.GMPI_Isend(ctx, v, v.size, gmpi.FLOAT, dest, 1, gmpi.COMM_WORLD)
    gmpi.GMPI_Send(ctx, v, v.size, gmpi.FLOAT, dest, 2, gmpi.COMM_WORLD)
    gmpi.GMPI_Waitall(ctx, 3, (r, p, q))


@cuda.jit
def _views_2d(ctx, which, out, back, flat, dest, source):
    n = flat.size
    r = gmpi.GMPI_Irecv(ctx, flat, n, gmpi.BYTE, source, 1, gmpi.COMM_WORLD)
    if which == 0:
        v, w = out[1:-1, 1:-1, 0], back[1:-1, 1:-1, 0]
    elif which == 1:
        v, w = out[:, 2, :], back[:, 2, :]
    elif which == 2:
        v, w = out[::3, ::2, 1], back[::3, ::2, 1]
    elif which == 3:
        v, w = out[2, ::-1, 1:3], back[2, ::-1, 1:3]
    elif which == 4:
        v, w = out[3, 1:, :], back[3, 1:, :]  # contiguous after all
    else:
        v, w = out[:, :, 0].T, back[:, :, 0].T
    p = gmpi.GMPI_Irecv(ctx, w, w.size, gmpi.FLOAT, source, 2, gmpi.COMM_WORLD)
    q = gmpi.GMPI_Isend(ctx, v, v.size, gmpi.FLOAT, dest, 1, gmpi.COMM_WORLD)
    o = gmpi.GMPI_Isend(ctx, v, v.size, gmpi.FLOAT, dest, 2, gmpi.COMM_WORLD)
    gmpi.GMPI_Wait(ctx, p)
    gmpi.GMPI_Wait(ctx, o)
    gmpi.GMPI_Wait(ctx, q)
    gmpi.GMPI_Wait(ctx, r)


@cuda.jit
def _view_3d(ctx, out, back, flat, dest, source):
    n = flat.size
    r = gmpi.GMPI_Irecv_warp(ctx, flat, n, gmpi.BYTE, source, 1, gmpi.COMM_WORLD)
    v, w = out[1:-1, 1:-1, 1:3], back[1:-1, 1:-1, 1:3]
    p = gmpi.GMPI_Irecv_warp(ctx, w, w.size, gmpi.FLOAT, source, 2, gmpi.COMM_WORLD)
    q = gmpi.GMPI_Isend_warp(ctx, v, v.size, gmpi.FLOAT, dest, 1, gmpi.COMM_WORLD)
    o = gmpi.GMPI_Isend_warp(ctx, v, v.size, gmpi.FLOAT, dest, 2, gmpi.COMM_WORLD)
    gmpi.GMPI_Waitall_warp(ctx, 4, (r, p, q, o))


_PICKS_1D = [
    lambda u: u[:, 1, 2], lambda u: u[1:-1, 1, 0], lambda u: u[0, ::2, 3],
    lambda u: u[::-1, 0, 1],
]  # fmt: skip
_PICKS_2D = [
    lambda u: u[1:-1, 1:-1, 0], lambda u: u[:, 2, :], lambda u: u[::3, ::2, 1],
    lambda u: u[2, ::-1, 1:3], lambda u: u[3, 1:, :], lambda u: u[:, :, 0].T,
]  # fmt: skip


def views(g: gmpi.Context) -> None:
    """Slices need no datatype: elements in the order of the view's indices."""
    shapes = [(6, 5, 4), (70, 9, 4)] if EVERY_SHAPE else [(6, 5, 4)]
    if not gmpi.SIMULATOR:
        shapes.append((1000, 200, 4))
    for shape in shapes:
        fields = [
            pattern(4 * int(np.prod(shape)), who).view(np.float32).reshape(shape)
            for who in (RANK, PREVIOUS)
        ]
        cases: list[tuple[Any, Any, int | None]] = [
            *((_views, pick, k) for k, pick in enumerate(_PICKS_1D)),
            *((_views_2d, pick, k) for k, pick in enumerate(_PICKS_2D)),
            (_view_3d, lambda u: u[1:-1, 1:-1, 1:3], None),
        ]
        for kernel, pick, which in cases:
            sent = np.ascontiguousarray(pick(fields[1])).view(np.uint8).reshape(-1)
            expected = np.full(shape, POISON, np.uint8).repeat(4, axis=-1).view(np.float32)
            back = cuda.to_device(expected.copy())
            pick(expected)[...] = pick(fields[1])
            flat = cuda.to_device(np.zeros(sent.size, np.uint8))
            out = cuda.to_device(fields[0])
            first = () if which is None else (which,)
            kernel[1, 32](g.device, *first, out, back, flat, NEXT, PREVIOUS)
            g.synchronize()
            same(flat, sent, f"{kernel.py_func.__name__} {which} of {shape}, as bytes")
            found = back.copy_to_host().view(np.uint8)
            same(found, expected.view(np.uint8), f"{kernel.py_func.__name__} {which} of {shape}")


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
    if gmpi.SIMULATOR:
        addresses = [a._ary.ctypes.data for a in arrays]
    else:
        addresses = [a.__cuda_array_interface__["data"][0] for a in arrays]
    pieces = [MPI.BYTE.Create_vector(5, 4, 8), MPI.INT]
    t = g.commit(MPI.Datatype.Create_struct([1, 10], addresses, pieces))
    flat = cuda.to_device(np.zeros(60, np.uint8))
    _absolute[1, 32](g.device, t, flat, NEXT, PREVIOUS)
    g.synchronize()
    first = content[1][0].reshape(5, 8)[:, :4].reshape(-1)
    same(flat, np.concatenate([first, content[1][1]]), "struct of pointers")


def truncation(g: gmpi.Context) -> None:
    """The bytes that fit are delivered, to the last one, and nothing else is touched."""
    eager = g.layout.eager_bytes
    s = Script(threads=64)
    checks = []
    for k, (n, m) in enumerate([(60, 20), (400, 144), (eager + 40, 40), (3 * eager, eager + 8)]):
        back = _vector(g, m)
        room = s.room(back.span)
        r = s.irecv(room, 1, back.handle, PREVIOUS, k)
        q = s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, k)
        s.wait(q)
        checks.append((n, m, back, room, s.wait(r)))
    s.launch(g)
    try:
        s.collect(g)
        raise AssertionError("synchronize() did not raise")
    except gmpi.TruncationError as exc:
        assert exc.more == len(checks) - 1
    s.collect(g)
    for k, (n, m, back, room, done) in enumerate(checks):
        assert done.status == (gmpi.ERR_TRUNCATE, PREVIOUS, k, 1, m), (n, m, done.status)
        s.expect(room, back.unpacked(pattern(n, PREVIOUS + k), m), f"{n} into {m}")


def shorter_message(g: gmpi.Context) -> None:
    """A message that ends inside an element: the count is UNDEFINED, the rest untouched."""
    eager = g.layout.eager_bytes
    s = Script()
    checks = []
    for k, (n, elements) in enumerate([(30, gmpi.UNDEFINED), (24, 2), (eager + 5, gmpi.UNDEFINED)]):
        t = Typed(g, MPI.INT.Create_vector(3, 1, 2).Create_resized(0, 24), (n + 100) // 12)
        room = s.room(t.span)
        r = s.irecv(room, t.count, t.handle, PREVIOUS, k)
        s.send(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, k)
        checks.append((n, elements, t, room, s.wait(r)))
    s.run(g)
    for k, (n, elements, t, room, done) in enumerate(checks):
        assert done.status == (gmpi.SUCCESS, PREVIOUS, k, elements, n), done.status
        s.expect(room, t.unpacked(pattern(n, PREVIOUS + k), n), f"{n} bytes")


def _refused(g: gmpi.Context, s: Script, call: Any, field: str, words: str, error: int) -> None:
    """Runs a script whose one call that is waited for is refused."""
    s.launch(g)
    try:
        s.collect(g)
        raise AssertionError(f"synchronize() did not raise: {words}")
    except gmpi.ArgumentError as exc:
        assert exc.field == field and exc.error_class == error, str(exc)
        assert words in str(exc), f"{exc}\ninstead of\n{words}"
    s.collect(g)
    assert call.error == error, call.status


def bad_input(g: gmpi.Context) -> None:
    """Each mistake is refused with its reason, and nothing is moved."""
    t = _vector(g, 40)
    freed = g.commit(MPI.INT.Create_vector(2, 1, 2))
    g.free(freed)
    again = g.commit(MPI.INT.Create_vector(3, 1, 2))
    assert again != freed
    twice = g.commit(MPI.BYTE.Create_vector(3, 4, 2))
    close = g.commit(MPI.BYTE.Create_vector(2, 1, 4).Create_resized(0, 2))
    row = f"derived datatype {t.handle:#x}"

    def message(buffer: Any, count: int, datatype: int, receive: bool = False) -> tuple[Any, Any]:
        s = Script()
        room = s.room(buffer) if isinstance(buffer, int) and buffer else buffer
        start = s.irecv if receive else s.isend
        return s, s.wait(start(room, count, datatype, NEXT, 1))

    for datatype in (freed, 0x5FFFFFFF, 0x50000000 | 900):
        s, call = message(100, 1, datatype)
        words = f"derived datatype {datatype:#x}, allowed is a predefined datatype such as"
        _refused(g, s, call, "datatype", words, gmpi.ERR_TYPE)
    s, call = message(75, 1, t.handle)
    words = (
        "buffer is left by segment 9 of element 0, bytes 72..76, of the datatype; it has bytes "
        "0..75, allowed is a larger array, a lower count or a smaller datatype"
    )
    _refused(g, s, call, "buffer", words, gmpi.ERR_BUFFER)
    s, call = message(100, 2, t.handle, receive=True)
    words = "buffer is left by segment 3 of element 1, bytes 100..104,"
    _refused(g, s, call, "buffer", words, gmpi.ERR_BUFFER)
    assert f"count 2 of {row}]" in g.errors[-1].text
    for datatype, count in ((twice, 1), (close, 3)):
        s, call = message(100, count, datatype, receive=True)
        _refused(g, s, call, "buffer", "written more than once", gmpi.ERR_BUFFER)
    s = Script()
    call = s.wait(s.isend(0, 1, t.handle, NEXT, 1))
    _refused(g, s, call, "buffer", "gmpi.BOTTOM with a datatype of abs", gmpi.ERR_BUFFER)
    s = Script()
    call = s.wait(s.isend_strided(s.room(200), 1, t.handle, NEXT, 1))
    _refused(g, s, call, "buffer", "a strided view and the datatype is der", gmpi.ERR_BUFFER)
    s = Script()
    call = s.wait(s.isend_strided(s.room(20), 11, gmpi.BYTE, NEXT, 1))
    _refused(g, s, call, "buffer", "smaller than the message", gmpi.ERR_BUFFER)
    s = Script()
    a, b = s.room(100), s.room(100)
    call = s.allreduce(a, b, 1, t.handle, gmpi.SUM)
    words = f"datatype is {row}, allowed is a predefined datatype such as gmpi.FLOAT; MPI defines"
    _refused(g, s, call, "datatype", words, gmpi.ERR_TYPE)
    s, call = message(100, -1, t.handle)
    _refused(g, s, call, "count", "count is -1, allowed is 0..", gmpi.ERR_COUNT)
    # What is no mistake: two elements that lie between each other, and sending bytes twice.
    s = Script()
    rooms = [s.room(100), s.room(12)]
    r = [s.irecv(rooms[0], 2, close, PREVIOUS, 1), s.irecv(rooms[1], 12, gmpi.BYTE, PREVIOUS, 2)]
    s.send(s.data(pattern(4, RANK)), 4, gmpi.BYTE, NEXT, 1)
    s.send(s.data(pattern(8, RANK)), 1, twice, NEXT, 2)
    s.waitall(r)
    s.run(g)
    found = pattern(8, PREVIOUS)
    s.expect(rooms[1], np.concatenate([found[:4], found[2:6], found[4:]]))


def committing(g: gmpi.Context) -> None:
    """What the host refuses."""
    assert g.commit(MPI.DOUBLE) == gmpi.DOUBLE
    t = g.commit(MPI.INT.Create_vector(5, 1, 2))
    for handle, words in (
        (gmpi.FLOAT, "gmpi.FLOAT is predefined"),
        (t + 1, "is no committed datatype"),
        (0, "is no committed datatype"),
    ):
        try:
            g.free(handle)
            raise AssertionError(f"free({handle}) did not raise")
        except gmpi.DatatypeError as exc:
            assert words in str(exc), str(exc)
    for datatype in (MPI.DATATYPE_NULL, MPI.INTEGER.Create_contiguous(3)):
        try:
            g.commit(datatype)
            raise AssertionError("commit() did not raise")
        except gmpi.DatatypeError:
            pass
    # A kernel that does not wait leaves its request open.
    s = Script()
    s.irecv(s.room(100), 1, t, PREVIOUS, 1)
    s.launch(g)
    while not g.pending:
        pass
    try:
        g.free(t)
        raise AssertionError("free() of a datatype in use did not raise")
    except gmpi.DatatypeError as exc:
        assert "1 open requests use it" in str(exc) or "is running" in str(exc), str(exc)
    WORLD.Barrier()
    other = Script()
    other.send(other.data(pattern(20, RANK)), 20, gmpi.BYTE, NEXT, 1)
    other.launch(g)
    while g.pending or g.kernels_running:
        pass
    s.collect(g)
    g.free(t)


SCENARIOS = [
    the_family, every_size, chunk_boundaries, many_parts, other_signatures, views, collectives,
    absolute_addresses, truncation, shorter_message, bad_input, committing,
]  # fmt: skip


def main() -> None:
    settings = {}
    if "--small" in sys.argv:  # everything is long
        settings = {"eager_bytes": 256, "chunk_bytes": 512, "ring_slots": 64, "large_slots": 64}
    with gmpi.Context(WORLD, **settings) as g:
        run(SCENARIOS, g)
        assert g.pending == []
    end()


main()
