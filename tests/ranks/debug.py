"""Debug mode: each of its checks is made to fail, and nothing else is complained about.

    mpiexec -n 2 python3 tests/ranks/debug.py [--direct] [SCENARIO ...]

With ``--direct`` messages take the direct road; what is particular to it is in ``debug_direct.py``.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, pattern, raises, run, same
from mpi4py import MPI
from numba import cuda
from script import Script

import gmpi
from device_lib.platform.scope import warp_lanes, warp_mask
from device_lib.proxied import ring
from gmpi.contract import wire
from gmpi.diagnose.tables import ranks_text
from host_proxy.platform.duplicate import Duplicate

BYTE = gmpi.BYTE
NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
LONG = 100_000
DIRECT = "--direct" in sys.argv
#: Records that open the first two requests: on the direct road each channel is asked for first.
FIRST, SECOND = (1, 3) if DIRECT else (0, 1)


def context(**settings: Any) -> gmpi.Context:
    g = gmpi.Context(
        WORLD, wildcards=not DIRECT, debug=True, on_error="return", timeout_s=20, **settings
    )
    assert list(g.paths) == ["direct road" if DIRECT else "MPI"]
    return g


def found(g: gmpi.Context, *words: str) -> None:
    """The one thing that was found has these words."""
    texts = [str(fault) for fault in g.errors]
    assert len(texts) == 1 and all(w in texts[0] for w in words), (texts, words)
    assert g.errors[0].kind is gmpi.DebugError and texts[0].startswith("debug mode: ")


def correct_programs() -> None:
    """Nothing is found in a program that is right: all sizes, several buffers, reductions."""
    with context(chunk_bytes=65536) as g:
        assert "engine mpi4py" in repr(g)
        for seed in range(2):  # slots are used again
            s = Script(callers=3, threads=64)
            rooms = []
            for number, caller in enumerate(s.callers):
                for n in (0, 1, 8, 100, 144, 145, 1000, 8192, 8193, LONG, 300_001):
                    room, data = s.room(n), s.data(pattern(n, RANK + n + seed))
                    r = caller.irecv(room, n, BYTE, PREVIOUS, number)
                    q = caller.isend(data, n, BYTE, NEXT, number)
                    caller.wait(q)
                    caller.wait(r)
                    rooms.append((room, n))
            one, two = s.room(16), s.room(8 * 5000)
            s.allreduce(s.data(np.arange(2.0)), one, 2, gmpi.DOUBLE, gmpi.SUM)
            s.allreduce(s.data(np.arange(5000.0)), two, 5000, gmpi.DOUBLE, gmpi.SUM)
            s.in_place(s.data(np.arange(4.0)), 4, gmpi.DOUBLE, gmpi.MAX)
            told = s.data(pattern(500, 9)) if RANK == 0 else s.room(500)
            s.bcast(told, 500, BYTE, 0)
            s.barrier()
            s.synchronize()
            s.recv(s.room(8), 8, BYTE, gmpi.PROC_NULL, 1)
            s.run(g)
            for room, n in rooms:
                s.expect(room, pattern(n, PREVIOUS + n + seed))
            s.expect(one, SIZE * np.arange(2.0))
            s.expect(two, SIZE * np.arange(5000.0))
            s.expect(told, pattern(500, 9))
            assert g.errors == [], [str(e) for e in g.errors]
            if gmpi.SIMULATOR:
                break_nothing(g)


def break_nothing(g: gmpi.Context) -> None:
    """Staging that was given back holds poison, and the canaries live."""
    engine = g._proxy.python
    assert all((engine.canary(slot) == 0xC5).all() for slot in range(g.layout.slots))
    assert (engine.large == 0xDA).all()


def overlapping_receives() -> None:
    with context() as g:
        s = Script()
        room = s.room(300)
        part = type(room)(room.offset + 100, 150)
        first = s.irecv(room, 200, BYTE, PREVIOUS, 1)
        second = s.irecv(part, 150, BYTE, PREVIOUS, 2)
        s.barrier()  # nothing has come before
        s.send(s.data(pattern(200, RANK)), 200, BYTE, NEXT, 1)
        done = s.wait(first), s.wait(second)
        s.run(g)
        assert [c.error for c in done] == [gmpi.SUCCESS, gmpi.ERR_BUFFER]
        assert done[1].status.source == gmpi.ANY_SOURCE
        s.expect(room, pattern(200, PREVIOUS))
        base = int(s._heap.__cuda_array_interface__["data"][0])
        at, other = base + part.offset, base + room.offset
        found(
            g, f"the buffer of GMPI_Irecv in block 0 (record {SECOND}) at {at:#x}..{at + 150:#x} o",
            f"overlaps that of GMPI_Irecv in block 0 (record {FIRST}) at {other:#x}..",
            f"..{other + 200:#x}, which is pending",
        )  # fmt: skip


def a_send_from_where_a_receive_goes() -> None:
    with context() as g:
        s = Script()
        room = s.data(pattern(200, RANK))
        first = s.irecv(room, 200, BYTE, PREVIOUS, 1)
        second = s.send(room, 8, BYTE, NEXT, 2)
        s.barrier()
        s.send(s.data(pattern(200, RANK)), 200, BYTE, NEXT, 1)
        s.wait(first)
        s.run(g)
        assert second.error == gmpi.ERR_BUFFER
        words = f"the buffer of GMPI_Send in block 0 (record {SECOND})"
        found(g, words, "overlaps that of GMPI_Irecv")


def two_sends_from_one_buffer() -> None:
    """Which is allowed."""
    with context() as g:
        s = Script()
        data = s.data(pattern(LONG, RANK))
        rooms = [s.room(LONG) for _ in range(2)]
        requests = [s.irecv(room, LONG, BYTE, PREVIOUS, 1) for room in rooms]
        requests += [s.isend(data, LONG, BYTE, NEXT, 1) for _ in range(2)]
        s.waitall(requests)
        s.run(g)
        for room in rooms:
            s.expect(room, pattern(LONG, PREVIOUS))
        assert g.errors == []


@cuda.jit
def change_pending(ctx, data, n, dest, flag, errors):  # type: ignore[no-untyped-def]
    """Changes a byte of a send before waiting for it, and tells the host."""
    request = gmpi.GMPI_Isend(ctx, data, n, BYTE, dest, 7, gmpi.COMM_WORLD)
    if cuda.threadIdx.x == 0:
        data[n - 3] ^= 255
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        flag[0] = 1
    gmpi.GMPI_Barrier(ctx, gmpi.COMM_WORLD)  # only now the other rank receives
    status = gmpi.GMPI_Wait(ctx, request)
    errors[0] = status.error


class _Late(Duplicate):
    """Sends that MPI takes its time to begin."""

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> MPI.Request:
        if tag == 7:
            time.sleep(0.7)
        return super().Isend(buf, dest, tag)


def _changed(n: int) -> None:
    if SIZE == 1:
        return
    with context() as g:
        communicator = g._state.communicators[0]
        communicator.messages = _Late(communicator.messages)
        errors, flag = (cuda.to_device(np.zeros(1, np.int64)) for _ in range(2))
        data = cuda.to_device(pattern(n, 5))
        room = np.zeros(n, np.uint8)
        if RANK == 0:
            change_pending[1, 32](g.device, data, n, 1, flag, errors)
            g.synchronize()
            assert errors.copy_to_host()[0] == gmpi.ERR_BUFFER
            found(
                g, f"the buffer of GMPI_Isend in block 0 (record {FIRST}) at 0x",
                "was changed while the send was pending, in its bytes",
            )  # fmt: skip
        else:
            g.host.Barrier()
            if RANK == 1:
                if DIRECT:
                    s = Script()
                    s.recv(late := s.room(n), n, BYTE, 0, 7)
                    s.run(g)
                    room = s.read(late)
                else:
                    g.host.Recv(room, 0, 7)
                if n <= g.layout.eager_bytes:  # it was packed before
                    same(room, pattern(n, 5), "message")
            assert g.errors == []
        barrier()


def a_small_send_is_changed() -> None:
    _changed(100)


def a_staged_send_is_changed() -> None:
    _changed(5000)


def a_long_send_is_changed() -> None:
    _changed(LONG)


def staging_is_overwritten() -> None:
    """By nobody but a kernel with a wild pointer, here by the test."""
    with context() as g:
        engine = g._proxy.python
        for slot in range(g.layout.request_slots):
            engine.canary(slot)[5] = 0
        s = Script()
        s.sendrecv(
            s.data(pattern(8, 1)), 8, BYTE, NEXT, 1, s.room(8), 8, PREVIOUS, 1
        )  # fmt: skip
        s.run(g)
        texts = [str(fault) for fault in g.errors]
        assert texts, "nothing was found"
        for text in texts:
            assert "the staging of GMPI_Sendrecv" in text and "was overwritten, first at 0x" in text


@cuda.jit
def post_odd(ctx, word0, count):  # type: ignore[no-untyped-def]
    ring.post(ctx, cuda.threadIdx.x, warp_lanes(), warp_mask(), word0, count, 0, 0)


def records_with_odd_fields() -> None:
    cases = [
        (wire.OP_BARRIER | 0x55 << 32, 0, "datatype of GMPI_Barrier is 85, must be 0"),
        (wire.OP_BARRIER, 3, "count of GMPI_Barrier is 3, must be 0"),
        (wire.OP_SYNCHRONIZE | 7 << 16, 0, "communicator of GMPI_Synchronize is 7, must be 0"),
        (wire.OP_PING | 4 << 8, 0, "flags of ping are 0x4, allowed are 0x0"),
        (wire.OP_IRECV | wire.FLAG_OUT << 8, 0, "flags of GMPI_Irecv are 0x20, allowed are"),
    ]
    for word0, count, words in cases:
        with context() as g:
            post_odd[1, 32](g.device, word0, count)
            g.synchronize()
            texts = [str(fault) for fault in g.errors if fault.kind is gmpi.DebugError]
            assert len(texts) == 1 and "debug mode: record 0: " in texts[0], texts
            assert words in texts[0], texts


def different_calls(s: Script, kind: str) -> Any:
    """A collective that rank 0 calls differently; the call's error comes from it."""
    mine = int(RANK == 0)
    long = 5000 if kind == "count of a long one" else 10
    if kind == "function":
        if mine:
            return s.barrier()
    elif kind == "root":
        return s.bcast(s.room(8), 8, BYTE, mine)
    elif kind == "length":
        return s.bcast(s.room(80), 10 + mine, BYTE, 0)
    n = long + mine * kind.startswith("count")
    datatype = gmpi.INT64_T if mine and kind == "datatype" else gmpi.DOUBLE
    op = gmpi.MAX if mine and kind == "op" else gmpi.SUM
    s.fill(data := s.room(8 * n), np.ones(n))
    return s.in_place(data, n, datatype, op)


