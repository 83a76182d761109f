"""The host takes part: ``Context.host`` talks to kernels, and to itself, in one matching space."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
from common import RANK, SIZE, TIME_FACTOR, WORLD, barrier, end, in_thread, pattern, run, same
from mpi4py import MPI
from script import Script
from truncation import truncated_by_the_host

import gmpi

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def sizes(g: gmpi.Context) -> list[int]:
    eager, chunk = g.layout.eager_bytes, g.layout.chunk_bytes
    small = [0, 1, 144, 145, eager - 1, eager, eager + 1]
    return small + ([3 * chunk, 4 * chunk + 1, 9 * chunk] if chunk == 512 else [200_000])


def host_to_host(g: gmpi.Context) -> None:
    for k, n in enumerate(sizes(g)):
        room = np.zeros(n + 3, np.uint8)
        request = g.host.Irecv(room, PREVIOUS, k)
        g.host.Send(pattern(n, RANK + k), NEXT, k)
        status = request.Wait()
        assert (status.source, status.tag, status.count, status.nbytes) == (PREVIOUS, k, n, n)
        same(room[:n], pattern(n, PREVIOUS + k), f"{n} bytes")
        status = g.host.Sendrecv(pattern(n, RANK), NEXT, 9, room, PREVIOUS, 9)
        assert status.nbytes == n
        same(room[:n], pattern(n, PREVIOUS), f"{n} bytes by Sendrecv")
    rooms = [np.zeros(70, np.float32) for _ in range(5)]
    requests = [g.host.Irecv(b, gmpi.ANY_SOURCE, gmpi.ANY_TAG) for b in rooms]
    for k in range(5):
        g.host.Send(np.arange(70, dtype=np.float32) + k, NEXT, k)
    for k, status in enumerate(g.host.Waitall(requests)):
        assert (status.source, status.tag, status.count) == (PREVIOUS, k, 70)
        same(rooms[k], np.arange(70, dtype=np.float32) + k, "floats")
    assert g.host.Recv(np.zeros(3), gmpi.PROC_NULL).source == gmpi.PROC_NULL
    g.host.Send(np.zeros(3), gmpi.PROC_NULL)


def kernel_to_host_and_back(g: gmpi.Context) -> None:
    """The host of each rank echoes, one byte turned, what the next rank's kernel sends."""
    for k, n in enumerate(sizes(g)):
        s = Script(threads=64)
        room = s.room(n)
        out = s.data(pattern(n, RANK + k))
        back = s.irecv(room, n, gmpi.BYTE, PREVIOUS, 200 + k)
        sent = s.isend(out, n, gmpi.BYTE, PREVIOUS, 100 + k)
        waits = [s.wait(sent), s.wait(back)]

        def echo(k: int = k, n: int = n) -> None:
            b = np.zeros(n, np.uint8)
            status = g.host.Recv(b, NEXT, 100 + k)
            assert (status.source, status.nbytes) == (NEXT, n)
            g.host.Send(b ^ np.uint8(255), NEXT, 200 + k)

        in_thread(echo, lambda s=s: s.run(g))
        assert waits[1].status == (gmpi.SUCCESS, PREVIOUS, 200 + k, n, n)
        s.expect(room, pattern(n, RANK + k) ^ np.uint8(255), f"{n} bytes")


