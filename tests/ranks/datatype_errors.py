"""Messages that do not fit their datatypes, and datatypes that cannot be used."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import RANK, SIZE, barrier, pattern
from mpi4py import MPI
from script import Script
from typed import Typed, vector

import gmpi

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def truncation(g: gmpi.Context) -> None:
    """The bytes that fit are delivered, to the last one, and nothing else is touched."""
    eager = g.layout.eager_bytes
    s = Script(threads=64)
    checks = []
    for k, (n, m) in enumerate([(60, 20), (400, 144), (eager + 40, 40), (3 * eager, eager + 8)]):
        back = vector(g, m)
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
    t = vector(g, 40)
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
        (0, "communicator 0 is the context's own"),  # a handle of a communicator
    ):
        kind = gmpi.DatatypeError if handle else gmpi.ContextError
        try:
            g.free(handle)
            raise AssertionError(f"free({handle}) did not raise")
        except kind as exc:
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
    barrier()
    other = Script()
    other.send(other.data(pattern(20, RANK)), 20, gmpi.BYTE, NEXT, 1)
    other.launch(g)
    while g.pending or g.kernels_running:
        pass
    try:
        s.collect(g)
        raise AssertionError("synchronize() did not raise")
    except gmpi.PendingError as exc:
        assert "without waiting for 1 requests whose data have come" in str(exc), str(exc)
    g.free(t)
