"""Calls of grid scope: all threads of all blocks make them together. On each road; --direct: GPUs
among themselves."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, end, every_shape, on_device, pattern, raises, run, same
from mpi4py import MPI
from numba import cuda
from script import Script

import gmpi
from gmpi import (
    GMPI_Barrier_grid,
    GMPI_Irecv_grid,
    GMPI_Isend_grid,
    GMPI_Recv,
    GMPI_Recv_grid,
    GMPI_Send,
    GMPI_Send_grid,
    GMPI_Waitall_grid,
    GMPI_Waitany_grid,
)
from gmpi.contract.channels import (
    MOST_BUFFERS,
    PART_BYTES,
    ROOM,
    STAGED_BYTES,
    WIDE_ROOM,
)
from gmpi.contract.grid import COMMAND
from gmpi.contract.wire import DEVICE_GRID
from gmpi.lifetime import watchdog

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
WILDCARDS = False if "--direct" in sys.argv else None
SIZES = [0, 8, 385, ROOM, ROOM + 1, WIDE_ROOM, WIDE_ROOM + 1, 2 * PART_BYTES + 1]
if every_shape():
    SIZES += [STAGED_BYTES + PART_BYTES + 5, 2 * STAGED_BYTES]


def grid_script(threads: int = 32, blocks: int = 3) -> Script:
    return Script("grid", threads, blocks=blocks)


def messages_of_all_lengths(g: gmpi.Context) -> None:
    """Sent and received by all blocks; into as much room as they have, and into less."""
    for part, blocks, threads in ((1.0, 3, 64), (0.6, 2, 20)):
        s = grid_script(threads, blocks)
        rooms = [s.room(int(part * n)) for n in SIZES]
        requests = [s.irecv(b, b.nbytes, gmpi.BYTE, PREVIOUS, 8) for b in rooms]
        requests += [
            s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, 8)
            for k, n in enumerate(SIZES)
        ]
        done = s.waitall(requests)
        s.launch(g)
        if part < 1:
            raises(gmpi.TruncationError, "", lambda s=s: s.collect(g))
            s.read_back()
            assert done.error == gmpi.ERR_TRUNCATE
        else:
            s.collect(g)
        for k, (n, room) in enumerate(zip(SIZES, rooms)):
            content = pattern(n, PREVIOUS + k)[: room.nbytes]
            s.expect(room, content, f"{n} bytes into {room.nbytes}")
            status = done.statuses[k]
            cut = room.nbytes < n
            assert status.error == (gmpi.ERR_TRUNCATE if cut else gmpi.SUCCESS)
            assert (status.source, status.tag, status.nbytes) == (PREVIOUS, 8, min(n, room.nbytes))


def every_call(g: gmpi.Context) -> None:
    """Each gives the same in all threads of all blocks (``Script`` compares them)."""
    s = grid_script()
    s.barrier()
    s.recv(s.room(4), 4, gmpi.BYTE, gmpi.PROC_NULL, 1)
    s.send(s.room(4), 4, gmpi.BYTE, gmpi.PROC_NULL, 1)
    own = s.irecv(s.room(100), 100, gmpi.BYTE, RANK, 2)
    s.send(s.data(pattern(100, RANK)), 100, gmpi.BYTE, RANK, 2)
    tested = s.test_until(own)
    room = s.room(40)
    exchanged = s.sendrecv(
        s.data(pattern(40, RANK)), 40, gmpi.BYTE, NEXT, 3, room, 40, PREVIOUS, 3
    )  # fmt: skip
    two = [s.irecv(s.room(9), 9, gmpi.BYTE, PREVIOUS, tag) for tag in (4, 5)]
    s.send(s.data(pattern(9, 1)), 9, gmpi.BYTE, NEXT, 5)
    first = s.waitany(two[0], 2)
    s.send(s.data(pattern(9, 2)), 9, gmpi.BYTE, NEXT, 4)
    second = s.waitany(two[0], 2)
    none = s.waitany(two[0], 2)
    ones = np.arange(300.0)
    total, later = s.room(2400), s.room(8)
    s.allreduce(s.data(ones), total, 300, gmpi.DOUBLE, gmpi.SUM)
    s.wait(s.iallreduce(s.data(np.array([RANK])), later, 1, gmpi.INT64_T, gmpi.MAX))
    told = s.room(5000)
    if RANK == SIZE - 1:
        s.fill(told, pattern(5000, 7))
    s.bcast(told, 5000, gmpi.BYTE, SIZE - 1)
    s.synchronize()
    wrong = s.send(s.room(8), 8, gmpi.BYTE, SIZE, 3)
    s.launch(g)
    raises(gmpi.ArgumentError, "dest is", lambda: s.collect(g))
    s.collect(g)
    assert wrong.error == gmpi.ERR_RANK
    assert tested.flag >= 1 and tested.status.nbytes == 100
    s.expect(room, pattern(40, PREVIOUS))
    assert exchanged.status.source == PREVIOUS
    assert first.flag in (0, 1) and second.flag == 1 - first.flag and none.flag == -1
    s.expect(total, SIZE * ones)
    s.expect(later, np.array([SIZE - 1]))
    s.expect(told, pattern(5000, 7))


def all_blocks_move(g: gmpi.Context) -> None:
    """A long message on the direct road: its leader has given the others jobs."""
    if not g._memory.direct or WILDCARDS is None or RANK > 1:
        return
    rounds = 3 if every_shape() else 2
    n = (rounds - 1) * (STAGED_BYTES << MOST_BUFFERS) // 2 + 5
    s = grid_script()
    room = s.room(n)
    if RANK == 0:
        s.send(s.data(pattern(n, 4)), n, gmpi.BYTE, (RANK + 1) % min(SIZE, 2), 9)
    else:
        s.recv(room, n, gmpi.BYTE, 0, 9)
    before = commands(g)
    s.run(g)
    assert commands(g) - before >= rounds + 1, "a job for each round, and the result"
    if RANK == 1:
        s.expect(room, pattern(n, 4))


def commands(g: gmpi.Context) -> int:
    """How many commands a leader has given, results included."""
    return int(g._memory.read_device(DEVICE_GRID + COMMAND + 8, 8).view(np.int64)[0])


@cuda.jit
def between_scopes(ctx: Any, out: Any, room: Any, n: int, to: int, source: int, found: Any) -> None:
    """What all blocks have stored is sent to one block, and the reverse."""
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    while i < n:
        out[i] += 1
        i += cuda.gridsize(1)
    sent = GMPI_Isend_grid(ctx, out, n, gmpi.INT64_T, to, 1, gmpi.COMM_WORLD)
    if cuda.blockIdx.x == 1:
        GMPI_Recv(ctx, room, n, gmpi.INT64_T, source, 1, gmpi.COMM_WORLD)
    GMPI_Waitall_grid(ctx, 1, (sent,))
    i = cuda.grid(1)
    while i < n:
        out[i] += 1
        i += cuda.gridsize(1)
    received = GMPI_Irecv_grid(ctx, room[n:], n, gmpi.INT64_T, source, 2, gmpi.COMM_WORLD)
    grid.sync()
    if cuda.blockIdx.x == 2:
        GMPI_Send(ctx, out, n, gmpi.INT64_T, to, 2, gmpi.COMM_WORLD)
    own = cuda.local.array(2, np.int64)
    own[0] = received
    own[1] = gmpi.REQUEST_NULL
    index, status = GMPI_Waitany_grid(ctx, 2, own)
    i = cuda.grid(1)
    total = 0
    while i < n:  # all blocks see all of it
        total += room[n + n - 1 - i]
        i += cuda.gridsize(1)
    cuda.atomic.add(found, 0, total)
    if own[0] == gmpi.REQUEST_NULL and index == 0 and status.nbytes == 8 * n:
        cuda.atomic.add(found, 1, 1)


def other_scopes(g: gmpi.Context) -> None:
    for n, threads in ((3, 32), (3, 64), (2000, 33), (40_000, 64)):
        out, room = on_device(np.arange(n) + RANK), on_device(np.zeros(2 * n, np.int64))
        found = on_device(np.zeros(2, np.int64))
        between_scopes[3, threads](g.device, out, room, n, NEXT, PREVIOUS, found)
        g.synchronize()
        first = np.arange(n) + PREVIOUS + 1
        same(room, np.concatenate([first, first + 1]), f"{n} words")
        same(found, np.array([(first + 1).sum(), 3 * threads]), "what all blocks have seen")


@cuda.jit
def transposes(ctx: Any, a: Any, b: Any, derived: int, n: int, to: int, source: int) -> None:
    r = GMPI_Irecv_grid(ctx, b, n, derived, source, 1, gmpi.COMM_WORLD)
    s = GMPI_Isend_grid(ctx, a[1:, 2:], a[1:, 2:].size, gmpi.FLOAT, to, 1, gmpi.COMM_WORLD)
    GMPI_Waitall_grid(ctx, 2, (r, s))


def strided_and_derived(g: gmpi.Context) -> None:
    """A slice that becomes columns, of one part of a message and of several."""
    for rows, columns in ((5, 9), (200, 300)):
        a = np.arange((rows + 1) * (columns + 2), dtype=np.float32).reshape(rows + 1, -1) + RANK
        column = MPI.FLOAT.Create_vector(columns, 1, rows).Create_resized(0, 4).Commit()
        handle = g.commit(column)
        b = on_device(np.zeros((columns, rows), np.float32))
        transposes[3, 32](g.device, on_device(a), b, handle, rows, NEXT, PREVIOUS)
        g.synchronize()
        same(b, (a - RANK + PREVIOUS)[1:, 2:].T, f"{rows} x {columns}")
        g.free(handle)


@cuda.jit
def some_blocks(ctx: Any, missing: int, sends_first: bool, buf: Any, errors: Any) -> None:
    if cuda.blockIdx.x != missing:
        if sends_first:
            request = GMPI_Isend_grid(ctx, buf, 8, gmpi.BYTE, RANK, 3, gmpi.COMM_WORLD)
            errors[0, cuda.grid(1)] = request & 0xFF  # of one that is over: its error class
        else:
            errors[0, cuda.grid(1)] = GMPI_Barrier_grid(ctx, gmpi.COMM_WORLD)
        # As many have come now as a call needs, one of them twice: it must not begin.
        status = GMPI_Send_grid(ctx, buf, buf.size, gmpi.BYTE, RANK, 3, gmpi.COMM_WORLD)
        errors[1, cuda.grid(1)] = status.error


def blocks_that_never_come() -> None:
    """Whichever it is, the report says it, and the others end. Of blocks of 64 threads one warp
    waits for the others while another one begins with the call."""
    watchdog.POLL_S = 0.05
    for missing, threads in ((0, 32), (2, 32), (2, 64)):
        with gmpi.Context(WORLD, watchdog_s=0, timeout_s=0.6, wildcards=WILDCARDS) as g:
            errors = on_device(np.zeros((2, 3 * threads), np.int64))
            buf = on_device(np.zeros(WIDE_ROOM, np.uint8))
            some_blocks[3, threads](g.device, missing, threads > 32, buf, errors)
            found = raises(gmpi.RequestTimeoutError, "", g.synchronize)
            assert "2 of the grid's 3 blocks have come" in str(found), found
            wanted = np.full(3 * threads, gmpi.GMPI_ERR_TIMEOUT)
            wanted[threads * missing : threads * missing + threads] = 0
            same(errors, np.array([wanted, wanted]), "errors")


@cuda.jit
def from_shared(ctx: Any, to: int, errors: Any) -> None:
    own = cuda.shared.array(4, np.int64)
    status = GMPI_Send_grid(ctx, own[1:], 2, gmpi.INT64_T, to, 1, gmpi.COMM_WORLD)
    errors[0] = status.error


def shared_memory_is_refused() -> None:
    """Other blocks cannot read it."""
    with gmpi.Context(WORLD, wildcards=WILDCARDS) as g:
        errors = on_device(np.zeros(1, np.int64))
        if gmpi.SIMULATOR:
            text = "GMPI_Send_grid: buf is shared memory of a block"
            raises(gmpi.UsageError, text, lambda: from_shared[2, 32](g.device, RANK, errors))
        else:
            from_shared[2, 32](g.device, RANK, errors)
            raises(gmpi.ArgumentError, "private to a thread, or to a block", g.synchronize)


def aborted_in_a_wait() -> None:
    """All blocks get the same. A Barrier on the direct road to which all ranks come at once is
    through before it looks at host memory."""
    with gmpi.Context(WORLD, watchdog_s=0, timeout_s=0.6, wildcards=WILDCARDS) as g:
        s = grid_script()
        call = s.recv(s.room(8), 8, gmpi.BYTE, PREVIOUS, 7)
        after = s.barrier()
        s.launch(g)
        found = raises(gmpi.RequestTimeoutError, "", lambda: s.collect(g))
        assert f"GMPI_Recv from {PREVIOUS} tag 7" in str(found), found
        s.read_back()
        assert call.error == gmpi.GMPI_ERR_TIMEOUT
        assert after.error in (gmpi.GMPI_ERR_TIMEOUT, call.error if WILDCARDS else gmpi.SUCCESS)


@cuda.jit
def ping_pong(ctx: Any, buf: Any, n: int, peer: int, first: int, times: int) -> None:
    for _ in range(times):
        if first:
            GMPI_Send_grid(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        GMPI_Recv_grid(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        if not first:
            GMPI_Send_grid(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)


def launches_of_other_shapes(g: gmpi.Context) -> None:
    """What one launch has left does not disturb the next one."""
    if RANK > 1:
        return
    for blocks, threads in ((1, 40), (4, 33), (2, 1), (3, 64)):
        data = pattern(6000, 3)
        buf = on_device(data if RANK == 0 else np.zeros_like(data))
        ping_pong[blocks, threads](g.device, buf, 6000, (RANK + 1) % min(SIZE, 2), RANK == 0, 3)
        g.synchronize()
        same(buf, data, f"{blocks} blocks of {threads}")


def main() -> None:
    with gmpi.Context(WORLD, wildcards=WILDCARDS) as g:
        scenarios = [messages_of_all_lengths, every_call, other_scopes, strided_and_derived]
        if SIZE == 2:  # of two ranks however many there are, or the same on each
            scenarios.append(all_blocks_move)
            scenarios.append(launches_of_other_shapes)
        run(scenarios, g)
    if SIZE <= 2:
        shared_memory_is_refused()
        blocks_that_never_come()
    aborted_in_a_wait()
    end()


main()