def derived_datatypes(g: gmpi.Context) -> None:
    """Host to host and between hosts and kernels; committed with MPI, with the context, or not."""
    for rows in (5, 4000):
        column = MPI.INT32_T.Create_vector(rows, 1, 6).Create_resized(0, 4)
        handle = g.commit(column)
        mine, theirs = numbered(RANK, rows), numbered(PREVIOUS, rows)
        for datatype in (column, column.Dup().Commit(), handle):
            grid = np.full((rows, 6), -1, np.int32)
            request = g.host.Irecv([grid, (2, 3), datatype], PREVIOUS, 1)
            g.host.Send([mine, 2, datatype], NEXT, 1)
            status = request.Wait()
            assert (status.count, status.nbytes) == (2, 8 * rows)
            same(grid[:, 3:5], theirs[:, :2], "columns 0 and 1 into 3 and 4")
            assert (grid[:, :3] == -1).all() and (grid[:, 5] == -1).all()
        # Another shape on the other side, and a message that is too short, or too long.
        flat = np.full(2 * rows, -1, np.int32)
        request = g.host.Irecv([flat, None, gmpi.INT32_T], PREVIOUS, 2)
        g.host.Send([mine, 2, column], NEXT, 2)
        assert request.Wait().count == 2 * rows
        same(flat.reshape(2, rows), theirs[:, :2].T, "columns one after the other")
        request = g.host.Irecv([grid, 3, column], PREVIOUS, 3)
        g.host.Send(flat[: rows + 1], NEXT, 3)
        status = request.Wait()
        assert (status.count, status.nbytes) == (gmpi.UNDEFINED, 4 * rows + 4)
        same(grid[:, 0], numbered((RANK - 2) % SIZE, rows)[:, 0], "the column that is complete")
        request = g.host.Irecv([grid, 1, column], PREVIOUS, 4)
        g.host.Send([mine, 2, column], NEXT, 4)
        try:
            request.Wait()
            raise AssertionError("no error")
        except gmpi.TruncationError as exc:
            assert exc.value == 8 * rows
        same(grid[:, 0], theirs[:, 0], "what fits")
        # A kernel on the other side: it receives a column, and sends one back.
        s = Script()
        room = s.room(4 * rows)
        s.wait(s.irecv(room, rows, gmpi.INT32_T, PREVIOUS, 5))
        s.send(s.data(mine[:, 0].copy()), rows, gmpi.INT32_T, NEXT, 6)
        back = np.full((rows, 6), -1, np.int32)
        from_kernel = g.host.Irecv([back, (1, 5), handle], PREVIOUS, 6)
        sent = g.host.Isend([mine, (1, 4), handle], NEXT, 5)
        both = [sent, from_kernel]
        in_thread(lambda both=both: g.host.Waitall(both), lambda s=s: s.run(g))
        s.expect(room, theirs[:, 4].copy(), "a column of the host")
        same(back[:, 5], theirs[:, 0], "a column for the host")
        b = mine.copy() if RANK == 0 else np.full((rows, 6), -1, np.int32)
        g.host.Bcast([b, (1, 2), column])
        same(b[:, 2], numbered(0, rows)[:, 2], "broadcast of a column")
        assert RANK == 0 or (b[:, 3] == -1).all()
        g.free(handle)
        column.Free()


def numbered(rank: int, rows: int) -> np.ndarray:
    return np.arange(rows * 6, dtype=np.int32).reshape(rows, 6) + 1000 * rank


def truncation(g: gmpi.Context) -> None:
    eager = g.layout.eager_bytes
    for n, m in ((100, 10), (eager + 1, 0), (4 * eager, eager), (4 * eager, 2 * eager + 1)):
        room = np.zeros(m, np.uint8)
        request = g.host.Irecv(room, PREVIOUS, 1)
        g.host.Send(pattern(n, RANK), NEXT, 1)
        try:
            request.Wait()
            raise AssertionError("no error")
        except gmpi.TruncationError as exc:
            assert f"the message from rank {PREVIOUS} with tag 1 is longer than" in str(exc)
            assert f"{m} bytes were delivered" in str(exc)
            assert (exc.operation, exc.field, exc.value) == ("Irecv", "message length", n)
            assert (exc.allowed, exc.block) == (f"at most {m} bytes", -1)
            assert exc.error_class == gmpi.ERR_TRUNCATE
        same(room, pattern(n, PREVIOUS)[:m], f"{n} bytes into {m}")