def collectives_that_differ() -> None:
    """All ranks are told, with both values, and what comes afterwards is right."""
    if SIZE == 1:
        return
    others = ranks_text(list(range(1, SIZE)))
    for kind, words in (
        ("function", f"rank 0 in GMPI_Barrier on COMM_WORLD; {others} in GMPI_Allreduce, 10 DOUBL"),
        ("root", f"root is 1 on rank 0 and 0 on {others}"),
        ("length", f"length in bytes is 11 on rank 0 and 10 on {others}"),
        ("count", f"count is 11 on rank 0 and 10 on {others}"),
        ("count of a long one", f"count is 5001 on rank 0 and 5000 on {others}"),
        ("datatype", f"datatype is INT64_T on rank 0 and DOUBLE on {others}"),
        ("op", f"op is MAX on rank 0 and SUM on {others}"),
    ):
        with context() as g:
            s = Script()
            called = different_calls(s, kind)
            total = s.room(8)
            after = s.allreduce(s.data(np.ones(1)), total, 1, gmpi.DOUBLE, gmpi.SUM)
            s.run(g)
            assert (called.error, after.error) == (gmpi.ERR_OTHER, gmpi.SUCCESS), kind
            s.expect(total, np.full(1, float(SIZE)))
            found(g, "calls of one collective differ: ", words)