def collectives(g: gmpi.Context) -> None:
    """Ranks with even numbers take part with kernels, the others with the host."""
    for n in (0, 1, 18, g.layout.eager_bytes // 8, 3 * g.layout.eager_bytes // 8 + 1):
        mine = np.arange(n, dtype=np.int64) + RANK
        expected = sum(np.arange(n, dtype=np.int64) + r for r in range(SIZE))
        content = pattern(8 * n, 3)
        root = SIZE - 1
        if RANK % 2 == 0:
            s = Script()
            total, kept = s.room(8 * n), s.data(mine)
            b = s.data(content) if root == RANK else s.room(8 * n)
            s.barrier()
            s.allreduce(s.data(mine), total, n, gmpi.INT64_T, gmpi.SUM)
            s.in_place(kept, n, gmpi.INT64_T, gmpi.SUM)
            s.bcast(b, 8 * n, gmpi.BYTE, root)
            s.run(g)
            s.expect(total, expected, f"{n} longs")
            s.expect(kept, expected, f"{n} longs in place")
            s.expect(b, content)
        else:
            total = np.zeros(n, np.int64)
            g.host.Barrier()
            g.host.Allreduce(mine, total)
            same(total, expected, f"{n} longs")
            g.host.Allreduce(gmpi.IN_PLACE, mine, gmpi.SUM)
            same(mine, expected, f"{n} longs in place")
            b = content.copy() if root == RANK else np.zeros(8 * n, np.uint8)
            g.host.Bcast(b, root)
            same(b, content, "broadcast")


def on_another_communicator(g: gmpi.Context) -> None:
    reverse = WORLD.Split(0, -RANK)
    handle = g.comm(reverse)
    room, other = np.zeros(4), np.zeros(4)
    on_world = g.host.Irecv(other, PREVIOUS, 5)
    there = g.host.Irecv(room, (reverse.rank - 1) % SIZE, 5, handle)
    g.host.Send(np.full(4, 10.0 + reverse.rank), (reverse.rank + 1) % SIZE, 5, handle)
    g.host.Send(np.full(4, 20.0 + RANK), NEXT, 5)
    there.Wait()
    on_world.Wait()
    same(room, np.full(4, 10.0 + (reverse.rank - 1) % SIZE), "reversed communicator")
    same(other, np.full(4, 20.0 + PREVIOUS), "world")
    reverse.Free()


def user_traffic_stays_apart(g: gmpi.Context) -> None:
    """Messages of mpi4py on the same communicator are not matched by GMPI, nor the reverse."""
    room, other = np.zeros(4), np.zeros(4)
    plain = WORLD.Irecv(other, PREVIOUS, 6)
    ours = g.host.Irecv(room, gmpi.ANY_SOURCE, gmpi.ANY_TAG)
    WORLD.Send(np.full(4, 1.0), NEXT, 6)
    g.host.Send(np.full(4, 2.0), NEXT, 6)
    plain.Wait()
    ours.Wait()
    assert other[0] == 1.0 and room[0] == 2.0


VIEW = (
    "a strided view: shape (4,), strides (16,) bytes, elements of 8 bytes, allowed is a contiguous "
    "array"
)


def wrong_buffers(g: gmpi.Context) -> None:
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    for call, text in (
        (lambda: g.host.Send(np.zeros(8)[::2], NEXT), f"buf is {VIEW}; pass numpy.ascontiguousa"),
        (lambda: g.host.Recv(np.zeros(8)[::2], NEXT), f"buf is {VIEW}; receive into an array of"),
        (lambda: g.host.Bcast(np.zeros(8)[::2], 0), "or pass [the whole array, count, a derived"),
        (lambda: g.host.Allreduce(np.zeros(8)[::2], np.zeros(4)), f"sendbuf is {VIEW}; pass numpy"),
        (lambda: g.host.Recv(frozen, PREVIOUS), "buf is read-only: pass a writable array"),
        (lambda: g.host.Allreduce(np.zeros(2), np.zeros(3)), "sendbuf has 16 bytes, recvbuf 24"),
    ):
        try:
            call()
            raise AssertionError(f"no error: {text}")
        except ValueError as exc:
            assert text in str(exc), exc
    g.host.Barrier()


def wrong_arguments(g: gmpi.Context) -> None:
    """All are one family, are raised before MPI sees anything, and say what is allowed."""
    data, host = np.zeros(4), g.host
    high = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB))
    for call, field, value, error_class in (
        (lambda: host.Isend(data, SIZE), "dest", SIZE, gmpi.ERR_RANK),
        (lambda: host.Isend(data, gmpi.ANY_SOURCE), "dest", gmpi.ANY_SOURCE, gmpi.ERR_RANK),
        (lambda: host.Isend(data, 0, -3), "tag", -3, gmpi.ERR_TAG),
        (lambda: host.Isend(data, 0, gmpi.ANY_TAG), "tag", gmpi.ANY_TAG, gmpi.ERR_TAG),
        (lambda: host.Irecv(data, -7), "source", -7, gmpi.ERR_RANK),
        (lambda: host.Recv(data, 0, high + 1), "tag", high + 1, gmpi.ERR_TAG),
        (lambda: host.Send(data, "0"), "dest", "0", gmpi.ERR_RANK),
        (lambda: host.Send(data, 0, 1.5), "tag", 1.5, gmpi.ERR_TAG),
        (lambda: host.Sendrecv(data, SIZE, 0, data), "dest", SIZE, gmpi.ERR_RANK),
        (lambda: host.Sendrecv(data, 0, -3, data), "sendtag", -3, gmpi.ERR_TAG),
        (lambda: host.Bcast(data, SIZE), "root", SIZE, gmpi.ERR_ROOT),
        (lambda: host.Allreduce(data, data.copy(), 77), "op", 77, gmpi.ERR_OP),
        (lambda: host.Send([data, -1], 0), "buf", -1, gmpi.ERR_COUNT),
        (lambda: host.Send([data, 1, "no such"], 0), "buf", "no such", gmpi.ERR_TYPE),
    ):
        try:
            call()
            raise AssertionError(f"no error: {field} {value}")
        except gmpi.ArgumentError as exc:
            assert (exc.field, exc.value, exc.error_class) == (field, value, error_class), exc
            assert " in host: " in str(exc) and "allowed is" in str(exc), exc
            wrong_type = value in ("0", 1.5)
            assert exc.block == -1 and isinstance(exc, TypeError) == wrong_type, repr(exc)
    for call in (
        lambda: host.Send(np.array([None]), 0),
        lambda: host.Allreduce(np.zeros(2, np.float16), np.zeros(2, np.float16)),
        lambda: host.Allreduce(np.zeros(2, np.float32), np.zeros(2, np.int32)),
        lambda: host.Send([data, 9, MPI.DOUBLE], 0),
        lambda: host.Send(data, 0, comm="world"),
        lambda: host.Send(data, 0, comm=99),
        lambda: host.Allreduce(7, data),
    ):
        try:
            call()
            raise AssertionError("no error")
        except gmpi.GMPIError:
            pass
    assert not g._host_progress.open, "something was started"
    g.host.Barrier()


def statuses(g: gmpi.Context) -> None:
    """mpi4py's names do what they do there."""
    host = g.host
    rooms = [np.zeros(6, np.float32) for _ in range(3)]
    requests = [host.Irecv(b, PREVIOUS, 20 + k) for k, b in enumerate(rooms)]
    assert not host.Testall(requests) and host.Testany(requests) == (gmpi.UNDEFINED, False)
    g.host.Barrier()
    host.Send(np.full(2, 5, np.float32), NEXT, 21)
    status = MPI.Status()
    assert host.Waitany(requests, status) == 1
    assert (status.Get_source(), status.Get_tag(), status.Get_error()) == (PREVIOUS, 21, 0)
    assert status.Get_count(MPI.FLOAT) == 2 and status.Get_count(MPI.BYTE) == 8
    found = requests[1].Wait()
    assert (found.Get_source(), found.Get_tag(), found.Get_error()) == (PREVIOUS, 21, 0)
    counts = found.Get_count(), found.Get_count(MPI.FLOAT), found.Get_count(gmpi.DOUBLE)
    assert counts == (8, 2, 1) and found.Get_count(MPI.Datatype.fromcode("i")) == 2
    g.host.Barrier()
    host.Send(np.zeros(1, np.float32), NEXT, 20)
    host.Send(np.zeros(3, np.float32), NEXT, 22)
    filled: list[MPI.Status] = []
    assert [s.count for s in host.Waitall(requests, filled)] == [1, 2, 3]
    assert [s.Get_count(MPI.FLOAT) for s in filled] == [1, 2, 3]
    assert host.Testall(requests) and host.Waitany(requests) == gmpi.UNDEFINED
    assert host.Testany(requests) == (gmpi.UNDEFINED, True)
    cancelled = host.Irecv(rooms[0], PREVIOUS, 29)
    cancelled.Cancel()
    assert cancelled.Wait().nbytes == 0
    # One that fails does not keep the others from ending.
    requests = [host.Irecv(rooms[k][: 6 * k], PREVIOUS, 30) for k in (0, 1)]
    for _ in range(2):
        host.Send(np.ones(6, np.float32), NEXT, 30)
    filled = [MPI.Status() for _ in requests]
    try:
        host.Waitall(requests, filled)
        raise AssertionError("no error")
    except gmpi.TruncationError:
        assert [s.Get_error() for s in filled] == [gmpi.ERR_TRUNCATE, gmpi.SUCCESS]
    assert rooms[1].all() and not g._host_progress.open