def collectives_of_hosts_that_differ() -> None:
    """Of some ranks the host calls, of the others a kernel."""
    if SIZE == 1:
        return
    others = ranks_text(list(range(1, SIZE)))
    with context() as g:
        words = f"count is 3 on rank 0 and 2 on {others}"
        if RANK == 0:
            exc = raises(
                gmpi.DebugError, words, lambda: g.host.Allreduce(gmpi.IN_PLACE, np.ones(3))
            )
            assert exc.error_class == gmpi.ERR_OTHER and exc.operation == "Allreduce"
            assert g.errors == []
            g.host.Barrier()
        else:
            s = Script()
            called = s.in_place(s.data(np.ones(2)), 2, gmpi.DOUBLE, gmpi.SUM)
            assert s.barrier().error == -1
            s.run(g)
            assert called.error == gmpi.ERR_OTHER
            found(g, words)


def it_is_raised() -> None:
    g = gmpi.Context(WORLD, debug=True)
    post_odd[1, 32](g.device, wire.OP_BARRIER, 3)
    try:
        g.synchronize()
    except gmpi.DebugError as exc:
        assert exc.operation == "GMPI_Barrier"
    else:
        raise AssertionError("nothing was raised")
    g.close()


SCENARIOS = [
    correct_programs, overlapping_receives, a_send_from_where_a_receive_goes,
    two_sends_from_one_buffer, a_small_send_is_changed, a_staged_send_is_changed,
    a_long_send_is_changed, staging_is_overwritten, records_with_odd_fields,
    collectives_that_differ, collectives_of_hosts_that_differ, it_is_raised,
]  # fmt: skip

if DIRECT:  # nothing of a message is in staging of the host
    SCENARIOS.remove(staging_is_overwritten)
run(SCENARIOS)
end()