def waits_end() -> None:
    """By an abort and by the time limit; the report names the call, and why it waits."""
    if SIZE == 1:
        return
    limit = 0.5 * TIME_FACTOR
    for ends in ("abort", "timeout"):
        g = gmpi.Context(WORLD, gpu=False, watchdog_s=0, timeout_s=limit * (ends == "timeout"))
        other = g.comm(WORLD)
        g.host.Barrier()
        if ends == "abort":
            threading.Timer(0.2, g.abort).start()
        room = np.zeros(70_000, np.uint8)
        began = time.monotonic()
        try:
            if RANK == 0:
                g.host.Barrier(other)
            else:
                g.host.Recv(room, 0, 7)
            raise AssertionError("nothing was raised")
        except gmpi.AbortedError:
            assert ends == "abort"
        except gmpi.RequestTimeoutError as exc:
            assert ends == "timeout"
            assert exc.report.causes and exc.report.ranks[RANK], exc
            mine = exc.report.ranks[RANK].lines()
            words = "Context.host.Recv from 0 tag 7, 70000 BYTE on COMM_WORLD (70000 bytes, host"
            assert RANK == 0 or any(words in line for line in mine), exc.report.text
            assert RANK != 0 or any("Context.host.Barrier on " in line for line in mine)
        assert time.monotonic() - began < 10 * TIME_FACTOR, ends
        barrier()  # nobody's watchdog may go before all have asked
        kind = gmpi.AbortedError if ends == "abort" else gmpi.RequestTimeoutError
        for comm in (gmpi.COMM_WORLD, other):
            try:
                g.host.Barrier(comm)
                raise AssertionError("a call after the end")
            except kind:
                pass
        g.close()
        # Waits that make progress are no hang, however long they take.
    with gmpi.Context(WORLD, gpu=False, watchdog_s=0, timeout_s=0.6) as g:
        for k in range(16):
            time.sleep(0.1)
            g.host.Sendrecv(room, NEXT, k, room.copy(), PREVIOUS, k)


def only_rank_0_has_no_kernel() -> None:
    """A master that serves kernels of the others: the issue's I/O rank."""
    with gmpi.Context(WORLD, gpu=RANK != 0) as g:
        n = 3000
        if RANK == 0:
            for _ in range(SIZE - 1):
                b = np.zeros(n, np.int32)
                status = g.host.Recv(b, gmpi.ANY_SOURCE, 1)
                assert status.count == n
                g.host.Send(b * 2, status.source, 2)
        else:
            s = Script()
            room = s.room(4 * n)
            mine = np.arange(n, dtype=np.int32) + RANK
            s.send(s.data(mine), n, gmpi.INT, 0, 1)
            s.recv(room, n, gmpi.INT, 0, 2)
            s.run(g)
            s.expect(room, 2 * mine)
        g.host.Barrier()


def main() -> None:
    settings = {"eager_bytes": 256, "chunk_bytes": 512} if "--small" in sys.argv else {}
    with gmpi.Context(WORLD, **settings) as g:
        scenarios = [
            host_to_host, kernel_to_host_and_back, derived_datatypes, truncation,
            truncated_by_the_host, collectives, on_another_communicator,
            user_traffic_stays_apart, wrong_buffers,
            wrong_arguments, statuses,
        ]  # fmt: skip
        run(scenarios, g)
    run([only_rank_0_has_no_kernel, waits_end])
    end()


main()
